#include "estimator/spec/forward_graph.h"

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <utility>

namespace plimsoll::estimator::inline spec {
namespace {

// Capacity reserved for the operators after a model's layers (norm, head, loss); without it, the first of
// them would double the capacity of the list.
constexpr std::size_t kReservedAfterCopies = 256;

struct ElementFormat {
  const char* dtype;
  std::int64_t width;
};
constexpr ElementFormat kFormats[kElementTypes] = {{"float32", 4},      {"float16", 2}, {"bfloat16", 2},
                                                   {"int64", 8},        {"bool", 1},    {"uint8", 1},
                                                   {"float8_e4m3fn", 1}};

}  // namespace

std::int64_t width_bytes(ElementType type) {
  return kFormats[static_cast<std::size_t>(type)].width;
}

const char* dtype_of(ElementType type) {
  return kFormats[static_cast<std::size_t>(type)].dtype;
}

const char* name_of(OpKind kind) {
  switch (kind) {
    case OpKind::kEmbedding: return "aten::embedding";
    case OpKind::kEmbeddingLookup: return "fbgemm::split_embedding_codegen_lookup";
    // Policies of selective checkpointing see the product of torchao's tensors before it becomes _scaled_mm.
    case OpKind::kFloat8Linear:
    case OpKind::kFusedFloat8Linear:
    case OpKind::kLinear: return "aten::addmm";
    case OpKind::kLinear4bit:
    case OpKind::kLinear4bitOfInput: return "bitsandbytes::gemm_4bit";
    case OpKind::kLinear8bit: return "bitsandbytes::int8_mixed_scaled_mm";
    case OpKind::kConvolution: return "aten::convolution";
    case OpKind::kRelu: return "aten::relu";
    case OpKind::kTanh: return "aten::tanh";
    case OpKind::kSigmoid: return "aten::sigmoid";
    case OpKind::kGelu: return "aten::gelu";
    case OpKind::kSilu: return "aten::silu";
    case OpKind::kBloomGelu: return "GeLUFunction";
    case OpKind::kExp: return "aten::exp";
    case OpKind::kSoftplus: return "aten::softplus";
    case OpKind::kSolveTriangular: return "aten::linalg_solve_triangular";
    case OpKind::kPad: return "aten::constant_pad_nd";
    case OpKind::kSelectiveScan: return "mamba_selective_scan";
    case OpKind::kScale: return "aten::mul";
    case OpKind::kPower: return "aten::pow";
    case OpKind::kMean: return "aten::mean";
    case OpKind::kRsqrt: return "aten::rsqrt";
    case OpKind::kSoftmax: return "aten::_softmax";
    case OpKind::kLogSoftmax: return "aten::_log_softmax";
    case OpKind::kLayerNorm: return "aten::native_layer_norm";
    case OpKind::kRmsNorm: return "aten::_fused_rms_norm";
    case OpKind::kRotary: return "triton::rotary";
    case OpKind::kGatedActivation: return "triton::gated_activation";
    case OpKind::kDropout: return "aten::native_dropout";
    case OpKind::kAttention: return "aten::_scaled_dot_product_flash_attention";
    case OpKind::kRingAttention: return "c10d::ring_attention";
    case OpKind::kAdd: return "aten::add";
    case OpKind::kMul: return "aten::mul";
    case OpKind::kMatMul: return "aten::bmm";
    case OpKind::kConcat: return "aten::cat";
    case OpKind::kSplit: return "aten::split";
    case OpKind::kView: return "aten::view";
    case OpKind::kSlice: return "aten::slice";
    case OpKind::kReshape: return "aten::reshape";
    case OpKind::kCopy: return "aten::clone";
    case OpKind::kRepeat: return "aten::repeat_interleave";
    case OpKind::kToPadded: return "aten::to_padded_tensor";
    case OpKind::kExpand: return "aten::expand";
    case OpKind::kSum: return "aten::sum";
    case OpKind::kSort: return "aten::sort";
    case OpKind::kGather: return "aten::index";
    case OpKind::kSelectRows: return "aten::index_select";
    case OpKind::kTopK: return "aten::topk";
    case OpKind::kCast: return "aten::_to_copy";
    case OpKind::kReceive: return "c10d::recv_";
    case OpKind::kAllReduce:
    case OpKind::kCopyToRegion: return "c10d::allreduce_";
    case OpKind::kAllGather: return "c10d::allgather_";
    case OpKind::kReduceScatter: return "c10d::reduce_scatter_";
    case OpKind::kAllToAll: return "c10d::alltoall_";
    case OpKind::kBceWithLogits: return "aten::binary_cross_entropy_with_logits";
    case OpKind::kNllLoss: return "aten::nll_loss_forward";
    case OpKind::kCrossEntropy: return "triton::cross_entropy";
    case OpKind::kChunkedLoss:
    case OpKind::kFusedChunkedLoss: return "plimsoll::chunked_loss";
    case OpKind::kSplitLogSoftmax: return "aten::_log_softmax";
    case OpKind::kSplitNllLoss: return "aten::nll_loss_forward";
    case OpKind::kMegatronLoss: return "megatron::vocab_parallel_cross_entropy";
    case OpKind::kScopeEnd: return "prim::scope_end";
  }
  assert(false);
  return "";
}

ElementType widest(ElementType a, ElementType b) {
  // PyTorch's result for fp16 with bf16 is fp32; no forward graph combines them.
  return a == b ? a : ElementType::kFP32;
}

TensorId ForwardGraph::add(Tensor tensor, std::string name, Shape shape) {
  charge(budget_, 1);
  const auto id = static_cast<TensorId>(tensors_.size());
  if (tensor.storage < 0) {
    tensor.storage = id;
  }
  tensor.name = static_cast<std::int32_t>(names_.size());
  names_.push_back(std::move(name));
  tensor.shape = static_cast<std::int32_t>(shapes_.size());
  shapes_.push_back(std::move(shape));
  tensors_.push_back(tensor);
  return id;
}

TensorId ForwardGraph::add_input(std::string name, Shape shape, ElementType type) {
  return add({.type = type, .role = TensorRole::kInput}, std::move(name), std::move(shape));
}

TensorId ForwardGraph::add_parameter(std::string name, Shape shape, ElementType type, std::int64_t count,
                                     bool trained) {
  return add(
      {.unit = unit_, .count = count, .type = type, .role = TensorRole::kParameter, .requires_grad = trained},
      std::move(name), std::move(shape));
}

TensorId ForwardGraph::add_expert_parameters(std::string name, Shape shape, ElementType type,
                                             std::int64_t experts) {
  return add({.unit = unit_,
              .count = experts,
              .type = type,
              .role = TensorRole::kParameter,
              .requires_grad = true,
              .expert = true},
             std::move(name), std::move(shape));
}

void ForwardGraph::append(OpKind kind, const TensorIds& inputs, const TensorIds& outputs) {
  charge(budget_, 1);
  ops_.push_back({.ids = static_cast<std::uint32_t>(ids_.size()),
                  .inputs = static_cast<std::uint32_t>(inputs.size()),
                  .outputs = static_cast<std::uint32_t>(outputs.size()),
                  .unit = unit_,
                  .block = block_,
                  .like = op_count(),
                  .kind = kind});
  ids_.insert(ids_.end(), inputs.begin(), inputs.end());
  ids_.insert(ids_.end(), outputs.begin(), outputs.end());
}

Op ForwardGraph::op(std::int32_t i) const {
  assert(i >= 0 && i < op_count());
  const StoredOp& stored = ops_[static_cast<std::size_t>(i)];
  const TensorId* const ids = ids_.data() + stored.ids;
  return {.kind = stored.kind,
          .inputs = {ids, stored.inputs},
          .outputs = {ids + stored.inputs, stored.outputs},
          .unit = stored.unit,
          .block = stored.block,
          .like = stored.like};
}

TensorId ForwardGraph::apply(OpKind kind, std::string name, const TensorIds& inputs, Shape shape,
                             ElementType type, std::int64_t count) {
  const bool requires_grad = kind == OpKind::kEmbeddingLookup || kind == OpKind::kReceive ||
                             (type != ElementType::kInt64 && any_requires_grad(inputs));
  const TensorId output =
      add({.count = count, .type = type, .role = TensorRole::kActivation, .requires_grad = requires_grad},
          std::move(name), std::move(shape));
  append(kind, inputs, {output});
  return output;
}

void ForwardGraph::set_gradient_type(TensorId id, ElementType type) {
  Tensor& activation = tensors_[static_cast<std::size_t>(id)];
  assert(activation.role == TensorRole::kActivation && activation.storage == id);
  activation.gradient_type = type;
}

TensorId ForwardGraph::alias(OpKind kind, std::string name, const TensorIds& inputs, Shape shape) {
  const Tensor& viewed = tensor(inputs.front());
  const TensorId output = add({.storage = viewed.storage,
                               .count = viewed.count,
                               .type = viewed.type,
                               .role = TensorRole::kActivation,
                               .requires_grad = any_requires_grad(inputs)},
                              std::move(name), std::move(shape));
  append(kind, inputs, {output});
  return output;
}

std::vector<TensorId> ForwardGraph::split(const std::string& name, TensorId x, std::vector<Shape> shapes,
                                          const std::vector<std::int64_t>& counts) {
  assert(shapes.size() == counts.size());
  std::vector<TensorId> parts;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const Tensor& whole = tensor(x);
    parts.push_back(add({.storage = whole.storage,
                         .count = counts[i],
                         .type = whole.type,
                         .role = TensorRole::kActivation,
                         .requires_grad = whole.requires_grad},
                        name + "." + std::to_string(i), std::move(shapes[i])));
  }
  append(OpKind::kSplit, {x}, parts);
  return parts;
}

TensorId ForwardGraph::repeat(const Mark& begin, TensorId input, TensorId output, std::int64_t times,
                              const std::string& name) {
  const auto first = static_cast<TensorId>(begin.tensor);
  const std::size_t end_op = ops_.size();
  const std::size_t end_tensor = tensors_.size();
  const auto stride = static_cast<TensorId>(end_tensor - begin.tensor);
  const std::int32_t units = last_unit_ - begin.unit;
  const std::int32_t blocks = last_block_ - begin.block;
  const TensorId input_storage = tensor(input).storage;
  const TensorId output_storage = tensor(output).storage;
  assert(output >= first && times >= 0);
  copies_.push_back({first + stride, first + stride * static_cast<TensorId>(times + 1), stride, name});
  const std::size_t end_id = ids_.size();
  const std::size_t first_id = begin.op < end_op ? ops_[begin.op].ids : end_id;
  const auto copies = static_cast<std::size_t>(times);
  ops_.reserve(ops_.size() + (end_op - begin.op) * copies + kReservedAfterCopies);
  tensors_.reserve(tensors_.size() + (end_tensor - begin.tensor) * copies + kReservedAfterCopies);
  ids_.reserve(ids_.size() + (end_id - first_id) * copies + kReservedAfterCopies);
  TensorId previous = output;  // output of the previous layer
  TensorId previous_storage = output_storage;
  for (std::int32_t copy = 1; copy <= times; ++copy) {
    charge(budget_, end_tensor - begin.tensor + end_op - begin.op);
    const TensorId shift = stride * copy;
    for (std::size_t i = begin.tensor; i < end_tensor; ++i) {
      Tensor tensor = tensors_[i];
      assert(tensor.role != TensorRole::kInput);
      if (tensor.storage >= first) {
        tensor.storage += shift;
      } else if (tensor.storage == input_storage) {
        tensor.storage = previous_storage;
      }
      tensor.unit += tensor.unit > begin.unit ? units * copy : 0;
      tensors_.push_back(tensor);
    }
    const auto ids_shift = static_cast<std::uint32_t>(ids_.size() - first_id);
    for (std::size_t i = begin.op; i < end_op; ++i) {
      StoredOp op = ops_[i];
      op.ids += ids_shift;
      op.unit += op.unit > begin.unit ? units * copy : 0;
      op.block += op.block > begin.block ? blocks * copy : 0;
      ops_.push_back(op);
    }
    for (std::size_t i = first_id; i < end_id; ++i) {
      const TensorId id = ids_[i];
      ids_.push_back(id >= first ? id + shift : id == input ? previous : id);
    }
    previous = output + shift;
    previous_storage = output_storage >= first ? output_storage + shift : previous_storage;
  }
  last_unit_ += units * static_cast<std::int32_t>(times);
  last_block_ += blocks * static_cast<std::int32_t>(times);
  return previous;
}

std::string ForwardGraph::name_of(TensorId id) const {
  std::string name = names_[static_cast<std::size_t>(tensor(id).name)];
  const auto copied = std::find_if(copies_.begin(), copies_.end(), [&](const Copies& copies) {
    return id >= copies.first && id < copies.end;
  });
  if (copied == copies_.end()) {
    return name;
  }
  if (!name.starts_with(copied->prefix)) {
    // The tensor is named after the input of the original layer ("embeddings.cast"); a copy has another
    // input.
    name = copied->prefix + "." + name.substr(name.rfind('.') + 1);
  }
  const std::size_t number = copied->prefix.find_last_not_of("0123456789") + 1;
  const std::int64_t original = std::atoll(copied->prefix.c_str() + number);
  const std::int64_t copy = (id - copied->first) / copied->tensors + 1;
  return copied->prefix.substr(0, number) + std::to_string(original + copy) +
         name.substr(copied->prefix.size());
}

const Tensor& ForwardGraph::tensor(TensorId id) const {
  assert(id >= 0 && static_cast<std::size_t>(id) < tensors_.size());
  return tensors_[static_cast<std::size_t>(id)];
}

bool ForwardGraph::any_requires_grad(const TensorIds& ids) const {
  return std::any_of(ids.begin(), ids.end(), [&](TensorId id) { return tensor(id).requires_grad; });
}

Bytes elements_of(const Shape& shape, std::int64_t batch) {
  Bytes elements{1};
  for (const Dim& dim : shape) {
    elements = elements * (Bytes{dim.per_sample} * batch + Bytes{dim.constant}).count;
  }
  return elements;
}

Bytes ForwardGraph::bytes_of_one(TensorId id, std::int64_t batch) const {
  return elements_of(shape_of(id), batch) * width_bytes(tensor(id).type);
}

Bytes ForwardGraph::bytes(TensorId id, std::int64_t batch) const {
  return bytes_of_one(id, batch) * tensor(id).count;
}

Bytes ForwardGraph::parameter_bytes() const {
  Bytes total;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    charge(budget_, 1);
    if (tensors_[i].role == TensorRole::kParameter) {
      total += bytes(static_cast<TensorId>(i), 1);
    }
  }
  return total;
}

}  // namespace plimsoll::estimator::spec
