#include "estimator/estimate/amp.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "estimator/estimate/peak.h"
#include "estimator/trace/optimizer.h"
#include "estimator/trace/shapes.h"

namespace plimsoll::estimator::inline estimate {
namespace {

// "10 micro batch sizes (e.g. 13, 43)": spread evenly between these two.
constexpr std::array<std::int64_t, 10> kMicroBatches = {13, 16, 20, 23, 26, 30, 33, 36, 40, 43};

// A node of the paper's trace is an operator that the model's code calls. Autocast's copies are made inside
// nodes, and the loss is not part of the model.
bool is_node(std::string_view name) {
  return name != "aten::_to_copy" && name != "aten::nll_loss_forward" &&
         name != "aten::binary_cross_entropy_with_logits";
}

}  // namespace

Bytes amp_training_bytes(const Trace& trace, std::int64_t batch) {
  const Result<TraceShapes> shapes = TraceShapes::at(trace, batch);
  if (!shapes) {
    return Bytes::max();
  }
  std::vector<bool> trained(trace.storages.size(), false);
  for (const TraceParameter& parameter : trace.parameters) {
    trained[index(parameter.storage)] = parameter.trainable;
  }
  const auto for_each = [&](Span span, auto action) {
    for (std::int32_t at = span.begin; at < span.begin + span.size; ++at) {
      const std::int32_t tensor = trace.operands[index(at)];
      if (tensor >= 0 && trace.tensors[index(tensor)].storage >= 0) {
        action(tensor, index(trace.tensors[index(tensor)].storage));
      }
    }
  };
  Bytes sum;
  for (std::int32_t i = 0; i < trace.forward_end; ++i) {
    const TraceOperator& op = trace.operators[index(i)];
    bool requires_grad = false;
    for_each(op.inputs, [&](std::int32_t, std::size_t storage) { requires_grad |= trained[storage]; });
    if (!requires_grad) {
      continue;
    }
    const bool counts = is_node(trace.operator_names[index(op.name)]);
    for_each(op.outputs, [&](std::int32_t tensor, std::size_t storage) {
      if (is_floating_dtype(trace.dtypes[static_cast<std::size_t>(trace.tensors[index(tensor)].dtype)])) {
        trained[storage] = true;
        sum += counts ? shapes->tensor(tensor).bytes() : Bytes{};
      }
    });
  }
  return sum;
}

Bytes amp_predicted_bytes(const std::function<Bytes(std::int64_t batch)>& training_bytes,
                          std::int64_t batch) {
  double sum_x = 0, sum_y = 0, sum_xx = 0, sum_xy = 0;
  for (const std::int64_t micro : kMicroBatches) {
    const auto x = static_cast<double>(micro);
    const auto y = static_cast<double>(training_bytes(micro).count);
    sum_x += x;
    sum_y += y;
    sum_xx += x * x;
    sum_xy += x * y;
  }
  const auto n = static_cast<double>(kMicroBatches.size());
  const double slope = (n * sum_xy - sum_x * sum_y) / (n * sum_xx - sum_x * sum_x);
  const double intercept = (sum_y - slope * sum_x) / n;
  return Bytes::ceil(std::max(0.0, intercept + slope * static_cast<double>(batch)));
}

// The estimate has constants for communication and the CUDA context, terms linear in the dense parameters for
// the optimizer and for DDP, and the sum of the symbolic execution. The paper prints no coefficients: here
// DDP's term is the replica and its gradient buffers, the optimizer's term is its state.
Result<Estimate> estimate_by_amp(const EstimateRequest& request, const Trace& trace,
                                 const TraceShapes& shapes, TorchVersion version,
                                 const std::function<Bytes(std::int64_t batch)>& training_bytes) {
  const Result<OptimizerRun> optimizer = optimizer_run(
      request.training->optimizer, request.training->optimizer_implementation, trace.device, version);
  if (!optimizer) {
    return optimizer.error();
  }
  Breakdown parts;
  parts.parameters = parameter_bytes(trace, shapes);
  parts.ddp_buckets = parts.parameters;
  for (const SteppedParameter& parameter : stepped_parameters(trace, shapes)) {
    const std::int64_t count = trace.storages[index(trace.parameters[parameter.id].storage)].count;
    for (const Bytes state : optimizer_state(*optimizer, parameter)) {
      parts.optimizer_state += state * count;
    }
  }
  parts.activations = amp_predicted_bytes(training_bytes, request.training->batch_size_per_trainer);
  return estimate_of(parts, request, name_of(Phase::kForward), parts.parameters);
}

}  // namespace plimsoll::estimator::estimate
