// ModelBuilder: appends the operators that PyTorch runs for common parts of a model, with the casts that the
// precision requires. Used by lower_dlrm() and lower_transformer().
//
//   ModelBuilder builder(crds::Precision::kBF16Mixed);
//   TensorId y = builder.linear("fc", x, {per_sample(1), fixed(256)}, 512, 256, true);
//   ForwardGraph graph = std::move(builder).graph();
//
// Not thread-safe; each lowering owns its builder.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "crds/training_job.h"
#include "estimator/spec/fine_tuning.h"
#include "estimator/spec/forward_graph.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline spec {

// How an RMSNorm multiplies by its weight; the families differ in the casts (modeling_<family>.py).
enum class RmsForm {
  kLlama,  // weight * x.to(type)
  kOlmo,   // (weight * x).to(type)
  kGemma,  // (x * (1 + weight.float())).to(type)
  kNone,   // no weight: x.to(type)
  kFused,  // one kernel: torch.nn.RMSNorm
};

class ModelBuilder {
 public:
  explicit ModelBuilder(crds::Precision precision, Budget* budget = nullptr) : graph_(budget) {
    switch (precision) {
      case crds::Precision::kFP32:
      case crds::Precision::kTF32: break;  // TF32 affects matrix products only; tensors stay fp32
      case crds::Precision::kBF16Mixed: compute_ = ElementType::kBF16; break;
      case crds::Precision::kFP16Mixed: compute_ = ElementType::kFP16; break;
      case crds::Precision::kBF16: stored_ = compute_ = ElementType::kBF16; break;
    }
  }

  ForwardGraph& graph() & { return graph_; }
  ForwardGraph graph() && { return std::move(graph_); }

  ElementType stored() const { return stored_; }    // of parameters and inputs
  ElementType compute() const { return compute_; }  // of matrix products
  // True if torch.autocast is on.
  bool mixed() const { return stored_ != compute_; }

  ElementType type(TensorId x) const { return graph_.tensor(x).type; }
  const Shape& shape(TensorId x) const { return graph_.shape_of(x); }

  TensorId parameter(const std::string& name, Shape shape, std::int64_t count = 1);
  // A copy in another type, unless x has that type. Autocast copies an activation once for each user.
  TensorId cast(TensorId x, ElementType type);

  // x in the type that autocast uses for norms, softmax, losses and powers: fp32.
  TensorId as_float(TensorId x) { return mixed() ? cast(x, ElementType::kFP32) : x; }

  // torch.compile: chains of element-wise operators and their reductions become one kernel, whose inner values
  // are never materialised and are computed again in backward (torch/_functorch/partitioners.py:
  // min_cut_rematerialization_partition). Matrix products and attention stay kernels of their own.
  void compile(bool compiled) { compiled_ = compiled; }
  bool compiled() const { return compiled_; }
  // Linear layers multiply in 8 bits (torchao's Float8Linear).
  void float8(bool used) { float8_ = used; }
  bool float8() const { return float8_; }

  // Parameters and linear layers made from now on are trained, quantised, and have adapters, as it says; it must
  // outlive the builder.
  void tune(const TunedModel& tuned, Device device);

  // A linear layer that may have an adapter; -1: quantised, or without bias.
  struct Base {
    std::int64_t in = 0, out = 0;
    TensorId weight = -1, bias = -1;
  };

  // x * weight^T [+ bias], with the shape `shape`. Autocast casts the operands of matrix products to 16 bits.
  TensorId linear(const std::string& name, TensorId x, TensorId weight, TensorId bias, Shape shape,
                  std::int64_t count = 1);
  // The same with new parameters, and the adapter of that name if it has one.
  TensorId linear(const std::string& name, TensorId x, Shape shape, std::int64_t in, std::int64_t out,
                  bool bias);
  // y, the result of a linear layer, with its adapter's if it has one.
  TensorId adapted(const std::string& name, TensorId x, TensorId y, const Base& base);
  // A weight of `experts` matrices, or of one, with its adapter's product added to it if it has one.
  TensorId adapted_weight(const std::string& name, TensorId weight, std::int64_t experts);
  TensorId matmul(const std::string& name, TensorId a, TensorId b, Shape shape);

  // An operator of one input with an output of the same shape.
  TensorId unary(OpKind kind, std::string name, TensorId x) {
    return graph_.apply(kind, std::move(name), {x}, shape(x), type(x));
  }
  // The result has the larger shape and the wider type.
  TensorId binary(OpKind kind, std::string name, TensorId a, TensorId b, Shape shape) {
    return graph_.apply(kind, std::move(name), {a, b}, std::move(shape), widest(type(a), type(b)));
  }
  TensorId add(std::string name, TensorId a, TensorId b) {
    return binary(OpKind::kAdd, std::move(name), a, b, shape(a));
  }
  TensorId multiply(std::string name, TensorId a, TensorId b) {
    return binary(OpKind::kMul, std::move(name), a, b, shape(a));
  }
  TensorId dropout(std::string name, TensorId x, double probability) {
    return probability > 0 ? unary(OpKind::kDropout, std::move(name), x) : x;
  }
  TensorId layer_norm(const std::string& name, TensorId x, std::int64_t width, bool bias);
  // As Hugging Face's LlamaRMSNorm and its relatives, operator by operator, in fp32; compiled, one kernel.
  TensorId rms_norm(const std::string& name, TensorId x, std::int64_t width, RmsForm form = RmsForm::kLlama);
  struct LossForm {
    // Each trainer has a part of the vocabulary, as with torch.distributed.tensor.parallel.loss_parallel.
    bool split = false;
    // Megatron-LM's vocab_parallel_cross_entropy, whether or not the vocabulary is split.
    bool megatron = false;
    // The logits are cast to fp32 first; otherwise autocast casts their log-softmax.
    bool as_float = true;
  };
  // Mean cross entropy of the logits.
  void cross_entropy(TensorId logits, Shape label_shape, LossForm form);
  // One of several losses of a model.
  TensorId cross_entropy_of(TensorId logits, const std::string& name, Shape label_shape, LossForm form);
  // The same of x * weight^T, with as many tokens of each sample at a time as `part` has; no more logits exist.
  void chunked_loss(TensorId x, TensorId weight, Shape part, Shape label_shape);

 private:
  // Of a product with x.
  ElementType product_type(TensorId x) const { return mixed() ? compute_ : type(x); }
  TensorId product(const std::string& name, TensorId x, TensorId weight, Shape shape);
  TensorId quantised(const std::string& name, TensorId x, Shape shape, const Base& base);
  TensorId low_rank(const std::string& name, TensorId x, TensorId y, TensorId a, TensorId b);
  TensorId lora(const std::string& name, const Adapter& adapter, TensorId x, TensorId y, const Base& base);
  TensorId dora(const std::string& name, const Adapter& adapter, TensorId x, TensorId y, const Base& base,
                TensorId a, TensorId b);
  // A tensor that no trained one is needed for.
  TensorId made(std::string name, Shape shape, ElementType type) {
    return graph_.apply(OpKind::kScale, std::move(name), {}, std::move(shape), type);
  }

  ForwardGraph graph_;
  const TunedModel* tuned_ = nullptr;
  ElementType stored_ = ElementType::kFP32;
  ElementType compute_ = ElementType::kFP32;
  ElementType quantised_ = ElementType::kFP32;  // in which quantised layers compute
  bool autocast_seen_ = false;                  // by peft
  bool compiled_ = false;
  bool float8_ = false;
};

}  // namespace plimsoll::estimator::spec
