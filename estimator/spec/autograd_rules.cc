#include "estimator/spec/autograd_rules.h"

#include <algorithm>

namespace plimsoll::estimator::inline spec {
namespace {

constexpr std::int64_t kFloat = 4;
constexpr std::int64_t kIndex = 8;  // int64
constexpr std::int64_t kSortBuffers = 4;

std::int64_t elements(const ForwardGraph& graph, TensorId x, std::int64_t batch) {
  return graph.bytes_of_one(x, batch).count / width_bytes(graph.tensor(x).type);
}

// The backward of indexing on CUDA is index_put_ with accumulation, which sorts: it allocates the linear
// index, its sorted copy, and the permutation with its sorted copy, int64 for each indexed position (here one
// position per column, for any batch). The indices tensor has two coordinates per position.
Bytes sort_buffers(const ForwardGraph& graph, TensorId indices) {
  constexpr std::int64_t kCoordinates = 2;
  return Bytes{graph.bytes(indices, 1).count / kCoordinates} * kSortBuffers;
}

// True for an input that is broadcast: its gradient is computed at full size and then summed.
bool broadcast(const ForwardGraph& graph, const Op& op, std::size_t input) {
  return elements(graph, op.inputs[input], 2) < elements(graph, op.outputs[0], 2);
}

// Number of rows along the last dimension.
std::int64_t rows(const ForwardGraph& graph, TensorId x, std::int64_t batch) {
  const std::int64_t width = graph.shape_of(x).back().constant;
  return elements(graph, x, batch) / std::max<std::int64_t>(1, width);
}

void save_inputs(const Op& op, AutogradRule& rule) {
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    rule.saved.push_back(static_cast<std::int16_t>(i));
  }
}

// Fused attention saves the logarithm of each row's sum in fp32 (arXiv 2205.14135, algorithm 1). Its backward
// on CUDA allocates the row sums of gradient times output, and the queries' gradients in fp32 if they are
// narrower (flash_api.cpp: softmax_lse, softmax_d, dq_accum).
void attention(const ForwardGraph& graph, const Op& op, Device device, std::int64_t batch,
               AutogradRule& rule) {
  save_inputs(op, rule);
  rule.saved.push_back(AutogradRule::kResult);
  rule.auxiliary = Bytes{rows(graph, op.outputs[0], batch)} * kFloat;
  if (device == Device::kCpu) {
    return;
  }
  rule.backward_temporary = rule.auxiliary;
  const TensorId queries = op.inputs[0];
  if (width_bytes(graph.tensor(queries).type) < kFloat) {
    rule.backward_temporary += Bytes{elements(graph, queries, batch)} * kFloat;
    // Several query heads share keys and values: their gradients are first computed per query head.
    if (elements(graph, op.inputs[1], batch) < elements(graph, queries, batch)) {
      rule.backward_temporary += graph.bytes(queries, batch) * 2;
    }
  }
}

}  // namespace

AutogradRule rule_for(const ForwardGraph& graph, const Op& op, Device device, std::int64_t batch) {
  AutogradRule rule;
  for (const TensorId input : op.inputs) {
    rule.gradients.push_back(graph.tensor(input).requires_grad ? InputGradient::kNew : InputGradient::kNone);
  }
  const auto needs_grad = [&](std::size_t i) { return rule.gradients[i] != InputGradient::kNone; };
  const auto set_gradient = [&](std::size_t i, InputGradient how) {
    if (needs_grad(i)) {
      rule.gradients[i] = how;
    }
  };
  switch (op.kind) {
    case OpKind::kEmbeddingLookup:
      // Fused kernels update the tables inside backward: no table gradient is allocated.
      break;
    case OpKind::kEmbedding:
      rule.saved = {0};
      if (device == Device::kCuda) {
        rule.backward_temporary = graph.bytes(op.inputs[0], batch) * kSortBuffers;
      }
      break;
    case OpKind::kLinear:
      if (needs_grad(1)) {
        rule.saved.push_back(0);
      }
      if (needs_grad(0)) {
        rule.saved.push_back(1);
      }
      // Inputs with more than two dimensions are viewed as rows; a weight's gradient is a transposed view.
      if (graph.shape_of(op.inputs[0]).size() > 2) {
        set_gradient(0, InputGradient::kNewView);
      }
      set_gradient(1, InputGradient::kNewView);
      rule.expensive = true;
      break;
    case OpKind::kMatMul:
    case OpKind::kNllLoss:
    case OpKind::kBceWithLogits: rule.saved = {0, 1}; break;
    case OpKind::kRelu:
    case OpKind::kTanh:
    case OpKind::kSigmoid:
    case OpKind::kSoftmax:
    case OpKind::kLogSoftmax: rule.saved = {AutogradRule::kResult}; break;
    case OpKind::kRsqrt:
      // -0.5 * grad * result^3, in three steps.
      rule.saved = {AutogradRule::kResult};
      rule.backward_temporary = graph.bytes(op.outputs[0], batch) * 2;
      break;
    case OpKind::kGelu:
    case OpKind::kSilu: rule.saved = {0}; break;
    case OpKind::kPower:
      // grad * (n * x^(n - 1)).
      rule.saved = {0};
      rule.backward_temporary = graph.bytes(op.inputs[0], batch) * 2;
      break;
    case OpKind::kLayerNorm:
      save_inputs(op, rule);
      rule.auxiliary = Bytes{rows(graph, op.inputs[0], batch)} * (2 * kFloat);  // mean and 1 / deviation
      break;
    case OpKind::kDropout:
      // One byte per element if the kernel is fused; the CPU multiplies by noise of the same type.
      rule.auxiliary = device == Device::kCuda ? Bytes{elements(graph, op.outputs[0], batch)}
                                               : graph.bytes(op.outputs[0], batch);
      break;
    case OpKind::kAttention:
      attention(graph, op, device, batch, rule);
      rule.expensive = true;
      break;
    case OpKind::kAdd:
      for (std::size_t i = 0; i < op.inputs.size(); ++i) {
        // The gradient of a broadcast input, or of one with another type, is a new block.
        if (graph.bytes(op.inputs[i], batch) == graph.bytes(op.outputs[0], batch)) {
          set_gradient(i, InputGradient::kAlias);
        }
      }
      break;
    case OpKind::kMul:
      for (const std::size_t i : {0, 1}) {
        if (needs_grad(i)) {
          rule.saved.push_back(static_cast<std::int16_t>(1 - i));
          if (broadcast(graph, op, i)) {
            rule.backward_temporary += graph.bytes(op.outputs[0], batch);
          }
        }
      }
      break;
    case OpKind::kConcat:
      for (std::size_t i = 0; i < op.inputs.size(); ++i) {
        set_gradient(i, InputGradient::kPart);
      }
      break;
    case OpKind::kView:
    case OpKind::kSum: set_gradient(0, InputGradient::kPart); break;
    case OpKind::kCopy:
    case OpKind::kAllReduce:  // the gradient of the sum is the gradient of each summand
    case OpKind::kCopyToRegion: set_gradient(0, InputGradient::kAlias); break;
    case OpKind::kSplit:  // the gradients of the parts are copied into a new block
    case OpKind::kCast:
    case OpKind::kScale:
    case OpKind::kMean:
    case OpKind::kSlice:  // zeros, into which the gradient of the slice is copied
    case OpKind::kReshape:
    case OpKind::kRepeat:
    case OpKind::kExpand:
    case OpKind::kToPadded:
    case OpKind::kSort:
    case OpKind::kReceive:
    case OpKind::kAllGather:
    case OpKind::kReduceScatter:
    case OpKind::kAllToAll:
    case OpKind::kScopeEnd: break;
    case OpKind::kTopK: rule.auxiliary = Bytes{elements(graph, op.outputs[0], batch)} * kIndex; break;
    case OpKind::kSelectRows:
      rule.saved = {1};
      if (device == Device::kCuda) {
        rule.backward_temporary = graph.bytes(op.inputs[1], batch) * kSortBuffers;
      }
      break;
    case OpKind::kGather:
      rule.saved = {1};
      if (device == Device::kCuda) {
        rule.backward_temporary = sort_buffers(graph, op.inputs[1]);
      }
      break;
  }
  return rule;
}

}  // namespace plimsoll::estimator::spec
