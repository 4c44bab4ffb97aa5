#include "estimator/spec/model_builder.h"

namespace plimsoll::estimator::inline spec {

TensorId ModelBuilder::cast(TensorId x, ElementType type) {
  const Tensor& tensor = graph_.tensor(x);
  if (tensor.type == type) {
    return x;
  }
  Shape shape = graph_.shape_of(x);
  return graph_.apply(OpKind::kCast, graph_.name_of(x) + ".cast", {x}, std::move(shape), type, tensor.count);
}

TensorId ModelBuilder::linear(const std::string& name, TensorId x, TensorId weight, TensorId bias,
                              Shape shape, std::int64_t count) {
  // Autocast casts the last operand first: the order in which g++ evaluates the arguments of a call (autocast_mode.h:
  // cached_cast of each in WrapFunction_). What was gathered in 8 bits is multiplied as it is.
  const TensorId cast_bias = bias >= 0 ? cast(bias, compute_) : -1;
  const TensorId cast_weight = cast(weight, compute_);
  TensorIds inputs = {type(x) == ElementType::kFP8 ? x : cast(x, compute_), cast_weight};
  if (bias >= 0) {
    inputs.push_back(cast_bias);
  }
  const OpKind kind = !float8_ || count > 1 ? OpKind::kLinear
                      : compiled_           ? OpKind::kFusedFloat8Linear
                                            : OpKind::kFloat8Linear;
  return graph_.apply(kind, name, inputs, std::move(shape), compute_, count);
}

TensorId ModelBuilder::linear(const std::string& name, TensorId x, Shape shape, std::int64_t in,
                              std::int64_t out, bool bias) {
  Base base{.in = in, .out = out};
  const auto add_bias = [&] { base.bias = bias ? parameter(name + ".bias", {fixed(out)}) : -1; };
  if (tuned_ != nullptr && tuned_->quantises(name)) {
    add_bias();
    return adapted(name, x, quantised(name, x, std::move(shape), base), base);
  }
  base.weight = parameter(name + ".weight", {fixed(out), fixed(in)});
  add_bias();
  if (tuned_ != nullptr && tuned_->adapts_weight(name)) {
    return linear(name, x, adapted_weight(name, base.weight, 1), base.bias, std::move(shape));
  }
  return adapted(name, x, linear(name, x, base.weight, base.bias, std::move(shape)), base);
}

void ModelBuilder::tune(const TunedModel& tuned, Device device) {
  tuned_ = &tuned;
  // lora/bnb.py asks torch.is_autocast_enabled(), which without a device's name means CUDA.
  autocast_seen_ = mixed() && device == Device::kCuda;
  quantised_ = compute_;
  if (tuned.tuning().prepared_for_kbit_training) {
    // prepare_model_for_kbit_training casts what is not quantised to fp32. Without autocast, it computes so, too.
    compute_ = mixed() ? compute_ : ElementType::kFP32;
    stored_ = ElementType::kFP32;
  }
}

TensorId ModelBuilder::parameter(const std::string& name, Shape shape, std::int64_t count) {
  const bool copied = tuned_ != nullptr && tuned_->copies(name.substr(0, name.rfind('.')));
  if (copied) {
    // peft's ModulesToSaveWrapper: the original is kept, and unused.
    graph_.add_parameter(name + ".original", shape, stored_, count, false);
  }
  const bool trained = tuned_ == nullptr || copied || tuned_->trains(name);
  return graph_.add_parameter(name, std::move(shape), stored_, count, trained);
}

TensorId ModelBuilder::product(const std::string& name, TensorId x, TensorId weight, Shape shape) {
  const ElementType type = product_type(x);
  const TensorId cast_weight = cast(weight, type);
  return graph_.apply(OpKind::kLinear, name, {cast(x, type), cast_weight}, std::move(shape), type);
}

// bitsandbytes, nn/modules.py, Linear4bit and Linear8bitLt; functional.py, quantize_4bit: a maximum for each block of 64
// weights and the table of their 16 values; with compress_statistics, the maxima are 8 bits wide, in blocks of 256.
TensorId ModelBuilder::quantised(const std::string& name, TensorId x, Shape shape, const Base& base) {
  constexpr std::int64_t kBlock = 64, kOuterBlock = 256, kValues = 16;
  const auto frozen = [&](const char* what, Shape of, ElementType type) {
    return graph_.add_parameter(name + what, std::move(of), type, 1, false);
  };
  const auto parts = [](std::int64_t size, std::int64_t of) { return size / of + (size % of > 0 ? 1 : 0); };
  const ElementType before = type(x);
  const TensorId in = cast(x, quantised_);
  TensorIds inputs;
  const crds::FineTuning& tuning = tuned_->tuning();
  OpKind kind = OpKind::kLinear8bit;
  if (tuning.quantization == crds::Quantization::kInt8) {
    inputs = {in, frozen(".weight", {fixed(base.out), fixed(base.in)}, ElementType::kUInt8),
              frozen(".SCB", {fixed(base.out)}, ElementType::kFP32)};
  } else {
    kind = tuned_->keeps_inputs() ? OpKind::kLinear4bitOfInput : OpKind::kLinear4bit;
    // Not one product: it may be beyond 64 bits.
    const std::int64_t weights = (Bytes{base.in} * base.out).count;
    const std::int64_t blocks = parts(weights, kBlock);
    const bool twice = tuning.double_quantization;
    inputs = {in, frozen(".weight", {fixed(parts(weights, 2)), fixed(1)}, ElementType::kUInt8),
              frozen(".absmax", {fixed(blocks)}, twice ? ElementType::kUInt8 : ElementType::kFP32)};
    frozen(".code", {fixed(kValues)}, ElementType::kFP32);
    if (twice) {
      frozen(".nested_absmax", {fixed(parts(blocks, kOuterBlock))}, ElementType::kFP32);
      frozen(".offset", {fixed(1)}, ElementType::kFP32);
    }
  }
  if (base.bias >= 0) {
    inputs.push_back(cast(base.bias, quantised_));
  }
  return cast(graph_.apply(kind, name, inputs, std::move(shape), quantised_), before);
}

TensorId ModelBuilder::adapted(const std::string& name, TensorId x, TensorId y, const Base& base) {
  const std::optional<Adapter> adapter = tuned_ == nullptr ? std::nullopt : tuned_->adapter_of(name);
  return adapter ? lora(name, *adapter, x, y, base) : y;
}

// B(A(x)).
TensorId ModelBuilder::low_rank(const std::string& name, TensorId x, TensorId y, TensorId a, TensorId b) {
  Shape inner = shape(x);
  inner.back() = shape(b).back();
  return product(name + ".lora_B", product(name + ".lora_A", x, a, std::move(inner)), b, shape(y));
}

// peft, lora/layer.py and lora/bnb.py, Linear.forward and Linear4bit.forward: result + B(A(dropout(x))) * scaling, in
// the adapter's type, but where peft sees autocast, a quantised layer's adapter reads x as it is.
TensorId ModelBuilder::lora(const std::string& name, const Adapter& adapter, TensorId x, TensorId y,
                            const Base& base) {
  const crds::FineTuning& tuning = tuned_->tuning();
  const ElementType type = tuning.autocast_adapter_dtype ? ElementType::kFP32 : stored_;
  const ElementType before = this->type(y);
  const bool packed = base.weight < 0;
  const TensorId a =
      graph_.add_parameter(name + ".lora_A.weight", {fixed(adapter.rank), fixed(base.in)}, type);
  const TensorId b =
      graph_.add_parameter(name + ".lora_B.weight", {fixed(base.out), fixed(adapter.rank)}, type);
  if (packed && tuning.quantization != crds::Quantization::kInt8) {
    y = graph_.apply(OpKind::kCopy, name + ".clone", {y}, shape(y), before);
  }
  const TensorId own = packed && autocast_seen_ ? x : cast(x, type);
  TensorId sum = -1;
  if (adapter.dora) {
    sum = dora(name, adapter, own, y, base, a, b);
  } else {
    const TensorId high = low_rank(name, dropout(name + ".lora_dropout", own, adapter.dropout), y, a, b);
    TensorId scaled = unary(OpKind::kScale, name + ".lora_scaled", high);
    scaled = packed && !autocast_seen_ ? cast(scaled, before) : scaled;
    sum = binary(OpKind::kAdd, name + ".lora_sum", y, scaled, shape(y));
  }
  const TensorId result = cast(sum, before);
  graph_.end_scope({own});
  return result;
}

// peft, lora/layer.py, ParamWrapper: a module's parameter becomes W + B * A while its forward runs. For experts one
// baddbmm makes all of them (_LoraFactorsProxy), in the parameter's type; for one matrix the product is made first.
TensorId ModelBuilder::adapted_weight(const std::string& name, TensorId weight, std::int64_t experts) {
  const std::optional<Adapter> adapter = tuned_ == nullptr ? std::nullopt : tuned_->adapter_of(name);
  if (!adapter) {
    return weight;
  }
  const Shape whole = shape(weight);
  const Dim out = whole[whole.size() - 2], in = whole.back();
  const ElementType before = type(weight);
  const ElementType own = tuned_->tuning().autocast_adapter_dtype ? ElementType::kFP32 : stored_;
  const Dim ranks = fixed((Bytes{adapter->rank} * experts).count);
  const TensorId a = graph_.add_parameter(name + ".lora_A.weight", {ranks, in}, own);
  const TensorId b = graph_.add_parameter(name + ".lora_B.weight", {out, ranks}, own);
  if (experts > 1) {
    return graph_.apply(OpKind::kMatMul, name + ".lora_weight", {cast(b, before), cast(a, before)}, whole,
                        before);
  }
  const TensorId delta =
      unary(OpKind::kScale, name + ".lora_scaled", matmul(name + ".lora_weight", b, a, whole));
  return binary(OpKind::kAdd, name + ".lora_sum", weight, cast(delta, before), whole);
}

// peft, lora/variants.py, DoraLinearVariant.forward, and lora/dora.py, DoraLinearLayer.forward: the product of both
// adapters is made from a unit matrix, whose graph lives as long as the function, for the norms of the whole weight.
TensorId ModelBuilder::dora(const std::string& name, const Adapter& adapter, TensorId x, TensorId y,
                            const Base& base, TensorId a, TensorId b) {
  const ElementType type = this->type(x);
  const ElementType products = product_type(x);
  const Shape whole = {fixed(base.out), fixed(base.in)};
  x = dropout(name + ".lora_dropout", x, adapter.dropout);
  const TensorId unit = made(name + ".eye", {fixed(base.in), fixed(base.in)}, type);
  const TensorId low = made(name + ".eye.lora_A", {fixed(base.in), fixed(adapter.rank)}, products);
  TensorId delta = made(name + ".lora_weight", whole, products);
  delta = cast(delta, type);
  TensorId weight = base.weight;
  if (weight < 0) {
    weight = made(name + ".dequantised", whole, quantised_);
  }
  if (this->type(weight) != type) {
    weight = cast(weight, type);
  }
  const TensorId scaled = made(name + ".lora_weight.scaled", whole, type);
  const TensorId sum = made(name + ".weight_sum", whole, type);
  graph_.end_scope({scaled});
  const TensorId norm = made(name + ".weight_norm", {fixed(base.out)}, type);
  graph_.end_scope({sum});
  const TensorId magnitude = graph_.add_parameter(name + ".lora_magnitude_vector", {fixed(base.out)}, type);
  const TensorId scale =
      graph_.view(name + ".mag_norm_scale.view", multiply(name + ".mag_norm_scale", magnitude, norm),
                  {fixed(1), fixed(base.out)});
  const TensorId high = low_rank(name, x, y, a, b);
  TensorId result = y;
  if (adapter.dropout > 0) {
    result = product(name + ".base_dropped", x, weight, shape(y));
  } else if (base.bias >= 0) {
    result = binary(OpKind::kAdd, name + ".without_bias", y, base.bias, shape(y));
  }
  const TensorId direction = binary(OpKind::kMul, name + ".base_scaled",
                                    unary(OpKind::kScale, name + ".scale_less_one", scale), result, shape(y));
  const TensorId lora = unary(OpKind::kScale, name + ".lora_scaled",
                              binary(OpKind::kMul, name + ".lora_by_norm", scale, high, shape(y)));
  const TensorId added = binary(OpKind::kAdd, name + ".dora", direction, lora, shape(y));
  graph_.end_scope({unit, low, delta, weight, norm});
  graph_.end_scope({scale, high, result});
  return binary(OpKind::kAdd, name + ".dora_sum", y, added, shape(y));
}

TensorId ModelBuilder::matmul(const std::string& name, TensorId a, TensorId b, Shape shape) {
  const TensorId cast_b = cast(b, compute_);
  return graph_.apply(OpKind::kMatMul, name, {cast(a, compute_), cast_b}, std::move(shape), compute_);
}

TensorId ModelBuilder::layer_norm(const std::string& name, TensorId x, std::int64_t width, bool bias) {
  if (compiled_) {
    TensorIds inputs = {x, parameter(name + ".weight", {fixed(width)})};
    if (bias) {
      inputs.push_back(parameter(name + ".bias", {fixed(width)}));
    }
    return graph_.apply(OpKind::kLayerNorm, name, inputs, shape(x), type(x));
  }
  TensorIds inputs = {as_float(x), as_float(parameter(name + ".weight", {fixed(width)}))};
  if (bias) {
    inputs.push_back(as_float(parameter(name + ".bias", {fixed(width)})));
  }
  const ElementType type = this->type(inputs.front());
  return graph_.apply(OpKind::kLayerNorm, name, inputs, shape(x), type);
}

TensorId ModelBuilder::rms_norm(const std::string& name, TensorId x, std::int64_t width, RmsForm form) {
  if (compiled_ || form == RmsForm::kFused) {
    return graph_.apply(OpKind::kRmsNorm, name, {x, parameter(name + ".weight", {fixed(width)})}, shape(x),
                        type(x));
  }
  const ElementType original = type(x);
  const TensorId in = cast(x, ElementType::kFP32);
  const TensorId squares = unary(OpKind::kPower, name + ".square", in);
  Shape rows = shape(in);
  rows.back() = fixed(1);
  const TensorId variance =
      graph_.apply(OpKind::kMean, name + ".variance", {squares}, std::move(rows), ElementType::kFP32);
  const TensorId root =
      unary(OpKind::kRsqrt, name + ".rsqrt", unary(OpKind::kScale, name + ".shift", variance));
  const TensorId normal = multiply(name + ".normal", in, root);
  if (form == RmsForm::kNone) {
    return cast(normal, original);
  }
  TensorId weight = parameter(name + ".weight", {fixed(width)});
  if (form == RmsForm::kLlama) {
    const TensorId out = binary(OpKind::kMul, name, cast(normal, original), weight, shape(normal));
    graph_.end_scope({normal});  // `hidden_states`, until the function returns
    return out;
  }
  if (form == RmsForm::kGemma) {
    weight = unary(OpKind::kScale, name + ".one_more", cast(weight, ElementType::kFP32));
  }
  return cast(binary(OpKind::kMul, name, normal, weight, shape(normal)), original);
}

void ModelBuilder::chunked_loss(TensorId x, TensorId weight, Shape part, Shape label_shape) {
  const TensorId labels = graph_.add_input("labels", std::move(label_shape), ElementType::kInt64);
  const TensorId in = cast(x, compute_);
  const TensorId first = graph_.alias(OpKind::kSlice, "loss.part", {in}, std::move(part));
  graph_.apply(compiled_ ? OpKind::kFusedChunkedLoss : OpKind::kChunkedLoss, "loss",
               {in, cast(weight, compute_), labels, first}, {fixed(1)}, ElementType::kFP32);
}

TensorId ModelBuilder::cross_entropy_of(TensorId logits, const std::string& name, Shape label_shape,
                                        LossForm form) {
  const TensorId labels = graph_.add_input(name + ".labels", std::move(label_shape), ElementType::kInt64);
  if (compiled_) {
    return graph_.apply(OpKind::kCrossEntropy, name, {logits, labels}, {fixed(1)}, ElementType::kFP32);
  }
  if (form.megatron) {
    return graph_.apply(OpKind::kMegatronLoss, name, {logits, labels}, {fixed(1)}, ElementType::kFP32);
  }
  const TensorId in = form.as_float || form.split ? cast(logits, ElementType::kFP32) : logits;
  const TensorId log =
      as_float(unary(form.split ? OpKind::kSplitLogSoftmax : OpKind::kLogSoftmax, name + ".log_softmax", in));
  return graph_.apply(form.split ? OpKind::kSplitNllLoss : OpKind::kNllLoss, name, {log, labels}, {fixed(1)},
                      ElementType::kFP32);
}

void ModelBuilder::cross_entropy(TensorId logits, Shape label_shape, LossForm form) {
  cross_entropy_of(logits, "loss", std::move(label_shape), form);
  // The model's forward holds its logits until it returns the loss.
  graph_.end_scope({logits});
}

}  // namespace plimsoll::estimator::spec
