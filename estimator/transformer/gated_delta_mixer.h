// GatedDeltaMixer: the operators of Qwen3-Next's linear attention, as transformers runs them without the
// flash-linear-attention package: a convolution over the tokens, then the gated delta rule by chunks of 64 tokens
// (Qwen3NextGatedDeltaNet and torch_chunk_gated_delta_rule in modeling_qwen3_next.py).
//
//   TensorId y = GatedDeltaMixer(context).run("layers.0.mixer", x);
//
// Not thread-safe.
#pragma once

#include <string>

#include "estimator/transformer/transformer_part.h"

namespace plimsoll::estimator::inline transformer {

class GatedDeltaMixer : TransformerPiece {
 public:
  explicit GatedDeltaMixer(TransformerContext& context);

  TensorId run(const std::string& name, TensorId x);

 private:
  struct Inputs {  // of the delta rule
    TensorId q = -1, k = -1, v = -1, beta = -1, decay = -1;
  };

  Shape of_tokens(std::int64_t heads, std::int64_t width) const {
    return {per_sample(1), fixed(heads), fixed(tokens_), fixed(width)};
  }
  // All chunks, and one of them.
  Shape all(std::int64_t width) const {
    return {per_sample(value_heads_), fixed(chunks_ * kChunk), fixed(width)};
  }
  Shape one(std::int64_t width) const { return {per_sample(value_heads_), fixed(kChunk), fixed(width)}; }
  TensorId make(OpKind kind, const std::string& name, const TensorIds& inputs, Shape shape) {
    return graph_.apply(kind, name, inputs, std::move(shape), ElementType::kFP32);
  }
  Inputs project(const std::string& name, TensorId x, TensorId* gate);
  TensorId unit_length(const std::string& name, TensorId x, std::int64_t width);
  TensorId by_chunks(const std::string& name, const Inputs& in);
  TensorId scan(const std::string& name, TensorId q, TensorId k, TensorId values, TensorId keys,
                TensorId scores);
  TensorId gated_norm(const std::string& name, TensorId x, TensorId gate);

  static constexpr std::int64_t kChunk = 64;
  const std::int64_t key_heads_, value_heads_, key_dim_, value_dim_;  // dimensions of a head
  const std::int64_t chunks_;
};

}  // namespace plimsoll::estimator::transformer
