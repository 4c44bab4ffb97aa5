#include "estimator/transformer/transformer_part.h"

#include <algorithm>
#include <utility>

namespace plimsoll::estimator::inline transformer {

CheckpointedModule::CheckpointedModule(TransformerContext& context, const std::string& path, bool layer)
    : graph_(context.builder.graph()), begun_(false) {
  using enum crds::ActivationCheckpointing;
  const crds::ActivationCheckpointing kind = context.training.activation_checkpointing;
  begun_ =
      !graph_.in_block() && (kind == kPerModule ? context.patterns.matches(path) : layer && kind != kNone);
  if (begun_) {
    graph_.begin_block();
  }
}

CheckpointedModule::~CheckpointedModule() {
  if (begun_) {
    graph_.end_block();
  }
}

TransformerPiece::TransformerPiece(TransformerContext& context)
    : context_(context),
      spec_(context.spec),
      part_(context.part),
      training_(context.training),
      builder_(context.builder),
      graph_(context.builder.graph()),
      tokens_(spec_.sequence / part_.context),
      residual_tokens_(part_.sequence ? tokens_ / part_.tensor : tokens_),
      heads_(spec_.heads / part_.tensor),
      kv_heads_(std::max<std::int64_t>(1, spec_.kv_heads / part_.tensor)) {}

TensorId TransformerPiece::norm(const std::string& name, TensorId x) {
  return spec_.norm == crds::Normalization::kRMSNorm
             ? rms_norm(name, x, spec_.hidden)
             : builder_.layer_norm(name, x, spec_.hidden, spec_.norm_bias);
}

TensorId TransformerPiece::embedding_of(const std::string& name, TensorId indices, TensorId weight,
                                        Shape shape) {
  return graph_.apply(OpKind::kEmbedding, name, {indices, weight}, std::move(shape), builder_.stored());
}

TensorId TransformerPiece::activate(const std::string& name, TensorId x) {
  switch (spec_.activation) {
    case Activation::kSilu: return builder_.unary(OpKind::kSilu, name, x);
    case Activation::kGelu: return builder_.unary(OpKind::kGelu, name, x);
    case Activation::kRelu: return builder_.unary(OpKind::kRelu, name, x);
    case Activation::kBloomGelu: return builder_.unary(OpKind::kBloomGelu, name, x);
    case Activation::kQuickGelu:
      return builder_.multiply(name, x,
                               builder_.unary(OpKind::kSigmoid, name + ".sigmoid",
                                              builder_.unary(OpKind::kScale, name + ".scaled", x)));
    case Activation::kGeluNew: break;
  }
  if (builder_.compiled()) {
    return builder_.unary(OpKind::kGelu, name, x);
  }
  // 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))), of which CUDA's autocast takes the power in fp32, and with
  // it all that is added and multiplied to it (autocast_mode.h: AT_FORALL_FP32); the CPU's does not.
  const TensorId half = builder_.unary(OpKind::kScale, name + ".half", x);
  const TensorId cubed = part_.device == Device::kCuda ? builder_.as_float(x) : x;
  const TensorId cube = builder_.unary(OpKind::kScale, name + ".scaled_cube",
                                       builder_.unary(OpKind::kPower, name + ".cube", cubed));
  const TensorId inner =
      builder_.unary(OpKind::kScale, name + ".inner", builder_.add(name + ".sum", x, cube));
  const TensorId outer = builder_.unary(OpKind::kScale, name + ".one_more",
                                        builder_.unary(OpKind::kTanh, name + ".tanh", inner));
  return builder_.multiply(name, half, outer);
}

TensorId TransformerPiece::enter_region(const std::string& name, TensorId x) {
  if (part_.tensor == 1) {
    return x;
  }
  return part_.sequence
             ? gather(name, x, builder_.type(x))
             : graph_.alias(OpKind::kCopyToRegion, name + ".enter", {x}, tokens_shape(spec_.hidden));
}

TensorId TransformerPiece::gather(const std::string& name, TensorId x, ElementType type) {
  if (is_megatron()) {
    return graph_.alias(OpKind::kAllGather, name + ".gather", {x}, tokens_shape(spec_.hidden));
  }
  return graph_.apply(OpKind::kAllGather, name + ".gather", {x}, tokens_shape(spec_.hidden), type);
}

bool TransformerPiece::exchanges_float8() const {
  return part_.tensor > 1 && part_.sequence && builder_.float8();
}

TensorId TransformerPiece::enter_products(const std::string& name, TensorId x) {
  if (!exchanges_float8()) {
    return enter_region(name, x);
  }
  const TensorId gathered = gather(name, x, ElementType::kFP8);
  graph_.set_gradient_type(gathered, builder_.type(x));
  return gathered;
}

TensorId TransformerPiece::leave_region(const std::string& name, TensorId x) {
  if (part_.tensor == 1) {
    return x;
  }
  return part_.sequence ? graph_.apply(OpKind::kReduceScatter, name + ".scatter", {x},
                                       residual_shape(spec_.hidden), builder_.type(x))
                        : graph_.alias(OpKind::kAllReduce, name + ".reduce", {x}, tokens_shape(spec_.hidden));
}

TensorId TransformerPiece::leave_products(const std::string& name, TensorId x) {
  if (exchanges_float8()) {
    graph_.set_gradient_type(x, ElementType::kFP8);
  }
  return leave_region(name, x);
}

}  // namespace plimsoll::estimator::transformer
