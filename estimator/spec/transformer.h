// lower_transformer(): a transformer as an operator graph, operator by operator as Hugging Face's modelling
// code runs it (transformers 5, file models/<family>/modeling_<family>.py), so that what autograd saves and
// copies is what it saves and copies there.
//
//   Result<TransformerSpec> spec = transformer_spec(*job.spec.model.transformer);
//   Result<ForwardGraph> graph = lower_transformer(*spec, job.spec.training, {});
//
// A `TransformerPart` is what one trainer holds of it: with tensor, sequence, context and expert parallelism
// its share of each layer, with a pipeline some layers. Decisions:
// - Eager attention makes the matrix of scores; queries, keys and values lie token by token in memory, so batched
//   products copy them. SDPA and Flash take them as they lie, in one kernel without that matrix.
// - Sequences are as long as the spec says, without padding: the causal mask is the kernel's own.
// - Experts run grouped (transformers' grouped_mm), rows sorted by expert; tokens are taken to choose experts evenly.
// - Activation checkpointing computes each layer again as one block; PerModule: the modules whose paths match
//   ("layers.3", "layers.3.attention", "layers.3.mlp"; of an encoder and a decoder: "encoder.layers.3").
//
// Pure; any thread.
#pragma once

#include "base/budget.h"
#include "base/result.h"
#include "crds/training_job.h"
#include "estimator/spec/forward_graph.h"
#include "estimator/spec/transformer_spec.h"

namespace plimsoll::estimator::inline spec {

// What one trainer runs of a transformer.
struct TransformerPart {
  std::int64_t tensor = 1;  // trainers that split each layer
  bool sequence = false;    // ... and the tokens between the split parts
  std::int64_t context = 1;
  std::int64_t expert = 1;
  std::int64_t first_layer = 0;
  std::int64_t last_layer = -1;  // exclusive; -1: all
  bool embeds = true;            // holds the token embedding: a pipeline's first stage
  bool predicts = true;          // holds the head and computes the loss: its last
};

// Errors: kInvalid naming the field: a part that does not divide the model, checkpointModules that match
// nothing. Throws BudgetExceeded where there are too many layers for the budget.
Result<ForwardGraph> lower_transformer(const TransformerSpec& spec, const crds::TrainingSpec& training,
                                       const TransformerPart& part, Budget* budget = nullptr);

}  // namespace plimsoll::estimator::spec
