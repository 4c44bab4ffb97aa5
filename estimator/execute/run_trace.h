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

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "crds/training_job.h"
#include "estimator/execute/trace_run.h"
#include "estimator/parallel/life_cycle.h"
#include "estimator/parallel/schedule.h"
#include "estimator/trace/between_iterations.h"
#include "estimator/trace/optimizer.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline execute {

// The storages of a chunk that a stage of a pipeline exchanges with its neighbours, for one micro-batch; -1: none.
struct StageExchange {
  std::int32_t received = -1;
  std::int32_t result = -1;  // sent to the next stage; of the last one, what the model returns
  std::int32_t received_gradient = -1;
  std::int32_t sent_gradient = -1;
  bool last = false;
};

// What run_trace() computes of its traces before the iteration, kept for further runs of the same traces with other
// replications; and one run, which others may differ from in nothing but the sizes of some blocks (life_script.h). The
// traces and the budget must outlive it. Not thread-safe.
struct PreparedTrace;
struct RecordedRun;
class PreparedTraces {
 public:
  std::shared_ptr<const PreparedTrace>& of(const Trace& trace) { return known_[&trace]; }
  std::shared_ptr<const RecordedRun>& recorded() { return recorded_; }
  // Counts a run. True from the third on, when it is likely that more follow.
  bool is_searched() { return ++runs_ > 2; }

 private:
  std::map<const Trace*, std::shared_ptr<const PreparedTrace>> known_;
  std::shared_ptr<const RecordedRun> recorded_;
  int runs_ = 0;
};

struct TraceRunRequest {
  std::int64_t batch = 1;
  crds::Optimizer optimizer = crds::Optimizer::kAdam;
  crds::OptimizerImplementation implementation = crds::OptimizerImplementation::kDefault;
  std::int64_t gradient_accumulation = 1;  // number of equal micro-batches that the batch is split into
  crds::ActivationCheckpointing checkpointing = crds::ActivationCheckpointing::kNone;
  std::vector<std::string> checkpoint_modules{};  // for kPerModule: module paths; `*` matches any one name
  bool reentrant_checkpointing = false;           // use_reentrant=True: recomputation does not stop early
  bool halve_floats = false;                      // treat fp32 values as 16 bits wide
  std::string gpu_family{};                       // convolution_family(): selects workspaces on CUDA
  std::optional<Bytes> convolution_workspace{};   // of every convolution on CUDA; absent: by GPU family
  Replication replication{};                      // default: one trainer
  // Indexed as Trace::parameters: those that the optimizer updates in a separate group, because foreach
  // kernels take either DTensors or plain tensors. Empty: all in one group.
  std::vector<bool> separate_step{};
  bool has_separate_step(std::size_t parameter) const {
    return !separate_step.empty() && separate_step[parameter];
  }
  bool set_to_none = true;      // of zero_grad(); false: gradients always live
  bool averaged_model = false;  // a copy of parameters and buffers (AveragedModel)
  bool grad_scaler = false;     // torch.amp.GradScaler scales the loss and checks the gradients
  crds::CheckpointSaving saving = crds::CheckpointSaving::kNone;
  std::optional<BetweenIterations> between{};  // this alone, instead of an iteration
  bool zero_grad_before_backward = false;      // gradients of the last iteration live through forward
  bool keeps_fp32 = false;                     // the optimizer updates an fp32 copy of 16-bit parameters
  bool gathers_float8 = false;     // FSDP2 gathers the matrices of units (not the root's) in 8 bits
  bool compiled = false;           // torch.compile: see plan_trace()
  bool root_returns_loss = false;  // see units_of()
  std::int64_t micro_batches = 0;  // of a pipeline, those that are not in the schedule included
  std::int64_t experts_over =
      1;  // trainers that share the experts, which are the parameters with three dimensions
  // The order in which chunks run their micro-batches. The first micro-batch of a chunk allocates its
  // gradients.
  std::vector<ScheduleStep> schedule{};
  std::vector<StageExchange> exchanges{};  // by chunk; empty: no pipeline
  bool lenient = false;  // charge operators without a rule a conservative bound instead of failing
  PreparedTraces* prepared = nullptr;  // of runs with equal fields, but for `replication`
  Budget* budget = nullptr;            // run_trace() throws its BudgetExceeded
};

// Errors: kUnsupported for an operator without a rule (naming it), kInvalid if the batch size is not
// possible, kTooLarge if the memory is more than any machine has.
Result<TraceRun> run_trace(const Trace& trace, const TraceProducer& producer, const TraceRunRequest& request);

// The same for a trainer that holds several parts of a model (the chunks of a pipeline stage) and runs them
// in the order of `request.schedule`. Equal chunks may share one trace.
Result<TraceRun> run_trace(std::span<const Trace* const> chunks, const TraceProducer& producer,
                           const TraceRunRequest& request);

}  // namespace plimsoll::estimator::execute
