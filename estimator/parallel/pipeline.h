// pipeline_trace(): the trace of one stage of a pipeline, from the trace of the whole model. It contains the
// stage's operators of forward and backward, once for each micro-batch, in the order of 1F1B (schedule.h),
// and the buffers that stages send and receive. The result is an ordinary trace, for the size of one
// micro-batch.
//
//   Result<std::vector<std::int32_t>> parts = parts_of_operators(trace, 4, blocks);
//   Trace mine = pipeline_trace(trace, {.stages = 4, .stage = 1, .micro_batches = 8, .version = 215}, *parts);
//   run_trace(mine, producer, {.batch = batch / 8});
//
// A stage is a sequence of blocks: modules that are members of lists ("layers.3"), or modules given by name.
// Operators before the first block belong to the first stage, operators after a stage's blocks to that stage.
// Buffers are allocated and freed as in torch/distributed/pipelining/stage.py and schedules.py. Pure; any
// thread.
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
  std::int64_t chunks = 1;  // parts of the model per trainer; more than 1: interleaved
  std::int64_t micro_batches = 1;
  // Further micro-batches, which are not run: only the storages that accumulate with them are added.
  std::int64_t unsimulated = 0;
  TorchVersion version = 0;
  Budget* budget = nullptr;  // pipeline_trace() throws its BudgetExceeded
};

// `parts`: by operator, the result of parts_of_operators(trace, stages x chunks, ...).
Trace pipeline_trace(const Trace& trace, const PipelineCut& cut, const std::vector<std::int32_t>& parts);

}  // namespace plimsoll::estimator::parallel
