// TransformerAttention: the operators of attention, from the layer's normalized input to the output projection, as
// Hugging Face's modelling code runs them.
//
//   TransformerAttention attention(context);
//   attention.prepare(true);                        // tables and masks that all layers share
//   TensorId y = attention.run("layers.0.attention", x, {.memory = x, .rotary = true});
//
// Keeps ids of the context's graph. Not thread-safe.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "estimator/transformer/transformer_part.h"

namespace plimsoll::estimator::inline transformer {

// How one layer attends.
struct AttentionUse {
  TensorId memory = -1;  // the input of keys and values: the layer's own input in self-attention
  bool rotary = false;
  TensorId bias = -1;     // added to the scores
  bool causal = true;     // a mask is added to the scores
  bool sliding = false;   // see TransformerSpec::window
  std::int64_t keys = 0;  // number of the memory's tokens; 0: as many as the layer's own
};

class TransformerAttention : TransformerPiece {
 public:
  explicit TransformerAttention(TransformerContext& context) : TransformerPiece(context) {}

  // Appends what all layers share, so that recomputing a layer does not repeat it.
  void prepare(bool masks);

  TensorId run(const std::string& name, TensorId x, const AttentionUse& use);

  // The weights of the last run, which eager attention returns beside its result, and which the layer's code names until it
  // returns; -1: none.
  TensorId take_weights() { return std::exchange(weights_, -1); }

 private:
  struct Heads {  // queries, keys and values: batch x heads x tokens x width
    TensorId q = -1, k = -1, v = -1;
    bool by_head = false;     // queries are stored head by head, and not token by token
    std::int64_t tokens = 0;  // of keys and values
  };
  struct Rotary {
    TensorId cos = -1, sin = -1;
  };

  std::int64_t value_dim() const { return spec_.value_dim > 0 ? spec_.value_dim : spec_.head_dim; }
  Shape scores_shape(const Heads& heads) const {
    return {per_sample(1), fixed(heads_), fixed(tokens_), fixed(heads.tokens)};
  }
  static Shape key_shape(const Heads& of, std::int64_t heads, std::int64_t width) {
    return {per_sample(1), fixed(heads), fixed(of.tokens), fixed(width)};
  }
  // transformers' _ignore_causal_mask_sdpa: a window that reaches over all tokens needs no mask.
  TensorId window_of(const AttentionUse& use) const {
    return !use.causal ? -1 : use.sliding ? sliding_mask_ : mask_;
  }
  bool multi_query() const { return spec_.fused_qkv == FusedQkv::kMultiQuery; }
  bool window_matters() const { return spec_.sequence >= spec_.window; }

  Rotary rotary_tables(const std::string& name);
  const Rotary& rotary(bool sliding) const { return sliding && spec_.sliding_rotary ? sliding_ : full_; }
  TensorId rotated(const std::string& name, TensorId x, std::int64_t heads, std::int64_t width,
                   const Rotary& table);
  TensorId rotated_heads(const std::string& name, TensorId x, std::int64_t heads, const Rotary& table);
  TensorId as_heads(const std::string& name, TensorId x, std::int64_t heads, std::int64_t width,
                    bool gradient_copied);
  TensorId by_complex(const std::string& name, TensorId x, const Rotary& table);
  TensorId queries(const std::string& name, TensorId x, bool copied);
  TensorId normed_heads(const std::string& name, TensorId x, std::int64_t heads);
  Heads project(const std::string& name, TensorId x, const AttentionUse& use);
  Heads project_fused(const std::string& name, TensorId x, bool rotary);
  Heads take_apart(const std::string& name, TensorId all);
  Heads project_latent(const std::string& name, TensorId x);
  TensorId concat_heads(const std::string& name, TensorId nope, TensorId rope);
  TensorId gather_tokens(const std::string& name, TensorId x, std::int64_t heads, std::int64_t width);
  TensorId arranged(OpKind how, const std::string& name, TensorId x, const Heads& heads, std::int64_t width);
  Shape mask_shape() const { return {per_sample(1), fixed(1), fixed(tokens_), fixed(spec_.sequence)}; }
  TensorId mask(const char* name, const Shape& shape, ElementType type);
  TensorId scores(const std::string& name, TensorId products, const AttentionUse& use);
  TensorId by_token(const std::string& name, TensorId out);
  TensorId attend_eagerly(const std::string& name, Heads heads, const AttentionUse& use);
  bool lacks_kernel(const AttentionUse& use) const;
  TensorId attend_by_parts(const std::string& name, Heads heads);
  TensorId attend_by_kernel(const std::string& name, Heads heads, const AttentionUse& use);
  TensorId attend_in_ring(const std::string& name, const Heads& heads);
  TensorId attend(const std::string& name, Heads heads, const AttentionUse& use);

  Rotary full_, sliding_;
  TensorId mask_ = -1, sliding_mask_ = -1;
  TensorId gate_ = -1;  // of the result, if it has one
  TensorId weights_ = -1;
  std::vector<TensorId> locals_;  // what variables of the attention's code still hold
};

}  // namespace plimsoll::estimator::transformer
