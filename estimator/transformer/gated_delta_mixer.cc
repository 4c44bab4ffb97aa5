#include "estimator/transformer/gated_delta_mixer.h"

#include <utility>
#include <vector>

namespace plimsoll::estimator::inline transformer {

GatedDeltaMixer::GatedDeltaMixer(TransformerContext& context)
    : TransformerPiece(context),
      key_heads_(spec_.delta.key_heads),
      value_heads_(spec_.delta.value_heads),
      key_dim_(spec_.delta.key_dim),
      value_dim_(spec_.delta.value_dim),
      chunks_((tokens_ + kChunk - 1) / kChunk) {}

// `gate`: multiplies the result after its norm.
GatedDeltaMixer::Inputs GatedDeltaMixer::project(const std::string& name, TensorId x, TensorId* gate) {
  const std::int64_t keys = key_heads_ * key_dim_;
  const std::int64_t values = value_heads_ * value_dim_;
  const auto copied = [&](const char* which, TensorId of, std::int64_t width) {
    return graph_.apply(OpKind::kCopy, name + which, {of}, tokens_shape(width), builder_.type(of));
  };
  const TensorId qkvz = builder_.linear(name + ".in_proj_qkvz", x, tokens_shape(2 * (keys + values)),
                                        spec_.hidden, 2 * (keys + values), false);
  const TensorId ba = builder_.linear(name + ".in_proj_ba", x, tokens_shape(2 * value_heads_), spec_.hidden,
                                      2 * value_heads_, false);
  const std::vector<TensorId> parts = graph_.split(
      name + ".qkvz", qkvz,
      {tokens_shape(keys), tokens_shape(keys), tokens_shape(values), tokens_shape(values)}, {1, 1, 1, 1});
  const std::vector<TensorId> rates =
      graph_.split(name + ".ba", ba, {tokens_shape(value_heads_), tokens_shape(value_heads_)}, {1, 1});
  const TensorId value = copied(".v.rows", parts[2], values);
  *gate = copied(".z.rows", parts[3], values);
  const TensorId b = copied(".b.rows", rates[0], value_heads_);
  const TensorId a = copied(".a.rows", rates[1], value_heads_);
  const std::int64_t channels = 2 * keys + values;
  const TensorId mixed =
      graph_.apply(OpKind::kConcat, name + ".mixed",
                   {copied(".q.rows", parts[0], keys), copied(".k.rows", parts[1], keys), value},
                   tokens_shape(channels), builder_.type(value));
  const TensorId weight =
      builder_.parameter(name + ".conv.weight", {fixed(channels), fixed(1), fixed(spec_.delta.kernel)});
  const TensorId padded = graph_.apply(
      OpKind::kConvolution, name + ".conv",
      {builder_.cast(mixed, builder_.compute()), builder_.cast(weight, builder_.compute())},
      {per_sample(1), fixed(tokens_ + spec_.delta.kernel - 1), fixed(channels)}, builder_.compute());
  const TensorId cut = graph_.alias(OpKind::kSlice, name + ".conv.cut", {padded}, tokens_shape(channels));
  const TensorId active =
      graph_.apply(OpKind::kSilu, name + ".act", {cut}, tokens_shape(channels), builder_.type(cut));
  const std::vector<TensorId> qkv =
      graph_.split(name + ".qkv", active,
                   {tokens_shape(keys), tokens_shape(keys), of_tokens(value_heads_, value_dim_)}, {1, 1, 1});
  Inputs in;
  in.beta = builder_.unary(OpKind::kSigmoid, name + ".beta", b);
  const TensorId rate = builder_.unary(
      OpKind::kScale, name + ".A",
      builder_.unary(
          OpKind::kExp, name + ".A.exp",
          builder_.cast(builder_.parameter(name + ".A_log", {fixed(value_heads_)}), ElementType::kFP32)));
  const TensorId step =
      builder_.unary(OpKind::kSoftplus, name + ".dt",
                     builder_.binary(OpKind::kAdd, name + ".dt.biased", builder_.cast(a, ElementType::kFP32),
                                     builder_.parameter(name + ".dt_bias", {fixed(value_heads_)}),
                                     tokens_shape(value_heads_)));
  in.decay = builder_.binary(OpKind::kMul, name + ".decay", rate, step, tokens_shape(value_heads_));
  const auto for_all = [&](const char* which, TensorId of) {
    return key_heads_ == value_heads_ ? of
                                      : graph_.apply(OpKind::kRepeat, name + which, {of},
                                                     of_tokens(value_heads_, key_dim_), builder_.type(of));
  };
  in.q = builder_.cast(for_all(".q.repeated", qkv[0]), ElementType::kFP32);
  in.k = builder_.cast(for_all(".k.repeated", qkv[1]), ElementType::kFP32);
  in.v = builder_.cast(qkv[2], ElementType::kFP32);
  return in;
}

// l2norm of modeling_qwen3_next.py.
TensorId GatedDeltaMixer::unit_length(const std::string& name, TensorId x, std::int64_t width) {
  const Shape shape = of_tokens(value_heads_, width);
  const Shape rows = of_tokens(value_heads_, 1);
  const TensorId squares = make(OpKind::kMul, name + ".squares", {x, x}, shape);
  const TensorId sum = make(OpKind::kSum, name + ".sum", {squares}, rows);
  const TensorId inverse =
      make(OpKind::kRsqrt, name + ".rsqrt", {make(OpKind::kScale, name + ".shift", {sum}, rows)}, rows);
  return make(OpKind::kMul, name + ".unit", {x, inverse}, shape);
}

TensorId GatedDeltaMixer::by_chunks(const std::string& name, const Inputs& in) {
  const auto padded = [&](const char* which, TensorId x, std::int64_t width) {
    return make(OpKind::kPad, name + which, {x}, all(width));
  };
  const auto times = [&](const char* which, TensorId a, TensorId b, std::int64_t width) {
    return make(OpKind::kMul, name + which, {a, b}, all(width));
  };
  const auto copy = [&](const char* which, TensorId x) {
    return make(OpKind::kCopy, name + which, {x}, all(key_dim_));
  };
  TensorId q = unit_length(name + ".q.unit", in.q, key_dim_);
  TensorId k = unit_length(name + ".k.unit", in.k, key_dim_);
  q = padded(".q.padded", builder_.unary(OpKind::kScale, name + ".q.scaled", q), key_dim_);
  k = padded(".k.padded", k, key_dim_);
  const TensorId v = padded(".v.padded", in.v, value_dim_);
  const TensorId beta = padded(".beta.padded", in.beta, 1);
  const TensorId decay = padded(".decay.padded", in.decay, 1);
  const TensorId v_beta = times(".v.beta", v, beta, value_dim_);
  const TensorId k_beta = times(".k.beta", k, beta, key_dim_);
  const TensorId sums = make(OpKind::kScale, name + ".decay.cumsum", {decay}, all(1));
  TensorId pairs = make(OpKind::kAdd, name + ".pairs", {sums, sums}, all(kChunk));
  pairs = make(OpKind::kExp, name + ".pairs.exp",
               {make(OpKind::kScale, name + ".pairs.masked", {pairs}, all(kChunk))}, all(kChunk));
  const auto products = [&](const std::string& which, TensorId of) {
    const TensorId left = copy((which + ".left").c_str(), of);
    const TensorId right = copy((which + ".right").c_str(), k);
    return times((which + ".decayed").c_str(),
                 make(OpKind::kMatMul, name + which, {left, right}, all(kChunk)), pairs, kChunk);
  };
  const TensorId system = products(".system", k_beta);
  const TensorId scores = products(".scores", q);
  const auto exponential = [&](const char* which) {
    return make(OpKind::kExp, name + which, {sums}, all(1));
  };
  const TensorId k_decayed = times(".k.decayed", k_beta, exponential(".k.exp"), key_dim_);
  const TensorId values = make(OpKind::kSolveTriangular, name + ".values", {system, v_beta}, all(value_dim_));
  const TensorId keys = make(OpKind::kSolveTriangular, name + ".keys", {system, k_decayed}, all(key_dim_));
  q = times(".q.decayed", q, exponential(".q.exp"), key_dim_);
  const TensorId to_end = make(OpKind::kExp, name + ".to_end",
                               {make(OpKind::kAdd, name + ".to_end.log", {sums, sums}, all(1))}, all(1));
  k = times(".k.to_end", k, to_end, key_dim_);
  const TensorId out = scan(name, q, k, values, keys, scores);
  // The solver stores columns, so that viewing the result as tokens copies it; then it is stored by token.
  const TensorId joined = make(OpKind::kCopy, name + ".joined", {out}, all(value_dim_));
  const TensorId cut =
      graph_.alias(OpKind::kSlice, name + ".cut", {joined}, of_tokens(value_heads_, value_dim_));
  graph_.end_scope({q, k, values, keys, scores, system});
  return make(OpKind::kCopy, name + ".by_token", {cut}, of_tokens(value_heads_, value_dim_));
}

// The recurrence over chunks: what each reads of the state before it, and the state after it.
TensorId GatedDeltaMixer::scan(const std::string& name, TensorId q, TensorId k, TensorId values,
                               TensorId keys, TensorId scores) {
  const Shape state_shape = {per_sample(value_heads_), fixed(key_dim_), fixed(value_dim_)};
  TensorId state = make(OpKind::kScale, name + ".state", {}, state_shape);
  TensorId out = make(OpKind::kScale, name + ".out", {}, all(value_dim_));
  for (std::int64_t i = 0; i < chunks_; ++i) {
    const std::string chunk = name + ".chunks." + std::to_string(i);
    const auto part = [&](const char* which, TensorId of, std::int64_t width) {
      return graph_.alias(OpKind::kSlice, chunk + which, {of}, one(width));
    };
    const TensorId known =
        make(OpKind::kMatMul, chunk + ".known", {part(".keys", keys, key_dim_), state}, one(value_dim_));
    const TensorId fresh =
        make(OpKind::kAdd, chunk + ".fresh", {part(".values", values, value_dim_), known}, one(value_dim_));
    const TensorId reader = make(OpKind::kCopy, chunk + ".q.rows", {part(".q", q, key_dim_)}, one(key_dim_));
    const TensorId before = make(OpKind::kMatMul, chunk + ".before", {reader, state}, one(value_dim_));
    const TensorId within =
        make(OpKind::kMatMul, chunk + ".within", {part(".scores", scores, kChunk), fresh}, one(value_dim_));
    const TensorId read = make(OpKind::kAdd, chunk + ".read", {before, within}, one(value_dim_));
    // CopySlices: the gradient of what was written into is a copy of the whole.
    out = graph_.alias(OpKind::kReshape, chunk + ".written", {out, read}, all(value_dim_));
    const TensorId kept = make(OpKind::kMul, chunk + ".kept", {state, part(".rate", q, 1)}, state_shape);
    const TensorId writer = make(OpKind::kCopy, chunk + ".k.rows", {part(".k", k, key_dim_)}, one(key_dim_));
    const TensorId added = make(OpKind::kMatMul, chunk + ".added", {writer, fresh}, state_shape);
    state = make(OpKind::kAdd, chunk + ".state", {kept, added}, state_shape);
  }
  return out;
}

// Qwen3NextRMSNormGated, head by head.
TensorId GatedDeltaMixer::gated_norm(const std::string& name, TensorId x, TensorId gate) {
  const Shape shape = of_tokens(value_heads_, value_dim_);
  const TensorId normed = builder_.rms_norm(name, x, value_dim_);
  const TensorId active = graph_.apply(OpKind::kSilu, name + ".gate.act",
                                       {builder_.cast(gate, ElementType::kFP32)}, shape, ElementType::kFP32);
  return builder_.cast(builder_.binary(OpKind::kMul, name + ".gated", normed, active, shape),
                       residual_type());
}

TensorId GatedDeltaMixer::run(const std::string& name, TensorId x) {
  TensorId gate = -1;
  const Inputs in = project(name, x, &gate);
  const TensorId mixed = gated_norm(name + ".norm", by_chunks(name, in), gate);
  const std::int64_t width = value_heads_ * value_dim_;
  const TensorId rows = graph_.view(name + ".tokens", mixed, tokens_shape(width));
  return builder_.linear(name + ".out_proj", rows, tokens_shape(spec_.hidden), width, spec_.hidden, false);
}

}  // namespace plimsoll::estimator::transformer
