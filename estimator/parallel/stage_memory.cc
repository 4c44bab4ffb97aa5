#include "estimator/parallel/stage_memory.h"

namespace plimsoll::estimator::inline parallel {
namespace {

// pytorch/pytorch#153383, of May 2025: only the last stage keeps its outputs.
constexpr TorchVersion kKeepsLastOutputs = 208;
// _recv_buffers.py: each receive allocates its buffer, and the stage's computation takes it.
constexpr TorchVersion kBuffersByReceive = 215;
// pytorch/pytorch#144535, of January 2025.
constexpr TorchVersion kFinalCallback = 207;

}  // namespace

StageMemory stage_memory_of(TorchVersion version, std::int64_t chunks, crds::ParallelStrategy strategy) {
  if (strategy == crds::ParallelStrategy::kMegatron) {
    return {};
  }
  const bool old = version < kBuffersByReceive;
  return {.buffers_stay = old,
          .outputs_stay = version < kKeepsLastOutputs,
          .last_outputs_stay = true,
          .sent_gradients_stay = old || chunks > 1,
          .last_inputs_stay = !old,
          .last_scatter_stays = version < kFinalCallback};
}

}  // namespace plimsoll::estimator::parallel
