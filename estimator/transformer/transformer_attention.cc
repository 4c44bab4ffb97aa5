#include "estimator/transformer/transformer_attention.h"

#include <utility>

namespace plimsoll::estimator::inline transformer {

void TransformerAttention::prepare(bool masks) {
  const bool some_slide = spec_.all_slide || !spec_.sliding.empty();
  const Shape shared = {fixed(1), fixed(1), fixed(tokens_), fixed(spec_.sequence)};
  const auto make = [&](const char* name) {
    return eager() ? mask(name, mask_shape(), builder_.stored())
                   : mask(name, spec_.chunked ? mask_shape() : shared, ElementType::kBool);
  };
  if (masks && mask_ < 0 && (eager() ? !spec_.all_slide : spec_.mask_always)) {
    mask_ = make("mask");
  }
  // SDPA has the window as a mask of truth values that all samples share, and the whole causal mask not at all.
  if (some_slide && sliding_mask_ < 0 && (eager() ? masks : window_matters())) {
    sliding_mask_ = make("sliding_mask");
  }
  if (spec_.positions == Positions::kRotary && full_.cos < 0) {
    full_ = rotary_tables("rotary");
    sliding_ = some_slide && spec_.sliding_rotary ? rotary_tables("sliding_rotary") : Rotary{};
  }
}

TransformerAttention::Rotary TransformerAttention::rotary_tables(const std::string& name) {
  const std::int64_t width = spec_.kv_rank > 0      ? spec_.rope_dim
                             : spec_.partial_rotary ? spec_.rotary_dim
                                                    : spec_.head_dim;
  const TensorId places = graph_.add_input(name + ".position_ids", {fixed(tokens_)}, ElementType::kInt64);
  const Shape shape = {fixed(tokens_), fixed(width)};
  const auto table = [&](const char* which) {
    return graph_.apply(OpKind::kScale, name + which, {places}, shape, residual_type());
  };
  const TensorId cos = table(".cos");
  return {cos, spec_.complex_rotary ? -1 : table(".sin")};
}

// q * cos + rotate_half(q) * sin
TensorId TransformerAttention::rotated(const std::string& name, TensorId x, std::int64_t heads,
                                       std::int64_t width, const Rotary& table) {
  if (builder_.compiled()) {
    return graph_.apply(OpKind::kRotary, name + ".rotary", {x, table.cos, table.sin},
                        heads_shape(heads, width), builder_.type(x));
  }
  const Shape half = heads_shape(heads, width / 2);
  const TensorId kept = builder_.multiply(name + ".cos", x, table.cos);
  const TensorId first = graph_.alias(OpKind::kSlice, name + ".first", {x}, half);
  const TensorId second = graph_.alias(OpKind::kSlice, name + ".second", {x}, half);
  const TensorId negated = builder_.unary(OpKind::kScale, name + ".negated", second);
  const TensorId rotated_half = graph_.apply(OpKind::kConcat, name + ".turned", {negated, first},
                                             heads_shape(heads, width), builder_.type(x));
  return builder_.add(name + ".rotary", kept, builder_.multiply(name + ".sin", rotated_half, table.sin));
}

// The product of pairs with complex numbers, of which nothing is saved but the table.
TensorId TransformerAttention::by_complex(const std::string& name, TensorId x, const Rotary& table) {
  const TensorId in = builder_.cast(x, ElementType::kFP32);
  return builder_.cast(builder_.multiply(name + ".rotary", in, table.cos), builder_.type(x));
}

// The first part of each head is rotated, and the rest is concatenated to it, even if it is empty.
TensorId TransformerAttention::rotated_heads(const std::string& name, TensorId x, std::int64_t heads,
                                             const Rotary& table) {
  if (spec_.complex_rotary) {
    return by_complex(name, x, table);
  }
  if (!spec_.partial_rotary) {
    return rotated(name, x, heads, spec_.head_dim, table);
  }
  const TensorId turned =
      graph_.alias(OpKind::kSlice, name + ".to_rotate", {x}, heads_shape(heads, spec_.rotary_dim));
  const TensorId passed = graph_.alias(OpKind::kSlice, name + ".passed", {x},
                                       heads_shape(heads, spec_.head_dim - spec_.rotary_dim));
  const TensorId result = rotated(name, turned, heads, spec_.rotary_dim, table);
  locals_.push_back(result);
  return graph_.apply(OpKind::kConcat, name + ".rejoined", {result, passed},
                      heads_shape(heads, spec_.head_dim), builder_.type(x));
}

// A view of the rows of a matrix as heads. If the gradient is stored head by head, viewing it as rows again
// copies it.
TensorId TransformerAttention::as_heads(const std::string& name, TensorId x, std::int64_t heads,
                                        std::int64_t width, bool gradient_copied) {
  return graph_.alias(gradient_copied ? OpKind::kReshape : OpKind::kView, name + ".heads", {x},
                      heads_shape(heads, width));
}

// Queries or keys with the norm of each head, if there is one.
TensorId TransformerAttention::normed_heads(const std::string& name, TensorId x, std::int64_t heads) {
  switch (spec_.qk_norm) {
    case QkNorm::kNone:
    case QkNorm::kRotated:
    case QkNorm::kWhole: return x;
    case QkNorm::kHeads: return rms_norm(name, x, spec_.head_dim);
    case QkNorm::kHeadsLayerNorm: return builder_.layer_norm(name, x, spec_.head_dim, true);
    case QkNorm::kEachHead: break;
  }
  const auto count = static_cast<std::size_t>(heads);
  const std::vector<TensorId> parts =
      graph_.split(name + ".split", x, std::vector<Shape>(count, heads_shape(1, spec_.head_dim)),
                   std::vector<std::int64_t>(count, 1));
  TensorIds normed;
  for (std::size_t i = 0; i < count; ++i) {
    normed.push_back(builder_.layer_norm(name + "." + std::to_string(i), parts[i], spec_.head_dim, false));
  }
  return graph_.apply(OpKind::kConcat, name + ".joined", normed, heads_shape(heads, spec_.head_dim),
                      builder_.type(normed.front()));
}

// The queries' heads, without the norm of each; a gate beside each of them is kept for the result.
TensorId TransformerAttention::queries(const std::string& name, TensorId x, bool copied) {
  const std::int64_t width = heads_ * spec_.head_dim;
  const std::int64_t whole = spec_.gated_attention ? 2 * width : width;
  TensorId q = builder_.linear(name + ".q", x, tokens_shape(whole), spec_.hidden, whole, spec_.qkv_bias);
  if (spec_.gated_attention) {
    const std::vector<TensorId> halves = graph_.split(
        name + ".q.chunk", q, {heads_shape(heads_, spec_.head_dim), tokens_shape(width)}, {1, 1});
    gate_ = graph_.apply(OpKind::kCopy, name + ".gate", {halves[1]}, tokens_shape(width), builder_.type(q));
    return halves[0];
  }
  q = spec_.scaled_queries ? builder_.unary(OpKind::kScale, name + ".q.scaled", q) : q;
  q = spec_.qk_norm == QkNorm::kWhole ? rms_norm(name + ".q_norm", q, width) : q;
  return as_heads(name + ".q", q, heads_, spec_.head_dim, copied);
}

TransformerAttention::Heads TransformerAttention::project(const std::string& name, TensorId x,
                                                          const AttentionUse& use) {
  const std::int64_t kv_width = kv_heads_ * spec_.head_dim;
  const auto projected = [&](const char* which, TensorId in, std::int64_t width, bool bias) {
    Shape shape = builder_.shape(in);
    shape.back() = fixed(width);
    return builder_.linear(name + which, in, std::move(shape), spec_.hidden, width, bias);
  };
  Heads heads;
  const std::int64_t tokens = use.keys > 0 ? use.keys : tokens_;
  const bool copied_values = eager() || spec_.heads_copied;
  const bool copied = copied_values || (use.rotary && !spec_.complex_rotary);
  if (spec_.fused_qkv != FusedQkv::kNone) {
    heads = project_fused(name, x, use.rotary);
  } else {
    const auto whole_norm = [&](const char* which, TensorId in, std::int64_t width) {
      return spec_.qk_norm == QkNorm::kWhole ? rms_norm(name + which, in, width) : in;
    };
    heads.q = queries(name, x, copied);
    const auto memory_heads = [&](const char* which, TensorId projection, bool gradient_copied) {
      return graph_.alias(gradient_copied ? OpKind::kReshape : OpKind::kView, name + which + ".heads",
                          {projection},
                          {per_sample(1), fixed(kv_heads_), fixed(tokens), fixed(spec_.head_dim)});
    };
    const TensorId keys = projected(".k", use.memory, kv_width, spec_.qkv_bias && spec_.key_bias);
    heads.k = memory_heads(".k", whole_norm(".k_norm", keys, kv_width), copied);
    heads.v = memory_heads(".v", projected(".v", use.memory, kv_width, spec_.qkv_bias), copied_values);
  }
  heads.tokens = tokens;
  if (spec_.heads_copied) {
    const auto contiguous = [&](const char* which, TensorId of) {
      return graph_.apply(OpKind::kCopy, name + which + ".contiguous", {of}, builder_.shape(of),
                          builder_.type(of));
    };
    heads.q = contiguous(".q", heads.q);
    heads.k = contiguous(".k", heads.k);
    heads.v = contiguous(".v", heads.v);
    heads.by_head = true;
  }
  heads.q = normed_heads(name + ".q_norm", heads.q, heads_);
  heads.k = normed_heads(name + ".k_norm", heads.k, kv_heads_);
  if (use.rotary) {
    const Heads before = heads;
    const Rotary& table = rotary(use.sliding);
    heads.q = rotated_heads(name + ".q", heads.q, heads_, table);
    heads.k = rotated_heads(name + ".k", heads.k, kv_heads_, table);
    graph_.end_scope({before.q, before.k});
    if (spec_.qk_norm == QkNorm::kRotated) {
      heads.q = builder_.rms_norm(name + ".q_norm", heads.q, spec_.head_dim, RmsForm::kNone);
      heads.k = builder_.rms_norm(name + ".k_norm", heads.k, spec_.head_dim, RmsForm::kNone);
    }
    heads.by_head =
        spec_.partial_rotary || heads.by_head;  // torch.cat stores its result in the order of its dimensions
  }
  if (!use.rotary && spec_.scaled_without_rotary) {
    heads.q = builder_.unary(OpKind::kScale, name + ".q.by_place", heads.q);
  }
  return heads;
}

TransformerAttention::Heads TransformerAttention::project_fused(const std::string& name, TensorId x,
                                                                bool rotary) {
  const std::int64_t q_width = heads_ * spec_.head_dim;
  const std::int64_t kv_width = kv_heads_ * spec_.head_dim;
  const std::int64_t width = q_width + 2 * kv_width;
  const TensorId all =
      builder_.linear(name + ".qkv", x, tokens_shape(width), spec_.hidden, width, spec_.qkv_bias);
  if (spec_.fused_qkv != FusedQkv::kSplit && spec_.fused_qkv != FusedQkv::kSlices) {
    return take_apart(name, all);
  }
  std::vector<TensorId> parts;
  const std::vector<Shape> shapes = {tokens_shape(q_width), tokens_shape(kv_width), tokens_shape(kv_width)};
  if (spec_.fused_qkv == FusedQkv::kSplit) {
    parts = graph_.split(name + ".qkv.split", all, shapes, {1, 1, 1});
  } else {
    for (const Shape& shape : shapes) {
      parts.push_back(graph_.alias(OpKind::kSlice, name + ".qkv.slice", {all}, shape));
    }
  }
  const bool copied = eager() || rotary;
  Heads heads;
  heads.q = as_heads(name + ".q", parts[0], heads_, spec_.head_dim, copied);
  heads.k = as_heads(name + ".k", parts[1], kv_heads_, spec_.head_dim, copied);
  heads.v = as_heads(name + ".v", parts[2], kv_heads_, spec_.head_dim, eager());
  return heads;
}

// The families that view the projection as heads before they take it apart.
TransformerAttention::Heads TransformerAttention::take_apart(const std::string& name, TensorId all) {
  const Shape own = heads_shape(heads_, spec_.head_dim);
  Heads heads;
  if (spec_.fused_qkv == FusedQkv::kHeadsChunk) {
    const TensorId viewed = as_heads(name + ".qkv", all, heads_, 3 * spec_.head_dim, true);
    const std::vector<TensorId> parts = graph_.split(name + ".qkv.chunk", viewed, {own, own, own}, {1, 1, 1});
    heads.q = parts[0];
    heads.k = parts[1];
    heads.v = parts[2];
    return heads;
  }
  const auto part = [&](const char* which, std::int64_t count) {
    return graph_.alias(OpKind::kSlice, name + which, {all}, heads_shape(count, spec_.head_dim));
  };
  // Falcon indexes keys and values by a list, which copies them, and repeats them for the queries of their group.
  const auto shared = [&](const char* which) {
    const TensorId selected = part(which, kv_heads_);
    if (spec_.fused_qkv == FusedQkv::kThirds) {
      return selected;
    }
    const TensorId one = graph_.apply(OpKind::kCopy, name + which + ".indexed", {selected},
                                      builder_.shape(selected), builder_.type(selected));
    return spec_.fused_qkv == FusedQkv::kMultiQuery
               ? one
               : graph_.apply(OpKind::kRepeat, name + which + ".repeated", {one}, own, builder_.type(one));
  };
  heads.q = part(".q.heads", heads_);
  heads.k = shared(".k.heads");
  heads.v = shared(".v.heads");
  if (spec_.fused_qkv == FusedQkv::kGroups) {
    heads.q = graph_.apply(OpKind::kCopy, name + ".q.flattened", {heads.q}, own, builder_.type(heads.q));
  }
  return heads;
}

// Multi-head latent attention, as in DeepseekV2Attention.
TransformerAttention::Heads TransformerAttention::project_latent(const std::string& name, TensorId x) {
  const std::int64_t q_width = heads_ * spec_.head_dim;
  TensorId q = x;
  std::int64_t q_in = spec_.hidden;
  if (spec_.query_rank > 0) {
    q = builder_.linear(name + ".q_a", x, tokens_shape(spec_.query_rank), spec_.hidden, spec_.query_rank,
                        spec_.qkv_bias);
    q = builder_.rms_norm(name + ".q_a_norm", q, spec_.query_rank);
    q_in = spec_.query_rank;
  }
  q = builder_.linear(name + ".q_b", q, tokens_shape(q_width), q_in, q_width, false);
  q = as_heads(name + ".q", q, heads_, spec_.head_dim, true);
  const std::vector<TensorId> q_parts =
      graph_.split(name + ".q.split", q,
                   {heads_shape(heads_, spec_.nope_dim), heads_shape(heads_, spec_.rope_dim)}, {1, 1});
  const std::int64_t latent = spec_.kv_rank + spec_.rope_dim;
  const TensorId compressed =
      builder_.linear(name + ".kv_a", x, tokens_shape(latent), spec_.hidden, latent, spec_.qkv_bias);
  const std::vector<TensorId> kv_parts =
      graph_.split(name + ".kv_a.split", compressed,
                   {tokens_shape(spec_.kv_rank), heads_shape(1, spec_.rope_dim)}, {1, 1});
  const std::int64_t kv_width = heads_ * (spec_.nope_dim + value_dim());
  TensorId kv =
      builder_.linear(name + ".kv_b", builder_.rms_norm(name + ".kv_a_norm", kv_parts[0], spec_.kv_rank),
                      tokens_shape(kv_width), spec_.kv_rank, kv_width, false);
  kv = as_heads(name + ".kv", kv, heads_, spec_.nope_dim + value_dim(), true);
  const std::vector<TensorId> split =
      graph_.split(name + ".kv.split", kv,
                   {heads_shape(heads_, spec_.nope_dim), heads_shape(heads_, value_dim())}, {1, 1});
  const TensorId q_rope = rotated(name + ".q_rope", q_parts[1], heads_, spec_.rope_dim, full_);
  const TensorId k_rope = rotated(name + ".k_rope", kv_parts[1], 1, spec_.rope_dim, full_);
  Heads heads;
  heads.v = split[1];
  heads.q = concat_heads(name + ".queries", q_parts[0], q_rope);
  heads.k = concat_heads(name + ".keys", split[0],
                         graph_.apply(OpKind::kExpand, name + ".k_rope.expand", {k_rope},
                                      heads_shape(heads_, spec_.rope_dim), builder_.type(k_rope)));
  heads.by_head = true;
  heads.tokens = tokens_;
  return heads;
}

TensorId TransformerAttention::concat_heads(const std::string& name, TensorId nope, TensorId rope) {
  const ElementType type = widest(builder_.type(nope), builder_.type(rope));
  return graph_.apply(OpKind::kConcat, name, {builder_.cast(nope, type), builder_.cast(rope, type)},
                      heads_shape(heads_, spec_.head_dim), type);
}

// Context parallelism where no kernel computes the attention, or a mask is added: this trainer's queries use the keys
// and values of all trainers, which are all-gathered (Llama 3, arXiv 2407.21783 section 3.3.2).
TensorId TransformerAttention::gather_tokens(const std::string& name, TensorId x, std::int64_t heads,
                                             std::int64_t width) {
  if (part_.context == 1) {
    return x;
  }
  return graph_.apply(OpKind::kAllGather, name + ".gathered", {x},
                      {per_sample(1), fixed(heads), fixed(spec_.sequence), fixed(width)}, builder_.type(x));
}

// Context parallelism with a kernel: keys and values, in one tensor, are gathered once, and autograd does not save
// what is gathered (torch/distributed/tensor/experimental/_context_parallel/_attention.py: _AllGatherRotater, the
// default). The ring of Megatron-LM's Transformer Engine keeps as many of them in its buffers (cp_comm_type p2p).
TensorId TransformerAttention::attend_in_ring(const std::string& name, const Heads& heads) {
  const TensorId q = builder_.cast(heads.q, builder_.compute());
  const TensorId k = builder_.cast(heads.k, builder_.compute());
  const TensorId v = builder_.cast(heads.v, builder_.compute());
  const Shape own = {per_sample(1), fixed(kv_heads_), fixed(tokens_), fixed(spec_.head_dim + value_dim())};
  const Shape all = {per_sample(1), fixed(kv_heads_), fixed(spec_.sequence),
                     fixed(spec_.head_dim + value_dim())};
  const TensorId sent =
      graph_.apply(OpKind::kConcat, name + ".keys_and_values", {k, v}, own, builder_.type(k));
  const TensorId gathered =
      graph_.apply(OpKind::kAllGather, name + ".gathered", {sent}, all, builder_.type(k));
  return graph_.apply(OpKind::kRingAttention, name + ".ring", {q, k, v, gathered},
                      heads_shape(heads_, value_dim()), builder_.compute());
}

TensorId TransformerAttention::mask(const char* name, const Shape& shape, ElementType type) {
  const TensorId places =
      graph_.add_input(std::string(name) + ".places", {fixed(spec_.sequence)}, ElementType::kInt64);
  return graph_.apply(OpKind::kScale, name, {places}, shape, type);
}

TensorId TransformerAttention::arranged(OpKind how, const std::string& name, TensorId x, const Heads& heads,
                                        std::int64_t width) {
  return graph_.apply(how, name, {x}, key_shape(heads, heads_, width), builder_.type(x));
}

// Products of queries and keys, scaled, capped and masked.
TensorId TransformerAttention::scores(const std::string& name, TensorId products, const AttentionUse& use) {
  const bool scaled = spec_.positions != Positions::kRelative && spec_.positions != Positions::kAlibi;
  TensorId scores = scaled && !spec_.scores_in_place
                        ? builder_.unary(OpKind::kScale, name + ".scores", products)
                        : products;
  graph_.end_scope({products});
  if (spec_.softcapped_scores) {
    scores = builder_.unary(OpKind::kScale, name + ".capped", scores);
    scores = builder_.unary(OpKind::kTanh, name + ".tanh", scores);
    scores = builder_.unary(OpKind::kScale, name + ".uncapped", scores);
  }
  if (use.bias >= 0) {
    return builder_.add(name + ".biased", scores, use.bias);
  }
  const TensorId mask = use.sliding ? sliding_mask_ : mask_;
  return use.causal && mask >= 0 ? builder_.add(name + ".masked", scores, mask) : scores;
}

// What the output projection needs, of a result by heads.
TensorId TransformerAttention::by_token(const std::string& name, TensorId out) {
  out = graph_.alias(OpKind::kReshape, name + ".by_head", {out}, heads_shape(heads_, value_dim()));
  return graph_.apply(OpKind::kCopy, name + ".by_token", {out}, tokens_shape(heads_ * value_dim()),
                      builder_.type(out));
}

// softmax(q k^T + mask) v, with an explicit score matrix.
TensorId TransformerAttention::attend_eagerly(const std::string& name, Heads heads, const AttentionUse& use) {
  const bool repeats = heads_ != kv_heads_ && spec_.fused_qkv != FusedQkv::kGroups;
  const OpKind how = repeats ? OpKind::kRepeat : OpKind::kCopy;
  const auto arrange = [&](const char* what, TensorId x, std::int64_t width) {
    return spec_.heads_copied ? x : arranged(how, name + what, x, heads, width);
  };
  const TensorId keys = builder_.cast(arrange(".keys", heads.k, spec_.head_dim), builder_.compute());
  TensorId values = repeats ? arrange(".values", heads.v, value_dim()) : heads.v;
  TensorId queries = builder_.cast(heads.q, builder_.compute());
  if (!spec_.heads_copied) {
    queries = graph_.apply(OpKind::kCopy, name + ".queries", {queries}, heads_shape(heads_, spec_.head_dim),
                           builder_.compute());
  }
  const TensorId products = builder_.matmul(name + ".products", queries, keys, scores_shape(heads));
  const TensorId finished = scores(name, products, use);
  const bool as_float = spec_.float_softmax || (builder_.mixed() && part_.device == Device::kCuda);
  const TensorId weights = graph_.apply(OpKind::kSoftmax, name + ".softmax", {finished}, scores_shape(heads),
                                        as_float ? ElementType::kFP32 : builder_.type(finished));
  const TensorId used = builder_.dropout(name + ".dropout", builder_.cast(weights, builder_.type(heads.q)),
                                         spec_.attention_dropout);
  if (!repeats) {
    values = arrange(".values", heads.v, value_dim());
  }
  weights_ = used;
  return by_token(name, builder_.matmul(name + ".weighted", used, values, heads_shape(heads_, value_dim())));
}

// Whether CUDA has no kernel for these heads. Without a mask transformers gives SDPA fewer keys than queries
// (sdpa_attention.py: use_gqa_in_sdpa), which of the kernels only flash takes (sdp_utils.cpp:
// check_batch_size_and_num_heads_dense), in 16 bits; and Falcon does without saying so, which none takes.
bool TransformerAttention::lacks_kernel(const AttentionUse& use) const {
  if (part_.device != Device::kCuda || spec_.attention != crds::AttentionKind::kSDPA) {
    return false;
  }
  const bool grouped =
      heads_ != kv_heads_ && spec_.fused_qkv != FusedQkv::kGroups && window_of(use) < 0 && use.bias < 0;
  const bool flash = part_.has_flash && builder_.compute() != ElementType::kFP32;
  return multi_query() || (grouped && !flash);
}

// SDPA without a kernel (attention.cpp: _scaled_dot_product_attention_math), in fp32: queries and keys are scaled by
// themselves, and the mask is added in place.
TensorId TransformerAttention::attend_by_parts(const std::string& name, Heads heads) {
  const ElementType type = ElementType::kFP32;
  const auto as_float = [&](TensorId x) { return builder_.cast(builder_.cast(x, builder_.compute()), type); };
  const auto scaled = [&](const char* what, TensorId x) {
    return builder_.unary(OpKind::kScale, name + what, x);
  };
  const auto repeated = [&](const char* what, TensorId x, std::int64_t width) {
    return arranged(OpKind::kRepeat, name + what, x, heads, width);
  };
  const auto product = [&](const char* what, TensorId a, TensorId b, Shape shape) {
    return graph_.apply(OpKind::kMatMul, name + what, {a, b}, std::move(shape), type);
  };
  const TensorId scaled_queries = scaled(".q.scaled", as_float(heads.q));
  TensorId keys = as_float(heads.k), values = as_float(heads.v);
  if (multi_query()) {
    keys = repeated(".keys", scaled(".k.scaled", keys), spec_.head_dim);
  } else {
    keys = repeated(".keys", keys, spec_.head_dim);
    values = repeated(".values", values, value_dim());
    keys = scaled(".k.scaled", keys);
  }
  const TensorId queries = graph_.apply(OpKind::kCopy, name + ".queries", {scaled_queries},
                                        heads_shape(heads_, spec_.head_dim), type);
  const TensorId products = product(".products", queries, keys, scores_shape(heads));
  const TensorId weights = builder_.unary(OpKind::kSoftmax, name + ".softmax", products);
  if (multi_query()) {
    values = repeated(".values", values, value_dim());
  }
  const TensorId out = builder_.cast(product(".weighted", weights, values, heads_shape(heads_, value_dim())),
                                     builder_.compute());
  return by_token(name, out);
}

TensorId TransformerAttention::attend_by_kernel(const std::string& name, Heads heads,
                                                const AttentionUse& use) {
  const TensorId window = window_of(use);
  if (window >= 0 && heads_ != kv_heads_ && spec_.fused_qkv != FusedQkv::kGroups && !multi_query()) {
    // With a mask, SDPA does not take fewer keys than queries (sdpa_attention.py: use_gqa_in_sdpa).
    heads.k = arranged(OpKind::kRepeat, name + ".keys", heads.k, heads, spec_.head_dim);
    heads.v = arranged(OpKind::kRepeat, name + ".values", heads.v, heads, value_dim());
  }
  // Autocast casts the last operand first (ModelBuilder::linear).
  const TensorId v = builder_.cast(heads.v, builder_.compute());
  const TensorId k = builder_.cast(heads.k, builder_.compute());
  TensorIds inputs = {builder_.cast(heads.q, builder_.compute()), k, v};
  if (window >= 0) {
    // Each call converts the mask to numbers, a copy a sample (attention.cpp: convert_boolean_attn_mask).
    inputs.push_back(
        graph_.apply(OpKind::kCast, name + ".window", {window}, mask_shape(), builder_.compute()));
  } else if (use.bias >= 0) {
    inputs.push_back(builder_.cast(use.bias, builder_.compute()));
  }
  return graph_.apply(OpKind::kAttention, name + ".sdpa", inputs, heads_shape(heads_, value_dim()),
                      builder_.compute());
}

TensorId TransformerAttention::attend(const std::string& name, Heads heads, const AttentionUse& use) {
  const bool without_kernel = lacks_kernel(use);
  const bool ring = part_.context > 1 && !eager() && !without_kernel && window_of(use) < 0 && use.bias < 0;
  if (part_.context > 1 && !ring) {
    heads.k = gather_tokens(name + ".k", heads.k, kv_heads_, spec_.head_dim);
    heads.v = gather_tokens(name + ".v", heads.v, kv_heads_, value_dim());
    heads.tokens = spec_.sequence;
  }
  if (eager()) {
    return attend_eagerly(name, heads, use);
  }
  if (without_kernel) {
    return attend_by_parts(name, heads);
  }
  const TensorId out = ring ? attend_in_ring(name, heads) : attend_by_kernel(name, heads, use);
  // The kernels store their result as the queries are stored (FlashAttentionKernel.cpp, flash_api.cpp: empty_like),
  // and the output projection needs it token by token.
  const Shape shape = tokens_shape(heads_ * value_dim());
  return heads.by_head ? graph_.apply(OpKind::kCopy, name + ".by_token", {out}, shape, builder_.type(out))
                       : graph_.view(name + ".tokens", out, shape);
}

TensorId TransformerAttention::run(const std::string& name, TensorId x, const AttentionUse& use) {
  AttentionUse inside = use;
  const bool self_attention = use.memory == x;
  x = enter_products(name, x);
  inside.memory = self_attention ? x : use.memory;
  const Heads heads = spec_.kv_rank > 0 ? project_latent(name, x) : project(name, x, inside);
  TensorId mixed = attend(name, heads, inside);
  if (const TensorId gate = std::exchange(gate_, -1); gate >= 0) {
    mixed = builder_.multiply(name + ".gated", mixed,
                              builder_.unary(OpKind::kSigmoid, name + ".gate.sigmoid", gate));
  }
  const std::int64_t width = heads_ * value_dim();
  const TensorId out =
      builder_.linear(name + ".out", mixed, tokens_shape(spec_.hidden), width, spec_.hidden, spec_.out_bias);
  graph_.end_scope({heads.q, heads.k, heads.v});
  graph_.end_scope(std::exchange(locals_, {}));
  return leave_products(name, out);
}

}  // namespace plimsoll::estimator::transformer
