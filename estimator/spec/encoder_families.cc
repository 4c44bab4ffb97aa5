#include "estimator/spec/encoder_families.h"

#include <optional>
#include <tuple>
#include <utility>

#include "base/json/edit.h"
#include "base/json/view.h"
#include "estimator/spec/decoder_families.h"

namespace plimsoll::estimator::inline spec {
namespace {

// A size in pixels, for both directions or as a list of height and width.
std::pair<std::int64_t, std::int64_t> pixels(ConfigKeys& keys, const char* key, std::int64_t otherwise) {
  const Json& found = keys.json(key);
  if (!found.isArray()) {
    const std::int64_t size = keys.integer(key, otherwise);
    return {size, size};
  }
  const std::optional<std::int64_t> height = JsonView(element(found, 0)).integer();
  const std::optional<std::int64_t> width = JsonView(element(found, 1)).integer();
  if (found.size() != 2 || !height || !width) {
    keys.fail(key, "must be an integer or a list of two");
    return {otherwise, otherwise};
  }
  return {*height, *width};
}

ImageInput image_input(ConfigKeys& keys, std::int64_t patch) {
  ImageInput image;
  std::tie(image.height, image.width) = pixels(keys, "image_size", 224);
  std::tie(image.patch_height, image.patch_width) = pixels(keys, "patch_size", patch);
  image.channels = keys.integer("num_channels", 3);
  if (image.height < 1) {
    keys.fail("image_size", "must be at least 1");
  }
  return image;
}

// An encoder whose layers have norms before their parts, and biases.
TransformerSpec encoder(ConfigKeys& keys, std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                        std::int64_t ffn) {
  TransformerSpec spec;
  spec.layers = keys.integer("num_hidden_layers", layers);
  spec.hidden = keys.integer("hidden_size", hidden);
  spec.heads = spec.kv_heads = keys.integer("num_attention_heads", heads);
  spec.head_dim = spec.heads > 0 ? spec.hidden / spec.heads : 0;
  spec.ffn = keys.integer("intermediate_size", ffn);
  spec.norm = crds::Normalization::kLayerNorm;
  spec.qkv_bias = spec.out_bias = spec.mlp_bias = true;
  spec.positions = Positions::kNone;
  return spec;
}

TransformerSpec clip_vision(ConfigKeys& keys) {
  TransformerSpec spec = encoder(keys, 12, 768, 12, 3072);
  set_activation(keys, keys.text("hidden_act", "quick_gelu"), spec);
  spec.attention_dropout = keys.number("attention_dropout", 0);
  spec.head = Head::kEncoder;
  spec.image = image_input(keys, 32);
  spec.image.embedded_positions = true;
  return spec;
}

}  // namespace

TransformerSpec bert_spec(ConfigKeys& keys) {
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
  set_activation(keys, keys.text("hidden_act", "gelu"), spec);
  spec.norm = crds::Normalization::kLayerNorm;
  spec.norm_place = NormPlace::kAfterSum;
  spec.embedding_norm = true;
  spec.final_norm = false;
  spec.qkv_bias = spec.out_bias = spec.mlp_bias = spec.head_bias = true;
  spec.positions = Positions::kLearned;
  spec.max_positions = keys.integer("max_position_embeddings", 512);
  spec.token_types = keys.integer("type_vocab_size", 2);
  spec.embedding_dropout = spec.residual_dropout = keys.number("hidden_dropout_prob", 0.1);
  spec.attention_dropout = keys.number("attention_probs_dropout_prob", 0.1);
  spec.tied = true;
  spec.float_softmax = spec.float_loss = false;
  return spec;
}

TransformerSpec t5_spec(ConfigKeys& keys) {
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
  set_activation(keys, spec.gated && forward == "gelu" ? "gelu_new" : forward, spec);
  spec.positions = Positions::kRelative;
  spec.relative_buckets = keys.integer("relative_attention_num_buckets", 32);
  spec.embedding_dropout = spec.residual_dropout = spec.attention_dropout = spec.ffn_dropout =
      keys.number("dropout_rate", 0.1);
  spec.tied = keys.boolean("tie_word_embeddings", true);
  spec.float_softmax = spec.float_loss = false;
  return spec;
}

TransformerSpec vit_spec(ConfigKeys& keys) {
  TransformerSpec spec = encoder(keys, 12, 768, 12, 3072);
  set_activation(keys, keys.text("hidden_act", "gelu"), spec);
  spec.head = keys.architecture() == "ViTModel" ? Head::kEncoder : Head::kClasses;
  spec.classes = spec.head == Head::kClasses ? keys.labels() : 0;
  spec.qkv_bias = keys.boolean("qkv_bias", true);
  spec.embedding_dropout = spec.residual_dropout = keys.number("hidden_dropout_prob", 0);
  spec.attention_dropout = keys.number("attention_probs_dropout_prob", 0);
  spec.image = image_input(keys, 16);
  spec.image.bias = true;
  return spec;
}

TransformerSpec clip_spec(ConfigKeys& keys) {
  ConfigKeys text = keys.nested("text_config");
  TransformerSpec spec = encoder(text, 12, 512, 8, 2048);
  set_activation(text, text.text("hidden_act", "quick_gelu"), spec);
  spec.vocab = text.integer("vocab_size", 49408);
  spec.attention_dropout = text.number("attention_dropout", 0);
  spec.positions = Positions::kLearned;
  spec.max_positions = text.integer("max_position_embeddings", 77);
  spec.projection = keys.integer("projection_dim", 512);
  if (spec.projection < 1) {
    keys.fail("projection_dim", "must be at least 1");
  }
  ConfigKeys vision = keys.nested("vision_config");
  spec.towers.push_back(clip_vision(vision));
  keys.take_error(text);
  keys.take_error(vision);
  return spec;
}

TransformerSpec whisper_spec(ConfigKeys& keys) {
  const auto half = [&](const char* layers, const char* heads, const char* ffn) {
    TransformerSpec spec;
    spec.layers = keys.integer(layers, 4);
    spec.heads = spec.kv_heads = keys.integer(heads, 6);
    spec.ffn = keys.integer(ffn, 1536);
    spec.hidden = keys.integer("d_model", 384);
    spec.head_dim = spec.heads > 0 ? spec.hidden / spec.heads : 0;
    spec.norm = crds::Normalization::kLayerNorm;
    spec.qkv_bias = spec.out_bias = spec.mlp_bias = true;
    spec.key_bias = false;
    spec.heads_copied = spec.scaled_queries = true;
    spec.positions = Positions::kNone;
    set_activation(keys, keys.text("activation_function", "gelu"), spec);
    spec.embedding_dropout = spec.residual_dropout = keys.number("dropout", 0);
    spec.attention_dropout = keys.number("attention_dropout", 0);
    spec.ffn_dropout = keys.number("activation_dropout", 0);
    return spec;
  };
  TransformerSpec encoder = half("encoder_layers", "encoder_attention_heads", "encoder_ffn_dim");
  encoder.head = Head::kEncoder;
  encoder.speech.mel_bins = keys.integer("num_mel_bins", 80);
  encoder.sequence = keys.integer("max_source_positions", 1500);
  TransformerSpec spec = half("decoder_layers", "decoder_attention_heads", "decoder_ffn_dim");
  spec.vocab = keys.integer("vocab_size", 51865);
  spec.positions = Positions::kLearned;
  spec.max_positions = keys.integer("max_target_positions", 448);
  spec.positions_by_sample = true;
  spec.tied = keys.boolean("tie_word_embeddings", true);
  spec.towers.push_back(encoder);
  if (encoder.speech.mel_bins < 1) {
    keys.fail("num_mel_bins", "must be at least 1");
  }
  for (const char* drop : {"encoder_layerdrop", "decoder_layerdrop"}) {
    if (keys.number(drop, 0) != 0) {
      keys.fail(drop, "is supported only as 0: which layers run differs by iteration");
    }
  }
  keys.only("apply_spec_augment", false);
  spec.float_softmax = spec.float_loss = false;
  return spec;
}

}  // namespace plimsoll::estimator::spec
