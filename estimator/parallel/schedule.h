// The order in which a pipeline stage runs the forward and backward passes of its micro-batches. Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace plimsoll::estimator::inline parallel {

struct ScheduleStep {
  std::int64_t chunk = 0;  // which of the stage's chunks
  std::int64_t micro_batch = 0;
  bool forward = true;

  bool operator==(const ScheduleStep&) const = default;
};

// The schedule of stage `stage` of `stages` with `chunks` chunks each: 1F1B (PipeDream-Flush, arXiv
// 2104.04473 section 2.2.1), or interleaved 1F1B (section 2.2.2;
// megatron/core/pipeline_parallel/schedules.py). With one stage, micro-batches run one after another:
// gradient accumulation. warm_up(): how many forward passes a stage runs before its first backward. Only this
// differs between stages.
std::vector<ScheduleStep> pipeline_schedule(std::int64_t stage, std::int64_t stages, std::int64_t chunks,
                                            std::int64_t micro_batches);
std::int64_t warm_up(std::int64_t stage, std::int64_t stages, std::int64_t chunks,
                     std::int64_t micro_batches);

}  // namespace plimsoll::estimator::parallel
