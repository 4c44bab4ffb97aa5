#include "estimator/graph/operator_graph.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace plimsoll::estimator {

std::int64_t width_bytes(ElementType type) {
  switch (type) {
    case ElementType::kFP32: return 4;
    case ElementType::kFP16: return 2;
    case ElementType::kBF16: return 2;
    case ElementType::kInt64: return 8;
    case ElementType::kBool: return 1;
  }
  assert(false);
  return 8;
}

ElementType widest(ElementType a, ElementType b) {
  // fp16 with bf16 gives fp32 in PyTorch; no graph of ours mixes the two.
  return a == b ? a : ElementType::kFP32;
}

TensorId OperatorGraph::add(Tensor tensor) {
  const auto id = static_cast<TensorId>(tensors_.size());
  if (tensor.storage < 0) {
    tensor.storage = id;
  }
  tensors_.push_back(std::move(tensor));
  return id;
}

TensorId OperatorGraph::add_input(std::string name, Shape shape, ElementType type) {
  return add({.name = std::move(name), .shape = std::move(shape), .type = type, .role = TensorRole::kInput});
}

TensorId OperatorGraph::add_parameter(std::string name, Shape shape, ElementType type, std::int64_t count) {
  return add({.name = std::move(name),
              .shape = std::move(shape),
              .type = type,
              .role = TensorRole::kParameter,
              .requires_grad = true,
              .count = count,
              .unit = unit_});
}

void OperatorGraph::append(OpKind kind, std::string name, std::vector<TensorId> inputs,
                           std::vector<TensorId> outputs) {
  ops_.push_back({.kind = kind,
                  .name = std::move(name),
                  .inputs = std::move(inputs),
                  .outputs = std::move(outputs),
                  .unit = unit_,
                  .block = block_});
}

TensorId OperatorGraph::apply(OpKind kind, std::string name, std::vector<TensorId> inputs, Shape shape,
                              ElementType type, std::int64_t count) {
  const bool requires_grad = kind == OpKind::kEmbeddingLookup || kind == OpKind::kReceive ||
                             (type != ElementType::kInt64 && any_requires_grad(inputs));
  const TensorId output = add({.name = name,
                               .shape = std::move(shape),
                               .type = type,
                               .role = TensorRole::kActivation,
                               .requires_grad = requires_grad,
                               .count = count});
  append(kind, std::move(name), std::move(inputs), {output});
  return output;
}

TensorId OperatorGraph::alias(OpKind kind, std::string name, std::vector<TensorId> inputs, Shape shape) {
  const Tensor& viewed = tensor(inputs.front());
  const TensorId output = add({.name = name,
                               .shape = std::move(shape),
                               .type = viewed.type,
                               .role = TensorRole::kActivation,
                               .requires_grad = any_requires_grad(inputs),
                               .count = viewed.count,
                               .storage = viewed.storage});
  append(kind, std::move(name), std::move(inputs), {output});
  return output;
}

std::vector<TensorId> OperatorGraph::split(std::string name, TensorId x, std::vector<Shape> shapes,
                                           const std::vector<std::int64_t>& counts) {
  assert(shapes.size() == counts.size());
  std::vector<TensorId> parts;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const Tensor& whole = tensor(x);
    parts.push_back(add({.name = name + "." + std::to_string(i),
                         .shape = std::move(shapes[i]),
                         .type = whole.type,
                         .role = TensorRole::kActivation,
                         .requires_grad = whole.requires_grad,
                         .count = counts[i],
                         .storage = whole.storage}));
  }
  append(OpKind::kSplit, std::move(name), {x}, parts);
  return parts;
}

const Tensor& OperatorGraph::tensor(TensorId id) const {
  assert(id >= 0 && static_cast<std::size_t>(id) < tensors_.size());
  return tensors_[static_cast<std::size_t>(id)];
}

bool OperatorGraph::any_requires_grad(const std::vector<TensorId>& ids) const {
  return std::any_of(ids.begin(), ids.end(), [&](TensorId id) { return tensor(id).requires_grad; });
}

Bytes OperatorGraph::bytes_of_one(TensorId id, std::int64_t batch) const {
  const Tensor& measured = tensor(id);
  Bytes bytes{width_bytes(measured.type)};
  for (const Dim& dim : measured.shape) {
    bytes = bytes * (Bytes{dim.per_sample} * batch + Bytes{dim.constant}).count;
  }
  return bytes;
}

Bytes OperatorGraph::bytes(TensorId id, std::int64_t batch) const {
  return bytes_of_one(id, batch) * tensor(id).count;
}

Bytes OperatorGraph::parameter_bytes() const {
  Bytes total;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].role == TensorRole::kParameter) {
      total += bytes(static_cast<TensorId>(i), 1);
    }
  }
  return total;
}

std::int64_t OperatorGraph::parameter_count() const {
  Bytes total;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].role == TensorRole::kParameter) {
      const auto id = static_cast<TensorId>(i);
      total += Bytes{bytes_of_one(id, 1).count / width_bytes(tensors_[i].type)} * tensors_[i].count;
    }
  }
  return total.count;
}

}  // namespace plimsoll::estimator
