#include "estimator/transformer/state_space_mixer.h"

#include <vector>

namespace plimsoll::estimator::inline transformer {

// A kernel over the last tokens of each channel, padded at both ends, of which the end is cut off.
TensorId StateSpaceMixer::convolved(const std::string& name, TensorId x) {
  const StateSpace& ssm = spec_.state_space;
  const TensorId weight =
      builder_.parameter(name + ".conv.weight", {fixed(ssm.inner), fixed(1), fixed(ssm.kernel)});
  TensorIds inputs = {builder_.cast(x, builder_.compute()), builder_.cast(weight, builder_.compute())};
  if (ssm.kernel_bias) {
    inputs.push_back(
        builder_.cast(builder_.parameter(name + ".conv.bias", {fixed(ssm.inner)}), builder_.compute()));
  }
  const TensorId padded =
      graph_.apply(OpKind::kConvolution, name + ".conv", inputs,
                   {per_sample(1), fixed(tokens_ + ssm.kernel - 1), fixed(ssm.inner)}, builder_.compute());
  const TensorId cut = graph_.alias(OpKind::kSlice, name + ".conv.cut", {padded}, tokens_shape(ssm.inner));
  return graph_.apply(OpKind::kSilu, name + ".act", {cut}, tokens_shape(ssm.inner), builder_.type(cut));
}

TensorId StateSpaceMixer::scanned(const std::string& name, TensorId x, TensorId gate) {
  const StateSpace& ssm = spec_.state_space;
  const Shape channels = tokens_shape(ssm.inner);
  const Shape states = {per_sample(1), fixed(tokens_), fixed(ssm.inner), fixed(ssm.state)};
  const auto rows = [&](std::int64_t width) { return Shape{per_sample(tokens_), fixed(width)}; };
  const auto by_state = [&](const char* which, TensorId a, TensorId b) {
    return builder_.binary(OpKind::kMul, name + which, a, b, states);
  };
  const TensorId decay_rate = builder_.unary(
      OpKind::kScale, name + ".A",
      builder_.unary(OpKind::kExp, name + ".A.exp",
                     builder_.cast(builder_.parameter(name + ".A_log", {fixed(ssm.inner), fixed(ssm.state)}),
                                   ElementType::kFP32)));
  // The input is stored channel by channel, and the projection needs rows.
  const TensorId by_token =
      graph_.apply(OpKind::kCopy, name + ".rows", {x}, rows(ssm.inner), builder_.type(x));
  const std::int64_t width = ssm.rank + 2 * ssm.state;
  const TensorId projected =
      builder_.linear(name + ".x_proj", by_token, rows(width), ssm.inner, width, false);
  const std::vector<TensorId> parts =
      graph_.split(name + ".x_proj.split", projected,
                   {rows(ssm.rank), tokens_shape(ssm.state), tokens_shape(ssm.state)}, {1, 1, 1});
  TensorId step = builder_.linear(name + ".dt_proj", parts[0], rows(ssm.inner), ssm.rank, ssm.inner, false);
  step = graph_.apply(OpKind::kCopy, name + ".dt", {step}, channels, builder_.type(step));
  step = builder_.binary(OpKind::kAdd, name + ".dt.biased", step,
                         builder_.parameter(name + ".dt_proj.bias", {fixed(ssm.inner)}), channels);
  step = builder_.unary(OpKind::kSoftplus, name + ".dt.softplus", step);
  const TensorId decay =
      builder_.unary(OpKind::kExp, name + ".decay", by_state(".decay.log", decay_rate, step));
  const TensorId input = by_state(".input", by_state(".B", step, parts[1]), x);
  const TensorId read = graph_.apply(OpKind::kSelectiveScan, name + ".scan", {decay, input, parts[2]},
                                     channels, ElementType::kFP32);
  const TensorId skipped = builder_.binary(OpKind::kMul, name + ".skip", x,
                                           builder_.parameter(name + ".D", {fixed(ssm.inner)}), channels);
  const TensorId sum = builder_.binary(OpKind::kAdd, name + ".sum", read, skipped, channels);
  const TensorId out = builder_.binary(OpKind::kMul, name + ".gated", sum,
                                       builder_.unary(OpKind::kSilu, name + ".gate.act", gate), channels);
  graph_.end_scope({step, decay, input, sum});
  return out;
}

TensorId StateSpaceMixer::run(const std::string& name, TensorId x) {
  const StateSpace& ssm = spec_.state_space;
  const TensorId both = builder_.linear(name + ".in_proj", x, tokens_shape(2 * ssm.inner), spec_.hidden,
                                        2 * ssm.inner, ssm.bias);
  const std::vector<TensorId> halves =
      graph_.split(name + ".chunk", both, {tokens_shape(ssm.inner), tokens_shape(ssm.inner)}, {1, 1});
  const TensorId mixed = scanned(name, convolved(name, halves[0]), halves[1]);
  const TensorId rows =
      graph_.apply(OpKind::kCopy, name + ".by_token", {builder_.cast(mixed, builder_.type(x))},
                   tokens_shape(ssm.inner), builder_.type(x));
  return builder_.linear(name + ".out_proj", rows, tokens_shape(spec_.hidden), ssm.inner, spec_.hidden,
                         ssm.bias);
}

}  // namespace plimsoll::estimator::transformer
