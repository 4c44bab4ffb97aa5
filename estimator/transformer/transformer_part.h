// What the lowerings of a transformer's parts share (transformer_attention.h, transformer_feed_forward.h, ...): the
// spec, the graph that they append to, the share of this trainer, and the shapes that follow from them.
//
//   TransformerContext context{spec, training, part, builder, patterns};
//   TransformerAttention attention(context);       // a TransformerPiece
//
// Pieces refer to what their context refers to, and must not outlive it. Not thread-safe.
#pragma once

#include <string>

#include "crds/training_job.h"
#include "estimator/spec/forward_graph.h"
#include "estimator/spec/model_builder.h"
#include "estimator/spec/transformer_spec.h"
#include "estimator/trace/module_pattern.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline transformer {

// The part of a transformer on one trainer.
struct TransformerPart {
  std::int64_t tensor = 1;  // number of trainers that split each layer
  bool sequence = false;    // these trainers also split the tokens between the split parts
  std::int64_t context = 1;
  std::int64_t expert = 1;
  std::int64_t first_layer = 0;
  std::int64_t last_layer = -1;   // exclusive; -1: all
  bool embeds = true;             // has the token embedding: the first pipeline stage
  bool predicts = true;           // has the head and computes the loss: the last pipeline stage
  Device device = Device::kCuda;  // PyTorch chooses kernels by it
  bool has_flash = true;          // the card runs PyTorch's flash kernels: compute capability 8.0 and above
};

struct TransformerContext {
  const TransformerSpec& spec;
  const crds::TrainingSpec& training;
  const TransformerPart& part;
  ModelBuilder& builder;
  ModulePatterns& patterns;
  const TunedModel* tuned = nullptr;  // null: all parameters are trained
};

// A module of the model, which may be a block for activation checkpointing.
class CheckpointedModule {
 public:
  CheckpointedModule(TransformerContext& context, const std::string& path, bool layer);
  CheckpointedModule(const CheckpointedModule&) = delete;
  CheckpointedModule& operator=(const CheckpointedModule&) = delete;
  ~CheckpointedModule();

 private:
  ForwardGraph& graph_;
  bool begun_;
};

class TransformerPiece {
 public:
  explicit TransformerPiece(TransformerContext& context);

 protected:
  // Outside the parts that tensor parallelism splits, sequence parallelism splits the tokens.
  Shape residual_shape(std::int64_t width) const {
    return {per_sample(1), fixed(residual_tokens_), fixed(width)};
  }
  Shape tokens_shape(std::int64_t width) const { return {per_sample(1), fixed(tokens_), fixed(width)}; }
  Shape heads_shape(std::int64_t heads, std::int64_t width) const {
    return {per_sample(1), fixed(heads), fixed(tokens_), fixed(width)};
  }
  // The type of the residual stream: autocast does not cast embeddings.
  ElementType residual_type() const { return builder_.stored(); }
  bool is_megatron() const { return training_.parallelism.strategy == crds::ParallelStrategy::kMegatron; }
  bool eager() const { return spec_.attention == crds::AttentionKind::kEager; }

  // Over the hidden size, in the spec's form.
  TensorId norm(const std::string& name, TensorId x);
  TensorId rms_norm(const std::string& name, TensorId x, std::int64_t width) {
    return builder_.rms_norm(name, x, width, spec_.rms_form);
  }
  TensorId embedding_of(const std::string& name, TensorId indices, TensorId weight, Shape shape);
  TensorId activate(const std::string& name, TensorId x);

  // Megatron-LM's f and g (arXiv 1909.08053 section 3); with sequence parallelism, all-gather and
  // reduce-scatter (arXiv 2205.05198 section 4.2).
  TensorId enter_region(const std::string& name, TensorId x);
  TensorId leave_region(const std::string& name, TensorId x);
  // The same around linear layers. With float8 and sequence parallelism torchao gathers their input in 8 bits, and in
  // backward the gradient of their sum (torchao/float8/float8_tensor_parallel.py, PrepareFloat8ModuleInput and
  // Float8RowwiseParallel; that a gather along the tokens is copied into order is left out).
  TensorId enter_products(const std::string& name, TensorId x);
  TensorId leave_products(const std::string& name, TensorId x);

  // Megatron-LM gathers into one buffer that all layers share, and again in backward: autograd keeps this trainer's tokens
  // (megatron/core/tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication).
  TensorId gather(const std::string& name, TensorId x, ElementType type);
  bool exchanges_float8() const;

  TransformerContext& context_;
  const TransformerSpec& spec_;
  const TransformerPart& part_;
  const crds::TrainingSpec& training_;
  ModelBuilder& builder_;
  ForwardGraph& graph_;
  const std::int64_t tokens_;           // per sample, on this trainer
  const std::int64_t residual_tokens_;  // per sample, outside the parts that tensor parallelism splits
  const std::int64_t heads_;            // on this trainer
  const std::int64_t kv_heads_;
};

}  // namespace plimsoll::estimator::transformer
