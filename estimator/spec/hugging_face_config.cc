#include "estimator/spec/hugging_face_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "base/json/edit.h"
#include "base/json/json.h"
#include "base/json/view.h"

namespace plimsoll::estimator::inline spec {
namespace {

// Reads keys and records the first error.
class Keys {
 public:
  explicit Keys(const Json& config) : config_(config) {}

  std::int64_t integer(const char* key, std::int64_t otherwise) {
    return value(key, otherwise, "must be an integer", [](JsonView found) -> std::optional<std::int64_t> {
      const double number = found.number().value_or(0.5);  // some tools write 32.0
      const bool whole = std::trunc(number) == number && std::abs(number) <= 1e15;
      return found.integer() || !whole ? found.integer() : static_cast<std::int64_t>(number);
    });
  }
  std::int64_t required(const char* key) {
    if (member(config_, {key}).isNull()) {
      fail(key, "is missing");
    }
    return integer(key, 0);
  }
  double number(const char* key, double otherwise) {
    return value(key, otherwise, "must be a number", [](JsonView found) { return found.number(); });
  }
  bool boolean(const char* key, bool otherwise) {
    return value(key, otherwise, "must be true or false", [](JsonView found) { return found.boolean(); });
  }
  std::string text(const char* key, const char* otherwise) {
    return std::string(value(key, std::string_view(otherwise), "must be a string",
                             [](JsonView found) { return found.text(); }));
  }
  bool has_items(const char* key) const {
    const Json& found = member(config_, {key});
    return found.isArray() && !found.empty();
  }
  // The first of config.architectures.
  std::string architecture() const { return text_member(element(member(config_, {"architectures"}), 0), {}); }

  void fail(const std::string& key, const std::string& what) {
    if (!error_) {
      error_ = invalid("model.transformer.config: " + key + " " + what);
    }
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  // The value of a key, which `read` converts to Value; `otherwise` if it is absent or has another type.
  template <class Value, class Read>
  Value value(const char* key, Value otherwise, const char* expected, Read read) {
    const Json& found = member(config_, {key});
    if (found.isNull()) {
      return otherwise;
    }
    const std::optional<Value> value = read(JsonView(found));
    if (!value) {
      fail(key, expected);
    }
    return value.value_or(otherwise);
  }

  const Json& config_;
  std::optional<Error> error_;
};

void activation(Keys& keys, const std::string& name, TransformerSpec& spec) {
  if (name == "silu" || name == "swish") {
    spec.activation = Activation::kSilu;
  } else if (name == "gelu" || name == "gelu_pytorch_tanh") {
    spec.activation = Activation::kGelu;
  } else if (name == "gelu_new") {
    spec.activation = Activation::kGeluNew;
  } else if (name == "relu") {
    spec.activation = Activation::kRelu;
  } else {
    keys.fail("the activation",
              "\"" + name.substr(0, 64) +
                  "\" is not known; known are silu, gelu, gelu_pytorch_tanh, gelu_new and relu");
  }
}

// The sizes that Llama and its successors have in common.
TransformerSpec llama(Keys& keys) {
  TransformerSpec spec;
  spec.layers = keys.required("num_hidden_layers");
  spec.hidden = keys.required("hidden_size");
  spec.vocab = keys.required("vocab_size");
  spec.heads = keys.required("num_attention_heads");
  spec.kv_heads = keys.integer("num_key_value_heads", spec.heads);
  spec.head_dim = keys.integer("head_dim", spec.heads > 0 ? spec.hidden / spec.heads : 0);
  spec.ffn = keys.required("intermediate_size");
  spec.gated = true;
  activation(keys, keys.text("hidden_act", "silu"), spec);
  spec.qkv_bias = spec.out_bias = keys.boolean("attention_bias", false);
  spec.mlp_bias = keys.boolean("mlp_bias", false);
  spec.attention_dropout = keys.number("attention_dropout", 0);
  spec.tied = keys.boolean("tie_word_embeddings", false);
  return spec;
}

TransformerSpec mixtral(Keys& keys) {
  TransformerSpec spec = llama(keys);
  spec.experts = keys.integer("num_local_experts", 8);
  spec.experts_per_token = keys.integer("num_experts_per_tok", 2);
  spec.expert_ffn = spec.ffn;
  return spec;
}

TransformerSpec qwen2(Keys& keys) {
  TransformerSpec spec = llama(keys);
  spec.qkv_bias = true;
  spec.out_bias = false;
  return spec;
}

TransformerSpec qwen3(Keys& keys) {
  TransformerSpec spec = llama(keys);
  spec.head_dim = keys.integer("head_dim", 128);
  spec.qk_norm = true;
  return spec;
}

// Dense layers are supported only at the beginning, not alternating with sparse ones.
void sparse(Keys& keys, TransformerSpec& spec) {
  spec.experts = keys.required("num_experts");
  spec.experts_per_token = keys.required("num_experts_per_tok");
  spec.weights_sum_to_one = keys.boolean("norm_topk_prob", false);
  spec.expert_ffn = keys.required("moe_intermediate_size");
  if (keys.integer("decoder_sparse_step", 1) != 1 || keys.has_items("mlp_only_layers")) {
    keys.fail("decoder_sparse_step", "and mlp_only_layers are supported only as 1 and empty");
  }
}

TransformerSpec qwen2_moe(Keys& keys) {
  TransformerSpec spec = qwen2(keys);
  sparse(keys, spec);
  spec.shared_ffn = keys.required("shared_expert_intermediate_size");
  spec.shared_gate = true;
  return spec;
}

TransformerSpec qwen3_moe(Keys& keys) {
  TransformerSpec spec = qwen3(keys);
  sparse(keys, spec);
  return spec;
}

TransformerSpec deepseek(Keys& keys) {
  TransformerSpec spec = llama(keys);
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

TransformerSpec gpt2(Keys& keys) {
  TransformerSpec spec;
  spec.layers = keys.integer("n_layer", 12);
  spec.hidden = keys.integer("n_embd", 768);
  spec.vocab = keys.integer("vocab_size", 50257);
  spec.heads = spec.kv_heads = keys.integer("n_head", 12);
  spec.head_dim = spec.heads > 0 ? spec.hidden / spec.heads : 0;
  spec.ffn = keys.integer("n_inner", (Bytes{spec.hidden} * 4).count);
  activation(keys, keys.text("activation_function", "gelu_new"), spec);
  spec.norm = crds::Normalization::kLayerNorm;
  spec.qkv_bias = spec.out_bias = spec.mlp_bias = spec.fused_qkv = true;
  spec.positions = Positions::kLearned;
  spec.max_positions = keys.integer("n_positions", 1024);
  spec.embedding_dropout = keys.number("embd_pdrop", 0.1);
  spec.residual_dropout = keys.number("resid_pdrop", 0.1);
  spec.attention_dropout = keys.number("attn_pdrop", 0.1);
  spec.tied = keys.boolean("tie_word_embeddings", true);
  return spec;
}

TransformerSpec bert(Keys& keys) {
  TransformerSpec spec;
  const std::string architecture = keys.architecture();
  spec.head = architecture.ends_with("ForMaskedLM") || architecture.ends_with("ForPreTraining")
                  ? Head::kMasked
                  : Head::kEncoder;
  spec.layers = keys.integer("num_hidden_layers", 12);
  spec.hidden = keys.integer("hidden_size", 768);
  spec.vocab = keys.integer("vocab_size", 30522);
  spec.heads = spec.kv_heads = keys.integer("num_attention_heads", 12);
  spec.head_dim = spec.heads > 0 ? spec.hidden / spec.heads : 0;
  spec.ffn = keys.integer("intermediate_size", 3072);
  activation(keys, keys.text("hidden_act", "gelu"), spec);
  spec.norm = crds::Normalization::kLayerNorm;
  spec.post_norm = spec.embedding_norm = true;
  spec.qkv_bias = spec.out_bias = spec.mlp_bias = spec.head_bias = true;
  spec.positions = Positions::kLearned;
  spec.max_positions = keys.integer("max_position_embeddings", 512);
  spec.token_types = keys.integer("type_vocab_size", 2);
  spec.embedding_dropout = spec.residual_dropout = keys.number("hidden_dropout_prob", 0.1);
  spec.attention_dropout = keys.number("attention_probs_dropout_prob", 0.1);
  spec.tied = true;
  return spec;
}

TransformerSpec t5(Keys& keys) {
  TransformerSpec spec;
  spec.encoder_decoder = true;
  spec.encoder_layers = keys.integer("num_layers", 6);
  spec.layers = keys.integer("num_decoder_layers", spec.encoder_layers);
  spec.hidden = keys.integer("d_model", 512);
  spec.vocab = keys.integer("vocab_size", 32128);
  spec.heads = spec.kv_heads = keys.integer("num_heads", 8);
  spec.head_dim = keys.integer("d_kv", 64);
  spec.ffn = keys.integer("d_ff", 2048);
  std::string forward = keys.text("feed_forward_proj", "relu");
  constexpr std::string_view kGated = "gated-";
  spec.gated = forward.starts_with(kGated);
  forward = spec.gated ? forward.substr(kGated.size()) : forward;
  activation(keys, spec.gated && forward == "gelu" ? "gelu_new" : forward, spec);
  spec.positions = Positions::kRelative;
  spec.relative_buckets = keys.integer("relative_attention_num_buckets", 32);
  spec.embedding_dropout = spec.residual_dropout = spec.attention_dropout = keys.number("dropout_rate", 0.1);
  spec.tied = keys.boolean("tie_word_embeddings", true);
  return spec;
}

struct Family {
  const char* model_type;
  TransformerSpec (*read)(Keys& keys);
};
constexpr std::array kFamilies = {
    Family{"llama", llama},
    Family{"mistral", llama},
    Family{"mixtral", mixtral},
    Family{"qwen2", qwen2},
    Family{"qwen2_moe", qwen2_moe},
    Family{"qwen3", qwen3},
    Family{"qwen3_moe", qwen3_moe},
    Family{"gpt2", gpt2},
    Family{"bert", bert},
    Family{"roberta", bert},
    Family{"t5", t5},
    Family{"mt5", t5},
    Family{"deepseek_v2", deepseek},
    Family{"deepseek_v3", deepseek},
};

}  // namespace

Result<TransformerSpec> read_hugging_face_config(const std::string& config) {
  Result<Json> json = parse_json(config);
  if (!json || !json->isObject()) {
    return invalid("model.transformer.config must be the text of a config.json, a JSON object" +
                   (json ? std::string() : ": " + json.error().message));
  }
  Keys keys(*json);
  const std::string model_type = keys.text("model_type", "");
  const auto family = std::find_if(kFamilies.begin(), kFamilies.end(),
                                   [&](const Family& each) { return model_type == each.model_type; });
  if (family == kFamilies.end()) {
    std::string known;
    for (const Family& each : kFamilies) {
      known += (known.empty() ? "" : ", ") + std::string(each.model_type);
    }
    return invalid("model.transformer.config: model_type " +
                   (model_type.empty() ? "is missing" : "\"" + model_type.substr(0, 64) + "\" is not known") +
                   "; known are " + known + ". For any other model, export its graph with plimsoll.export");
  }
  TransformerSpec spec = family->read(keys);
  if (keys.error()) {
    return *keys.error();
  }
  return spec;
}

}  // namespace plimsoll::estimator::spec
