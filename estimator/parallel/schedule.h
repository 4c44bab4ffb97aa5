// In which order a stage of a pipeline runs the forward and backward passes of its micro-batches. Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace plimsoll::estimator::inline parallel {

struct ScheduleStep {
  std::int64_t chunk = 0;  // which of the stage's parts of the model
  std::int64_t micro_batch = 0;
  bool forward = true;
};

// Stage `stage` of `stages`, with `chunks` parts of the model each: 1F1B (PipeDream-Flush, arXiv 2104.04473
// section 2.2.1), or interleaved (section 2.2.2; megatron/core/pipeline_parallel/schedules.py). One stage:
// micro-batches one after another, which is gradient accumulation.
// Stages differ by how many forward passes come before the first backward: warm_up().
std::vector<ScheduleStep> pipeline_schedule(std::int64_t stage, std::int64_t stages, std::int64_t chunks,
                                            std::int64_t micro_batches);
std::int64_t warm_up(std::int64_t stage, std::int64_t stages, std::int64_t chunks,
                     std::int64_t micro_batches);

}  // namespace plimsoll::estimator::parallel
