#include "estimator/transformer/transformer_front_end.h"

namespace plimsoll::estimator::inline transformer {

TensorId TransformerFrontEnd::patches(const std::string& prefix) {
  const ImageInput& image = spec_.image;
  const std::string name = prefix + "embeddings";
  const TensorId pixels = graph_.add_input(
      prefix + "pixel_values", {per_sample(image.channels), fixed(image.height), fixed(image.width)},
      builder_.stored());
  const std::int64_t count = spec_.sequence - 1;  // without the class
  const TensorId weight = builder_.parameter(
      name + ".patch.weight",
      {fixed(spec_.hidden), fixed(image.channels), fixed(image.patch_height), fixed(image.patch_width)});
  TensorIds inputs = {builder_.cast(pixels, builder_.compute()), builder_.cast(weight, builder_.compute())};
  const TensorId class_token = builder_.parameter(prefix + "class_token", {fixed(spec_.hidden)});
  if (image.bias) {
    inputs.push_back(
        builder_.cast(builder_.parameter(name + ".patch.bias", {fixed(spec_.hidden)}), builder_.compute()));
  }
  const TensorId cut = graph_.apply(OpKind::kConvolution, name + ".patch", inputs,
                                    {per_sample(1), fixed(count), fixed(spec_.hidden)}, builder_.compute());
  const TensorId first = graph_.alias(OpKind::kReshape, name + ".class", {class_token},
                                      {per_sample(1), fixed(1), fixed(spec_.hidden)});
  TensorId x = graph_.apply(OpKind::kConcat, name + ".joined", {first, cut}, tokens_shape(spec_.hidden),
                            widest(builder_.type(first), builder_.type(cut)));
  TensorId positions =
      builder_.parameter(prefix + "positions.weight", {fixed(spec_.sequence), fixed(spec_.hidden)});
  if (image.embedded_positions) {
    const TensorId places =
        graph_.add_input(prefix + "position_ids", {fixed(spec_.sequence)}, ElementType::kInt64);
    positions =
        embedding_of(prefix + "positions", places, positions, {fixed(spec_.sequence), fixed(spec_.hidden)});
  }
  x = builder_.binary(OpKind::kAdd, name + ".sum", x, positions, tokens_shape(spec_.hidden));
  return builder_.dropout(name + ".dropout", x, spec_.embedding_dropout);
}

TensorId TransformerFrontEnd::frames(const std::string& prefix) {
  constexpr std::int64_t kKernel = 3;
  const std::string name = prefix + "embeddings";
  const TensorId features = graph_.add_input(
      prefix + "input_features", {per_sample(spec_.speech.mel_bins), fixed(2 * tokens_)}, builder_.stored());
  const auto convolution = [&](const std::string& which, TensorId x, std::int64_t channels,
                               std::int64_t frames) {
    const TensorId weight =
        builder_.parameter(name + which + ".weight", {fixed(spec_.hidden), fixed(channels), fixed(kKernel)});
    const TensorId bias = builder_.parameter(name + which + ".bias", {fixed(spec_.hidden)});
    const TensorIds inputs = {builder_.cast(x, builder_.compute()), builder_.cast(weight, builder_.compute()),
                              builder_.cast(bias, builder_.compute())};
    const TensorId out =
        graph_.apply(OpKind::kConvolution, name + which, inputs,
                     {per_sample(1), fixed(spec_.hidden), fixed(frames)}, builder_.compute());
    return builder_.unary(OpKind::kGelu, name + which + ".gelu", out);
  };
  TensorId x = convolution(".conv1", features, spec_.speech.mel_bins, 2 * tokens_);
  x = convolution(".conv2", x, spec_.hidden, tokens_);
  // The sinusoids are a parameter that is not trained.
  const TensorId positions = graph_.add_parameter(
      prefix + "positions.weight", {fixed(tokens_), fixed(spec_.hidden)}, builder_.stored(), 1, false);
  x = builder_.binary(OpKind::kAdd, name + ".sum", x, positions, tokens_shape(spec_.hidden));
  return builder_.dropout(name + ".dropout", x, spec_.residual_dropout);
}

}  // namespace plimsoll::estimator::transformer
