// OperatorGraph: a model as the list of operators that PyTorch would run for one forward pass, loss included,
// with the shape of every tensor. Each front end (the DLRM spec now) lowers to it, and one simulator
// (estimator/memory/simulate.h) reads it.
//
//   OperatorGraph graph;
//   TensorId x = graph.add_input("x", {per_sample(1), fixed(512)}, ElementType::kFP32);
//   TensorId w = graph.add_parameter("w", {fixed(256), fixed(512)}, ElementType::kFP32);
//   TensorId y = graph.apply(OpKind::kLinear, "fc", {x, w}, {per_sample(1), fixed(256)}, ElementType::kFP32);
//   graph.bytes(y, 1024);                        // 1 MiB: shapes are affine in the batch, nothing is
//   allocated
//
// Tensors that share a storage (views, in-place results) say so, for memory is held by storages. A value
// type; const access from any thread. Misuse (an id of another graph) asserts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace plimsoll::estimator {

enum class ElementType { kFP32, kFP16, kBF16, kInt64 };
std::int64_t width_bytes(ElementType type);
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
using Shape = std::vector<Dim>;

enum class TensorRole {
  kActivation,  // made by an operator
  kInput,       // a batch's data, alive the whole iteration
  kParameter,   // trained
};

using TensorId = std::int32_t;

struct Tensor {
  std::string name;
  Shape shape;
  ElementType type = ElementType::kFP32;
  TensorRole role = TensorRole::kActivation;
  bool requires_grad = false;
  std::int64_t count = 1;  // stands for so many equal tensors, each a block of its own
  TensorId storage = -1;   // the tensor whose memory this one is; its own id when it has memory of its own
};

// What autograd saves for each, and what its backward allocates: estimator/memory/autograd_rules.cc.
enum class OpKind {
  kEmbeddingLookup,  // (indices) -> pooled embeddings of all tables, received from the trainers that hold
                     // them
  kLinear,           // (x, weight[, bias])
  kRelu,             // (x)
  kAdd,              // (a, b), b may broadcast
  kMul,              // (a, b)
  kMatMul,           // (a, b), batched
  kConcat,           // (parts...)
  kSplit,            // (x) -> views of parts of it
  kView,             // (x) -> the same memory in another shape
  kGather,           // (x, indices): elements picked by constant indices
  kCast,             // (x) -> a copy in another type
  kBceWithLogits,    // (logits, labels) -> mean loss
};

struct Op {
  OpKind kind = OpKind::kView;
  std::string name;
  std::vector<TensorId> inputs;
  std::vector<TensorId> outputs;
  std::int32_t block = -1;  // the part of the model that activation checkpointing recomputes as one; -1: none
};

class OperatorGraph {
 public:
  TensorId add_input(std::string name, Shape shape, ElementType type);
  TensorId add_parameter(std::string name, Shape shape, ElementType type, std::int64_t count = 1);

  // Appends an operator with one output of its own memory. The output requires a gradient when an input does,
  // or when the operator is an embedding lookup (the tables are trained).
  TensorId apply(OpKind kind, std::string name, std::vector<TensorId> inputs, Shape shape, ElementType type,
                 std::int64_t count = 1);
  // Appends a kView whose output has the memory of `x`.
  TensorId view(std::string name, TensorId x, Shape shape);
  // Appends a kSplit of `x`; part i stands for counts[i] equal tensors.
  std::vector<TensorId> split(std::string name, TensorId x, std::vector<Shape> shapes,
                              const std::vector<std::int64_t>& counts);

  // Operators appended from now on belong to a new block, or to none.
  void begin_block() { block_ = ++last_block_; }
  void end_block() { block_ = -1; }

  const std::vector<Tensor>& tensors() const { return tensors_; }
  const std::vector<Op>& ops() const { return ops_; }
  const Tensor& tensor(TensorId id) const;

  // Of one of the `count` equal tensors, and of all of them. Saturates.
  Bytes bytes_of_one(TensorId id, std::int64_t batch) const;
  Bytes bytes(TensorId id, std::int64_t batch) const;
  // All parameters.
  Bytes parameter_bytes() const;

 private:
  TensorId add(Tensor tensor);
  bool any_requires_grad(const std::vector<TensorId>& ids) const;

  std::vector<Tensor> tensors_;
  std::vector<Op> ops_;
  std::int32_t block_ = -1;
  std::int32_t last_block_ = -1;
};

}  // namespace plimsoll::estimator
