#include "estimator/host_training/swap_training.h"

#include "base/json/edit.h"
#include "estimator/speed/throughput.h"

namespace plimsoll::estimator::inline host_training {

Json to_json(const SwapTraining& swap) {
  const PlannedSwap& planned = swap.planned;
  JsonObject json;
  json["mode"] = name_of(planned.plan.mode);
  json["gpus"] = planned.plan.gpus;
  json["layers"] = static_cast<std::int64_t>(swap.layers);
  json["iterationSeconds"] = rounded_text(planned.seconds);
  json["lowerBoundSeconds"] = rounded_text(planned.bound_seconds);
  json["slowdown"] = rounded_text(swap.slowdown());
  json["hostMemoryBytes"] = swap.host_memory.count;
  json["swappedBytes"] = planned.volumes.swapped().count;
  json["peerToPeerBytes"] = planned.volumes.p2p.count;
  return std::move(json).take();
}

std::string text_of(const SwapTraining& swap) {
  return std::string("a swap plan (") + name_of(swap.planned.plan.mode) + ", " + std::to_string(swap.layers) +
         " layers): about " + rounded_text(swap.planned.seconds) + " s an iteration, " +
         rounded_text(swap.slowdown()) + " times what it would take in GPU memory, with " +
         to_string(swap.host_memory) + " of host memory";
}

}  // namespace plimsoll::estimator::host_training
