#include "estimator/spec/decoder_families.h"

#include <string_view>

#include "base/json/edit.h"
#include "base/json/view.h"

namespace plimsoll::estimator::inline spec {

void set_activation(ConfigKeys& keys, const std::string& name, TransformerSpec& spec) {
  if (name == "silu" || name == "swish") {
    spec.activation = Activation::kSilu;
  } else if (name == "gelu" || name == "gelu_pytorch_tanh") {
    spec.activation = Activation::kGelu;
  } else if (name == "gelu_new") {
    spec.activation = Activation::kGeluNew;
  } else if (name == "relu") {
    spec.activation = Activation::kRelu;
  } else if (name == "quick_gelu") {
    spec.activation = Activation::kQuickGelu;
  } else {
    keys.fail("the activation",
              "\"" + name.substr(0, 64) +
                  "\" is not known; known are silu, gelu, gelu_pytorch_tanh, gelu_new, quick_gelu and relu");
  }
}

// The sizes that Llama and its successors have in common.
TransformerSpec llama_spec(ConfigKeys& keys) {
  TransformerSpec spec;
  spec.layers = keys.required("num_hidden_layers");
  spec.hidden = keys.required("hidden_size");
  spec.vocab = keys.required("vocab_size");
  spec.heads = keys.required("num_attention_heads");
  spec.kv_heads = keys.integer("num_key_value_heads", spec.heads);
  spec.head_dim = keys.integer("head_dim", spec.heads > 0 ? spec.hidden / spec.heads : 0);
  spec.ffn = keys.required("intermediate_size");
  spec.gated = true;
  set_activation(keys, keys.text("hidden_act", "silu"), spec);
  spec.qkv_bias = spec.out_bias = keys.boolean("attention_bias", false);
  spec.mlp_bias = keys.boolean("mlp_bias", false);
  spec.attention_dropout = keys.number("attention_dropout", 0);
  spec.tied = keys.boolean("tie_word_embeddings", false);
  return spec;
}

namespace {

// A flag for each layer from config.layer_types: true for `name`, false for full_attention. Without the list, all
// layers but every `period`-th.
std::vector<bool> layer_types(ConfigKeys& keys, const char* name, std::int64_t period,
                              const TransformerSpec& spec) {
  std::vector<bool> flags;
  if (spec.layers < 1 || spec.layers > kMaxTransformerLayers) {
    return flags;  // refused by check()
  }
  const Json& types = keys.json("layer_types");
  if (!types.isNull() && (!types.isArray() || types.size() != static_cast<Json::ArrayIndex>(spec.layers))) {
    keys.fail("layer_types", "must be a list with a string for each of the layers");
    return flags;
  }
  for (std::int64_t i = 0; i < spec.layers; ++i) {
    const std::string_view type = JsonView(element(types, static_cast<std::size_t>(i))).text().value_or("");
    if (!types.isNull() && type != name && type != "full_attention") {
      keys.fail("layer_types", "must have only " + std::string(name) + " and full_attention");
      return flags;
    }
    flags.push_back(types.isNull() ? (i + 1) % period != 0 : type == name);
  }
  return flags;
}

// A window that all layers have.
void window_of_all_layers(ConfigKeys& keys, TransformerSpec& spec) {
  spec.all_slide = keys.has("sliding_window");
  spec.window = keys.integer("sliding_window", 0);
}

// Of Qwen: a window from the layer max_window_layers on, which use_sliding_window turns on.
void window_of_late_layers(ConfigKeys& keys, TransformerSpec& spec) {
  const std::int64_t window = keys.integer("sliding_window", 4096);
  const std::int64_t first = keys.integer("max_window_layers", 28);
  const bool listed = keys.has("layer_types");
  if (keys.boolean("use_sliding_window", false) && window > 0) {
    spec.window = window;
    spec.sliding = layer_types(keys, "sliding_attention", 1, spec);
    for (std::size_t i = 0; i < spec.sliding.size() && !listed; ++i) {
      spec.sliding[i] = static_cast<std::int64_t>(i) >= first;
    }
  }
}

}  // namespace

TransformerSpec mistral_spec(ConfigKeys& keys) {
  TransformerSpec spec = llama_spec(keys);
  spec.window = keys.integer_or_null("sliding_window", 4096);
  spec.all_slide = spec.window > 0;
  return spec;
}

TransformerSpec mixtral_spec(ConfigKeys& keys) {
  TransformerSpec spec = llama_spec(keys);
  window_of_all_layers(keys, spec);
  spec.experts = keys.integer("num_local_experts", 8);
  spec.experts_per_token = keys.integer("num_experts_per_tok", 2);
  spec.expert_ffn = spec.ffn;
  return spec;
}

TransformerSpec qwen2_spec(ConfigKeys& keys) {
  TransformerSpec spec = llama_spec(keys);
  window_of_late_layers(keys, spec);
  spec.qkv_bias = true;
  spec.out_bias = false;
  return spec;
}

TransformerSpec qwen3_spec(ConfigKeys& keys) {
  TransformerSpec spec = llama_spec(keys);
  window_of_late_layers(keys, spec);
  spec.head_dim = keys.integer("head_dim", 128);
  spec.qk_norm = QkNorm::kHeads;
  return spec;
}

namespace {

void sparse(ConfigKeys& keys, TransformerSpec& spec) {
  // transformers 5 writes the name that all families have.
  spec.experts =
      keys.has("num_local_experts") ? keys.integer("num_local_experts", 0) : keys.required("num_experts");
  spec.experts_per_token = keys.required("num_experts_per_tok");
  spec.weights_sum_to_one = keys.boolean("norm_topk_prob", false);
  spec.expert_ffn = keys.required("moe_intermediate_size");
  spec.sparse_step = keys.integer("decoder_sparse_step", 1);
  if (keys.has_items("mlp_only_layers")) {
    keys.fail("mlp_only_layers", "is supported only as an empty list");
  }
}

}  // namespace

TransformerSpec qwen2_moe_spec(ConfigKeys& keys) {
  TransformerSpec spec = qwen2_spec(keys);
  sparse(keys, spec);
  spec.shared_ffn = keys.required("shared_expert_intermediate_size");
  spec.shared_gate = true;
  return spec;
}

TransformerSpec qwen3_moe_spec(ConfigKeys& keys) {
  TransformerSpec spec = qwen3_spec(keys);
  spec.all_slide = !spec.sliding.empty();  // Qwen3MoeModel has one mask for all layers
  spec.sliding.clear();
  sparse(keys, spec);
  return spec;
}

TransformerSpec deepseek_spec(ConfigKeys& keys) {
  TransformerSpec spec = llama_spec(keys);
  spec.query_rank = keys.integer("q_lora_rank", 0);
  spec.kv_rank = keys.required("kv_lora_rank");
  spec.nope_dim = keys.required("qk_nope_head_dim");
  spec.rope_dim = keys.required("qk_rope_head_dim");
  spec.value_dim = keys.required("v_head_dim");
  if (spec.nope_dim > 0 && spec.rope_dim > 0 && spec.nope_dim < 1 << 20 && spec.rope_dim < 1 << 20) {
    spec.head_dim = spec.nope_dim + spec.rope_dim;
  }
  spec.kv_heads = spec.heads;
  spec.experts = keys.required("n_routed_experts");
  spec.experts_per_token = keys.required("num_experts_per_tok");
  spec.weights_sum_to_one = keys.boolean("norm_topk_prob", false);
  spec.expert_ffn = keys.required("moe_intermediate_size");
  const std::int64_t shared = keys.integer("n_shared_experts", 0);
  spec.shared_ffn = (Bytes{spec.expert_ffn} * shared).count;  // saturates
  spec.first_dense = keys.integer("first_k_dense_replace", 0);
  if (keys.integer("moe_layer_freq", 1) != 1) {
    keys.fail("moe_layer_freq", "is supported only as 1");
  }
  return spec;
}

TransformerSpec gpt2_spec(ConfigKeys& keys) {
  TransformerSpec spec;
  spec.layers = keys.integer("n_layer", 12);
  spec.hidden = keys.integer("n_embd", 768);
  spec.vocab = keys.integer("vocab_size", 50257);
  spec.heads = spec.kv_heads = keys.integer("n_head", 12);
  spec.head_dim = spec.heads > 0 ? spec.hidden / spec.heads : 0;
  spec.ffn = keys.integer("n_inner", (Bytes{spec.hidden} * 4).count);
  set_activation(keys, keys.text("activation_function", "gelu_new"), spec);
  spec.norm = crds::Normalization::kLayerNorm;
  spec.qkv_bias = spec.out_bias = spec.mlp_bias = true;
  spec.fused_qkv = FusedQkv::kSplit;
  spec.names_attention_result = true;
  spec.positions = Positions::kLearned;
  spec.max_positions = keys.integer("n_positions", 1024);
  spec.embedding_dropout = keys.number("embd_pdrop", 0.1);
  spec.residual_dropout = keys.number("resid_pdrop", 0.1);
  spec.attention_dropout = keys.number("attn_pdrop", 0.1);
  spec.tied = keys.boolean("tie_word_embeddings", true);
  spec.float_softmax = false;
  return spec;
}

namespace {

// Sizes with the defaults of a family.
struct Defaults {
  std::int64_t layers, hidden, vocab, heads, kv_heads, head_dim,
      ffn;  // kv_heads 0: heads; head_dim 0: hidden / heads
};

TransformerSpec sizes(ConfigKeys& keys, const Defaults& defaults) {
  TransformerSpec spec;
  spec.layers = keys.integer("num_hidden_layers", defaults.layers);
  spec.hidden = keys.integer("hidden_size", defaults.hidden);
  spec.vocab = keys.integer("vocab_size", defaults.vocab);
  spec.heads = keys.integer("num_attention_heads", defaults.heads);
  spec.kv_heads = keys.integer("num_key_value_heads", defaults.kv_heads > 0 ? defaults.kv_heads : spec.heads);
  const std::int64_t head_dim = defaults.head_dim > 0 ? defaults.head_dim
                                : spec.heads > 0      ? spec.hidden / spec.heads
                                                      : 0;
  spec.head_dim = keys.integer("head_dim", head_dim);
  spec.ffn = keys.integer("intermediate_size", defaults.ffn);
  spec.attention_dropout = keys.number("attention_dropout", 0);
  return spec;
}

// rope_parameters.partial_rotary_factor, or the older member of its own.
void partial_rotary(ConfigKeys& keys, const char* older, double otherwise, TransformerSpec& spec) {
  const Json& parameters = keys.json(keys.has("rope_parameters") ? "rope_parameters" : "rope_scaling");
  double factor = keys.number(older, otherwise);
  if (const Json& newer = member(parameters, {"partial_rotary_factor"}); !newer.isNull()) {
    factor = JsonView(newer).number().value_or(0);
  }
  if (!(factor > 0 && factor <= 1)) {
    keys.fail("partial_rotary_factor", "must be a number above 0 and at most 1");
    return;
  }
  spec.partial_rotary = true;
  spec.rotary_dim = static_cast<std::int64_t>(static_cast<double>(spec.head_dim) * factor);
}

// The period of a pattern of layers.
std::int64_t period_of(ConfigKeys& keys, const char* key, std::int64_t otherwise) {
  const std::int64_t period = keys.integer(key, otherwise);
  if (period < 1) {
    keys.fail(key, "must be at least 1");
    return otherwise;
  }
  return period;
}

TransformerSpec gemma_sizes(ConfigKeys& keys, const Defaults& defaults) {
  TransformerSpec spec = sizes(keys, defaults);
  const std::string older = keys.text("hidden_act", "gelu_pytorch_tanh");
  set_activation(keys, keys.text("hidden_activation", older.c_str()), spec);
  spec.gated = true;
  spec.rms_form = RmsForm::kGemma;
  spec.scaled_embedding = true;
  spec.qkv_bias = spec.out_bias = keys.boolean("attention_bias", false);
  spec.tied = keys.boolean("tie_word_embeddings", true);
  keys.only("use_bidirectional_attention", false);
  return spec;
}

void layer_norms(TransformerSpec& spec) {
  spec.norm = crds::Normalization::kLayerNorm;
}

}  // namespace

TransformerSpec gemma_spec(ConfigKeys& keys) {
  return gemma_sizes(keys, {28, 3072, 256000, 16, 16, 256, 24576});
}

TransformerSpec gemma2_spec(ConfigKeys& keys) {
  TransformerSpec spec = gemma_sizes(keys, {26, 2304, 256000, 8, 4, 256, 9216});
  spec.kernels = Kernels::kFlash;  // SDPA has no cap
  spec.norm_place = NormPlace::kAround;
  spec.softcapped_scores = keys.number_or_null("attn_logit_softcapping", 50) > 0;
  spec.softcapped_logits = keys.number_or_null("final_logit_softcapping", 30) > 0;
  spec.window = keys.integer("sliding_window", 4096);
  spec.sliding = layer_types(keys, "sliding_attention", 2, spec);
  return spec;
}

TransformerSpec gemma3_spec(ConfigKeys& keys) {
  TransformerSpec spec = gemma_sizes(keys, {26, 2304, 262208, 8, 4, 256, 9216});
  spec.norm_place = NormPlace::kAround;
  spec.qk_norm = QkNorm::kHeads;
  // Gemma3Attention does not pass its attn_logit_softcapping on.
  spec.softcapped_logits = keys.number("final_logit_softcapping", 0) > 0;
  spec.window = keys.integer("sliding_window", 4096);
  spec.sliding_rotary = true;
  spec.sliding = layer_types(keys, "sliding_attention", period_of(keys, "sliding_window_pattern", 6), spec);
  return spec;
}

TransformerSpec phi_spec(ConfigKeys& keys) {
  TransformerSpec spec = sizes(keys, {24, 2048, 51200, 32, 0, 0, 8192});
  set_activation(keys, keys.text("hidden_act", "gelu_new"), spec);
  layer_norms(spec);
  spec.residual = Residual::kParallelSharedNorm;
  spec.qkv_bias = spec.out_bias = spec.mlp_bias = spec.head_bias = true;
  spec.qk_norm = keys.boolean("qk_layernorm", false) ? QkNorm::kHeadsLayerNorm : QkNorm::kNone;
  spec.embedding_dropout = keys.number("embd_pdrop", 0);
  spec.residual_dropout = keys.number("resid_pdrop", 0);
  spec.tied = keys.boolean("tie_word_embeddings", false);
  partial_rotary(keys, "partial_rotary_factor", 0.5, spec);
  return spec;
}

TransformerSpec phi3_spec(ConfigKeys& keys) {
  TransformerSpec spec = sizes(keys, {32, 3072, 32064, 32, 0, 0, 8192});
  set_activation(keys, keys.text("hidden_act", "silu"), spec);
  spec.fused_qkv = FusedQkv::kSlices;
  spec.gated = spec.fused_gate = true;
  spec.residual_dropout = keys.number("resid_pdrop", 0);  // embd_pdrop has no effect in Phi3Model
  spec.tied = keys.boolean("tie_word_embeddings", false);
  partial_rotary(keys, "partial_rotary_factor", 1, spec);
  window_of_all_layers(keys, spec);
  return spec;
}

TransformerSpec gpt_neox_spec(ConfigKeys& keys) {
  TransformerSpec spec = sizes(keys, {44, 6144, 50432, 64, 0, 0, 24576});
  spec.kv_heads = spec.heads;
  set_activation(keys, keys.text("hidden_act", "gelu"), spec);
  layer_norms(spec);
  spec.residual = keys.boolean("use_parallel_residual", true) ? Residual::kParallel : Residual::kSequential;
  spec.fused_qkv = FusedQkv::kHeadsChunk;
  spec.qkv_bias = spec.out_bias = keys.boolean("attention_bias", true);
  spec.mlp_bias = true;
  spec.embedding_dropout = spec.residual_dropout = keys.number("hidden_dropout", 0);
  spec.tied = keys.boolean("tie_word_embeddings", false);
  partial_rotary(keys, "rotary_pct", 0.25, spec);
  return spec;
}

TransformerSpec stablelm_spec(ConfigKeys& keys) {
  TransformerSpec spec = sizes(keys, {32, 2560, 50304, 32, 32, 0, 6912});
  set_activation(keys, keys.text("hidden_act", "silu"), spec);
  layer_norms(spec);
  spec.residual =
      keys.boolean("use_parallel_residual", false) ? Residual::kParallelSharedNorm : Residual::kSequential;
  spec.gated = true;
  spec.qkv_bias = keys.boolean("use_qkv_bias", false);
  spec.qk_norm = keys.boolean("qk_layernorm", false) ? QkNorm::kEachHead : QkNorm::kNone;
  spec.residual_dropout = keys.number("hidden_dropout", 0);
  spec.names_attention_result = true;
  spec.drops_attention_result = false;
  spec.tied = keys.boolean("tie_word_embeddings", false);
  partial_rotary(keys, "partial_rotary_factor", 0.25, spec);
  return spec;
}

TransformerSpec olmo2_spec(ConfigKeys& keys) {
  TransformerSpec spec = sizes(keys, {32, 4096, 50304, 32, 0, 0, 11008});
  set_activation(keys, keys.text("hidden_act", "silu"), spec);
  spec.gated = true;
  spec.rms_form = RmsForm::kOlmo;
  spec.norm_place = NormPlace::kAfter;
  spec.qk_norm = QkNorm::kWhole;
  spec.qkv_bias = spec.out_bias = keys.boolean("attention_bias", false);
  spec.tied = keys.boolean("tie_word_embeddings", false);
  return spec;
}

TransformerSpec opt_spec(ConfigKeys& keys) {
  TransformerSpec spec = sizes(keys, {12, 768, 50272, 12, 0, 0, 3072});
  spec.kv_heads = spec.heads;
  spec.ffn = keys.integer("ffn_dim", 3072);
  set_activation(keys, keys.text("activation_function", "relu"), spec);
  layer_norms(spec);
  const bool before = keys.boolean("do_layer_norm_before", true);
  spec.norm_place = before ? NormPlace::kBefore : NormPlace::kAfterSum;
  spec.final_norm = before && !keys.boolean("_remove_final_layer_norm", false);
  spec.qkv_bias = spec.out_bias = spec.mlp_bias = keys.boolean("enable_bias", true);
  keys.only("layer_norm_elementwise_affine", true);
  spec.scaled_queries = spec.flat_mlp = true;
  spec.positions = Positions::kLearned;
  spec.max_positions = keys.integer("max_position_embeddings", 2048);
  spec.positions_by_sample = true;
  spec.unused_positions = 2;  // OPTLearnedPositionalEmbedding.offset
  spec.embedding_dim = keys.integer("word_embed_proj_dim", spec.hidden);
  spec.residual_dropout = keys.number("dropout", 0.1);
  if (keys.number("layerdrop", 0) != 0) {
    keys.fail("layerdrop", "is supported only as 0: which layers run differs by iteration");
  }
  spec.tied = keys.boolean("tie_word_embeddings", true);
  return spec;
}

TransformerSpec falcon_spec(ConfigKeys& keys) {
  TransformerSpec spec = sizes(keys, {32, 4544, 65024, 71, 0, 0, 0});
  const bool newer = keys.boolean("new_decoder_architecture", false);
  const bool multi_query = keys.boolean("multi_query", true);
  const bool parallel = keys.boolean("parallel_attn", true);
  spec.head_dim = spec.heads > 0 ? spec.hidden / spec.heads : 0;
  spec.kv_heads = newer ? keys.integer("num_kv_heads", spec.heads) : multi_query ? 1 : spec.heads;
  spec.fused_qkv = newer ? FusedQkv::kGroups : multi_query ? FusedQkv::kMultiQuery : FusedQkv::kThirds;
  spec.ffn = keys.integer("ffn_hidden_size", (Bytes{spec.hidden} * 4).count);
  set_activation(keys, keys.text("activation", "gelu"), spec);
  layer_norms(spec);
  const bool two_norms = newer && keys.integer("num_ln_in_parallel_attn", 2) == 2;
  spec.residual = !parallel   ? Residual::kSequential
                  : two_norms ? Residual::kParallel
                              : Residual::kParallelSharedNorm;
  spec.parts_summed_first = parallel;
  spec.qkv_bias = spec.out_bias = spec.mlp_bias = keys.boolean("bias", false);
  spec.mask_always = spec.scores_in_place = true;
  spec.residual_dropout = keys.number("hidden_dropout", 0);
  spec.attention_dropout = 0;  // FalconAttention applies it only with alibi
  spec.tied = keys.boolean("tie_word_embeddings", true);
  keys.only("alibi", false);
  if (!parallel && keys.number("attention_dropout", 0) != spec.residual_dropout) {
    keys.fail("attention_dropout", "is supported without parallel_attn only if it equals hidden_dropout");
  }
  if (newer && !parallel) {
    keys.fail("parallel_attn", "is supported with new_decoder_architecture only as true");
  }
  spec.float_softmax = false;
  return spec;
}

TransformerSpec bloom_spec(ConfigKeys& keys) {
  TransformerSpec spec;
  const auto either = [&](const char* name, const char* other, std::int64_t otherwise) {
    return keys.integer(name, keys.integer(other, otherwise));
  };
  spec.layers = either("n_layer", "num_hidden_layers", 2);
  spec.heads = spec.kv_heads = either("n_head", "num_attention_heads", 8);
  spec.hidden = either("n_embed", "hidden_size", 64);
  spec.vocab = keys.integer("vocab_size", 250880);
  spec.head_dim = spec.heads > 0 ? spec.hidden / spec.heads : 0;
  spec.ffn = (Bytes{spec.hidden} * 4).count;
  spec.activation = Activation::kBloomGelu;
  layer_norms(spec);
  spec.embedding_norm = true;
  spec.positions = Positions::kAlibi;
  spec.kernels = Kernels::kNone;
  spec.fused_qkv = FusedQkv::kThirds;
  spec.qkv_bias = spec.out_bias = spec.mlp_bias = true;
  spec.residual_dropout = keys.number("hidden_dropout", 0);
  spec.attention_dropout = keys.number("attention_dropout", 0);
  spec.tied = keys.boolean("tie_word_embeddings", true);
  keys.only("apply_residual_connection_post_layernorm", false);
  keys.only("slow_but_exact", false);
  return spec;
}

TransformerSpec mamba_spec(ConfigKeys& keys) {
  TransformerSpec spec;
  spec.layers = keys.integer("num_hidden_layers", 32);
  spec.hidden = keys.integer("hidden_size", 768);
  spec.vocab = keys.integer("vocab_size", 50280);
  spec.heads = spec.kv_heads = spec.head_dim = spec.ffn = 1;  // there are none
  spec.positions = Positions::kNone;
  StateSpace& ssm = spec.state_space;
  ssm.inner = (Bytes{spec.hidden} * keys.integer("expand", 2)).count;
  ssm.state = keys.integer("state_size", 16);
  ssm.kernel = keys.integer("conv_kernel", 4);
  constexpr std::int64_t kHiddenPerRank = 16;
  const bool automatic = JsonView(keys.json("time_step_rank")).text().value_or("") == "auto";
  const std::int64_t rank = spec.hidden / kHiddenPerRank + (spec.hidden % kHiddenPerRank > 0 ? 1 : 0);
  ssm.rank = automatic ? rank : keys.integer("time_step_rank", rank);
  ssm.bias = keys.boolean("use_bias", false);
  ssm.kernel_bias = keys.boolean("use_conv_bias", true);
  set_activation(keys, keys.text("hidden_act", "silu"), spec);
  if (spec.activation != Activation::kSilu) {
    keys.fail("hidden_act", "is supported only as silu");
  }
  if (ssm.inner < 1) {
    keys.fail("expand", "x hidden_size must be at least 1");
  }
  keys.only("use_mambapy", false);
  spec.tied = keys.boolean("tie_word_embeddings", true);
  return spec;
}

TransformerSpec llama4_spec(ConfigKeys& keys) {
  TransformerSpec spec = sizes(keys, {48, 5120, 202048, 40, 8, 128, 0});
  set_activation(keys, keys.text("hidden_act", "silu"), spec);
  spec.gated = true;
  spec.ffn = keys.integer("intermediate_size_mlp", 16384);
  spec.expert_ffn = spec.shared_ffn = keys.integer("intermediate_size", 8192);
  spec.experts = keys.integer("num_local_experts", 16);
  spec.experts_per_token = keys.integer("num_experts_per_tok", 1);
  spec.experts_take_all = true;
  spec.sparse_step = period_of(keys, "interleave_moe_layer_step", 1);
  spec.kernels = Kernels::kSdpa;
  spec.complex_rotary = true;
  spec.qk_norm = keys.boolean("use_qk_norm", true) ? QkNorm::kRotated : QkNorm::kNone;
  spec.scaled_without_rotary = keys.boolean("attn_temperature_tuning", true);
  spec.qkv_bias = spec.out_bias = keys.boolean("attention_bias", false);
  spec.tied = keys.boolean("tie_word_embeddings", false);
  spec.chunked = true;
  spec.window = keys.integer("attention_chunk_size", 8192);
  // Layers with rotary positions see their chunk, and the others all tokens.
  spec.sliding = layer_types(keys, "chunked_attention", period_of(keys, "no_rope_layer_interval", 4), spec);
  spec.without_rotary = spec.sliding;
  spec.without_rotary.flip();
  const Json& listed = keys.json("no_rope_layers");
  for (std::size_t i = 0; i < spec.sliding.size() && !listed.isNull() && !listed.empty(); ++i) {
    if (JsonView(element(listed, i)).integer() != std::optional<std::int64_t>(spec.sliding[i] ? 1 : 0)) {
      keys.fail("no_rope_layers",
                "must be a list with a 1 for each chunked layer and a 0 for each other one");
    }
  }
  const Json& sparse = keys.json("moe_layers");
  std::size_t found = 0;
  for (std::int64_t i = 0; i < spec.layers && !sparse.isNull() && spec.layers <= kMaxTransformerLayers; ++i) {
    if (spec.kind_of(i).sparse &&
        JsonView(element(sparse, found++)).integer() != std::optional<std::int64_t>(i)) {
      keys.fail("moe_layers", "is supported only as every interleave_moe_layer_step-th layer");
    }
  }
  spec.float_softmax = false;
  return spec;
}

TransformerSpec qwen3_next_spec(ConfigKeys& keys) {
  TransformerSpec spec = sizes(keys, {48, 2048, 151936, 16, 2, 256, 5632});
  set_activation(keys, keys.text("hidden_act", "silu"), spec);
  spec.gated = spec.gated_attention = true;
  spec.rms_form = RmsForm::kGemma;
  spec.qk_norm = QkNorm::kHeads;
  spec.qkv_bias = spec.out_bias = keys.boolean("attention_bias", false);
  spec.tied = keys.boolean("tie_word_embeddings", false);
  partial_rotary(keys, "partial_rotary_factor", 0.25, spec);
  spec.experts = keys.integer("num_experts", 512);
  spec.experts_per_token = keys.integer("num_experts_per_tok", 10);
  spec.expert_ffn = keys.integer("moe_intermediate_size", 512);
  spec.shared_ffn = keys.integer("shared_expert_intermediate_size", 512);
  spec.shared_gate = true;
  spec.weights_sum_to_one = keys.boolean("norm_topk_prob", true);
  spec.sparse_step = period_of(keys, "decoder_sparse_step", 1);
  if (keys.has_items("mlp_only_layers")) {
    keys.fail("mlp_only_layers", "is supported only as an empty list");
  }
  spec.linear = layer_types(keys, "linear_attention", period_of(keys, "full_attention_interval", 4), spec);
  spec.delta = {.key_heads = keys.integer("linear_num_key_heads", 16),
                .value_heads = keys.integer("linear_num_value_heads", 32),
                .key_dim = keys.integer("linear_key_head_dim", 128),
                .value_dim = keys.integer("linear_value_head_dim", 128),
                .kernel = keys.integer("linear_conv_kernel_dim", 4)};
  return spec;
}

}  // namespace plimsoll::estimator::spec
