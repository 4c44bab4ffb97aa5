#include "estimator/memory/autograd_rules.h"

namespace plimsoll::estimator {
namespace {

// index_put_ with accumulation, which is the backward of picking elements on CUDA, sorts: the linear index,
// its sorted copy and the permutation with its sorted copy, int64 for each picked position (one position a
// column here, whatever the batch). The indices tensor holds two coordinates a position.
Bytes sort_buffers(const OperatorGraph& graph, TensorId indices) {
  constexpr std::int64_t kBuffers = 4;
  constexpr std::int64_t kCoordinates = 2;
  return Bytes{graph.bytes(indices, 1).count / kCoordinates} * kBuffers;
}

}  // namespace

AutogradRule rule_for(const OperatorGraph& graph, const Op& op, Device device, std::int64_t batch) {
  AutogradRule rule;
  for (const TensorId input : op.inputs) {
    rule.gradients.push_back(graph.tensor(input).requires_grad ? InputGradient::kNew : InputGradient::kNone);
  }
  const auto wants_grad = [&](std::size_t i) { return rule.gradients[i] != InputGradient::kNone; };
  const auto pass_on = [&](std::size_t i, InputGradient how) {
    if (wants_grad(i)) {
      rule.gradients[i] = how;
    }
  };
  switch (op.kind) {
    case OpKind::kEmbeddingLookup:
      // Fused kernels update the tables inside backward: no gradient of a table ever exists as a tensor.
      break;
    case OpKind::kLinear:
      if (wants_grad(1)) {
        rule.saved.push_back(op.inputs[0]);
      }
      if (wants_grad(0)) {
        rule.saved.push_back(op.inputs[1]);
      }
      rule.expensive = true;
      break;
    case OpKind::kMatMul:
      rule.saved = {op.inputs[0], op.inputs[1]};
      rule.expensive = true;
      break;
    case OpKind::kRelu: rule.saved = {op.outputs[0]}; break;
    case OpKind::kAdd:
      for (std::size_t i = 0; i < op.inputs.size(); ++i) {
        // A broadcast input's gradient is a sum, thus new; so is one of another type.
        if (graph.bytes(op.inputs[i], batch) == graph.bytes(op.outputs[0], batch)) {
          pass_on(i, InputGradient::kAlias);
        }
      }
      break;
    case OpKind::kMul:
      if (wants_grad(0)) {
        rule.saved.push_back(op.inputs[1]);
      }
      if (wants_grad(1)) {
        rule.saved.push_back(op.inputs[0]);
      }
      break;
    case OpKind::kConcat:
      for (std::size_t i = 0; i < op.inputs.size(); ++i) {
        pass_on(i, InputGradient::kPart);
      }
      break;
    case OpKind::kView: pass_on(0, InputGradient::kAlias); break;
    case OpKind::kSplit:  // the parts' gradients are put together in a new block
    case OpKind::kCast: break;
    case OpKind::kGather:
      rule.saved = {op.inputs[1]};
      if (device == Device::kCuda) {
        rule.backward_temporary = sort_buffers(graph, op.inputs[1]);
      }
      break;
    case OpKind::kBceWithLogits: rule.saved = {op.inputs[0], op.inputs[1]}; break;
  }
  return rule;
}

}  // namespace plimsoll::estimator
