#include "estimator/transformer/transformer.h"

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "estimator/transformer/gated_delta_mixer.h"
#include "estimator/transformer/state_space_mixer.h"
#include "estimator/transformer/transformer_attention.h"
#include "estimator/transformer/transformer_feed_forward.h"
#include "estimator/transformer/transformer_front_end.h"

namespace plimsoll::estimator::inline transformer {
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
  if (part.context > 1 || part.sequence) {
    if (!spec.towers.empty() || spec.image.height > 0) {
      return invalid(
          "training.parallelism: context and sequence split the tokens of texts; images and sound are whole");
    }
  }
  if ((spec.state_space.inner > 0 || !spec.linear.empty()) && (part.tensor > 1 || part.context > 1)) {
    return invalid("training.parallelism: tensor and context must be 1: a state passes from token to token");
  }
  for (const TransformerSpec& tower : spec.towers) {
    Result<void> checked = check(tower, {.tensor = part.tensor});
    if (!checked) {
      return checked;
    }
  }
  if (part.tensor > 1 && spec.embedding_dim > 0 && spec.embedding_dim != spec.hidden) {
    return invalid(
        "training.parallelism.tensor must be 1: the model projects its embeddings to another width");
  }
  if (spec.kv_heads % part.tensor != 0 && part.tensor % spec.kv_heads != 0) {
    return divides("tensor", part.tensor, "kvHeads", spec.kv_heads);
  }
  Result<void> tokens;
  const std::pair<const char*, std::int64_t> lengths[] = {{"seqLen", spec.sequence},
                                                          {"encoderSeqLen", spec.encoder_sequence}};
  for (const auto& [name, length] : lengths) {
    tokens = tokens ? divides("context", part.context, name, length) : tokens;
    if (tokens && part.sequence) {
      tokens = divides("tensor", part.tensor, "tokens a trainer", length / part.context);
    }
  }
  if (tokens && part.expert > 1 && spec.experts == 0) {
    return invalid("training.parallelism.expert is " + std::to_string(part.expert) +
                   ", and the model has no experts");
  }
  return tokens ? divides("expert", part.expert, "experts", spec.experts) : tokens;
}

Result<void> check_loss(const TransformerSpec& spec, const crds::TrainingSpec& training,
                        const TransformerPart& part) {
  const std::int64_t tokens = spec.sequence / part.context;
  if (training.loss_chunks > 1 && !spec.loss_in_chunks()) {
    return invalid(
        "training.lossChunks is for models that predict the next token, by an output layer without bias whose "
        "logits are not capped");
  }
  if (training.loss_chunks < 1 || training.loss_chunks > tokens) {
    return invalid("training.lossChunks is " + std::to_string(training.loss_chunks) +
                   " and must be from 1 to the " + std::to_string(tokens) +
                   " tokens of a sample on a trainer");
  }
  return {};
}

// What adapters and frozen weights are modelled with.
Result<TunedModel> tuned_model(const TransformerSpec& spec, const crds::TrainingSpec& training,
                               const TransformerPart& part, Budget* budget) {
  const crds::FineTuning& tuning = *training.fine_tuning;
  const auto unsupported = [](const std::string& what) {
    return Error(ErrorCode::kUnsupported, "training.fineTuning with " + what);
  };
  using enum crds::ParallelStrategy;
  const crds::ParallelStrategy strategy = training.parallelism.strategy;
  const bool adapters = tuning.method != crds::FineTuningMethod::kFull;
  if (adapters && part.tensor > 1) {
    return unsupported("adapters is not modelled with parallelism.tensor");
  }
  if (adapters && (training.compile != crds::Compilation::kNone || training.float8 != crds::Float8::kNone)) {
    return unsupported("adapters is not modelled with training.compile and training.float8");
  }
  if (adapters && training.loss_chunks > 1) {
    return unsupported("adapters is not modelled with training.lossChunks");
  }
  if (tuning.quantization != crds::Quantization::kNone && strategy != kAuto && strategy != kDDP) {
    return unsupported(std::string("quantization is modelled with strategies Auto and DDP only, not with ") +
                       crds::name_of(strategy));
  }
  const bool mixed =
      training.precision == crds::Precision::kBF16Mixed || training.precision == crds::Precision::kFP16Mixed;
  if (tuning.quantization != crds::Quantization::kNone && mixed && !tuning.prepared_for_kbit_training) {
    return unsupported(
        "quantization and a mixed precision is modelled after preparedForKbitTraining only; without "
        "autocast, the precision is BF16");
  }
  Result<TunedModel> tuned = TunedModel::of(tuning, spec.model_type, spec.layers, budget);
  if (tuned && spec.split_experts && tuned->adapter_of("layers.0.mlp.experts.down")) {
    return unsupported("adapters of experts is not modelled with split experts");
  }
  return tuned;
}

class TransformerLowering : TransformerPiece {
 public:
  explicit TransformerLowering(TransformerContext& context)
      : TransformerPiece(context),
        attention_(context),
        feed_forward_(context),
        mixer_(context),
        delta_(context),
        front_end_(context) {}

  // Lowers the model.
  void run() {
    builder_.compile(training_.compile == crds::Compilation::kModel);
    if (spec_.encoder_decoder) {
      encoder_decoder();
      return;
    }
    if (!spec_.towers.empty()) {
      spec_.towers.front().speech.mel_bins > 0 ? speech() : images_and_texts();
      return;
    }
    if (spec_.image.height > 0) {
      predict(layers("", front_end_.patches(""), 0, spec_.layers, {}));
      return;
    }
    const TensorId gathered = gather_buffer();
    TensorId x = part_.embeds ? embed("", "input_ids")
                              : graph_.apply(OpKind::kReceive, "stage.input", {},
                                             residual_shape(spec_.hidden), residual_type());
    x = layers("", x, part_.first_layer, part_.last_layer < 0 ? spec_.layers : part_.last_layer, {});
    if (part_.predicts) {
      predict(x);
    } else {
      graph_.set_result(x);
    }
    if (gathered >= 0) {
      graph_.end_scope({gathered});
    }
  }

 private:
  // What Megatron-LM gathers into (megatron/core/utils.py: GlobalMemoryBuffer), which stays from iteration to iteration; here
  // until forward has ended, which takes more than backward does. -1: nothing is gathered.
  TensorId gather_buffer() {
    return is_megatron() && part_.tensor > 1 && part_.sequence
               ? graph_.apply(OpKind::kScale, "gathered", {}, tokens_shape(spec_.hidden), builder_.compute())
               : TensorId{-1};
  }

  TensorId embed(const std::string& prefix, const std::string& ids_name) {
    const TensorId ids = graph_.add_input(ids_name, {per_sample(1), fixed(tokens_)}, ElementType::kInt64);
    const std::int64_t width = spec_.embedding_dim > 0 ? spec_.embedding_dim : spec_.hidden;
    if (embedding_ < 0) {
      // peft's copy of a saved module, which comes second, is not shared with the output layer.
      tied_ = static_cast<TensorId>(graph_.tensors().size());
      embedding_ =
          builder_.parameter("embed_tokens.weight", {fixed(spec_.vocab / vocab_split()), fixed(width)});
    }
    TensorId x = embedding_of(prefix + "embeddings", ids, embedding_, tokens_shape(width));
    TensorIds locals;  // that BERT's code names until it returns
    if (part_.tensor > 1) {
      x = leave_region(prefix + "embeddings", x);
    }
    if (spec_.scaled_embedding) {
      x = builder_.unary(OpKind::kScale, prefix + "embeddings.scaled", x);
    }
    if (width != spec_.hidden) {
      x = builder_.linear(prefix + "embeddings.project", x, tokens_shape(spec_.hidden), width, spec_.hidden,
                          false);
    }
    if (spec_.token_types > 0) {
      const TensorId types =
          graph_.add_input("token_type_ids", {per_sample(1), fixed(tokens_)}, ElementType::kInt64);
      const TensorId table =
          builder_.parameter("token_types.weight", {fixed(spec_.token_types), fixed(spec_.hidden)});
      const TensorId rows = embedding_of("token_types", types, table, residual_shape(spec_.hidden));
      locals = {x, rows};
      x = builder_.add("embeddings.types", x, rows);
    }
    if (spec_.positions == Positions::kLearned) {
      const TensorId rows = positions();
      if (!locals.empty()) {
        locals.push_back(rows);
      }
      x = builder_.add(prefix + "embeddings.sum", x, rows);
    }
    if (spec_.embedding_norm) {
      x = norm("embeddings.norm", x);
    }
    x = builder_.dropout(prefix + "embeddings.dropout", x, spec_.embedding_dropout);
    if (!locals.empty()) {
      graph_.end_scope(locals);
    }
    return x;
  }

  TensorId positions() {
    const TensorId table = builder_.parameter(
        "positions.weight", {fixed(spec_.max_positions + spec_.unused_positions), fixed(spec_.hidden)});
    // OPT and Whisper have a place for each token of each sample; the other families' samples share them.
    const bool by_sample = spec_.positions_by_sample;
    const TensorId places = graph_.add_input(
        "position_ids", by_sample ? Shape{per_sample(1), fixed(tokens_)} : Shape{fixed(tokens_)},
        ElementType::kInt64);
    return embedding_of(
        "positions", places, table,
        by_sample ? residual_shape(spec_.hidden) : Shape{fixed(residual_tokens_), fixed(spec_.hidden)});
  }

  // fully_shard composes with tensor parallelism of DTensors, whose loss is loss_parallel's.
  bool splits_loss() const {
    return part_.tensor > 1 && training_.parallelism.strategy == crds::ParallelStrategy::kFSDP2;
  }

  // Frameworks pad vocabularies that are not divisible; the padding is less than one row per trainer.
  std::int64_t vocab_split() const { return part_.tensor; }

  TensorId dropped(const std::string& module, TensorId x, bool drops) {
    return drops ? builder_.dropout(module + ".dropout", x, spec_.residual_dropout) : x;
  }

  // What a layer adds to its input.
  template <class Part>
  TensorId branch(const std::string& module, TensorId x, Part part, bool drops) {
    const bool before = spec_.norm_place == NormPlace::kBefore || spec_.norm_place == NormPlace::kAround;
    const bool after = spec_.norm_place == NormPlace::kAround || spec_.norm_place == NormPlace::kAfter;
    TensorId in = x;
    if (before) {
      const CheckpointedModule of_norm(context_, module + "_norm", false);
      in = norm(module + "_norm", x);
    }
    TensorId out = part(in);
    if (before && !builder_.compiled()) {
      graph_.end_scope({in});  // an argument of the part's forward; compiled code frees it after its last use
    }
    out = after ? norm(module + "_post_norm", out) : out;
    return dropped(module, out, drops);
  }

  template <class Part>
  TensorId residual(const std::string& module, TensorId x, Part part, bool drops = true) {
    const TensorId out = branch(module, x, part, drops);
    branch_ = out;
    if (spec_.norm_place == NormPlace::kAfterSum) {
      return norm(module + "_norm", builder_.add(module + ".residual", out, x));
    }
    return builder_.binary(OpKind::kAdd, module + ".residual", x, out, residual_shape(spec_.hidden));
  }

  // The output of an encoder that a decoder attends to.
  struct Memory {
    TensorId x = -1;  // -1: none
    std::int64_t tokens = 0;
  };

  // The layers [first, end) of one half.
  TensorId layers(const std::string& prefix, TensorId x, std::int64_t first, std::int64_t end,
                  const Memory& memory) {
    if (spec_.state_space.inner == 0 && first < end) {
      attention_.prepare(spec_.causal() && (memory.x >= 0 || spec_.positions != Positions::kRelative));
    }
    const TensorId bias = spec_.positions == Positions::kRelative ? relative_bias(prefix) : -1;
    builder_.compile(training_.compile != crds::Compilation::kNone);
    builder_.float8(training_.float8 != crds::Float8::kNone);
    for (std::int64_t i = first; i < end; ++i) {
      const std::string name = prefix + "layers." + std::to_string(i);
      const ForwardGraph::Mark begin = graph_.mark();
      const TensorId before = x;
      x = layer(name, x, i, memory, bias);
      // The first layer with trained parameters passes gradients on, and the layers before it none.
      const bool alike = graph_.tensor(before).requires_grad == graph_.tensor(x).requires_grad;
      const std::int64_t copies = alike ? equal_layers_after(i, end) : 0;
      x = graph_.repeat(begin, before, x, copies, name);
      i += copies;
    }
    builder_.compile(training_.compile == crds::Compilation::kModel);
    builder_.float8(false);  // the output layer keeps its precision
    return x;
  }

  // Number of layers directly after the i-th that are equal to it.
  std::int64_t equal_layers_after(std::int64_t i, std::int64_t end) const {
    if (training_.activation_checkpointing == crds::ActivationCheckpointing::kPerModule ||
        (context_.tuned != nullptr && context_.tuned->by_layer())) {
      return 0;  // modules are matched by name
    }
    std::int64_t next = i + 1;
    while (next < end && spec_.kind_of(next) == spec_.kind_of(i)) {
      ++next;
    }
    return next - i - 1;
  }

  TensorId layer(const std::string& name, TensorId x, std::int64_t number, const Memory& memory,
                 TensorId bias) {
    TensorIds locals = {x};  // what the layer's forward names until it returns
    const CheckpointedModule layer(context_, name, true);
    graph_.begin_unit();
    const LayerKind kind = spec_.kind_of(number);
    const bool rotary = spec_.positions == Positions::kRotary && kind.rotary;
    const auto attend = [&](TensorId in) {
      return attention_.run(
          name + ".attention", in,
          {.memory = in, .rotary = rotary, .bias = bias, .causal = spec_.causal(), .sliding = kind.sliding});
    };
    const auto mlp = [&](TensorId in) { return feed_forward_.run(name + ".mlp", in, kind.sparse); };
    if (spec_.state_space.inner > 0) {
      const CheckpointedModule module(context_, name + ".mixer", false);
      x = residual(name + ".mixer", x, [&](TensorId in) { return mixer_.run(name + ".mixer", in); });
    } else if (spec_.residual == Residual::kSequential) {
      {
        const CheckpointedModule module(context_, name + ".attention", false);
        x = kind.linear ? residual(name + ".attention", x,
                                   [&](TensorId in) { return delta_.run(name + ".attention", in); })
                        : residual(name + ".attention", x, attend, spec_.drops_attention_result);
        if (spec_.names_attention_result) {
          locals.push_back(branch_);
        }
        hold_weights(locals);
      }
      if (memory.x >= 0) {
        const CheckpointedModule module(context_, name + ".cross_attention", false);
        // T5 adds its mask to the products with the encoder's keys, too.
        x = residual(name + ".cross_attention", x, [&](TensorId in) {
          return attention_.run(name + ".cross_attention", in,
                                {.memory = memory.x, .causal = spec_.encoder_decoder, .keys = memory.tokens});
        });
        hold_weights(locals);
      }
      const CheckpointedModule module(context_, name + ".mlp", false);
      x = residual(name + ".mlp", x, mlp);
    } else {
      x = parallel(name, x, attend, mlp);
    }
    graph_.end_scope(locals);
    graph_.end_unit();
    return x;
  }

  void hold_weights(TensorIds& locals) {
    if (const TensorId weights = attention_.take_weights(); weights >= 0) {
      locals.push_back(weights);
    }
  }

  // Both parts read the layer's input, and their results are added one after the other.
  template <class Attend, class Mlp>
  TensorId parallel(const std::string& name, TensorId x, Attend attend, Mlp mlp) {
    const bool shared = spec_.residual == Residual::kParallelSharedNorm;
    const TensorId normed = norm(name + ".attention_norm", x);
    TensorId attended = -1;
    {
      const CheckpointedModule module(context_, name + ".attention", false);
      attended = dropped(name + ".attention", attend(normed),
                         spec_.drops_attention_result && !spec_.parts_summed_first);
    }
    const CheckpointedModule module(context_, name + ".mlp", false);
    const TensorId second = shared ? normed : norm(name + ".mlp_norm", x);
    TensorId fed = mlp(second);
    TensorId sum = -1;
    if (spec_.parts_summed_first) {
      sum = graph_.alias(OpKind::kAdd, name + ".parts", {fed, attended}, residual_shape(spec_.hidden));
      sum = dropped(name + ".parts", sum, true);
    } else {
      fed = dropped(name + ".mlp", fed, true);
      sum = builder_.add(name + ".parts", fed, attended);
    }
    const TensorId out =
        builder_.binary(OpKind::kAdd, name + ".residual", sum, x, residual_shape(spec_.hidden));
    TensorIds locals = {normed, attended, fed};
    hold_weights(locals);
    graph_.end_scope(locals);
    return out;
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
    TransformerSpec reads = spec_;  // a trainer's part of the tokens is that of context.spec
    reads.sequence = spec_.encoder_sequence > 0 ? spec_.encoder_sequence : spec_.sequence;
    TransformerContext context{reads, training_, part_, builder_, context_.patterns, context_.tuned};
    TransformerLowering encoder(context);
    TensorId memory =
        encoder.layers("encoder.", encoder.embed("encoder.", "input_ids"), 0, spec_.encoder_layers, {});
    memory = encoder.norm("encoder.norm", memory);
    memory = builder_.dropout("encoder.dropout", memory, spec_.residual_dropout);
    embedding_ = encoder.embedding_;
    tied_ = encoder.tied_;
    predict(layers("decoder.", embed("decoder.", "decoder_input_ids"), 0, spec_.layers,
                   {memory, encoder.tokens_}));
  }

  // Whisper: the first tower encodes sound, and this one writes what is said.
  void speech() {
    TransformerContext context{spec_.towers.front(), training_,     part_, builder_,
                               context_.patterns,    context_.tuned};
    TransformerLowering encoder(context);
    TensorId memory = encoder.front_end_.frames("encoder.");
    memory = encoder.norm("encoder.norm", encoder.layers("encoder.", memory, 0, context.spec.layers, {}));
    predict(layers("decoder.", embed("decoder.", "decoder_input_ids"), 0, spec_.layers,
                   {memory, context.spec.sequence}));
  }

  // CLIP: which image belongs to which text of the batch.
  void images_and_texts() {
    TransformerContext context{spec_.towers.front(), training_,     part_, builder_,
                               context_.patterns,    context_.tuned};
    TransformerLowering vision(context);
    TensorId image = vision.norm("vision.pre_norm", vision.front_end_.patches("vision."));
    image = vision.first_token("vision.", vision.layers("vision.", image, 0, context.spec.layers, {}));
    image = vision.compared("vision.", vision.norm("vision.norm", image), spec_.projection);

    TensorId text = norm("text.norm", layers("text.", embed("text.", "input_ids"), 0, spec_.layers, {}));
    const TensorId ends = graph_.add_input("text.ends", {per_sample(1)}, ElementType::kInt64);
    text = graph_.apply(OpKind::kSelectRows, "text.pooled", {text, ends},
                        {per_sample(1), fixed(spec_.hidden)}, builder_.type(text));
    text = compared("text.", text, spec_.projection);

    image = unit_length("vision.", image);
    text = unit_length("text.", text);
    const TensorId scale =
        builder_.unary(OpKind::kExp, "logit_scale.exp", builder_.parameter("logit_scale", {fixed(1)}));
    const Shape pairs = {per_sample(1), per_sample(1)};
    const TensorId products = builder_.matmul("logits.products", text, image, pairs);
    const TensorId logits = builder_.binary(OpKind::kMul, "logits", products, scale, pairs);
    const TensorId texts = builder_.cross_entropy_of(logits, "loss.texts", {per_sample(1)}, {});
    const TensorId images = builder_.cross_entropy_of(logits, "loss.images", {per_sample(1)}, {});
    graph_.apply(OpKind::kAdd, "loss", {texts, images}, {fixed(1)}, ElementType::kFP32);
  }

  TensorId first_token(const std::string& prefix, TensorId x) {
    return graph_.alias(OpKind::kSlice, prefix + "pooler.first", {x}, {per_sample(1), fixed(spec_.hidden)});
  }

  TensorId compared(const std::string& prefix, TensorId x, std::int64_t width) {
    return builder_.linear(prefix + "projection", x, {per_sample(1), fixed(width)}, spec_.hidden, width,
                           false);
  }

  // CLIP's _get_vector_norm, and the division by it.
  TensorId unit_length(const std::string& prefix, TensorId x) {
    const TensorId squares = builder_.unary(OpKind::kPower, prefix + "squares", x);
    const TensorId sum = graph_.apply(OpKind::kSum, prefix + "squares.sum", {squares},
                                      {per_sample(1), fixed(1)}, builder_.type(squares));
    return builder_.multiply(prefix + "unit", x, builder_.unary(OpKind::kPower, prefix + "length", sum));
  }

  void predict(TensorId x) {
    switch (spec_.head) {
      case Head::kCausal: {
        if (spec_.final_norm) {
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
      case Head::kClasses: {
        return classify(first_token("", norm("norm", x)));
      }
      case Head::kScore: {
        x = spec_.final_norm ? norm("norm", x) : x;
        const TensorId scores =
            builder_.linear("score", x, tokens_shape(spec_.classes), spec_.hidden, spec_.classes, false);
        const TensorId ends = graph_.add_input("score.ends", {per_sample(1)}, ElementType::kInt64);
        const TensorId logits = graph_.apply(OpKind::kSelectRows, "score.pooled", {scores, ends},
                                             {per_sample(1), fixed(spec_.classes)}, builder_.type(scores));
        return builder_.cross_entropy(logits, {per_sample(1)}, loss_form());
      }
      case Head::kEncoder: return pool(spec_.final_norm ? norm("norm", x) : x);
    }
    std::int64_t width = spec_.hidden;
    if (spec_.embedding_dim > 0 && spec_.embedding_dim != spec_.hidden) {
      width = spec_.embedding_dim;
      x = builder_.linear("head.project", x, tokens_shape(width), spec_.hidden, width, false);
    }
    x = enter_region("head", x);
    const TensorId weight =
        spec_.tied && embedding_ >= 0 && !(context_.tuned != nullptr && context_.tuned->copies("head"))
            ? tied_
            : builder_.parameter("head.weight", {fixed(spec_.vocab / vocab_split()), fixed(width)});
    if (training_.loss_chunks > 1) {
      const std::int64_t part = (tokens_ + training_.loss_chunks - 1) / training_.loss_chunks;
      return builder_.chunked_loss(x, weight, {per_sample(1), fixed(part), fixed(width)},
                                   {per_sample(1), fixed(tokens_)});
    }
    const TensorId bias =
        spec_.head_bias ? builder_.parameter("head.bias", {fixed(spec_.vocab / vocab_split())}) : -1;
    TensorId logits = builder_.linear("head", x, weight, bias, tokens_shape(spec_.vocab / vocab_split()));
    logits = builder_.adapted("head", x, logits,
                              {.in = width, .out = spec_.vocab, .weight = weight, .bias = bias});
    if (spec_.softcapped_logits) {
      logits = builder_.unary(OpKind::kScale, "head.capped", logits);
      logits =
          builder_.unary(OpKind::kScale, "head.uncapped", builder_.unary(OpKind::kTanh, "head.tanh", logits));
    }
    graph_.set_result(logits);
    builder_.cross_entropy(logits, {per_sample(1), fixed(tokens_)},
                           {.split = splits_loss(), .megatron = is_megatron(), .as_float = spec_.float_loss});
    if (!builder_.compiled()) {
      graph_.end_scope({x});  // the outputs of the model without its head, a local of the model's forward
    }
  }

  ModelBuilder::LossForm loss_form() const {
    return {.split = false, .megatron = false, .as_float = spec_.float_loss};
  }

  // Trains on classes, by one vector of each sample.
  void classify(TensorId x) {
    const TensorId logits = builder_.linear("classifier", x, {per_sample(1), fixed(spec_.classes)},
                                            spec_.hidden, spec_.classes, true);
    builder_.cross_entropy(logits, {per_sample(1)}, loss_form());
  }

  // BERT's pooler: the first token through a dense layer and tanh. The mean of the result is used as the
  // loss.
  void pool(TensorId x) {
    const TensorId dense = builder_.linear("pooler", first_token("", x), {per_sample(1), fixed(spec_.hidden)},
                                           spec_.hidden, spec_.hidden, true);
    const TensorId pooled = builder_.unary(OpKind::kTanh, "pooler.tanh", dense);
    if (spec_.classes > 0) {
      return classify(builder_.dropout("dropout", pooled, spec_.residual_dropout));
    }
    graph_.apply(OpKind::kMean, "loss", {pooled}, {fixed(1)}, ElementType::kFP32);
  }

  TransformerAttention attention_;
  TransformerFeedForward feed_forward_;
  StateSpaceMixer mixer_;
  GatedDeltaMixer delta_;
  TransformerFrontEnd front_end_;
  TensorId branch_ = -1;     // what the last part added to its input
  TensorId embedding_ = -1;  // the token embedding, if this trainer has it
  TensorId tied_ = -1;       // the one that a tied output layer shares
};

}  // namespace

Result<ForwardGraph> lower_transformer(const TransformerSpec& spec, const crds::TrainingSpec& training,
                                       const TransformerPart& part, Budget* budget) {
  Result<void> checked = check(spec, part);
  checked = checked ? check_loss(spec, training, part) : checked;
  if (!checked) {
    return checked.error();
  }
  ModelBuilder builder(training.precision, budget);
  ModulePatterns patterns(training.checkpoint_modules);
  std::optional<TunedModel> tuned;
  if (training.fine_tuning) {
    Result<TunedModel> made = tuned_model(spec, training, part, budget);
    if (!made) {
      return made.error();
    }
    tuned.emplace(*std::move(made));
    builder.tune(*tuned, part.device);
  }
  TransformerContext context{spec, training, part, builder, patterns, tuned ? &*tuned : nullptr};
  TransformerLowering(context).run();
  if (const std::string* unused = patterns.unused()) {
    return invalid("training.checkpointModules: no module of the model matches " + *unused +
                   "; modules are called like layers.0, layers.0.attention and layers.0.mlp");
  }
  return std::move(builder).graph();
}

}  // namespace plimsoll::estimator::transformer
