// ForwardGraph: a model as the list of operators that PyTorch runs for one forward pass, loss included, with
// the shape of every tensor. Specs are lowered to it, and record.h records the trace of an iteration from it.
//
//   ForwardGraph graph;
//   TensorId x = graph.add_input("x", {per_sample(1), fixed(512)}, ElementType::kFP32);
//   TensorId w = graph.add_parameter("w", {fixed(256), fixed(512)}, ElementType::kFP32);
//   TensorId y = graph.apply(OpKind::kLinear, "fc", {x, w}, {per_sample(1), fixed(256)}, ElementType::kFP32);
//   graph.bytes(y, 1024);                        // 1 MiB: shapes are affine in the batch, no memory is allocated
//
// Tensors that share a storage (views, in-place results) record which one, because memory belongs to
// storages. A value type; const access is thread-safe. Misuse (an id of another graph) fails an assertion.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/budget.h"
#include "base/bytes.h"
#include "estimator/spec/small_list.h"

namespace plimsoll::estimator::inline spec {

enum class ElementType : std::uint8_t { kFP32, kFP16, kBF16, kInt64, kBool, kUInt8, kFP8 };
inline constexpr std::size_t kElementTypes = static_cast<std::size_t>(ElementType::kFP8) + 1;
std::int64_t width_bytes(ElementType type);
const char* dtype_of(ElementType type);  // PyTorch's name: "float32", ...
// The result type of arithmetic on both (torch.result_type of two floating-point tensors).
ElementType widest(ElementType a, ElementType b);

// One dimension: constant + per_sample * batch.
struct Dim {
  std::int64_t constant = 0;
  std::int64_t per_sample = 0;
};
constexpr Dim fixed(std::int64_t size) {
  return {.constant = size, .per_sample = 0};
}
constexpr Dim per_sample(std::int64_t size) {
  return {.constant = 0, .per_sample = size};
}
using Shape = SmallList<Dim, 4>;
// Number of elements, as Bytes because it saturates.
Bytes elements_of(const Shape& shape, std::int64_t batch);

enum class TensorRole : std::uint8_t {
  kActivation,  // result of an operator
  kInput,       // data of a batch, live in the whole iteration
  kParameter,   // trained, unless it requires no gradient
};

using TensorId = std::int32_t;
using TensorIds = SmallList<TensorId, 5>;

struct Tensor {
  std::int32_t shape = -1;  // see ForwardGraph::shape_of
  std::int32_t name = -1;   // see ForwardGraph::name_of
  TensorId storage = -1;    // the tensor whose memory it shares; its own id if it has its own memory
  std::int32_t unit = -1;   // of a parameter: see begin_unit
  std::int64_t count = 1;   // number of equal tensors, with one block each, that this stands for
  ElementType type = ElementType::kFP32;
  TensorRole role = TensorRole::kActivation;
  bool requires_grad = false;
  bool expert = false;                            // a parameter of one expert each
  std::optional<ElementType> gradient_type = {};  // nothing: as the tensor
};

// What autograd saves for each kind, and what its backward allocates: estimator/spec/autograd_rules.cc.
enum class OpKind : std::uint8_t {
  kEmbedding,        // (indices, weight) -> rows of the weight, whose gradient is dense
  kEmbeddingLookup,  // (indices) -> pooled embeddings of all tables, received from the trainers that have them
  kLinear,           // (x, weight[, bias])
  kFloat8Linear,     // (x, weight[, bias]), multiplied in 8 bits
  kFusedFloat8Linear,  // the same where torch.compile fuses the casts
  kLinear4bit,         // (x, packed weight[, bias]), bitsandbytes': the weight is made whole for each product
  kLinear4bitOfInput,  // the same of bitsandbytes before 0.43.2, which keeps x
  kLinear8bit,         // (x, weight[, bias]), bitsandbytes' LLM.int8()
  kConvolution,        // (x, weight[, bias])
  kRelu,               // (x)
  kTanh,               // (x)
  kSigmoid,            // (x)
  kGelu,               // (x), exact or by tanh
  kSilu,               // (x)
  kBloomGelu,          // (x): an autograd function of BLOOM, which computes its derivative step by step
  kExp,                // (x)
  kSoftplus,           // (x)
  kSolveTriangular,    // (matrix, right side) -> the solution
  kPad,                // (x) -> x with zeros behind it
  kSelectiveScan,      // (decay, input, readout): Mamba's recurrence, step by step over the tokens
  kScale,              // (x) -> -x, x + 1, x * 2 and similar
  kPower,              // (x) -> x to a constant power
  kMean,               // (x) -> its mean over the last dimension
  kRsqrt,              // (x) -> 1 / sqrt(x)
  kSoftmax,            // (x)
  kLogSoftmax,         // (x)
  kLayerNorm,          // (x[, weight, bias]) over the last dimension
  kRmsNorm,            // (x, weight) in one kernel
  kRotary,             // (x, cos, sin) in one kernel: rotary positions
  kGatedActivation,    // (x, gate) in one kernel: activation(x) * gate
  kDropout,            // (x)
  kAttention,         // (q, k, v[, mask]): scaled_dot_product_attention in one kernel, without a score matrix
  kRingAttention,     // (q, k, v, all trainers' keys and values): the same where trainers split the tokens
  kAdd,               // (a, b), b may broadcast
  kMul,               // (a, b)
  kMatMul,            // (a, b), batched
  kConcat,            // (parts...)
  kSplit,             // (x) -> views of parts of it
  kView,              // (x) -> the same memory in another shape
  kSlice,             // (x) -> a view of a part of it; unlike a split's, its gradient is as large as x
  kReshape,           // (x) -> the same memory; its gradient has another layout and must be copied
  kCopy,              // (x) -> the same values in other strides
  kRepeat,            // (x) -> each value several times
  kToPadded,          // (rows of sequences) -> the sequences, padded to one length
  kExpand,            // (x) -> a copy of x, repeated along a dimension; the gradient is a sum
  kSum,               // (x) -> sums over a dimension; the gradient is a view of the output's gradient
  kSort,              // (x) -> the sorting order: integers
  kGather,            // (x, indices): elements at constant indices
  kSelectRows,        // (x, indices) -> rows of x
  kTopK,              // (x) -> the largest values and their indices
  kCast,              // (x) -> a copy in another type
  kReceive,           // () -> what the previous stage sent; its gradient is sent back
  kAllReduce,         // (x) -> x, summed over the trainers in place; the gradient is passed through
  kCopyToRegion,      // (x) -> x; its gradient is summed over the trainers in place
  kAllGather,         // (x) -> the trainers' parts of x, concatenated; the gradient is reduce-scattered
  kReduceScatter,     // (x) -> this trainer's part of the sum; the gradient is all-gathered
  kAllToAll,          // (x) -> parts exchanged with the other trainers
  kBceWithLogits,     // (logits, labels) -> mean loss
  kNllLoss,           // (log probabilities, labels) -> mean loss
  kCrossEntropy,      // (logits, labels) -> mean loss, in one kernel
  kChunkedLoss,       // (x, weight, labels, a part of x) -> mean loss of x * weight^T, part by part
  kFusedChunkedLoss,  // the same with the loss in one kernel
  kSplitLogSoftmax,   // (x): log-softmax of logits that the trainers split by the vocabulary
  kSplitNllLoss,      // (log probabilities, labels) -> mean loss, of the same
  kMegatronLoss,      // (logits, labels) -> mean loss: Megatron-LM's vocab_parallel_cross_entropy
  kScopeEnd,          // (values...): the model's code holds references to them until here
};

inline constexpr std::size_t kOpKinds = static_cast<std::size_t>(OpKind::kScopeEnd) + 1;
// PyTorch's name: "aten::mm", ...
const char* name_of(OpKind kind);

// An operator of the graph. Valid until the graph changes.
struct Op {
  OpKind kind = OpKind::kView;
  std::span<const TensorId> inputs;
  std::span<const TensorId> outputs;
  std::int32_t unit = -1;   // see begin_unit
  std::int32_t block = -1;  // the block that activation checkpointing recomputes; -1: none
  std::int32_t like = -1;   // the operator that this one is a copy of (see repeat); its own index if none
};

class ForwardGraph {
 public:
  // Each tensor and operator costs one unit of `budget`'s work, and memory of it.
  explicit ForwardGraph(Budget* budget = nullptr)
      : budget_(budget), tensors_(budget), ops_(budget), ids_(budget), shapes_(budget), names_(budget) {}

  TensorId add_input(std::string name, Shape shape, ElementType type);
  TensorId add_parameter(std::string name, Shape shape, ElementType type, std::int64_t count = 1,
                         bool trained = true);

  // As many equal parameters as there are experts.
  TensorId add_expert_parameters(std::string name, Shape shape, ElementType type, std::int64_t experts);

  // Appends an operator with one output in its own memory. The output requires a gradient if an input does,
  // or if the operator is an embedding lookup (the tables are trained).
  TensorId apply(OpKind kind, std::string name, const TensorIds& inputs, Shape shape, ElementType type,
                 std::int64_t count = 1);
  // The gradient of an activation, which has its own memory, is of another type than the activation.
  void set_gradient_type(TensorId id, ElementType type);
  // Appends a kView, or another operator whose output shares the memory of its first input.
  TensorId view(std::string name, TensorId x, Shape shape) {
    return alias(OpKind::kView, std::move(name), {x}, std::move(shape));
  }
  TensorId alias(OpKind kind, std::string name, const TensorIds& inputs, Shape shape);
  // Appends a kSplit of `x`; part i stands for counts[i] equal tensors.
  std::vector<TensorId> split(const std::string& name, TensorId x, std::vector<Shape> shapes,
                              const std::vector<std::int64_t>& counts);

  // Operators appended from now on belong to a new block.
  void begin_block() { block_ = ++last_block_; }
  // The model's code held references to these values until here.
  void end_scope(const TensorIds& values) { append(OpKind::kScopeEnd, values, {}); }
  void end_block() { block_ = -1; }
  bool in_block() const { return block_ >= 0; }
  // What the model returns, if its caller keeps it.
  void set_result(TensorId result) { result_ = result; }
  TensorId result() const { return result_; }
  // Operators and parameters appended from now on belong to a new unit, whose parameters FSDP gathers
  // together: a layer. Outside of units: -1.
  void begin_unit() { unit_ = ++last_unit_; }
  void end_unit() { unit_ = -1; }

  // A position in the lists of operators and tensors.
  struct Mark {
    std::size_t op = 0, tensor = 0;
    std::int32_t unit = -1, block = -1;
  };
  Mark mark() const { return {ops_.size(), tensors_.size(), last_unit_, last_block_}; }
  // Appends `times` copies of everything since `begin`, a layer with the input `input` and the output
  // `output`. The input of each copy is the output of the previous one. `name`: the prefix of the names of
  // the layer's tensors; its trailing number is incremented in each copy. Returns the output of the last
  // copy. The copied part must not contain inputs of the model.
  TensorId repeat(const Mark& begin, TensorId input, TensorId output, std::int64_t times,
                  const std::string& name);

  const BudgetVector<Tensor>& tensors() const { return tensors_; }
  const BudgetVector<Shape>& shapes() const { return shapes_; }  // indexed by Tensor::shape
  std::int32_t op_count() const { return static_cast<std::int32_t>(ops_.size()); }
  Op op(std::int32_t i) const;
  const Tensor& tensor(TensorId id) const;
  const Shape& shape_of(TensorId id) const { return shapes_[static_cast<std::size_t>(tensor(id).shape)]; }
  // Name of the module that computes the tensor, or whose parameter it is.
  std::string name_of(TensorId id) const;

  // Bytes of one of the `count` equal tensors, and of all of them. Saturate.
  Bytes bytes_of_one(TensorId id, std::int64_t batch) const;
  Bytes bytes(TensorId id, std::int64_t batch) const;
  // Of all parameters.
  Bytes parameter_bytes() const;

 private:
  // An operator in compact form, because a large model has ten thousand of them. `ids_` contains its inputs,
  // then its outputs.
  struct StoredOp {
    std::uint32_t ids = 0;
    std::uint32_t inputs = 0;
    std::uint32_t outputs = 0;
    std::int32_t unit = -1;
    std::int32_t block = -1;
    std::int32_t like = -1;
    OpKind kind = OpKind::kView;
  };

  TensorId add(Tensor tensor, std::string name, Shape shape);
  bool any_requires_grad(const TensorIds& ids) const;
  void append(OpKind kind, const TensorIds& inputs, const TensorIds& outputs);

  struct Copies {  // appended by repeat()
    TensorId first = 0, end = 0;
    std::int32_t tensors = 0;  // of each copy
    std::string prefix;
  };

  Budget* budget_;
  BudgetVector<Tensor> tensors_;
  BudgetVector<StoredOp> ops_;
  BudgetVector<TensorId> ids_;
  BudgetVector<Shape> shapes_;
  BudgetVector<std::string> names_;
  std::vector<Copies> copies_;

  std::int32_t unit_ = -1;
  std::int32_t last_unit_ = -1;
  std::int32_t block_ = -1;
  TensorId result_ = -1;
  std::int32_t last_block_ = -1;
};

}  // namespace plimsoll::estimator::spec
