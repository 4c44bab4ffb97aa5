// lower_transformer(): a transformer as a graph of operators, exactly as Hugging Face's modelling code runs
// it (transformers 5, file models/<family>/modeling_<family>.py), so that autograd saves and copies the same
// tensors.
//
//   Result<TransformerSpec> spec = transformer_spec(*job.spec.model.transformer);
//   Result<ForwardGraph> graph = lower_transformer(*spec, job.spec.training, {});
//
// A `TransformerPart` is the part of the model on one trainer: with tensor, sequence, context and expert
// parallelism its share of each layer, with a pipeline some of the layers. Decisions:
// - Eager attention allocates the score matrix. Queries, keys and values are stored token by token, so batched
//   products copy them. SDPA and Flash use them without a copy, in one kernel without that matrix.
// - Sequences have the spec's length, without padding: the kernel computes the causal mask itself.
// - Experts run grouped (transformers' grouped_mm), with rows sorted by expert; tokens are assumed to be distributed
//   evenly over the experts.
// - Activation checkpointing recomputes each layer as one block. PerModule recomputes the modules whose paths match
//   ("layers.3", "layers.3.attention", "layers.3.mlp"; in an encoder-decoder: "encoder.layers.3").
//
// Pure; any thread.
#pragma once

#include "base/budget.h"
#include "base/result.h"
#include "crds/training_job.h"
#include "estimator/spec/forward_graph.h"
#include "estimator/spec/transformer_spec.h"
#include "estimator/transformer/transformer_part.h"

namespace plimsoll::estimator::inline transformer {

// Errors: kInvalid naming the field: sizes of the part that do not divide the model, checkpointModules that
// match nothing. Throws BudgetExceeded if there are too many layers for the budget.
Result<ForwardGraph> lower_transformer(const TransformerSpec& spec, const crds::TrainingSpec& training,
                                       const TransformerPart& part, Budget* budget = nullptr);

}  // namespace plimsoll::estimator::transformer
