#include "estimator/layer_costs/layer_sizes.h"

#include <algorithm>

namespace plimsoll::estimator::inline layer_costs {
namespace {

constexpr std::int64_t kFP32 = 4;

// torch.optim counts steps in a tensor of one fp32 number for each parameter.
Bytes without_counts(const OptimizerRun& run, const SteppedParameter& parameter) {
  Bytes state;
  for (const Bytes bytes : optimizer_state(run, parameter)) {
    state += bytes.count > kFP32 ? bytes : Bytes{};
  }
  return state;
}

}  // namespace

LayerSizes layer_sizes(const Trace& trace, const TraceShapes& shapes, const HostTraining& host) {
  LayerSizes sizes;
  for (SteppedParameter& parameter : stepped_parameters(trace, shapes)) {
    const std::int64_t count = trace.storages[index(trace.parameters[parameter.id].storage)].count;
    sizes.weights += parameter.bytes * count;
    if (host.keeps_fp32) {
      parameter.bytes = Bytes{parameter.elements} * kFP32;
      parameter.gradient = parameter.bytes;
    }
    sizes.host_weights += parameter.bytes * count;
    sizes.state += without_counts(host.optimizer, parameter) * count;
    sizes.parameters += count;
  }
  for (const TraceBuffer& buffer : trace.buffers) {
    sizes.buffers += shapes.storage(buffer.storage);
  }
  return sizes;
}

}  // namespace plimsoll::estimator::layer_costs
