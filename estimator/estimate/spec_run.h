// run_spec(): the iteration of a model that a spec describes (DLRM or transformer), on each rank that
// differs: the stages of a pipeline, and ranks that own different parameters.
//
//   Result<SpecRun> run = run_spec(request);
//   run->heaviest.peak();
//
// tensor x pipeline x context trainers hold one replica of a transformer and process its batch together. The
// remaining trainers hold further replicas, synchronized by parallelism.strategy. Experts are distributed
// over `expert` replicas. Pure; any thread.
#pragma once

#include <vector>

#include "base/bytes.h"
#include "base/result.h"
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
  bool beyond_any_machine = false;
};

// A spec does not name a PyTorch version: this is the newest one that the rules were verified with.
inline constexpr TorchVersion kSpecTorchVersion = 215;

// The trace of the whole model on one trainer. Errors: those of run_spec().
Result<Recording> record_whole(const EstimateRequest& request, std::int64_t batch);

// Errors: kInvalid naming the field (impossible sizes, or parts that do not divide the trainers);
// kUnsupported for an optimizer implementation that PyTorch lacks.
Result<SpecRun> run_spec(const EstimateRequest& request);
// The same for a transformer with the sizes `spec` instead of the request's model; null for a DLRM.
Result<SpecRun> run_spec(const EstimateRequest& request, const TransformerSpec* spec);

// Requests that differ only in the GPU, the embeddings or the number of trainers have equal runs if this
// number is equal.
std::int64_t trainers_that_matter(const EstimateRequest& request);

}  // namespace plimsoll::estimator::estimate
