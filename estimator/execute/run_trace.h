// run_trace(): executes a trace symbolically for a batch size, an optimizer and a checkpointing policy. The
// result is a Ledger: every block that the iteration allocates and frees, in order.
//
//   Result<TraceRun> run = run_trace(trace, producer, {.batch = 64, .optimizer = crds::Optimizer::kAdamW});
//   run->ledger.peak();
//   run->name_of(block);   // "layers.3.mlp: aten::addmm"
//
// It simulates one steady-state iteration: gradients set to none, forward, loss, backward, optimizer step. A
// storage is live until both Python and autograd have freed it, as recorded. The temporaries of kernels come
// from kernels/rules.h, the optimizer from trace/optimizer.h. Pure; any thread. The trace must outlive the
// run.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "crds/training_job.h"
#include "estimator/ledger/ledger.h"
#include "estimator/parallel/life_cycle.h"
#include "estimator/parallel/schedule.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline execute {

struct TraceRunRequest {
  std::int64_t batch = 1;
  crds::Optimizer optimizer = crds::Optimizer::kAdam;
  crds::OptimizerImplementation implementation = crds::OptimizerImplementation::kDefault;
  std::int64_t gradient_accumulation = 1;  // number of equal micro-batches that the batch is split into
  crds::ActivationCheckpointing checkpointing = crds::ActivationCheckpointing::kNone;
  std::vector<std::string> checkpoint_modules{};  // for kPerModule: module paths; `*` matches any one name
  bool reentrant_checkpointing = false;           // use_reentrant=True: recomputation does not stop early
  bool halve_floats = false;                      // treat fp32 values as 16 bits wide
  std::string gpu_family{};                       // GpuModel::family: selects convolution workspaces on CUDA
  std::optional<Bytes> convolution_workspace{};   // of every convolution on CUDA; absent: by GPU family
  Replication replication{};                      // default: one trainer
  // Indexed as Trace::parameters: those that the optimizer updates in a separate group, because foreach
  // kernels take either DTensors or plain tensors. Empty: all in one group.
  std::vector<bool> separate_step{};
  bool zero_grad_before_backward = false;  // gradients of the last iteration live through forward
  bool keeps_fp32 = false;                 // the optimizer updates an fp32 copy of 16-bit parameters
  // The order in which chunks run their micro-batches. The first micro-batch of a chunk allocates its
  // gradients.
  std::vector<ScheduleStep> schedule{};
  bool lenient = false;      // charge operators without a rule a conservative bound instead of failing
  Budget* budget = nullptr;  // run_trace() throws its BudgetExceeded
};

class TraceRun {
 public:
  Ledger ledger;
  std::vector<std::string> warnings;
  Bytes kept_after_forward;  // storages live at the end of the first forward pass

  // What a block belongs to. kParameter: a parameter's gradient, state or bucket, or a block that is gathered
  // or scattered with it.
  enum class Source : std::uint8_t { kStorage, kRecomputed, kKernel, kState, kStep, kParameter };
  struct Origin {
    Source source = Source::kStorage;
    std::int32_t chunk = 0;
    std::int32_t id = 0;  // of the storage, operator or parameter
  };
  const Origin& origin_of(BlockId block) const { return origins_[static_cast<std::size_t>(block)]; }
  std::string name_of(BlockId block) const;
  const char* kind_of(BlockId block) const;  // "parameter", "activation", "kernel temporary", ...

 private:
  friend class TraceIteration;
  TraceRun(std::int64_t granule, Budget* budget) : ledger(granule, budget), origins_(budget) {}

  std::vector<const Trace*> traces_;  // indexed by chunk
  BudgetVector<Origin> origins_;      // indexed by block
};

// Errors: kUnsupported for an operator without a rule (naming it), kInvalid if the batch size is not
// possible, kTooLarge if the memory is more than any machine has.
Result<TraceRun> run_trace(const Trace& trace, const TraceProducer& producer, const TraceRunRequest& request);

// The same for a trainer that holds several parts of a model (the chunks of a pipeline stage) and runs them
// in the order of `request.schedule`. Equal chunks may share one trace.
Result<TraceRun> run_trace(std::span<const Trace* const> chunks, const TraceProducer& producer,
                           const TraceRunRequest& request);

}  // namespace plimsoll::estimator::execute
