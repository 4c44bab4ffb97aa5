// ForwardGraph: a model as the list of operators that PyTorch would run for one forward pass, loss included,
// with the shape of every tensor. Specs are lowered to it, and record.h makes the trace of an iteration of
// it.
//
//   ForwardGraph graph;
//   TensorId x = graph.add_input("x", {per_sample(1), fixed(512)}, ElementType::kFP32);
//   TensorId w = graph.add_parameter("w", {fixed(256), fixed(512)}, ElementType::kFP32);
//   TensorId y = graph.apply(OpKind::kLinear, "fc", {x, w}, {per_sample(1), fixed(256)}, ElementType::kFP32);
//   graph.bytes(y, 1024);                        // 1 MiB: shapes are affine in the batch, no memory is taken
//
// Tensors that share a storage (views, in-place results) say so, for memory is held by storages. A value
// type; const access from any thread. Misuse (an id of another graph) asserts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/budget.h"
#include "base/bytes.h"
#include "estimator/spec/small_list.h"

namespace plimsoll::estimator::inline spec {

enum class ElementType : std::uint8_t { kFP32, kFP16, kBF16, kInt64, kBool };
inline constexpr std::size_t kElementTypes = static_cast<std::size_t>(ElementType::kBool) + 1;
std::int64_t width_bytes(ElementType type);
const char* dtype_of(ElementType type);  // as PyTorch calls it: "float32", ...
// The type that arithmetic on both gives (torch.result_type of two floating tensors).
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
// As Bytes, for it saturates.
Bytes elements_of(const Shape& shape, std::int64_t batch);

enum class TensorRole : std::uint8_t {
  kActivation,  // made by an operator
  kInput,       // a batch's data, alive the whole iteration
  kParameter,   // trained
};

using TensorId = std::int32_t;
using TensorIds = SmallList<TensorId, 5>;

struct Tensor {
  std::int32_t shape = -1;  // see ForwardGraph::shape_of
  std::int32_t name = -1;   // see ForwardGraph::name_of
  TensorId storage = -1;    // the tensor whose memory this one is; its own id when it has memory of its own
  std::int32_t unit = -1;   // of a parameter: see begin_unit
  std::int64_t count = 1;   // stands for so many equal tensors, each a block of its own
  ElementType type = ElementType::kFP32;
  TensorRole role = TensorRole::kActivation;
  bool requires_grad = false;
};

// What autograd saves for each, and what its backward allocates: estimator/spec/autograd_rules.cc.
enum class OpKind : std::uint8_t {
  kEmbedding,        // (indices, weight) -> rows of the weight, whose gradient is dense
  kEmbeddingLookup,  // (indices) -> pooled embeddings of all tables, received from the trainers that hold
                     // them
  kLinear,           // (x, weight[, bias])
  kRelu,             // (x)
  kTanh,             // (x)
  kSigmoid,          // (x)
  kGelu,             // (x), exact or by tanh
  kSilu,             // (x)
  kScale,            // (x) -> -x, x + 1, x * 2 and the like
  kPower,            // (x) -> x to a constant power
  kMean,             // (x) -> its mean over the last dimension
  kRsqrt,            // (x) -> 1 / sqrt(x)
  kSoftmax,          // (x)
  kLogSoftmax,       // (x)
  kLayerNorm,        // (x[, weight, bias]) over the last dimension
  kDropout,          // (x)
  kAttention,        // (q, k, v[, mask]): scaled_dot_product_attention in one kernel, no matrix of scores
  kAdd,              // (a, b), b may broadcast
  kMul,              // (a, b)
  kMatMul,           // (a, b), batched
  kConcat,           // (parts...)
  kSplit,            // (x) -> views of parts of it
  kView,             // (x) -> the same memory in another shape
  kSlice,            // (x) -> a view of a part of it; unlike a split's, its gradient is as large as x
  kReshape,          // (x) -> the same memory; its gradient lies otherwise and must be copied
  kCopy,             // (x) -> the same values in other strides
  kRepeat,           // (x) -> each value several times
  kToPadded,         // (rows of sequences) -> the sequences, padded to one length
  kExpand,           // (x) -> x repeated along a dimension and written out; the gradient is a sum
  kSum,              // (x) -> sums over a dimension; the gradient is a view of the given one
  kSort,             // (x) -> its order: integers
  kGather,           // (x, indices): elements picked by constant indices
  kSelectRows,       // (x, indices) -> rows of x
  kTopK,             // (x) -> the largest values and where they are
  kCast,             // (x) -> a copy in another type
  kReceive,          // () -> what the stage before sent; its gradient is sent back
  kAllReduce,        // (x) -> x, summed over the trainers in place; its gradient is passed on
  kCopyToRegion,     // (x) -> x; its gradient is summed over the trainers in place
  kAllGather,        // (x) -> the trainers' parts of x together; the gradient is scattered again
  kReduceScatter,    // (x) -> this trainer's part of the sum; the gradient is gathered
  kAllToAll,         // (x) -> parts exchanged with the other trainers
  kBceWithLogits,    // (logits, labels) -> mean loss
  kNllLoss,          // (log probabilities, labels) -> mean loss
  kScopeEnd,         // (values...): names of the model's code that held them until here
};

inline constexpr std::size_t kOpKinds = static_cast<std::size_t>(OpKind::kScopeEnd) + 1;
// As PyTorch calls it: "aten::mm", ...
const char* name_of(OpKind kind);

// As the graph shows it: good until the graph changes.
struct Op {
  OpKind kind = OpKind::kView;
  std::span<const TensorId> inputs;
  std::span<const TensorId> outputs;
  std::int32_t unit = -1;   // see begin_unit
  std::int32_t block = -1;  // the part of the model that activation checkpointing recomputes as one; -1: none
  std::int32_t like = -1;   // the operator that this one is a copy of (see repeat), or itself
};

class ForwardGraph {
 public:
  // Each tensor and operator is a unit of `budget`'s work, and takes of its memory.
  explicit ForwardGraph(Budget* budget = nullptr)
      : budget_(budget), tensors_(budget), ops_(budget), ids_(budget), shapes_(budget), names_(budget) {}

  TensorId add_input(std::string name, Shape shape, ElementType type);
  TensorId add_parameter(std::string name, Shape shape, ElementType type, std::int64_t count = 1);

  // Appends an operator with one output of its own memory. The output requires a gradient when an input does,
  // or when the operator is an embedding lookup (the tables are trained).
  TensorId apply(OpKind kind, std::string name, const TensorIds& inputs, Shape shape, ElementType type,
                 std::int64_t count = 1);
  // Appends a kView, or another operator whose output has the memory of its first input.
  TensorId view(std::string name, TensorId x, Shape shape) {
    return alias(OpKind::kView, std::move(name), {x}, std::move(shape));
  }
  TensorId alias(OpKind kind, std::string name, const TensorIds& inputs, Shape shape);
  // Appends a kSplit of `x`; part i stands for counts[i] equal tensors.
  std::vector<TensorId> split(std::string name, TensorId x, std::vector<Shape> shapes,
                              const std::vector<std::int64_t>& counts);

  // Operators appended from now on belong to a new block, or to none.
  void begin_block() { block_ = ++last_block_; }
  // What the values of the model's code were called that lived until here.
  void end_scope(const TensorIds& values) { append(OpKind::kScopeEnd, values, {}); }
  void end_block() { block_ = -1; }
  bool in_block() const { return block_ >= 0; }
  // Operators and parameters from now on belong to a new unit, whose parameters FSDP would gather and scatter
  // together: a layer. Outside units: -1.
  void begin_unit() { unit_ = ++last_unit_; }
  void end_unit() { unit_ = -1; }

  // A place in the lists of operators and tensors.
  struct Mark {
    std::size_t op = 0, tensor = 0;
    std::int32_t unit = -1, block = -1;
  };
  Mark mark() const { return {ops_.size(), tensors_.size(), last_unit_, last_block_}; }
  // Appends `times` copies of all that came since `begin`, a layer that took `input` and gave `output`: each
  // copy takes what the one before gave. `name`: what the names of the layer's tensors begin with; its
  // trailing number counts up in the copies. Returns what the last one gives. Inputs of the model must not be
  // among what is copied.
  TensorId repeat(const Mark& begin, TensorId input, TensorId output, std::int64_t times,
                  const std::string& name);

  const BudgetVector<Tensor>& tensors() const { return tensors_; }
  const BudgetVector<Shape>& shapes() const { return shapes_; }  // by Tensor::shape
  std::int32_t op_count() const { return static_cast<std::int32_t>(ops_.size()); }
  Op op(std::int32_t i) const;
  const Tensor& tensor(TensorId id) const;
  const Shape& shape_of(TensorId id) const { return shapes_[static_cast<std::size_t>(tensor(id).shape)]; }
  // Of the part of the model that made it, or that it is a parameter of.
  std::string name_of(TensorId id) const;

  // Of one of the `count` equal tensors, and of all of them. Saturates.
  Bytes bytes_of_one(TensorId id, std::int64_t batch) const;
  Bytes bytes(TensorId id, std::int64_t batch) const;
  // All parameters.
  Bytes parameter_bytes() const;
  std::int64_t parameter_count() const;

 private:
  // An operator as it is kept: small, for a large model has ten thousand of them. `ids_` has its inputs,
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

  struct Copies {  // made by repeat()
    TensorId first = 0, end = 0;
    std::int32_t tensors = 0;  // of each
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
  std::int32_t last_block_ = -1;
};

}  // namespace plimsoll::estimator::spec
