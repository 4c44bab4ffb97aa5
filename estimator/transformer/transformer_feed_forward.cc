#include "estimator/transformer/transformer_feed_forward.h"

#include <utility>
#include <vector>

namespace plimsoll::estimator::inline transformer {

// Two matrices, or three with a gate, with `ffn` columns on this trainer.
TensorId TransformerFeedForward::dense(const std::string& name, TensorId x, std::int64_t ffn, bool flat) {
  const auto shape = [&](std::int64_t width) {
    return flat ? Shape{per_sample(tokens_), fixed(width)} : tokens_shape(width);
  };
  const auto up = [&](const char* which, std::int64_t width) {
    return builder_.linear(name + which, x, shape(width), spec_.hidden, width, spec_.mlp_bias);
  };
  TensorId inner = -1;
  if (spec_.fused_gate) {
    // Phi3MLP: up * activation(gate), with both in one matrix.
    const std::vector<TensorId> halves =
        graph_.split(name + ".chunk", up(".gate_up", 2 * ffn), {shape(ffn), shape(ffn)}, {1, 1});
    inner = spec_.fused_activation
                ? graph_.apply(OpKind::kGatedActivation, name + ".gated", halves, shape(ffn),
                               builder_.type(halves[0]))
                : builder_.multiply(name + ".gated", halves[1], activate(name + ".act", halves[0]));
  } else if (spec_.gated && builder_.compiled()) {
    const TensorId activated = up(".up", ffn);
    inner = graph_.apply(OpKind::kGatedActivation, name + ".gated", {activated, up(".gate", ffn)}, shape(ffn),
                         builder_.type(activated));
  } else {
    inner = activate(name + ".act", up(".up", ffn));
    if (spec_.gated) {
      inner = builder_.multiply(name + ".gated", inner, up(".gate", ffn));
    }
  }
  inner = builder_.dropout(name + ".dropout", inner, spec_.ffn_dropout);
  return builder_.linear(name + ".down", inner, shape(spec_.hidden), ffn, spec_.hidden, spec_.mlp_bias);
}

// transformers' grouped experts: rows are sorted by expert, multiplied in one product, restored and summed.
TensorId TransformerFeedForward::experts(const std::string& name, TensorId x) {
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
  // A weight a layer with all experts, or one an expert.
  const auto expert_weight = [&](const char* which, std::int64_t rows_of, std::int64_t columns) {
    return spec_.split_experts
               ? graph_.add_expert_parameters(name + which, {fixed(rows_of), fixed(columns)},
                                              builder_.stored(), local_experts)
               : builder_.adapted_weight(
                     name + which,
                     builder_.parameter(name + which, {fixed(local_experts), fixed(rows_of), fixed(columns)}),
                     local_experts);
  };
  const auto expert_bias = [&](const char* which, std::int64_t width) {
    return !spec_.mlp_bias ? TensorId{-1}
           : spec_.split_experts
               ? graph_.add_expert_parameters(name + which, {fixed(width)}, builder_.stored(), local_experts)
               : builder_.parameter(name + which, {fixed(local_experts), fixed(width)});
  };
  // Autocast knows no grouped product: rows are cast to the weights' type, which stays fp32 (integrations/moe.py:
  // _grouped_mm). Experts that are modules of their own are linear layers.
  const auto product = [&](const char* which, TensorId rows_in, TensorId weight, TensorId bias, Shape shape) {
    if (spec_.split_experts || !builder_.mixed()) {
      return builder_.linear(name + which, rows_in, weight, bias, std::move(shape));
    }
    const ElementType type = builder_.type(weight);
    TensorIds inputs = {builder_.cast(rows_in, type), weight};
    if (bias >= 0) {
      inputs.push_back(bias);
    }
    return graph_.apply(OpKind::kLinear, name + which, inputs, std::move(shape), type);
  };
  const TensorId up_weight = expert_weight(".experts.gate_up", up_width, spec_.hidden);
  TensorId inner = product(".experts.up", in, up_weight, expert_bias(".experts.gate_up_bias", up_width),
                           {per_sample(rows), fixed(up_width)});
  const Shape inner_shape = {per_sample(rows), fixed(ffn)};
  {
    const CheckpointedModule act(context_, name + ".experts.act", false);
    if (spec_.gated) {
      const std::vector<TensorId> halves =
          graph_.split(name + ".experts.chunk", inner, {inner_shape, inner_shape}, {1, 1});
      inner =
          builder_.multiply(name + ".experts.gated", activate(name + ".experts.act", halves[0]), halves[1]);
    } else {
      inner = activate(name + ".experts.act", inner);
    }
  }
  const TensorId down_weight = expert_weight(".experts.down", spec_.hidden, ffn);
  TensorId out = product(".experts.down", inner, down_weight, -1, row_shape);
  if (const TensorId bias = expert_bias(".experts.down_bias", spec_.hidden); bias >= 0) {
    out = builder_.binary(OpKind::kAdd, name + ".experts.biased", out,
                          builder_.cast(bias, builder_.type(out)), row_shape);
  }
  if (part_.expert > 1) {
    out = graph_.apply(OpKind::kAllToAll, name + ".combine", {out}, row_shape, builder_.type(out));
  }
  const Shape row_weights = {per_sample(rows), fixed(1)};
  const TensorId sorted = graph_.apply(OpKind::kSelectRows, name + ".row_weights", {weights, order},
                                       row_weights, ElementType::kFP32);
  const TensorId weighted = builder_.binary(OpKind::kMul, name + ".weighted", out, sorted, row_shape);
  const TensorId back =
      graph_.apply(OpKind::kSort, name + ".inverse", {order}, {per_sample(rows)}, ElementType::kInt64);
  const TensorId restored = graph_.apply(OpKind::kSelectRows, name + ".restored", {weighted, back}, row_shape,
                                         builder_.type(weighted));
  const TensorId summed =
      graph_.apply(OpKind::kSum, name + ".sum", {restored}, token_rows, builder_.type(restored));
  graph_.end_scope({order, sources, weighted, in, inner, out});
  return builder_.cast(graph_.view(name + ".tokens", summed, tokens_shape(spec_.hidden)), builder_.type(x));
}

// Llama4TextMoe: all experts compute all tokens, times their weight, which is 0 for most.
TensorId TransformerFeedForward::all_experts(const std::string& name, TensorId x) {
  const std::int64_t ffn = spec_.expert_ffn / part_.tensor;
  const std::int64_t rows = tokens_ * spec_.experts;
  const auto row_shape = [&](std::int64_t width) { return Shape{per_sample(rows), fixed(width)}; };
  const Shape token_rows = {per_sample(tokens_), fixed(spec_.hidden)};
  const Shape per_expert = {per_sample(tokens_), fixed(spec_.experts)};
  const TensorId flat = graph_.view(name + ".flat", x, token_rows);
  const TensorId logits =
      builder_.linear(name + ".router", flat, per_expert, spec_.hidden, spec_.experts, false);
  const TensorId best =
      graph_.apply(OpKind::kTopK, name + ".router.topk", {logits},
                   {per_sample(tokens_), fixed(spec_.experts_per_token)}, builder_.type(logits));
  const TensorId spread =
      graph_.apply(OpKind::kScale, name + ".router.scattered", {best}, per_expert, builder_.type(logits));
  const TensorId weights = builder_.cast(
      builder_.unary(OpKind::kSigmoid, name + ".router.sigmoid", builder_.cast(spread, ElementType::kFP32)),
      builder_.type(logits));
  const TensorId repeated =
      graph_.apply(OpKind::kRepeat, name + ".repeated", {flat}, row_shape(spec_.hidden), builder_.type(flat));
  const TensorId by_row =
      graph_.apply(OpKind::kCopy, name + ".row_weights", {weights}, row_shape(1), builder_.type(weights));
  const TensorId in =
      builder_.binary(OpKind::kMul, name + ".weighted", repeated, by_row, row_shape(spec_.hidden));
  const auto expert_weights = [&](const char* which, std::int64_t columns, std::int64_t width) {
    return builder_.parameter(name + which, {fixed(spec_.experts), fixed(columns), fixed(width)});
  };
  const TensorId both =
      builder_.matmul(name + ".experts.up", in, expert_weights(".experts.gate_up", spec_.hidden, 2 * ffn),
                      row_shape(2 * ffn));
  const std::vector<TensorId> halves =
      graph_.split(name + ".experts.chunk", both, {row_shape(ffn), row_shape(ffn)}, {1, 1});
  const TensorId inner =
      builder_.multiply(name + ".experts.gated", halves[1], activate(name + ".experts.act", halves[0]));
  const TensorId routed =
      builder_.matmul(name + ".experts.down", inner, expert_weights(".experts.down", ffn, spec_.hidden),
                      row_shape(spec_.hidden));
  const TensorId shared = dense(name + ".shared", flat, spec_.shared_ffn / part_.tensor, true);
  // The gradient of the sum is as large as a token's row, and viewing it as all experts' rows copies it.
  const TensorId by_expert =
      graph_.alias(OpKind::kReshape, name + ".by_expert", {routed}, row_shape(spec_.hidden));
  const TensorId sum =
      graph_.apply(OpKind::kSum, name + ".sum", {by_expert}, token_rows, builder_.type(routed));
  const TensorId out = graph_.alias(OpKind::kAdd, name + ".with_shared", {shared, sum}, token_rows);
  graph_.end_scope({in, routed});
  return graph_.view(name + ".tokens", out, tokens_shape(spec_.hidden));
}

TensorId TransformerFeedForward::run(const std::string& name, TensorId x, bool sparse) {
  if (!sparse) {
    x = enter_products(name, x);
    return leave_products(name, dense(name, x, spec_.ffn / part_.tensor, spec_.flat_mlp));
  }
  x = enter_region(name, x);
  if (spec_.experts_take_all) {
    return leave_region(name, all_experts(name, x));
  }
  const auto shared_expert = [&] {
    return dense(name + ".shared", x, spec_.shared_ffn / part_.tensor, false);
  };
  // A gated one comes first (Qwen2MoeSparseMoeBlock, Qwen3NextSparseMoeBlock), others last (DeepseekV3MoE).
  const bool has_shared = spec_.shared_ffn > 0;
  TensorId shared = has_shared && spec_.shared_gate ? shared_expert() : TensorId{};
  TensorId out = experts(name, x);
  if (has_shared) {
    if (!spec_.shared_gate) {
      shared = shared_expert();
    } else {
      const TensorId gate =
          builder_.unary(OpKind::kSigmoid, name + ".shared.gate",
                         builder_.linear(name + ".shared_gate", x, tokens_shape(1), spec_.hidden, 1, false));
      shared =
          builder_.binary(OpKind::kMul, name + ".shared.gated", shared, gate, tokens_shape(spec_.hidden));
    }
    out = builder_.add(name + ".with_shared", out, shared);
  }
  return leave_region(name, out);
}

}  // namespace plimsoll::estimator::transformer
