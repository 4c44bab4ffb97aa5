// run_spec(): the iteration of a model that a spec describes (DLRM or transformer), on each rank that
// differs: the stages of a pipeline, and ranks that own different parameters.
//
//   Result<SpecRun> run = run_spec(request);
//   run->heaviest.peak();
//
// tensor x pipeline x context trainers hold one replica of a transformer and process its batch together. The
// remaining trainers hold further replicas, synchronized by parallelism.strategy. Parameters are also equal among
// the trainers of a context group, so the strategy shards over these too. Experts are distributed over `expert`
// replicas. Pure; any thread.
#pragma once

#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "estimator/estimate/floor.h"
#include "estimator/estimate/spec_parts.h"
#include "estimator/execute/trace_run.h"
#include "estimator/ledger/ledger.h"
#include "estimator/spec/record.h"
#include "estimator/spec/transformer_spec.h"
#include "estimator/types/request.h"

namespace plimsoll::estimator::inline estimate {

struct SpecRun {
  Ledger heaviest;               // of the rank with the highest peak
  std::vector<Bytes> allocated;  // peaks of the ranks that differ: ranks of a replica, stage by stage
  Bytes dense_parameters;        // of the whole model
  std::vector<LiveTensor> largest_live{};  // of `heaviest` at its peak, at most ten
  MemoryFloor floor{};  // of that rank; where parameters are gathered, only of a run without padding
  HostMemory host{};    // of that rank
  // What that rank shares with others, and what its model has only while it is made (Making::dropped).
  std::optional<TraceRun::Replicated> replicated{};
  Bytes dropped{};
  bool beyond_any_machine = false;
  std::vector<std::string> warnings{};
};

// A spec does not name a PyTorch version: this is the newest one that the rules were verified with.
inline constexpr TorchVersion kSpecTorchVersion = 215;
// training.torchVersion, or the newest that is known.
TorchVersion spec_torch_version(const crds::TrainingSpec& training);

// FSDP's MixedPrecision, DeepSpeed and Megatron-LM compute in half precision throughout and keep an fp32 copy for the
// optimizer, while torch.autocast casts operator by operator.
bool casts_parameters(const crds::TrainingSpec& training);
// What such a training computes in.
void compute_in_half(crds::TrainingSpec& training);

// The gradients of an iteration are there in the next one's forward: zero_grad(set_to_none=False), which was its default
// before PyTorch 2.0 (torch/optim/optimizer.py). Of a graph, whose loop is taken to free them unless it is said.
bool keeps_gradients(const crds::TrainingSpec& training, bool has_graph);

// Of FSDP in mixed precision: accelerate's and Lightning's FSDP1 reduce in the computation's precision, torchtitan's FSDP2 in fp32.
bool reduces_in_half(const crds::Parallelism& parallelism);

// Megatron-LM's Adam and SGD are fused, Transformer Engine's or Apex's (megatron/core/optimizer/__init__.py), unless the job
// says another implementation.
crds::OptimizerImplementation trained_implementation(const crds::TrainingSpec& training);

// Forward runs under torch.autocast, which keeps its copies of the weights until it ends (RecordOptions::caches_casts).
bool caches_casts(const crds::TrainingSpec& training);

// The transformer that is trained. Errors: those of transformer_spec().
Result<TransformerSpec> trained_spec(const EstimateRequest& request);

// The trace of the whole model on one trainer. Errors: those of run_spec().
Result<Recording> record_whole(const EstimateRequest& request, std::int64_t batch);

// Errors: kInvalid naming the field (impossible sizes, or parts that do not divide the trainers);
// kUnsupported for an optimizer implementation that PyTorch lacks.
Result<SpecRun> run_spec(const EstimateRequest& request);
// The same for a transformer with the sizes `spec` instead of the request's model; null for a DLRM.
// `known`: parts of earlier runs of this model, which this adds to.
Result<SpecRun> run_spec(const EstimateRequest& request, const TransformerSpec* spec,
                         KnownSpecParts* known = nullptr);

// Requests that differ only in the GPU, the embeddings or the number of trainers have equal runs if this
// number and has_flash() are equal.
std::int64_t trainers_that_matter(const EstimateRequest& request);

// TransformerPart's: whether the card runs PyTorch's flash kernels, which demand compute capability 8.0 (sdp_utils.cpp:
// check_flash_attention_hardware_support). True where that is not known, or no such kernel is asked for.
bool has_flash(const EstimateRequest& request);

// The trainers that hold the same part of the model, each for other samples or other tokens.
std::int64_t holders_of(const crds::Parallelism& parallelism, std::int64_t trainers);

}  // namespace plimsoll::estimator::estimate
