#include "estimator/parallel/schedule.h"

#include <algorithm>

namespace plimsoll::estimator::inline parallel {

std::int64_t warm_up(std::int64_t stage, std::int64_t stages, std::int64_t chunks,
                     std::int64_t micro_batches) {
  const std::int64_t ahead =
      chunks == 1 ? stages - stage - 1 : (stages - stage - 1) * 2 + (chunks - 1) * stages;
  return std::min(micro_batches * chunks, ahead);
}

std::vector<ScheduleStep> pipeline_schedule(std::int64_t stage, std::int64_t stages, std::int64_t chunks,
                                            std::int64_t micro_batches) {
  const std::int64_t total = micro_batches * chunks;
  // If interleaved, each chunk takes `stages` micro-batches in turn.
  const auto step = [&](std::int64_t number, bool forward) {
    const std::int64_t group = stages * chunks;
    const std::int64_t chunk = number % group / stages;
    const std::int64_t micro_batch = number / group * stages + number % stages;
    return chunks == 1 ? ScheduleStep{0, number, forward}
                       : ScheduleStep{forward ? chunk : chunks - 1 - chunk, micro_batch, forward};
  };
  const std::int64_t ahead = warm_up(stage, stages, chunks, micro_batches);
  std::vector<ScheduleStep> steps;
  steps.reserve(static_cast<std::size_t>(2 * total));
  for (std::int64_t i = 0; i < ahead; ++i) {
    steps.push_back(step(i, true));
  }
  for (std::int64_t i = ahead; i < total; ++i) {
    steps.push_back(step(i, true));
    steps.push_back(step(i - ahead, false));
  }
  for (std::int64_t i = total - ahead; i < total; ++i) {
    steps.push_back(step(i, false));
  }
  return steps;
}

}  // namespace plimsoll::estimator::parallel
