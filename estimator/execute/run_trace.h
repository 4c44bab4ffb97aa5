// run_trace(): executes a recorded iteration symbolically, for a batch size, an optimizer and a way to
// checkpoint: every block that the iteration allocates and releases, in order, as a Ledger.
//
//   Result<TraceRun> run = run_trace(trace, producer, {.batch = 64, .optimizer = crds::Optimizer::kAdamW});
//   run->ledger.peak();
//   run->name_of(block);   // "layers.3.mlp: aten::addmm"
//
// One steady-state iteration: gradients set to none, forward, loss, backward, step. A storage lives until the
// later of Python's release and autograd's, as recorded; what kernels take inside comes from kernels/rules.h,
// the optimizer from trace/optimizer.h. Pure; any thread. The trace must outlive the run.
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
  std::int64_t gradient_accumulation = 1;  // equal parts the batch is taken in
  crds::ActivationCheckpointing checkpointing = crds::ActivationCheckpointing::kNone;
  std::vector<std::string> checkpoint_modules{};  // of kPerModule: paths, `*` is any one name
  bool reentrant_checkpointing = false;           // use_reentrant=True: second passes run to their end
  bool halve_floats = false;                      // read fp32 values as 16 bits wide
  std::string gpu_family{};                       // GpuModel::family: decides what convolutions take on CUDA
  std::optional<Bytes> convolution_workspace{};   // on CUDA, of any; absent: as the family's kernels are
  Replication replication{};                      // among trainers; one alone by itself
  // By Trace::parameters: those that the optimizer updates apart from the others, for foreach kernels take
  // either DTensors or plain tensors. Empty: all together.
  std::vector<bool> stepped_apart{};
  bool zero_grad_before_backward = false;  // gradients of the last iteration live through forward
  bool keeps_fp32 = false;                 // the optimizer updates an fp32 copy of narrower parameters
  // Of several chunks: in which order they run their micro-batches; the first of each has gradients anew.
  std::vector<ScheduleStep> schedule{};
  bool lenient = false;      // charge operators without a rule a conservative bound instead of refusing
  Budget* budget = nullptr;  // whose BudgetExceeded run_trace() throws
};

class TraceRun {
 public:
  Ledger ledger;
  std::vector<std::string> warnings;
  Bytes kept_after_forward;  // activations alive when the loss is known

  // kShared: of a parameter, its gradient, state or bucket, or gathered and scattered with it.
  enum class Source : std::uint8_t { kStorage, kRecomputed, kKernel, kState, kStep, kShared };
  struct Origin {
    Source source = Source::kStorage;
    std::int32_t chunk = 0;
    std::int32_t id = 0;  // storage, operator or parameter
  };
  const Origin& origin_of(BlockId block) const { return origins_[static_cast<std::size_t>(block)]; }
  std::string name_of(BlockId block) const;
  const char* kind_of(BlockId block) const;  // "parameter", "activation", "kernel temporary", ...

 private:
  friend class TraceIteration;
  TraceRun(std::int64_t granule, Budget* budget) : ledger(granule, budget), origins_(budget) {}

  std::vector<const Trace*> traces_;  // by chunk
  BudgetVector<Origin> origins_;      // by block
};

// Errors: kUnsupported for an operator without a rule (naming it), kInvalid for what cannot be at this batch,
// kTooLarge beyond any machine.
Result<TraceRun> run_trace(const Trace& trace, const TraceProducer& producer, const TraceRunRequest& request);

// The same for a trainer that holds several parts of a model, the chunks of a pipeline's stage, and runs them
// as `request.schedule` says. Equal chunks may be one trace.
Result<TraceRun> run_trace(std::span<const Trace* const> chunks, const TraceProducer& producer,
                           const TraceRunRequest& request);

}  // namespace plimsoll::estimator::execute
