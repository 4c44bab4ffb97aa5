#include "estimator/spec/transformer_spec.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <utility>

#include "estimator/spec/hugging_face_config.h"

namespace plimsoll::estimator::inline spec {
namespace {

constexpr std::int64_t kMaxWidth = std::int64_t{1} << 24;
constexpr std::int64_t kMaxLayers = kMaxTransformerLayers;

TransformerSpec spec_of_sizes(const crds::TransformerModel& model) {
  TransformerSpec spec;
  spec.encoder_decoder = model.architecture == crds::TransformerArchitecture::kEncoderDecoder;
  spec.head = model.architecture == crds::TransformerArchitecture::kEncoder ? Head::kMasked : Head::kCausal;
  spec.embedding_norm = spec.head == Head::kMasked;
  spec.norm_place = spec.embedding_norm ? NormPlace::kAfterSum : NormPlace::kBefore;
  spec.final_norm = !spec.embedding_norm;
  spec.head_bias = spec.head == Head::kMasked;
  spec.layers = model.layers;
  spec.encoder_layers = spec.encoder_decoder ? model.layers : 0;
  spec.hidden = model.hidden;
  spec.vocab = model.vocab;
  spec.sequence = model.sequence_length;
  spec.encoder_sequence = model.encoder_sequence_length;
  spec.heads = model.heads;
  spec.kv_heads = model.kv_heads > 0 ? model.kv_heads : model.heads;
  spec.head_dim = model.head_dim > 0 || model.heads < 1 ? model.head_dim : model.hidden / model.heads;
  spec.attention = model.attention;
  spec.qkv_bias = spec.out_bias = spec.mlp_bias = model.biases;
  switch (model.positions) {
    case crds::PositionEncoding::kRotary: spec.positions = Positions::kRotary; break;
    case crds::PositionEncoding::kLearned: spec.positions = Positions::kLearned; break;
    case crds::PositionEncoding::kNone: spec.positions = Positions::kNone; break;
  }
  spec.max_positions = std::max(model.sequence_length, model.encoder_sequence_length);
  spec.norm = model.norm;
  switch (model.activation) {
    case crds::FeedForward::kSwiGLU: spec.activation = Activation::kSilu; break;
    case crds::FeedForward::kGEGLU:
    case crds::FeedForward::kGELU: spec.activation = Activation::kGelu; break;
    case crds::FeedForward::kReLU: spec.activation = Activation::kRelu; break;
  }
  spec.gated =
      model.activation == crds::FeedForward::kSwiGLU || model.activation == crds::FeedForward::kGEGLU;
  spec.ffn = spec.expert_ffn = model.ffn;
  spec.experts = model.experts;
  spec.experts_per_token = model.experts_per_token;
  spec.tied = model.tied_embeddings;
  spec.embedding_dropout = spec.residual_dropout = spec.attention_dropout = model.dropout;
  spec.ffn_dropout = spec.encoder_decoder ? model.dropout : 0;
  return spec;
}

struct Bound {
  const char* field;
  std::int64_t size, least, most;
};

// `names`: of the config or of the API, for error messages.
Result<void> check(const TransformerSpec& spec, const SizeNames& names) {
  const std::initializer_list<Bound> bounds = {
      {names.layers, spec.layers, 1, kMaxLayers},
      {names.layers, spec.encoder_layers, 0, kMaxLayers},
      {names.hidden, spec.hidden, 1, kMaxWidth},
      {names.vocab, spec.vocab, spec.vocab == 0 && spec.no_words() ? 0 : 1, kMaxWidth},
      {"hidden_size x expand", spec.state_space.inner, 0, kMaxWidth},
      {"state_size", spec.state_space.state, spec.state_space.inner > 0 ? 1 : 0, kMaxLayers},
      {"conv_kernel", spec.state_space.kernel, spec.state_space.inner > 0 ? 1 : 0, kMaxLayers},
      {"time_step_rank", spec.state_space.rank, spec.state_space.inner > 0 ? 1 : 0, kMaxWidth},
      {"linear_num_key_heads", spec.delta.key_heads, spec.linear.empty() ? 0 : 1, kMaxLayers},
      {"linear_num_value_heads", spec.delta.value_heads, spec.linear.empty() ? 0 : 1, kMaxLayers},
      {"linear_key_head_dim", spec.delta.key_dim, spec.linear.empty() ? 0 : 1, kMaxLayers},
      {"linear_value_head_dim", spec.delta.value_dim, spec.linear.empty() ? 0 : 1, kMaxLayers},
      {"linear_conv_kernel_dim", spec.delta.kernel, spec.linear.empty() ? 0 : 1, kMaxLayers},
      {"image_size", spec.image.height, 0, kMaxLayers},
      {"image_size", spec.image.width, spec.image.height > 0 ? 1 : 0, kMaxLayers},
      {"patch_size", spec.image.patch_height, spec.image.height > 0 ? 1 : 0, spec.image.height},
      {"patch_size", spec.image.patch_width, spec.image.height > 0 ? 1 : 0, spec.image.width},
      {"num_channels", spec.image.channels, spec.image.height > 0 ? 1 : 0, kMaxLayers},
      {"num_mel_bins", spec.speech.mel_bins, 0, kMaxWidth},
      {"number of labels", spec.classes, spec.head == Head::kClasses || spec.head == Head::kScore ? 1 : 0,
       kMaxWidth},
      {"projection_dim", spec.projection, 0, kMaxWidth},
      {"seqLen", spec.sequence, 1, kMaxWidth},
      {names.heads, spec.heads, 1, kMaxLayers},
      {names.kv_heads, spec.kv_heads, 1, spec.heads},
      {names.head_dim, spec.head_dim, 1, kMaxLayers},
      {names.ffn, spec.ffn, 1, kMaxWidth},
      {names.experts, spec.experts, 0, kMaxLayers},
      {names.experts_per_token, spec.experts_per_token, spec.experts > 0 ? 1 : 0, spec.experts},
      {names.expert_ffn, spec.expert_ffn, spec.experts > 0 ? 1 : 0, kMaxWidth},
      {"shared experts", spec.shared_ffn, 0, kMaxWidth},
      {"every which layer is sparse", spec.sparse_step, 1, kMaxLayers},
      {"first_k_dense_replace", spec.first_dense, 0, kMaxLayers},
      {"q_lora_rank", spec.query_rank, 0, kMaxWidth},
      {"kv_lora_rank", spec.kv_rank, 0, kMaxWidth},
      {"qk_rope_head_dim", spec.rope_dim, spec.kv_rank > 0 ? 2 : 0, kMaxLayers},
      {"qk_nope_head_dim", spec.nope_dim, spec.kv_rank > 0 ? 1 : 0, kMaxLayers},
      {"v_head_dim", spec.value_dim, spec.kv_rank > 0 ? 1 : 0, kMaxLayers},
      {"sliding_window", spec.window, spec.all_slide || !spec.sliding.empty() ? 1 : 0,
       std::numeric_limits<std::int64_t>::max()},
      {"rotated part of a head", spec.rotary_dim, spec.partial_rotary ? 2 : 0, spec.head_dim},
      {"word_embed_proj_dim", spec.embedding_dim, 0, kMaxWidth},
      {"max_position_embeddings", spec.max_positions, 0, kMaxWidth},
      {"relative_attention_num_buckets", spec.relative_buckets, 0, kMaxWidth},
      {"type_vocab_size", spec.token_types, 0, kMaxWidth},
  };
  for (const Bound& bound : bounds) {
    if (bound.size < bound.least || bound.size > bound.most) {
      return invalid("model.transformer: " + std::string(bound.field) + " must be from " +
                     std::to_string(bound.least) + " to " + std::to_string(bound.most) + ", is " +
                     std::to_string(bound.size));
    }
  }
  if (spec.heads % spec.kv_heads != 0) {
    return invalid("model.transformer: " + std::string(names.heads) + " must be a multiple of " +
                   names.kv_heads + ", is " + std::to_string(spec.heads) + " and " +
                   std::to_string(spec.kv_heads));
  }
  if (!spec.linear.empty() && spec.delta.value_heads % spec.delta.key_heads != 0) {
    return invalid(
        "model.transformer: linear_num_value_heads must be a multiple of linear_num_key_heads, is " +
        std::to_string(spec.delta.value_heads) + " and " + std::to_string(spec.delta.key_heads));
  }
  if (spec.positions == Positions::kLearned && spec.sequence > spec.max_positions) {
    return invalid("model.transformer: seqLen is " + std::to_string(spec.sequence) +
                   ", and the model has only " + std::to_string(spec.max_positions) + " positions");
  }
  for (const double dropout : {spec.embedding_dropout, spec.residual_dropout, spec.attention_dropout}) {
    if (!(dropout >= 0 && dropout < 1)) {
      return invalid("model.transformer: dropout must be at least 0 and below 1");
    }
  }
  return {};
}

// What the job adds to a config.json.
Result<void> complete(TransformerSpec& spec, std::int64_t sequence, crds::AttentionKind attention) {
  using enum crds::AttentionKind;
  if (attention == kFlash && (spec.kernels == Kernels::kNone || spec.kernels == Kernels::kSdpa)) {
    return invalid("model.transformer.attention: this family has no Flash attention in transformers, only " +
                   std::string(spec.kernels == Kernels::kNone ? "Eager" : "SDPA and Eager"));
  }
  // transformers chooses eager attention for a family without SDPA.
  const bool has_sdpa = spec.kernels == Kernels::kAll || spec.kernels == Kernels::kSdpa;
  spec.attention = attention == kSDPA && !has_sdpa ? kEager : attention;
  for (TransformerSpec& tower : spec.towers) {
    tower.attention = spec.attention;
    Result<void> checked = check(tower, kConfigNames);
    if (!checked) {
      return checked;
    }
    tower.sequence = tower.image.height > 0 ? tower.image.tokens() : tower.sequence;
  }
  if (spec.image.height == 0) {
    spec.sequence = sequence;
    return {};
  }
  Result<void> checked = check(spec, kConfigNames);
  if (!checked) {
    return checked;
  }
  spec.sequence = spec.image.tokens();
  if (sequence != spec.sequence) {
    return invalid(
        "model.transformer: seqLen must be " + std::to_string(spec.sequence) +
        ", a token for each patch of the image (image_size / patch_size) and one for the class, is " +
        std::to_string(sequence));
  }
  return {};
}

// Experts with parameters of their own, if the job asks for them.
Result<TransformerSpec> with_experts(Result<TransformerSpec> spec, bool split) {
  if (spec && split && (spec->experts == 0 || spec->experts_take_all)) {
    return invalid(
        "model.transformer: splitExperts is for models with experts that compute the tokens that chose them");
  }
  if (spec) {
    spec->split_experts = split;
  }
  return spec;
}

// `tokens`: that the encoder reads; 0: as many as the decoder.
Result<TransformerSpec> with_encoder(Result<TransformerSpec> spec, std::int64_t tokens) {
  if (!spec || tokens == 0) {
    return spec;
  }
  if (!spec->encoder_decoder) {
    return invalid("model.transformer: encoderSeqLen is for an EncoderDecoder and T5" +
                   std::string(spec->towers.empty()
                                   ? ""
                                   : ", not for a model whose config.json says what its encoder reads"));
  }
  if (spec->positions == Positions::kLearned && tokens > spec->max_positions) {
    return invalid("model.transformer: encoderSeqLen is " + std::to_string(tokens) +
                   ", and the model has only " + std::to_string(spec->max_positions) + " positions");
  }
  spec->encoder_sequence = tokens;
  return spec;
}

}  // namespace

std::int64_t ImageInput::tokens() const {
  return (height / patch_height) * (width / patch_width) + 1;
}

Result<TransformerSpec> transformer_spec(const crds::TransformerModel& model) {
  if (!model.config.empty()) {
    return with_encoder(with_experts(spec_of_config(model.config, model.sequence_length, model.attention),
                                     model.split_experts),
                        model.encoder_sequence_length);
  }
  if (model.head_dim == 0 && model.heads > 0 && model.hidden % model.heads != 0) {
    return invalid("model.transformer: hidden must be a multiple of heads, is " +
                   std::to_string(model.hidden) + " with " + std::to_string(model.heads) +
                   " heads; or give headDim");
  }
  TransformerSpec spec = spec_of_sizes(model);
  Result<void> checked = check(spec, kApiNames);
  if (!checked) {
    return checked.error();
  }
  return with_encoder(with_experts(std::move(spec), model.split_experts), model.encoder_sequence_length);
}

TransformerSpec as_megatron(TransformerSpec spec) {
  const bool plain = !spec.encoder_decoder && spec.kv_rank == 0 && spec.delta.value_heads == 0 &&
                     spec.qk_norm != QkNorm::kWhole && spec.key_bias;
  if (plain && spec.fused_qkv == FusedQkv::kNone) {
    spec.fused_qkv = FusedQkv::kSplit;
  }
  spec.rms_form = RmsForm::kFused;
  spec.fused_activation = spec.gated && spec.activation == Activation::kSilu;
  spec.fused_gate = spec.fused_gate || spec.fused_activation;
  return spec;
}

Result<TransformerSpec> spec_of_config(const std::string& config, std::int64_t sequence,
                                       crds::AttentionKind attention) {
  Result<TransformerSpec> spec = read_hugging_face_config(config);
  if (!spec) {
    return spec.error();
  }
  Result<void> checked = complete(*spec, sequence, attention);
  if (checked) {
    checked = check(*spec, kConfigNames);
  }
  if (!checked) {
    return checked.error();
  }
  return spec;
}

}  // namespace plimsoll::estimator::spec
