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

// torch/distributed/tensor/experimental/_context_parallel/_attention.py: what is saved are this trainer's own keys and
// values. _templated_ring_attention takes those of each trainer in turn: its result and logarithms of sums, cast to fp32,
// are merged into those before (_SDPAMerger: `out - sigmoid(...) * (out - block_out)`), which in a compiled layer is
// one kernel. _templated_ring_attention_backward gathers keys and values again, sums up gradients in fp32, and passes
// those of keys and values on as one tensor (torch.cat), of which the next trainer's is received.
void ring_attention(const ForwardGraph& graph, const Op& op, Device device, std::int64_t batch,
                    AutogradRule& rule) {
  constexpr std::int64_t kMerged = 4;     // in fp32: both results, their difference, and its product
  constexpr std::int64_t kKeyCopies = 3;  // in fp32: the sums, the tensor that is sent, and the one received
  attention(graph, op, device, batch, rule);
  rule.saved = {0, 1, 2, AutogradRule::kResult};
  rule.gradients[3] = InputGradient::kNone;
  const std::int64_t queries = elements(graph, op.inputs[0], batch);
  const std::int64_t keys = elements(graph, op.inputs[1], batch) + elements(graph, op.inputs[2], batch);
  const Bytes own = graph.bytes(op.inputs[1], batch) + graph.bytes(op.inputs[2], batch);
  rule.forward_temporary = Bytes{queries} * (kMerged * kFloat) + graph.bytes(op.outputs[0], batch);
  rule.backward_temporary += graph.bytes(op.inputs[3], batch) + Bytes{queries + kKeyCopies * keys} * kFloat +
                             graph.bytes(op.inputs[0], batch) + own;
}

// torchao/float8/float8_linear.py, matmul_with_hp_or_float8_args: what is saved stays in its own precision; the
// product's operands are cast, in forward the input and the weight, in backward the gradient with each of them.
// float8_tensor.py, _ToFloat8ConstrFunc: uncompiled, a cast goes over an fp32 copy and its scaled copy.
void float8_casts(const ForwardGraph& graph, const Op& op, std::int64_t batch, AutogradRule& rule) {
  constexpr std::int64_t kFp32Copies = 2;
  const std::int64_t scratch = op.kind == OpKind::kFloat8Linear ? kFp32Copies * kFloat : 1;
  const auto casts = [&](std::int64_t first, std::int64_t second) {
    return Bytes{first} + Bytes{std::max(first, second)} * scratch;
  };
  const std::int64_t in = elements(graph, op.inputs[0], batch);
  const std::int64_t weight = elements(graph, op.inputs[1], batch);
  // What was gathered in 8 bits is not cast. In backward the product of gradient and input needs both in the other order.
  const bool in_is_cast = graph.tensor(op.inputs[0]).type == ElementType::kFP8;
  rule.forward_temporary = casts(in_is_cast ? 0 : in, weight);
  rule.backward_temporary = casts(elements(graph, op.outputs[0], batch), std::max(in, weight));
}

// bitsandbytes, autograd/_functions.py, MatMul4Bit and backends/default/ops.py, gemm_4bit: forward and backward make
// the weight whole in the type of the product, and nothing is saved. With double quantisation the blocks' maxima are
// made whole before, and their offset is added. (The fused kernel that bitsandbytes 0.50 has on CUDA for at most 1,536
// rows takes less.)
void linear_4bit(const ForwardGraph& graph, const Op& op, AutogradRule& rule) {
  constexpr std::int64_t kPacked = 2;  // weights in a byte
  const std::int64_t weights = elements(graph, op.inputs[1], 1) * kPacked;
  rule.forward_temporary = Bytes{weights} * width_bytes(graph.tensor(op.inputs[0]).type);
  if (graph.tensor(op.inputs[2]).type == ElementType::kUInt8) {
    rule.forward_temporary += Bytes{elements(graph, op.inputs[2], 1)} * kFloat;
  }
  rule.backward_temporary = rule.forward_temporary;
}

// MatMul8bitLt: the input is kept though its gradient needs the weight alone, which is made whole, and it is kept in
// ctx.tensors or ctx.A instead of ctx.save_for_backward(): checkpointing does not free it. On CUDA, forward
// casts the input to fp16 and quantises it, and the product is int32 before it is fp16, and then the input's type. The
// columns of outliers depend on the values. On the CPU, MatMul8bitFp makes the weight whole in forward, too.
void linear_8bit(const ForwardGraph& graph, const Op& op, Device device, std::int64_t batch,
                 AutogradRule& rule) {
  constexpr std::int64_t kHalf = 2;
  rule.attributes = {0};
  const ElementType type = graph.tensor(op.inputs[0]).type;
  rule.backward_temporary = Bytes{elements(graph, op.inputs[1], 1)} * width_bytes(type);
  if (device == Device::kCpu) {
    rule.forward_temporary = rule.backward_temporary;
    return;
  }
  const std::int64_t copied = type == ElementType::kFP16 ? 0 : kHalf;
  const Bytes in{elements(graph, op.inputs[0], batch)};
  const Bytes out{elements(graph, op.outputs[0], batch)};
  rule.forward_temporary = in + std::max(in * copied, out * (kFloat + copied));
}

// torchtitan, components/loss.py, ChunkedLossWrapper: each part's logits, loss and backward before the next part's,
// and an fp32 buffer (GradAccumulator) for the gradient of x. All of it is where backward begins. A part has logits,
// and in fp32 its log-softmax and the gradients of both; in one kernel logits and their gradient.
void chunked_loss(const ForwardGraph& graph, const Op& op, std::int64_t batch, AutogradRule& rule) {
  rule.saved = {0, 1, 2};
  rule.gradients[3] = InputGradient::kNone;
  const std::int64_t hidden = std::max<std::int64_t>(1, graph.shape_of(op.inputs[1]).back().constant);
  const std::int64_t logits =
      elements(graph, op.inputs[3], batch) / hidden * (elements(graph, op.inputs[1], batch) / hidden);
  const std::int64_t width = width_bytes(graph.tensor(op.inputs[0]).type);
  const std::int64_t each = op.kind == OpKind::kChunkedLoss ? width + 3 * kFloat : 2 * width;
  rule.backward_temporary = Bytes{logits} * each + Bytes{elements(graph, op.inputs[0], batch)} * kFloat;
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
    case OpKind::kFloat8Linear:
    case OpKind::kFusedFloat8Linear: float8_casts(graph, op, batch, rule); [[fallthrough]];
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
      rule.last_input_first = op.inputs.size() == 2;  // mm; with a bias it is addmm, whose mat1 comes first
      rule.expensive = true;
      break;
    case OpKind::kLinear4bitOfInput:
      // As LLM.int8() does: kept in ctx.tensors, though nothing reads it (bitsandbytes#1270, of July 2024, drops it).
      rule.attributes = {0};
      [[fallthrough]];
    case OpKind::kLinear4bit:
      linear_4bit(graph, op, rule);
      set_gradient(0, InputGradient::kNewView);
      break;
    case OpKind::kLinear8bit:
      linear_8bit(graph, op, device, batch, rule);
      set_gradient(0, InputGradient::kNewView);
      break;
    case OpKind::kConvolution:
      if (needs_grad(1)) {
        rule.saved.push_back(0);
      }
      if (needs_grad(0)) {
        rule.saved.push_back(1);
      }
      rule.expensive = true;
      break;
    case OpKind::kBloomGelu:
      // bloom_gelu_forward and bloom_gelu_back have at most five values of x's size at once, the result among them.
      rule.saved = {0};
      rule.forward_temporary = graph.bytes(op.inputs[0], batch) * 3;
      rule.backward_temporary = graph.bytes(op.inputs[0], batch) * 4;
      break;
    case OpKind::kMatMul:
      // Each operand is saved for the other's gradient, which neither needs if frozen weights made the other.
      for (const std::size_t i : {0, 1}) {
        if (needs_grad(1 - i)) {
          rule.saved.push_back(static_cast<std::int16_t>(i));
        }
      }
      rule.last_input_first = true;
      break;
    case OpKind::kNllLoss:
    case OpKind::kBceWithLogits: rule.saved = {0, 1}; break;
    case OpKind::kSolveTriangular:
      // linalg_solve_triangular_backward: the matrix's gradient is a product, of which a triangle is kept.
      rule.saved = {0, AutogradRule::kResult};
      rule.backward_temporary = graph.bytes(op.inputs[0], batch);
      break;
    case OpKind::kSelectiveScan:
      // Each step makes a state, which the next step and the readout save; a row of results is kept for each until
      // they are stacked. In backward, each step's selection makes zeros of the decay's size to add to those before.
      rule.saved = {0, 2};
      rule.auxiliary = graph.bytes(op.inputs[0], batch);
      rule.forward_temporary = graph.bytes(op.outputs[0], batch);
      rule.backward_temporary = graph.bytes(op.inputs[0], batch);
      break;
    case OpKind::kExp:
    case OpKind::kRelu:
    case OpKind::kTanh:
    case OpKind::kSigmoid:
    case OpKind::kLogSoftmax: rule.saved = {AutogradRule::kResult}; break;
    case OpKind::kSoftmax:
      // cuda/SoftMax.cu, softmax_backward_cuda_out: the product of gradient and result is made first.
      rule.saved = {AutogradRule::kResult};
      rule.backward_temporary = device == Device::kCuda ? graph.bytes(op.outputs[0], batch) : Bytes{};
      break;
    case OpKind::kRsqrt:
      // -0.5 * grad * result^3, in three steps.
      rule.saved = {AutogradRule::kResult};
      rule.backward_temporary = graph.bytes(op.outputs[0], batch) * 2;
      break;
    case OpKind::kSoftplus:
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
    case OpKind::kRmsNorm:
      save_inputs(op, rule);
      rule.auxiliary = Bytes{rows(graph, op.inputs[0], batch)} * kFloat;  // 1 / root of the mean square
      break;
    case OpKind::kRotary: rule.saved = {1, 2}; break;
    case OpKind::kGatedActivation: save_inputs(op, rule); break;
    case OpKind::kCrossEntropy:
      // TorchInductor saves the logits in their own type with each row's maximum and logarithm of the sum, from
      // which one kernel computes the logits' gradient.
      rule.saved = {0, 1};
      rule.auxiliary = Bytes{rows(graph, op.inputs[0], batch)} * (2 * kFloat);
      break;
    case OpKind::kChunkedLoss:
    case OpKind::kFusedChunkedLoss: chunked_loss(graph, op, batch, rule); break;
    case OpKind::kSplitLogSoftmax:
      // torch/distributed/tensor/parallel/loss.py, _log_softmax: `shifted` lives until the result exists. Its
      // gradient is computed by the loss's backward.
      rule.saved = {AutogradRule::kResult};
      rule.forward_temporary = graph.bytes(op.outputs[0], batch);
      set_gradient(0, InputGradient::kAlias);
      break;
    case OpKind::kSplitNllLoss:
      // loss.py, _nll_loss_and_log_softmax_backward: (grad_input + exp(x)) * grad_output, where grad_input and the
      // sum live until the product exists.
      rule.saved = {0, 1};
      rule.backward_temporary = graph.bytes(op.inputs[0], batch) * 2;
      break;
    case OpKind::kMegatronLoss:
      // megatron/core/tensor_parallel/cross_entropy.py: an fp32 copy of the logits becomes their softmax in place, and in
      // backward their gradient, which autograd casts. Logits in fp32 are copied as well: an upper limit.
      rule.saved = {1};
      rule.auxiliary = Bytes{elements(graph, op.inputs[0], batch)} * kFloat;
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
    case OpKind::kRingAttention:
      ring_attention(graph, op, device, batch, rule);
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
      rule.last_input_first = true;
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
    case OpKind::kPad:
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
