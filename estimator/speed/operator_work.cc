#include "estimator/speed/operator_work.h"

#include <algorithm>

namespace plimsoll::estimator::inline speed {
namespace {

constexpr double kAttentionBackward = 2.5;
constexpr double kCausal = 0.5;
constexpr std::size_t kScoreDims = 4;  // sample, head, query, key

WorkKind kind_of(OpKind kind) {
  switch (kind) {
    case OpKind::kLinear:
    case OpKind::kLinear4bit:
    case OpKind::kLinear4bitOfInput:
    case OpKind::
        kLinear8bit:  // LLM.int8() is slower than its products in 8 bits (arXiv 2208.07339 appendix D)
    case OpKind::kMatMul:
    case OpKind::kConvolution:
    case OpKind::kChunkedLoss:
    case OpKind::kFusedChunkedLoss: return WorkKind::kMatrix;
    case OpKind::kFloat8Linear:
    case OpKind::kFusedFloat8Linear: return WorkKind::kMatrix8;
    case OpKind::kAttention:
    case OpKind::kRingAttention: return WorkKind::kAttention;
    case OpKind::kAllReduce:
    case OpKind::kCopyToRegion:
    case OpKind::kAllGather:
    case OpKind::kReduceScatter:
    case OpKind::kAllToAll: return WorkKind::kCollective;
    case OpKind::kView:
    case OpKind::kSplit:
    case OpKind::kSlice:
    case OpKind::kReceive:
    case OpKind::kScopeEnd: return WorkKind::kNone;
    default: return WorkKind::kMemory;
  }
}

Traffic traffic_of(OpKind kind) {
  switch (kind) {
    case OpKind::kLayerNorm:
    case OpKind::kRmsNorm:
    case OpKind::kMean: return Traffic::kNorm;
    case OpKind::kTanh:
    case OpKind::kSigmoid:
    case OpKind::kGelu:
    case OpKind::kSilu:
    case OpKind::kBloomGelu:
    case OpKind::kGatedActivation:
    case OpKind::kRotary: return Traffic::kActivation;
    default: return Traffic::kStream;
  }
}

bool is_elementwise(OpKind kind) {
  switch (kind) {
    case OpKind::kRelu:
    case OpKind::kTanh:
    case OpKind::kSigmoid:
    case OpKind::kGelu:
    case OpKind::kSilu:
    case OpKind::kBloomGelu:
    case OpKind::kExp:
    case OpKind::kSoftplus:
    case OpKind::kScale:
    case OpKind::kPower:
    case OpKind::kMean:
    case OpKind::kRsqrt:
    case OpKind::kSoftmax:
    case OpKind::kLogSoftmax:
    case OpKind::kLayerNorm:
    case OpKind::kRmsNorm:
    case OpKind::kRotary:
    case OpKind::kGatedActivation:
    case OpKind::kDropout:
    case OpKind::kAdd:
    case OpKind::kMul:
    case OpKind::kExpand:
    case OpKind::kSum:
    case OpKind::kConcat:
    case OpKind::kView:
    case OpKind::kSlice:
    case OpKind::kSplit:
    case OpKind::kCopy:
    case OpKind::kCast: return true;
    default: return false;
  }
}

// The backward of the others reads what autograd saved of the inputs.
bool reads_inputs_again(OpKind kind) {
  switch (kind) {
    case OpKind::kAdd:
    case OpKind::kScale:
    case OpKind::kSum:
    case OpKind::kConcat:
    case OpKind::kExpand:
    case OpKind::kReshape:
    case OpKind::kRepeat:
    case OpKind::kCopy:
    case OpKind::kCast: return false;
    default: return true;
  }
}

std::size_t at(TensorId id) {
  return static_cast<std::size_t>(id);
}

double elements(const ForwardGraph& graph, TensorId id, std::int64_t batch) {
  return static_cast<double>(elements_of(graph.shape_of(id), batch).count) *
         static_cast<double>(graph.tensor(id).count);
}

std::int64_t size_of(const Dim& dim, std::int64_t batch) {
  return dim.constant + dim.per_sample * batch;
}

// The width over which a product sums.
double summed_width(const ForwardGraph& graph, const Op& op, std::int64_t batch) {
  if (op.kind == OpKind::kConvolution) {  // a weight of [outputs, inputs, height, width]
    const Shape& weight = graph.shape_of(op.inputs[1]);
    return elements(graph, op.inputs[1], batch) /
           static_cast<double>(std::max<std::int64_t>(1, size_of(*weight.begin(), batch)));
  }
  const Shape& x = graph.shape_of(op.inputs[0]);
  return x.empty() ? 1 : static_cast<double>(size_of(*(x.end() - 1), batch));
}

double product_flops(const ForwardGraph& graph, const Op& op, std::int64_t batch) {
  if (op.kind == OpKind::kChunkedLoss || op.kind == OpKind::kFusedChunkedLoss) {
    const Shape& weight = graph.shape_of(op.inputs[1]);
    return 2 * elements(graph, op.inputs[0], batch) * static_cast<double>(size_of(*weight.begin(), batch));
  }
  return 2 * elements(graph, op.outputs[0], batch) * summed_width(graph, op, batch);
}

void set_attention(OperatorWork& work, const ForwardGraph& graph, const Op& op, const WorkOptions& options) {
  const Shape& q = graph.shape_of(op.inputs[0]);
  constexpr std::size_t kOfAllTrainers = 3;  // the keys and values that a ring passes on
  const Shape& k = graph.shape_of(op.inputs[op.kind == OpKind::kRingAttention ? kOfAllTrainers : 1]);
  work.head_dim = size_of(*(q.end() - 1), options.batch);
  work.tokens = size_of(*(k.end() - 2), options.batch);
  work.causal = options.causal;
  const double share = options.causal ? kCausal : 1;
  work.flops =
      share * 2 *
      (elements(graph, op.inputs[0], options.batch) + elements(graph, op.outputs[0], options.batch)) *
      static_cast<double>(work.tokens);
  work.backward_flops = kAttentionBackward * work.flops;
}

// The sum of experts' results and their biases, [rows, width] and [experts, width].
bool adds_expert_biases(const ForwardGraph& graph, const Op& op) {
  if (op.kind != OpKind::kAdd || op.inputs.size() != 2) {
    return false;
  }
  const Shape& rows = graph.shape_of(op.inputs[0]);
  const Shape& biases = graph.shape_of(op.inputs[1]);
  constexpr std::size_t kDims = 2;
  return rows.size() == kDims && graph.tensor(op.inputs[1]).role == TensorRole::kParameter &&
         (graph.tensor(op.inputs[1]).expert || biases.size() == kDims);
}

// Megatron-LM b0cc2706, megatron/core/transformer/moe/experts.py (TEGroupedMLP._apply_bias): for each expert bias * the token's weight,
// in fp32, and the sum with the result; then torch.cat of all experts and a cast. Backward casts, multiplies by the weight and
// by the bias, sums both products, and splits. Bytes for each value of a result in 16 bits.
constexpr double kBiasForward = 4 + 10 + 8 + 6;
constexpr double kBiasBackward = 6 + 6 + (8 + 4) + (8 + 4) + 4;

// The gate of experts with biases is GPT-OSS's, whose halves are clamped. weighted_bias_quick_geglu_impl (megatron/core/fusions/
// fused_bias_geglu.py) clamps each half, concatenates both and multiplies them; backward reads both and writes their gradient, which
// is masked by what was clamped and concatenated. Bytes for each value of the halves in 16 bits.
constexpr double kClampForward = 4 + 4 + 2;
constexpr double kClampBackward = (2 + 2) + 6 + 4;

// The loss, by value of the logits: as with the other strategies the copy in fp32 is written, and backward reads and writes it. With
// all passes of megatron/core/fusions/fused_cross_entropy.py (20 bytes and 4) some published tables come closer, and others do not.
constexpr double kLossForward = 4;
constexpr double kLossBackward = 8;

bool is_biased_product_of_experts(const ForwardGraph& graph, const Op& op) {
  constexpr std::size_t kDims = 3, kWithBias = 3;
  return op.kind == OpKind::kLinear && op.inputs.size() == kWithBias &&
         (graph.tensor(op.inputs[1]).expert || graph.shape_of(op.inputs[1]).size() == kDims);
}

// What Megatron-LM's kernels around experts move beyond the operators of the graph, and those of its loss.
void set_megatron_kernels(OperatorWork& work, const ForwardGraph& graph, std::int32_t index,
                          const WorkOptions& options) {
  const Op op = graph.op(index);
  if (adds_expert_biases(graph, op)) {
    const double values = elements(graph, op.outputs[0], options.batch);
    work.traffic = Traffic::kActivation;
    work.bytes = values * kBiasForward;
    work.backward_bytes = values * kBiasBackward;
  } else if (op.kind == OpKind::kSplit && index > 0 &&
             is_biased_product_of_experts(graph, graph.op(index - 1))) {
    const double values = elements(graph, op.inputs[0], options.batch);
    work.kind = WorkKind::kMemory;
    work.traffic = Traffic::kActivation;
    work.type = graph.tensor(op.inputs[0]).type;
    work.bytes = values * kClampForward;
    work.backward_bytes = values * kClampBackward;
  } else if (op.kind == OpKind::kMegatronLoss) {
    const double values = elements(graph, op.inputs[0], options.batch);
    const auto logits = static_cast<double>(graph.bytes(op.inputs[0], options.batch).count);
    work.bytes = logits + values * kLossForward;
    work.backward_bytes = logits + values * kLossBackward;
  }
}

}  // namespace

std::vector<bool> tensors_in_registers(const ForwardGraph& graph, Fusion fusion) {
  std::vector<bool> made(graph.tensors().size(), false);
  std::vector<bool> read_otherwise(graph.tensors().size(), false);
  for (std::int32_t i = 0; i < graph.op_count(); ++i) {
    const Op op = graph.op(i);
    const bool apart = fusion == Fusion::kMegatron &&
                       (adds_expert_biases(graph, op) ||
                        (op.kind == OpKind::kDropout && graph.shape_of(op.inputs[0]).size() == kScoreDims));
    if (is_elementwise(op.kind) && (!apart || op.kind == OpKind::kDropout)) {
      for (const TensorId id : op.outputs) {
        made[at(id)] = true;
      }
    }
    if (apart || (!is_elementwise(op.kind) && op.kind != OpKind::kScopeEnd)) {
      for (const TensorId id : op.inputs) {
        if (id >= 0) {
          read_otherwise[at(id)] = true;
        }
      }
    }
  }
  for (std::size_t i = 0; i < made.size(); ++i) {
    made[i] = made[i] && !read_otherwise[i];
  }
  return made;
}

OperatorWork work_of(const ForwardGraph& graph, std::int32_t index, const WorkOptions& options) {
  const Op op = graph.op(index);
  OperatorWork work{.kind = kind_of(op.kind)};
  if (options.fusion == Fusion::kMegatron) {
    set_megatron_kernels(work, graph, index, options);
    if (work.bytes > 0) {
      return work;
    }
  }
  if (work.kind == WorkKind::kNone || op.outputs.empty()) {
    return {};
  }
  const auto moved = [&](TensorId id) {
    const bool skipped = id < 0 || (!options.in_registers.empty() && options.in_registers[at(id)]);
    return skipped ? 0.0 : static_cast<double>(graph.bytes(id, options.batch).count);
  };
  double inputs = 0;
  double gradients = 0;  // of the inputs
  int operands_with_gradient = 0;
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    const TensorId id = op.inputs[i];
    const double bytes = moved(id);
    inputs += bytes;
    if (id >= 0 && graph.tensor(id).requires_grad) {
      gradients += bytes;
      operands_with_gradient += i < 2 ? 1 : 0;
    }
  }
  double outputs = 0;
  for (const TensorId id : op.outputs) {
    outputs += moved(id);
  }
  work.traffic = traffic_of(op.kind);
  work.type = op.inputs.empty() ? ElementType::kFP32 : graph.tensor(op.inputs[0]).type;
  if (op.kind == OpKind::kEmbedding || op.kind == OpKind::kEmbeddingLookup ||
      op.kind == OpKind::kSelectRows) {
    inputs = outputs;  // of a table, only the rows that are looked up
    gradients = std::min(gradients, outputs);
  }
  const bool picks = op.kind == OpKind::kNllLoss || op.kind == OpKind::kSplitNllLoss;
  if (picks) {
    inputs = outputs;  // one value of a row; backward fills all of the gradient
  }
  work.bytes = inputs + outputs;
  if (operands_with_gradient > 0) {
    work.backward_bytes = (reads_inputs_again(op.kind) ? inputs : 0) + outputs + gradients;
    // A kernel of its own sums the gradient of the weight or the bias over the rows (torch/csrc/autograd: addmm's bias;
    // aten/src/ATen/native/cuda/layer_norm_kernel.cu: GammaBetaBackwardCUDAKernel).
    const bool norm = op.kind == OpKind::kLayerNorm || op.kind == OpKind::kRmsNorm;
    if (norm && op.inputs.size() > 1) {
      work.backward_bytes += inputs + outputs;
    } else if (op.kind == OpKind::kLinear && op.inputs.size() > 2) {
      work.bias_bytes = outputs;
    }
  }
  if (work.kind == WorkKind::kAttention) {
    set_attention(work, graph, op, options);
  } else if (work.kind == WorkKind::kMatrix || work.kind == WorkKind::kMatrix8) {
    work.flops = product_flops(graph, op, options.batch);
    work.backward_flops = work.flops * operands_with_gradient;
    const auto gradient = [&](std::size_t i) {
      const TensorId id = i < op.inputs.size() ? op.inputs[i] : -1;
      return id >= 0 && graph.tensor(id).requires_grad ? elements(graph, id, options.batch) : 0.0;
    };
    work.result = work.flops / (2 * summed_width(graph, op, options.batch));
    work.first_gradient = gradient(0);
    work.second_gradient = gradient(1);
  }
  return work;
}

}  // namespace plimsoll::estimator::speed
