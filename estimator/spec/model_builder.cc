#include "estimator/spec/model_builder.h"

namespace plimsoll::estimator::inline spec {

TensorId ModelBuilder::cast(TensorId x, ElementType type) {
  const Tensor& tensor = graph_.tensor(x);
  if (tensor.type == type) {
    return x;
  }
  Shape shape = graph_.shape_of(x);
  return graph_.apply(OpKind::kCast, graph_.name_of(x) + ".cast", {x}, std::move(shape), type, tensor.count);
}

TensorId ModelBuilder::linear(const std::string& name, TensorId x, TensorId weight, TensorId bias,
                              Shape shape, std::int64_t count) {
  TensorIds inputs = {cast(x, compute_), cast(weight, compute_)};
  if (bias >= 0) {
    inputs.push_back(cast(bias, compute_));
  }
  return graph_.apply(OpKind::kLinear, name, inputs, std::move(shape), compute_, count);
}

TensorId ModelBuilder::linear(const std::string& name, TensorId x, Shape shape, std::int64_t in,
                              std::int64_t out, bool bias) {
  const TensorId weight = parameter(name + ".weight", {fixed(out), fixed(in)});
  return linear(name, x, weight, bias ? parameter(name + ".bias", {fixed(out)}) : -1, std::move(shape));
}

TensorId ModelBuilder::matmul(const std::string& name, TensorId a, TensorId b, Shape shape) {
  return graph_.apply(OpKind::kMatMul, name, {cast(a, compute_), cast(b, compute_)}, std::move(shape),
                      compute_);
}

TensorId ModelBuilder::layer_norm(const std::string& name, TensorId x, std::int64_t width, bool bias) {
  TensorIds inputs = {as_float(x), as_float(parameter(name + ".weight", {fixed(width)}))};
  if (bias) {
    inputs.push_back(as_float(parameter(name + ".bias", {fixed(width)})));
  }
  const ElementType type = this->type(inputs.front());
  return graph_.apply(OpKind::kLayerNorm, name, inputs, shape(x), type);
}

TensorId ModelBuilder::rms_norm(const std::string& name, TensorId x, std::int64_t width) {
  const ElementType original = type(x);
  const TensorId in = cast(x, ElementType::kFP32);
  const TensorId squares = unary(OpKind::kPower, name + ".square", in);
  Shape rows = shape(in);
  rows.back() = fixed(1);
  const TensorId variance =
      graph_.apply(OpKind::kMean, name + ".variance", {squares}, std::move(rows), ElementType::kFP32);
  const TensorId root =
      unary(OpKind::kRsqrt, name + ".rsqrt", unary(OpKind::kScale, name + ".shift", variance));
  const TensorId normal = cast(multiply(name + ".normal", in, root), original);
  const TensorId weight = parameter(name + ".weight", {fixed(width)});
  return binary(OpKind::kMul, name, normal, weight, shape(normal));
}

void ModelBuilder::cross_entropy(TensorId logits, Shape label_shape) {
  const TensorId labels = graph_.add_input("labels", std::move(label_shape), ElementType::kInt64);
  const TensorId log = unary(OpKind::kLogSoftmax, "loss.log_softmax", cast(logits, ElementType::kFP32));
  graph_.apply(OpKind::kNllLoss, "loss", {log, labels}, {fixed(1)}, ElementType::kFP32);
  // The model's forward holds its logits until it returns the loss.
  graph_.end_scope({logits});
}

}  // namespace plimsoll::estimator::spec
