// pipeline_trace(): what one trainer of a pipeline runs in an iteration of a recorded model: its stage's
// operators of forward and backward, once a micro-batch, in the order of 1F1B (schedule.h), with what is in
// flight between the stages. The result is a trace like any other, for one micro-batch's batch size.
//
//   Result<std::vector<std::int32_t>> parts = parts_of_operators(trace, 4, blocks);
//   Trace mine = pipeline_trace(trace, {.stages = 4, .stage = 1, .micro_batches = 8, .version = 215}, *parts);
//   run_trace(mine, producer, {.batch = batch / 8});
//
// A stage is a run of blocks: modules that are members of lists ("layers.3"), or those that are named. What
// precedes the first block is the first stage's, what follows a stage's blocks is that stage's. Buffers come
// and go as torch/distributed/pipelining/stage.py and schedules.py have them. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/budget.h"
#include "base/result.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline parallel {

struct PipelineCut {
  std::int64_t stages = 1;
  std::int64_t stage = 0;   // of this trainer
  std::int64_t chunks = 1;  // parts of the model that each trainer has: more than 1 interleaves
  std::int64_t micro_batches = 1;
  std::int64_t further = 0;  // micro-batches that only add to what piles up: those that run show the rest
  TorchVersion version = 0;
  Budget* budget = nullptr;  // whose BudgetExceeded pipeline_trace() throws
};

// `parts`: by operator, as parts_of_operators(trace, stages x chunks, ...) gives them.
Trace pipeline_trace(const Trace& trace, const PipelineCut& cut, const std::vector<std::int32_t>& parts);

}  // namespace plimsoll::estimator::parallel
