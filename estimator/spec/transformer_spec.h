// TransformerSpec: everything that determines which operators a transformer runs, for all families. It is
// read from a TrainingJob's model.transformer or a Hugging Face config.json.
//
//   Result<TransformerSpec> spec = transformer_spec(*job.spec.model.transformer);
//   Result<ForwardGraph> graph = lower_transformer(*spec, job.spec.training, {});
//
// A value type. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "crds/training_job.h"
#include "estimator/spec/model_builder.h"

namespace plimsoll::estimator::inline spec {

enum class Activation {
  kSilu,
  kGelu,     // one kernel, exact or with tanh
  kGeluNew,  // Hugging Face's NewGELUActivation: eight operators
  kRelu,
  kQuickGelu,  // x * sigmoid(1.702 x), as in CLIP: three operators
  kBloomGelu,  // BLOOM's autograd function
};

enum class Positions { kRotary, kLearned, kRelative, kAlibi, kNone };

// One matrix for queries, keys and values, by how the families take its result apart.
enum class FusedQkv {
  kNone,
  kSplit,       // gpt2: split into three
  kSlices,      // phi3: three slices
  kHeadsChunk,  // gpt_neox: each head's three thirds, chunked
  kThirds,      // bloom: each head's three thirds, selected
  kGroups,      // falcon, newer: groups of queries with one key and value, which are repeated
  kMultiQuery,  // falcon 7B: all queries with one key and value
};

// Norms of queries and keys.
enum class QkNorm {
  kNone,
  kHeads,           // RMSNorm of each head
  kWhole,           // RMSNorm of the whole projection, before it is viewed as heads: olmo2
  kHeadsLayerNorm,  // LayerNorm, the same for each head: phi
  kRotated,         // of each head without a weight, after the rotation: llama4
  kEachHead,        // LayerNorm without bias, another for each head: stablelm
};

// Where a layer's norms are. `f` is attention or the feed-forward part.
enum class NormPlace {
  kBefore,    // x + f(norm(x))
  kAfterSum,  // norm(x + f(x)): bert
  kAround,    // x + norm(f(norm(x))): gemma2
  kAfter,     // x + norm(f(x)): olmo2
};

// Attention and feed-forward part of a layer.
enum class Residual {
  kSequential,
  kParallel,            // x + attention(norm(x)) + mlp(norm'(x)): gpt_neox
  kParallelSharedNorm,  // both read one norm(x): phi, stablelm
};

// The training task, which determines the head and the loss.
enum class Head {
  kCausal,   // next token
  kScore,    // of the sample's last token, by a decoder: transformers' GenericForSequenceClassification
  kMasked,   // BERT: a dense layer, a norm and an output layer over the vocabulary
  kEncoder,  // only the encoder with its pooler, and with classes a classifier of what is pooled
  kClasses,  // the first token's class
};

// Images, cut into patches by a convolution, with a token for the class before them. Height 0: no images.
struct ImageInput {
  std::int64_t height = 0, width = 0, patch_height = 0, patch_width = 0, channels = 0;
  bool bias = false;
  bool embedded_positions = false;  // looked up, as in CLIP, instead of added as they are
  std::int64_t tokens() const;      // of valid sizes
};

// Sound: mel spectrograms of 2 x tokens frames, through two convolutions. 0 bins: none.
struct SpeechInput {
  std::int64_t mel_bins = 0;
};

// Mamba's mixer; inner 0: none.
struct StateSpace {
  std::int64_t inner = 0, state = 0, kernel = 0, rank = 0;
  bool bias = false, kernel_bias = false;
};

// Qwen3-Next's linear attention; value_heads 0: none.
struct GatedDelta {
  std::int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0, kernel = 0;
};

// Which attention a family's modelling code has; eager attention is always there.
enum class Kernels { kAll, kFlash, kSdpa, kNone };

// What distinguishes a layer from others of the same model.
struct LayerKind {
  bool sparse = false;   // has experts
  bool sliding = false;  // see TransformerSpec::window
  bool linear = false;   // see TransformerSpec::delta
  bool rotary = true;    // if the model has rotary positions
  friend bool operator==(const LayerKind&, const LayerKind&) = default;
};

inline constexpr std::int64_t kMaxTransformerLayers = std::int64_t{1} << 16;

struct TransformerSpec {   // NOLINT(clang-analyzer-optin.performance.Padding): few exist; ordered by meaning
  std::string model_type;  // of a config.json; names the modules
  bool encoder_decoder = false;
  Head head = Head::kCausal;
  bool causal() const { return head == Head::kCausal || head == Head::kScore; }
  // Whether training.lossChunks can be more than 1: the layer and the loss of each token by themselves, as torchtune computes them.
  bool loss_in_chunks() const { return head == Head::kCausal && !head_bias && !softcapped_logits; }
  std::int64_t layers = 0;          // of the decoder, or of a model with one half
  std::int64_t encoder_layers = 0;  // of the encoder of an encoder-decoder
  std::int64_t hidden = 0;
  std::int64_t vocab = 0;
  std::int64_t sequence = 1;          // tokens per sample
  std::int64_t encoder_sequence = 0;  // of the encoder of an encoder-decoder; 0: as many

  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  crds::AttentionKind attention = crds::AttentionKind::kSDPA;
  bool qkv_bias = false;
  bool out_bias = false;
  FusedQkv fused_qkv = FusedQkv::kNone;
  QkNorm qk_norm = QkNorm::kNone;
  Kernels kernels = Kernels::kAll;
  bool key_bias = true;            // false: queries and values have biases and keys have none, as in Whisper
  bool mask_always = false;        // SDPA gets a mask even where its own causal mask would do, as in Falcon
  bool scores_in_place = false;    // divided in place, and the softmax is not in fp32: Falcon
  bool heads_copied = false;       // queries, keys and values are made contiguous by head, as in Whisper
  bool scaled_queries = false;     // before the product with the keys, as in OPT
  bool softcapped_scores = false;  // cap * tanh(scores / cap), as in Gemma 2
  bool softcapped_logits = false;
  // Whether eager attention asks for a softmax in fp32. Otherwise it is in the type of the scores, or under CUDA's autocast in
  // fp32.
  bool float_softmax = true;
  // Whether the loss casts the logits to fp32 (loss_utils.py: ForCausalLMLoss). Otherwise cross_entropy takes their
  // log-softmax in their own type (LossNLL.cpp: cross_entropy_loss), and autocast casts what nll_loss reads.
  bool float_loss = true;

  // Layers whose tokens see only `window` tokens before them: all, or those with a flag in `sliding`.
  std::int64_t window = 0;
  bool all_slide = false;
  std::vector<bool> sliding;
  bool chunked = false;         // the window is a chunk with a mask for each sample, as in Llama 4
  bool sliding_rotary = false;  // sliding layers have rotary positions of their own, as in Gemma 3

  // Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434 section 2.1); kv_rank 0: none.
  std::int64_t query_rank = 0;  // 0: queries are not compressed
  std::int64_t kv_rank = 0;
  std::int64_t rope_dim = 0;   // part of each head with rotary positions
  std::int64_t nope_dim = 0;   // part without; head_dim is the sum of both
  std::int64_t value_dim = 0;  // 0: head_dim

  Positions positions = Positions::kRotary;
  std::vector<bool> without_rotary;    // a flag a layer; empty: all have it
  bool complex_rotary = false;         // one product of complex numbers, as in Llama 4
  bool scaled_without_rotary = false;  // queries of layers without positions are scaled by place
  bool partial_rotary = false;  // the first rotary_dim of each head are rotated, the others concatenated
  std::int64_t rotary_dim = 0;
  std::int64_t max_positions = 0;     // for kLearned
  std::int64_t unused_positions = 0;  // rows of the table before the first position, as in OPT
  bool positions_by_sample = false;   // looked up for each sample
  std::int64_t relative_buckets = 0;  // for kRelative
  std::int64_t token_types = 0;

  crds::Normalization norm = crds::Normalization::kRMSNorm;
  RmsForm rms_form = RmsForm::kLlama;
  NormPlace norm_place = NormPlace::kBefore;
  Residual residual = Residual::kSequential;
  bool parts_summed_first = false;  // the parallel parts' sum is dropped out, as in Falcon
  bool embedding_norm = false;      // as in BERT
  bool final_norm = true;           // after the last layer
  bool scaled_embedding = false;    // times the square root of the hidden size, as in Gemma
  std::int64_t embedding_dim =
      0;                  // projected to and from the hidden size, as in OPT 350M; 0: the hidden size
  bool norm_bias = true;  // for LayerNorm

  Activation activation = Activation::kSilu;
  bool gated = false;
  bool fused_gate = false;        // gate and up in one matrix, as in Phi-3
  bool fused_activation = false;  // and one kernel that multiplies them, as in Megatron-LM
  bool flat_mlp = false;          // on rows instead of sequences, as in OPT
  bool mlp_bias = false;
  std::int64_t ffn = 0;

  // Mixture of experts; experts 0: dense.
  std::int64_t experts = 0;
  std::int64_t experts_per_token = 0;
  bool weights_sum_to_one = true;  // weights of the experts chosen for a token
  std::int64_t expert_ffn = 0;
  std::int64_t shared_ffn = 0;    // of all shared experts together; 0: none
  bool shared_gate = false;       // as in Qwen2-MoE
  bool split_experts = false;     // each expert has parameters of its own
  bool experts_take_all = false;  // each expert computes all tokens, weighted before: Llama 4
  std::int64_t sparse_step = 1;   // every n-th layer is sparse
  std::int64_t first_dense = 0;   // number of dense layers before the sparse ones
  bool tied = false;
  bool head_bias = false;

  double embedding_dropout = 0;
  double residual_dropout = 0;
  double ffn_dropout = 0;  // of what the activation makes
  double attention_dropout = 0;
  bool names_attention_result = false;  // until the layer returns, as in GPT-2 and StableLM
  bool drops_attention_result = true;   // by residual_dropout; the feed-forward part's result always is

  StateSpace state_space;  // takes the place of attention and the feed-forward part
  GatedDelta delta;        // of the layers with a flag
  std::vector<bool> linear;
  bool gated_attention = false;  // the result is multiplied by a gate, which the queries' projection makes
  ImageInput image;
  SpeechInput speech;
  std::int64_t classes = 0;     // for kClasses
  std::int64_t projection = 0;  // CLIP: width in which images and texts are compared
  // The image tower of CLIP, or the encoder of Whisper.
  std::vector<TransformerSpec> towers;

  bool no_words() const { return image.height > 0 || speech.mel_bins > 0; }
  LayerKind kind_of(std::int64_t layer) const {
    const auto i = static_cast<std::size_t>(layer);
    return {.sparse = experts > 0 && layer >= first_dense && (layer + 1) % sparse_step == 0,
            .sliding = all_slide || (i < sliding.size() && sliding[i]),
            .linear = i < linear.size() && linear[i],
            .rotary = i >= without_rotary.size() || !without_rotary[i]};
  }
  // True if all layers after the first dense ones are equal.
  bool uniform() const {
    return sliding.empty() && without_rotary.empty() && linear.empty() && sparse_step == 1;
  }
};

// Errors: kInvalid naming the field: impossible sizes, head counts that do not divide, an unknown model_type
// or activation, a config.json that is not JSON.
Result<TransformerSpec> transformer_spec(const crds::TransformerModel& model);

// The same model as Megatron-Core builds it (0.16.1: megatron/core/transformer/attention.py, linear_qkv; mlp.py, linear_fc1
// and fusions/fused_bias_swiglu.py; norms in one kernel).
TransformerSpec as_megatron(TransformerSpec spec);

// From a config.json only; `sequence` tokens per sample.
Result<TransformerSpec> spec_of_config(const std::string& config, std::int64_t sequence,
                                       crds::AttentionKind attention);

}  // namespace plimsoll::estimator::spec
