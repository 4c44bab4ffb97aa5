#include "estimator/spec/transformer.h"

#include <string_view>
#include <utility>
#include <vector>

#include "estimator/spec/model_builder.h"
#include "estimator/trace/module_pattern.h"

namespace plimsoll::estimator::inline spec {
namespace {

// The number of parts must divide a size of the model.
Result<void> divides(const char* field, std::int64_t parts, const char* what, std::int64_t size) {
  if (parts < 1 || size % parts != 0) {
    return invalid("training.parallelism." + std::string(field) + " is " + std::to_string(parts) +
                   " and must divide the model's " + what + ", " + std::to_string(size));
  }
  return {};
}

Result<void> check(const TransformerSpec& spec, const TransformerPart& part) {
  const std::pair<const char*, std::int64_t> split_by_tensor[] = {
      {"heads", spec.heads},
      {"ffn", spec.ffn},
      {"expert ffn", spec.expert_ffn},
      {"shared experts' ffn", spec.shared_ffn},
  };
  for (const auto& [what, size] : split_by_tensor) {
    Result<void> checked = divides("tensor", part.tensor, what, size);
    if (!checked) {
      return checked;
    }
  }
  if (spec.kv_heads % part.tensor != 0 && part.tensor % spec.kv_heads != 0) {
    return divides("tensor", part.tensor, "kvHeads", spec.kv_heads);
  }
  Result<void> tokens = divides("context", part.context, "seqLen", spec.sequence);
  if (tokens && part.sequence) {
    tokens = divides("tensor", part.tensor, "tokens a trainer", spec.sequence / part.context);
  }
  if (tokens && part.expert > 1 && spec.experts == 0) {
    return invalid("training.parallelism.expert is " + std::to_string(part.expert) +
                   ", and the model has no experts");
  }
  return tokens ? divides("expert", part.expert, "experts", spec.experts) : tokens;
}

class TransformerLowering {
 public:
  TransformerLowering(const TransformerSpec& spec, const crds::TrainingSpec& training,
                      const TransformerPart& part, Budget* budget)
      : spec_(spec),
        part_(part),
        training_(training),
        builder_(training.precision, budget),
        graph_(builder_.graph()),
        patterns_(training.checkpoint_modules),
        tokens_(spec.sequence / part.context),
        residual_tokens_(part.sequence ? tokens_ / part.tensor : tokens_),
        heads_(spec.heads / part.tensor),
        kv_heads_(std::max<std::int64_t>(1, spec.kv_heads / part.tensor)) {}

  Result<ForwardGraph> run() {
    if (spec_.encoder_decoder) {
      encoder_decoder();
    } else {
      TensorId x = part_.embeds ? embed("", "input_ids")
                                : graph_.apply(OpKind::kReceive, "stage.input", {},
                                               residual_shape(spec_.hidden), residual_type());
      x = layers("", x, spec_.layers, -1);
      if (part_.predicts) {
        predict(x);
      }
    }
    if (const std::string* unused = patterns_.unused()) {
      return invalid("training.checkpointModules: no module of the model matches " + *unused +
                     "; modules are called like layers.0, layers.0.attention and layers.0.mlp");
    }
    return std::move(builder_).graph();
  }

 private:
  struct Heads {  // queries, keys and values: batch x heads x tokens x width
    TensorId q = -1, k = -1, v = -1;
  };

  // Outside the parts that tensor parallelism splits, sequence parallelism splits the tokens.
  Shape residual_shape(std::int64_t width) const {
    return {per_sample(1), fixed(residual_tokens_), fixed(width)};
  }
  Shape tokens_shape(std::int64_t width) const { return {per_sample(1), fixed(tokens_), fixed(width)}; }
  Shape heads_shape(std::int64_t heads, std::int64_t width) const {
    return {per_sample(1), fixed(heads), fixed(tokens_), fixed(width)};
  }
  Shape scores_shape() const { return {per_sample(1), fixed(heads_), fixed(tokens_), fixed(spec_.sequence)}; }
  // The type of the residual stream: autocast does not cast embeddings.
  ElementType residual_type() const { return builder_.stored(); }
  std::int64_t value_dim() const { return spec_.value_dim > 0 ? spec_.value_dim : spec_.head_dim; }
  bool eager() const { return spec_.attention == crds::AttentionKind::kEager; }

  // A module of the model, which may be a block for activation checkpointing.
  class Module {
   public:
    Module(TransformerLowering& lowering, const std::string& path, bool layer) : graph_(lowering.graph_) {
      using enum crds::ActivationCheckpointing;
      const crds::ActivationCheckpointing kind = lowering.training_.activation_checkpointing;
      begun_ = !graph_.in_block() &&
               (kind == kPerModule ? lowering.patterns_.matches(path) : layer && kind != kNone);
      if (begun_) {
        graph_.begin_block();
      }
    }
    Module(const Module&) = delete;
    Module& operator=(const Module&) = delete;
    ~Module() {
      if (begun_) {
        graph_.end_block();
      }
    }

   private:
    ForwardGraph& graph_;
    bool begun_ = false;
  };

  TensorId norm(const std::string& name, TensorId x) {
    return spec_.norm == crds::Normalization::kRMSNorm
               ? builder_.rms_norm(name, x, spec_.hidden)
               : builder_.layer_norm(name, x, spec_.hidden, spec_.norm_bias);
  }

  TensorId embedding_of(const std::string& name, TensorId indices, TensorId weight, Shape shape) {
    return graph_.apply(OpKind::kEmbedding, name, {indices, weight}, std::move(shape), builder_.stored());
  }

  TensorId embed(const std::string& prefix, const std::string& ids_name) {
    const TensorId ids = graph_.add_input(ids_name, {per_sample(1), fixed(tokens_)}, ElementType::kInt64);
    if (embedding_ < 0) {
      embedding_ = builder_.parameter("embed_tokens.weight",
                                      {fixed(spec_.vocab / vocab_split()), fixed(spec_.hidden)});
    }
    TensorId x = embedding_of(prefix + "embeddings", ids, embedding_, tokens_shape(spec_.hidden));
    if (part_.tensor > 1) {
      x = leave_region(prefix + "embeddings", x);
    }
    if (spec_.token_types > 0) {
      const TensorId types =
          graph_.add_input("token_type_ids", {per_sample(1), fixed(tokens_)}, ElementType::kInt64);
      const TensorId table =
          builder_.parameter("token_types.weight", {fixed(spec_.token_types), fixed(spec_.hidden)});
      x = builder_.add("embeddings.types", x,
                       embedding_of("token_types", types, table, residual_shape(spec_.hidden)));
    }
    if (spec_.positions == Positions::kLearned) {
      const TensorId places = graph_.add_input("position_ids", {fixed(tokens_)}, ElementType::kInt64);
      const TensorId table =
          builder_.parameter("positions.weight", {fixed(spec_.max_positions), fixed(spec_.hidden)});
      const TensorId rows =
          embedding_of("positions", places, table, {fixed(residual_tokens_), fixed(spec_.hidden)});
      x = builder_.add("embeddings.sum", x, rows);
    }
    if (spec_.embedding_norm) {
      x = norm("embeddings.norm", x);
    }
    return builder_.dropout(prefix + "embeddings.dropout", x, spec_.embedding_dropout);
  }

  // Frameworks pad vocabularies that are not divisible; the padding is less than one row per trainer.
  std::int64_t vocab_split() const { return part_.tensor; }

  void rotary_tables() {
    if (spec_.positions != Positions::kRotary || cos_ >= 0) {
      return;
    }
    const std::int64_t width = spec_.kv_rank > 0 ? spec_.rope_dim : spec_.head_dim;
    const TensorId places = graph_.add_input("position_ids", {fixed(tokens_)}, ElementType::kInt64);
    const Shape shape = {fixed(tokens_), fixed(width)};
    cos_ = graph_.apply(OpKind::kScale, "rotary.cos", {places}, shape, residual_type());
    sin_ = graph_.apply(OpKind::kScale, "rotary.sin", {places}, shape, residual_type());
  }

  // q * cos + rotate_half(q) * sin
  TensorId rotated(const std::string& name, TensorId x, std::int64_t heads, std::int64_t width) {
    const Shape half = heads_shape(heads, width / 2);
    const TensorId kept = builder_.multiply(name + ".cos", x, cos_);
    const TensorId first = graph_.alias(OpKind::kSlice, name + ".first", {x}, half);
    const TensorId second = graph_.alias(OpKind::kSlice, name + ".second", {x}, half);
    const TensorId negated = builder_.unary(OpKind::kScale, name + ".negated", second);
    const TensorId rotated_half = graph_.apply(OpKind::kConcat, name + ".turned", {negated, first},
                                               heads_shape(heads, width), builder_.type(x));
    return builder_.add(name + ".rotary", kept, builder_.multiply(name + ".sin", rotated_half, sin_));
  }

  // A view of the rows of a matrix as heads. If the gradient is stored head by head, viewing it as rows again
  // copies it.
  TensorId as_heads(const std::string& name, TensorId x, std::int64_t heads, std::int64_t width,
                    bool gradient_copied) {
    return graph_.alias(gradient_copied ? OpKind::kReshape : OpKind::kView, name + ".heads", {x},
                        heads_shape(heads, width));
  }

  Heads project(const std::string& name, TensorId x, TensorId memory, bool rotary) {
    const std::int64_t q_width = heads_ * spec_.head_dim;
    const std::int64_t kv_width = kv_heads_ * spec_.head_dim;
    const auto projected = [&](const char* which, TensorId in, std::int64_t width) {
      return builder_.linear(name + which, in, tokens_shape(width), spec_.hidden, width, spec_.qkv_bias);
    };
    Heads heads;
    if (spec_.fused_qkv) {
      const std::int64_t width = q_width + 2 * kv_width;
      const TensorId all = projected(".qkv", x, width);
      const std::vector<TensorId> parts =
          graph_.split(name + ".qkv.split", all,
                       {tokens_shape(q_width), tokens_shape(kv_width), tokens_shape(kv_width)}, {1, 1, 1});
      heads = {parts[0], parts[1], parts[2]};
    } else {
      heads.q = projected(".q", x, q_width);
    }
    const bool copied = eager() || rotary;
    heads.q = as_heads(name + ".q", heads.q, heads_, spec_.head_dim, copied);
    heads.k = spec_.fused_qkv ? heads.k : projected(".k", memory, kv_width);
    heads.k = as_heads(name + ".k", heads.k, kv_heads_, spec_.head_dim, copied);
    heads.v = spec_.fused_qkv ? heads.v : projected(".v", memory, kv_width);
    heads.v = as_heads(name + ".v", heads.v, kv_heads_, spec_.head_dim, eager());
    if (spec_.qk_norm) {
      heads.q = builder_.rms_norm(name + ".q_norm", heads.q, spec_.head_dim);
      heads.k = builder_.rms_norm(name + ".k_norm", heads.k, spec_.head_dim);
    }
    if (rotary) {
      const Heads before = heads;
      heads.q = rotated(name + ".q", heads.q, heads_, spec_.head_dim);
      heads.k = rotated(name + ".k", heads.k, kv_heads_, spec_.head_dim);
      graph_.end_scope({before.q, before.k});
    }
    return heads;
  }

  // Multi-head latent attention, as in DeepseekV2Attention.
  Heads project_latent(const std::string& name, TensorId x) {
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
    const TensorId q_rope = rotated(name + ".q_rope", q_parts[1], heads_, spec_.rope_dim);
    const TensorId k_rope = rotated(name + ".k_rope", kv_parts[1], 1, spec_.rope_dim);
    Heads heads;
    heads.v = split[1];
    heads.q = concat_heads(name + ".queries", q_parts[0], q_rope);
    heads.k = concat_heads(name + ".keys", split[0],
                           graph_.apply(OpKind::kExpand, name + ".k_rope.expand", {k_rope},
                                        heads_shape(heads_, spec_.rope_dim), builder_.type(k_rope)));
    return heads;
  }

  TensorId concat_heads(const std::string& name, TensorId nope, TensorId rope) {
    const ElementType type = widest(builder_.type(nope), builder_.type(rope));
    return graph_.apply(OpKind::kConcat, name, {builder_.cast(nope, type), builder_.cast(rope, type)},
                        heads_shape(heads_, spec_.head_dim), type);
  }

  // Context parallelism: this trainer's queries use the keys and values of all trainers, which are
  // all-gathered (Llama 3, arXiv 2407.21783 section 3.3.2).
  TensorId gather_tokens(const std::string& name, TensorId x, std::int64_t heads, std::int64_t width) {
    if (part_.context == 1) {
      return x;
    }
    return graph_.apply(OpKind::kAllGather, name + ".gathered", {x},
                        {per_sample(1), fixed(heads), fixed(spec_.sequence), fixed(width)}, builder_.type(x));
  }

  Shape key_shape(std::int64_t heads, std::int64_t width) const {
    return {per_sample(1), fixed(heads), fixed(spec_.sequence), fixed(width)};
  }

  // softmax(q k^T + mask) v, with an explicit score matrix.
  TensorId attend_eagerly(const std::string& name, Heads heads, TensorId bias) {
    const bool repeats = heads_ != kv_heads_;
    const OpKind arranged = repeats ? OpKind::kRepeat : OpKind::kCopy;
    const auto arrange = [&](const char* what, TensorId x, std::int64_t width) {
      return graph_.apply(arranged, name + what, {x}, key_shape(heads_, width), builder_.type(x));
    };
    const TensorId keys = builder_.cast(arrange(".keys", heads.k, spec_.head_dim), builder_.compute());
    TensorId values = repeats ? arrange(".values", heads.v, value_dim()) : heads.v;
    const TensorId queries =
        graph_.apply(OpKind::kCopy, name + ".queries", {builder_.cast(heads.q, builder_.compute())},
                     heads_shape(heads_, spec_.head_dim), builder_.compute());
    const TensorId products = builder_.matmul(name + ".products", queries, keys, scores_shape());
    TensorId scores = spec_.positions == Positions::kRelative
                          ? products
                          : builder_.unary(OpKind::kScale, name + ".scores", products);
    graph_.end_scope({products});
    if (bias >= 0) {
      scores = builder_.add(name + ".biased", scores, bias);
    } else if (spec_.head == Head::kCausal) {
      scores = builder_.add(name + ".masked", scores, mask());
    }
    const TensorId weights =
        graph_.apply(OpKind::kSoftmax, name + ".softmax", {scores}, scores_shape(), ElementType::kFP32);
    const TensorId used = builder_.dropout(name + ".dropout", builder_.cast(weights, builder_.type(heads.q)),
                                           spec_.attention_dropout);
    if (!repeats) {
      values = arrange(".values", heads.v, value_dim());
    }
    TensorId out = builder_.matmul(name + ".weighted", used, values, heads_shape(heads_, value_dim()));
    out = graph_.alias(OpKind::kReshape, name + ".by_head", {out}, heads_shape(heads_, value_dim()));
    return graph_.apply(OpKind::kCopy, name + ".by_token", {out}, tokens_shape(heads_ * value_dim()),
                        builder_.type(out));
  }

  TensorId mask() {
    if (mask_ < 0) {
      const TensorId places = graph_.add_input("mask.places", {fixed(spec_.sequence)}, ElementType::kInt64);
      mask_ =
          graph_.apply(OpKind::kScale, "mask", {places},
                       {per_sample(1), fixed(1), fixed(tokens_), fixed(spec_.sequence)}, builder_.stored());
    }
    return mask_;
  }

  TensorId attend(const std::string& name, Heads heads, TensorId bias) {
    heads.k = gather_tokens(name + ".k", heads.k, kv_heads_, spec_.head_dim);
    heads.v = gather_tokens(name + ".v", heads.v, kv_heads_, value_dim());
    if (eager()) {
      return attend_eagerly(name, heads, bias);
    }
    TensorIds inputs = {builder_.cast(heads.q, builder_.compute()),
                        builder_.cast(heads.k, builder_.compute()),
                        builder_.cast(heads.v, builder_.compute())};
    if (bias >= 0) {
      inputs.push_back(builder_.cast(bias, builder_.compute()));
    }
    const TensorId out = graph_.apply(OpKind::kAttention, name + ".sdpa", inputs,
                                      heads_shape(heads_, value_dim()), builder_.compute());
    return graph_.view(name + ".tokens", out, tokens_shape(heads_ * value_dim()));
  }

  // `memory`: the input of keys and values; equal to x in self-attention.
  TensorId attention(const std::string& name, TensorId x, TensorId memory, bool rotary, TensorId bias) {
    const bool self_attention = memory == x;
    x = enter_region(name, x);
    memory = self_attention ? x : memory;
    const Heads heads = spec_.kv_rank > 0 ? project_latent(name, x) : project(name, x, memory, rotary);
    const TensorId mixed = attend(name, heads, bias);
    const std::int64_t width = heads_ * value_dim();
    const TensorId out = builder_.linear(name + ".out", mixed, tokens_shape(spec_.hidden), width,
                                         spec_.hidden, spec_.out_bias);
    graph_.end_scope({heads.q, heads.k, heads.v});
    return leave_region(name, out);
  }

  TensorId activate(const std::string& name, TensorId x) {
    switch (spec_.activation) {
      case Activation::kSilu: return builder_.unary(OpKind::kSilu, name, x);
      case Activation::kGelu: return builder_.unary(OpKind::kGelu, name, x);
      case Activation::kRelu: return builder_.unary(OpKind::kRelu, name, x);
      case Activation::kGeluNew: break;
    }
    // 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))
    const TensorId half = builder_.unary(OpKind::kScale, name + ".half", x);
    const TensorId cube = builder_.unary(OpKind::kScale, name + ".scaled_cube",
                                         builder_.unary(OpKind::kPower, name + ".cube", x));
    const TensorId inner =
        builder_.unary(OpKind::kScale, name + ".inner", builder_.add(name + ".sum", x, cube));
    const TensorId outer = builder_.unary(OpKind::kScale, name + ".one_more",
                                          builder_.unary(OpKind::kTanh, name + ".tanh", inner));
    return builder_.multiply(name, half, outer);
  }

  // Two matrices, or three with a gate, with `ffn` columns on this trainer.
  TensorId feed_forward(const std::string& name, TensorId x, std::int64_t ffn) {
    TensorId inner = builder_.linear(name + ".up", x, tokens_shape(ffn), spec_.hidden, ffn, spec_.mlp_bias);
    inner = activate(name + ".act", inner);
    if (spec_.gated) {
      const TensorId up =
          builder_.linear(name + ".gate", x, tokens_shape(ffn), spec_.hidden, ffn, spec_.mlp_bias);
      inner = builder_.multiply(name + ".gated", inner, up);
    } else if (spec_.encoder_decoder) {
      inner = builder_.dropout(name + ".dropout", inner, spec_.residual_dropout);
    }
    return builder_.linear(name + ".down", inner, tokens_shape(spec_.hidden), ffn, spec_.hidden,
                           spec_.mlp_bias);
  }

  // transformers' grouped experts: rows are sorted by expert, multiplied in one product, restored and summed.
  TensorId experts(const std::string& name, TensorId x) {
    const std::int64_t k = spec_.experts_per_token;
    const std::int64_t rows = tokens_ * k;
    const std::int64_t local_experts = spec_.experts / part_.expert;
    const std::int64_t ffn = spec_.expert_ffn / part_.tensor;
    const Shape row_shape = {per_sample(rows), fixed(spec_.hidden)};
    const Shape token_rows = {per_sample(tokens_), fixed(spec_.hidden)};
    const Shape per_expert = {per_sample(tokens_), fixed(spec_.experts)};
    const TensorId flat = graph_.view(name + ".flat", x, token_rows);
    const TensorId logits =
        builder_.linear(name + ".router", flat, per_expert, spec_.hidden, spec_.experts, false);
    const TensorId probabilities =
        builder_.unary(OpKind::kSoftmax, name + ".router.softmax", builder_.cast(logits, ElementType::kFP32));
    const Shape chosen = {per_sample(tokens_), fixed(k)};
    const TensorId best =
        graph_.apply(OpKind::kTopK, name + ".router.topk", {probabilities}, chosen, ElementType::kFP32);
    // The weights are divided by their sum in place; autograd keeps a copy of the weights and the sum.
    // DeepSeek's weights are only scaled.
    const TensorId weights =
        spec_.weights_sum_to_one
            ? builder_.binary(OpKind::kMul, name + ".router.weights", best,
                              graph_.apply(OpKind::kSum, name + ".router.sum", {best},
                                           {per_sample(tokens_), fixed(1)}, ElementType::kFP32),
                              chosen)
            : builder_.unary(OpKind::kScale, name + ".router.weights", best);
    const TensorId order =
        graph_.apply(OpKind::kSort, name + ".order", {best}, {per_sample(rows)}, ElementType::kInt64);
    const TensorId sources = builder_.unary(OpKind::kScale, name + ".sources", order);  // order // k
    TensorId in =
        graph_.apply(OpKind::kSelectRows, name + ".rows", {flat, sources}, row_shape, builder_.type(x));
    if (part_.expert > 1) {
      in = graph_.apply(OpKind::kAllToAll, name + ".dispatch", {in}, row_shape, builder_.type(in));
    }
    const std::int64_t up_width = spec_.gated ? 2 * ffn : ffn;
    const TensorId up_weight = builder_.parameter(
        name + ".experts.gate_up", {fixed(local_experts), fixed(up_width), fixed(spec_.hidden)});
    TensorId inner =
        builder_.linear(name + ".experts.up", in, up_weight, -1, {per_sample(rows), fixed(up_width)});
    const Shape inner_shape = {per_sample(rows), fixed(ffn)};
    if (spec_.gated) {
      const std::vector<TensorId> halves =
          graph_.split(name + ".experts.chunk", inner, {inner_shape, inner_shape}, {1, 1});
      inner =
          builder_.multiply(name + ".experts.gated", activate(name + ".experts.act", halves[0]), halves[1]);
    } else {
      inner = activate(name + ".experts.act", inner);
    }
    const TensorId down_weight =
        builder_.parameter(name + ".experts.down", {fixed(local_experts), fixed(spec_.hidden), fixed(ffn)});
    TensorId out = builder_.linear(name + ".experts.down", inner, down_weight, -1, row_shape);
    if (part_.expert > 1) {
      out = graph_.apply(OpKind::kAllToAll, name + ".combine", {out}, row_shape, builder_.type(out));
    }
    const Shape row_weights = {per_sample(rows), fixed(1)};
    const TensorId sorted = graph_.apply(OpKind::kSelectRows, name + ".row_weights", {weights, order},
                                         row_weights, ElementType::kFP32);
    const TensorId weighted = builder_.binary(OpKind::kMul, name + ".weighted", out, sorted, row_shape);
    const TensorId back =
        graph_.apply(OpKind::kSort, name + ".inverse", {order}, {per_sample(rows)}, ElementType::kInt64);
    const TensorId restored = graph_.apply(OpKind::kSelectRows, name + ".restored", {weighted, back},
                                           row_shape, builder_.type(weighted));
    const TensorId summed =
        graph_.apply(OpKind::kSum, name + ".sum", {restored}, token_rows, builder_.type(restored));
    graph_.end_scope({order, sources, weighted, in, inner, out});
    return builder_.cast(graph_.view(name + ".tokens", summed, tokens_shape(spec_.hidden)), builder_.type(x));
  }

  TensorId mlp(const std::string& name, TensorId x, std::int64_t layer) {
    x = enter_region(name, x);
    if (dense(layer)) {
      return leave_region(name, feed_forward(name, x, spec_.ffn / part_.tensor));
    }
    TensorId out = experts(name, x);
    if (spec_.shared_ffn > 0) {
      TensorId shared = feed_forward(name + ".shared", x, spec_.shared_ffn / part_.tensor);
      if (spec_.shared_gate) {
        const TensorId gate = builder_.unary(
            OpKind::kSigmoid, name + ".shared.gate",
            builder_.linear(name + ".shared_gate", x, tokens_shape(1), spec_.hidden, 1, false));
        shared =
            builder_.binary(OpKind::kMul, name + ".shared.gated", shared, gate, tokens_shape(spec_.hidden));
      }
      out = builder_.add(name + ".with_shared", out, shared);
    }
    return leave_region(name, out);
  }

  // Megatron-LM's f and g (arXiv 1909.08053 section 3); with sequence parallelism, all-gather and
  // reduce-scatter (arXiv 2205.05198 section 4.2).
  TensorId enter_region(const std::string& name, TensorId x) {
    if (part_.tensor == 1) {
      return x;
    }
    return part_.sequence
               ? graph_.apply(OpKind::kAllGather, name + ".gather", {x}, tokens_shape(spec_.hidden),
                              builder_.type(x))
               : graph_.alias(OpKind::kCopyToRegion, name + ".enter", {x}, tokens_shape(spec_.hidden));
  }
  TensorId leave_region(const std::string& name, TensorId x) {
    if (part_.tensor == 1) {
      return x;
    }
    return part_.sequence
               ? graph_.apply(OpKind::kReduceScatter, name + ".scatter", {x}, residual_shape(spec_.hidden),
                              builder_.type(x))
               : graph_.alias(OpKind::kAllReduce, name + ".reduce", {x}, tokens_shape(spec_.hidden));
  }

  // x + part(norm(x)), or norm(x + part(x)).
  template <class Part>
  TensorId residual(const std::string& module, TensorId x, Part part) {
    TensorId out = -1;
    if (spec_.post_norm) {
      out = builder_.dropout(module + ".dropout", part(x), spec_.residual_dropout);
      return norm(module + "_norm", builder_.add(module + ".residual", out, x));
    }
    out = builder_.dropout(module + ".dropout", part(norm(module + "_norm", x)), spec_.residual_dropout);
    return builder_.binary(OpKind::kAdd, module + ".residual", x, out, residual_shape(spec_.hidden));
  }

  // The layers of one half. `memory`: output of the encoder; -1: none.
  TensorId layers(const std::string& prefix, TensorId x, std::int64_t count, TensorId memory) {
    // Tensors that all layers share are computed before them, so that recomputing a layer does not repeat
    // them.
    if (eager() && spec_.head == Head::kCausal && (memory >= 0 || spec_.positions != Positions::kRelative)) {
      mask();
    }
    rotary_tables();
    const TensorId bias = spec_.positions == Positions::kRelative ? relative_bias(prefix) : -1;
    const std::int64_t end = part_.last_layer < 0 ? count : std::min(part_.last_layer, count);
    for (std::int64_t i = part_.first_layer; i < end; ++i) {
      const std::string name = prefix + "layers." + std::to_string(i);
      const ForwardGraph::Mark begin = graph_.mark();
      const TensorId before = x;
      x = layer(name, x, i, memory, bias);
      const std::int64_t copies = equal_layers_after(i, end);
      x = graph_.repeat(begin, before, x, copies, name);
      i += copies;
    }
    return x;
  }

  bool dense(std::int64_t layer) const { return spec_.experts == 0 || layer < spec_.first_dense; }

  // Number of layers directly after the i-th that are equal to it.
  std::int64_t equal_layers_after(std::int64_t i, std::int64_t end) const {
    if (training_.activation_checkpointing == crds::ActivationCheckpointing::kPerModule) {
      return 0;  // modules are matched by name
    }
    std::int64_t next = i + 1;
    while (next < end && dense(next) == dense(i)) {
      ++next;
    }
    return next - i - 1;
  }

  TensorId layer(const std::string& name, TensorId x, std::int64_t number, TensorId memory, TensorId bias) {
    const TensorId before = x;
    const Module layer(*this, name, true);
    graph_.begin_unit();
    {
      const Module module(*this, name + ".attention", false);
      x = residual(name + ".attention", x, [&](TensorId in) {
        return attention(name + ".attention", in, in, spec_.positions == Positions::kRotary, bias);
      });
    }
    if (memory >= 0) {
      const Module module(*this, name + ".cross_attention", false);
      x = residual(name + ".cross_attention", x,
                   [&](TensorId in) { return attention(name + ".cross_attention", in, memory, false, -1); });
    }
    {
      const Module module(*this, name + ".mlp", false);
      x = residual(name + ".mlp", x, [&](TensorId in) { return mlp(name + ".mlp", in, number); });
    }
    graph_.end_scope({before});
    graph_.end_unit();
    return x;
  }

  // T5's bias for each head and pair of positions; the layers of a half share it.
  TensorId relative_bias(const std::string& prefix) {
    const TensorId buckets = graph_.add_input(
        prefix + "buckets", {fixed(spec_.sequence), fixed(spec_.sequence)}, ElementType::kInt64);
    const TensorId table =
        builder_.parameter(prefix + "relative.weight", {fixed(spec_.relative_buckets), fixed(heads_)});
    const TensorId rows = embedding_of(prefix + "relative", buckets, table,
                                       {fixed(spec_.sequence), fixed(spec_.sequence), fixed(heads_)});
    const Shape by_head = {fixed(heads_), fixed(tokens_), fixed(spec_.sequence)};
    return graph_.apply(OpKind::kCopy, prefix + "relative.mask", {rows}, by_head, builder_.stored());
  }

  void encoder_decoder() {
    TensorId memory = layers("encoder.", embed("encoder.", "input_ids"), spec_.encoder_layers, -1);
    memory = norm("encoder.norm", memory);
    memory = builder_.dropout("encoder.dropout", memory, spec_.residual_dropout);
    predict(layers("decoder.", embed("decoder.", "decoder_input_ids"), spec_.layers, memory));
  }

  void predict(TensorId x) {
    switch (spec_.head) {
      case Head::kCausal: {
        if (!spec_.post_norm) {
          x = norm("norm", x);
        }
        if (spec_.encoder_decoder) {
          x = builder_.dropout("dropout", x, spec_.residual_dropout);
          x = spec_.tied ? builder_.unary(OpKind::kScale, "head.scale", x) : x;
        }
        break;
      }
      case Head::kMasked: {
        x = builder_.linear("head.dense", x, tokens_shape(spec_.hidden), spec_.hidden, spec_.hidden, true);
        x = norm("head.norm", activate("head.act", x));
        break;
      }
      case Head::kEncoder: return pool(x);
    }
    x = enter_region("head", x);
    const TensorId weight =
        spec_.tied && embedding_ >= 0
            ? embedding_
            : builder_.parameter("head.weight", {fixed(spec_.vocab / vocab_split()), fixed(spec_.hidden)});
    const TensorId bias =
        spec_.head_bias ? builder_.parameter("head.bias", {fixed(spec_.vocab / vocab_split())}) : -1;
    const TensorId logits =
        builder_.linear("head", x, weight, bias, tokens_shape(spec_.vocab / vocab_split()));
    builder_.cross_entropy(logits, {per_sample(1), fixed(tokens_)});
  }

  // BERT's pooler: the first token through a dense layer and tanh. The mean of the result is used as the
  // loss.
  void pool(TensorId x) {
    const Shape pooled = {per_sample(1), fixed(spec_.hidden)};
    const TensorId first = graph_.alias(OpKind::kSlice, "pooler.first", {x}, pooled);
    const TensorId dense = builder_.linear("pooler", first, pooled, spec_.hidden, spec_.hidden, true);
    graph_.apply(OpKind::kMean, "loss", {builder_.unary(OpKind::kTanh, "pooler.tanh", dense)}, {fixed(1)},
                 ElementType::kFP32);
  }

  const TransformerSpec& spec_;
  const TransformerPart& part_;
  const crds::TrainingSpec& training_;
  ModelBuilder builder_;
  ForwardGraph& graph_;
  ModulePatterns patterns_;
  const std::int64_t tokens_;           // per sample, on this trainer
  const std::int64_t residual_tokens_;  // per sample, outside the parts that tensor parallelism splits
  const std::int64_t heads_;            // on this trainer
  const std::int64_t kv_heads_;
  TensorId embedding_ = -1;  // the token embedding, if this trainer has it
  TensorId cos_ = -1, sin_ = -1;
  TensorId mask_ = -1;
};

}  // namespace

Result<ForwardGraph> lower_transformer(const TransformerSpec& spec, const crds::TrainingSpec& training,
                                       const TransformerPart& part, Budget* budget) {
  Result<void> checked = check(spec, part);
  if (!checked) {
    return checked.error();
  }
  return TransformerLowering(spec, training, part, budget).run();
}

}  // namespace plimsoll::estimator::spec
