// ModelBuilder: appends the operators that PyTorch runs for common parts of a model, with the casts that the
// precision requires. Used by lower_dlrm() and lower_transformer().
//
//   ModelBuilder builder(crds::Precision::kBF16Mixed);
//   TensorId y = builder.linear("fc", x, {per_sample(1), fixed(256)}, 512, 256, true);
//   ForwardGraph graph = std::move(builder).graph();
//
// Not thread-safe; each lowering owns its builder.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "crds/training_job.h"
#include "estimator/spec/forward_graph.h"

namespace plimsoll::estimator::inline spec {

class ModelBuilder {
 public:
  explicit ModelBuilder(crds::Precision precision, Budget* budget = nullptr) : graph_(budget) {
    switch (precision) {
      case crds::Precision::kFP32:
      case crds::Precision::kTF32: break;  // TF32 affects matrix products only; tensors stay fp32
      case crds::Precision::kBF16Mixed: compute_ = ElementType::kBF16; break;
      case crds::Precision::kFP16Mixed: compute_ = ElementType::kFP16; break;
      case crds::Precision::kBF16: stored_ = compute_ = ElementType::kBF16; break;
    }
  }

  ForwardGraph& graph() & { return graph_; }
  ForwardGraph graph() && { return std::move(graph_); }

  ElementType stored() const { return stored_; }    // of parameters and inputs
  ElementType compute() const { return compute_; }  // of matrix products
  // True if torch.autocast is on.
  bool mixed() const { return stored_ != compute_; }

  ElementType type(TensorId x) const { return graph_.tensor(x).type; }
  const Shape& shape(TensorId x) const { return graph_.shape_of(x); }

  TensorId parameter(const std::string& name, Shape shape, std::int64_t count = 1) {
    return graph_.add_parameter(name, std::move(shape), stored_, count);
  }
  // A copy in another type, unless x has that type. Autocast copies an activation once for each user.
  TensorId cast(TensorId x, ElementType type);

  // x in the type that autocast uses for norms, softmax, losses and powers: fp32.
  TensorId as_float(TensorId x) { return mixed() ? cast(x, ElementType::kFP32) : x; }

  // x * weight^T [+ bias], with the shape `shape`. Autocast casts the operands of matrix products to 16 bits.
  TensorId linear(const std::string& name, TensorId x, TensorId weight, TensorId bias, Shape shape,
                  std::int64_t count = 1);
  // The same with new parameters.
  TensorId linear(const std::string& name, TensorId x, Shape shape, std::int64_t in, std::int64_t out,
                  bool bias);
  TensorId matmul(const std::string& name, TensorId a, TensorId b, Shape shape);

  // An operator of one input with an output of the same shape.
  TensorId unary(OpKind kind, std::string name, TensorId x) {
    return graph_.apply(kind, std::move(name), {x}, shape(x), type(x));
  }
  // The result has the larger shape and the wider type.
  TensorId binary(OpKind kind, std::string name, TensorId a, TensorId b, Shape shape) {
    return graph_.apply(kind, std::move(name), {a, b}, std::move(shape), widest(type(a), type(b)));
  }
  TensorId add(std::string name, TensorId a, TensorId b) {
    return binary(OpKind::kAdd, std::move(name), a, b, shape(a));
  }
  TensorId multiply(std::string name, TensorId a, TensorId b) {
    return binary(OpKind::kMul, std::move(name), a, b, shape(a));
  }
  TensorId dropout(std::string name, TensorId x, double probability) {
    return probability > 0 ? unary(OpKind::kDropout, std::move(name), x) : x;
  }
  TensorId layer_norm(const std::string& name, TensorId x, std::int64_t width, bool bias);
  // As Hugging Face's LlamaRMSNorm, operator by operator, in fp32.
  TensorId rms_norm(const std::string& name, TensorId x, std::int64_t width);
  // Mean cross entropy of the logits, in fp32.
  void cross_entropy(TensorId logits, Shape label_shape);

 private:
  ForwardGraph graph_;
  ElementType stored_ = ElementType::kFP32;
  ElementType compute_ = ElementType::kFP32;
};

}  // namespace plimsoll::estimator::spec
