// lower_dlrm(): a DLRM spec as a graph of operators, as torchrec's DLRM and DLRM_DCN run it.
//
//   Result<ForwardGraph> graph = lower_dlrm(*job.spec.model.dlrm, job.spec.training);
//
// The operators, from the inputs to the loss:
// - Dense features go through the bottom MLP (Linear + ReLU each). The result d has the width of its last layer.
// - Embeddings are the pooled outputs of all tables, one buffer of batch x (sum of the tables' columns). It is split
//   into the tables' parts and concatenated again (the copies of SparseArch). The rows of a table with a sequence
//   length are not pooled: they are padded to that length (as torchrec's KeyedJaggedTensor.to_padded_dense does) and
//   summed before they join the pooled ones.
// - The interaction is one of these:
//   - Cat: [d, embeddings].
//   - DCN: [d, embeddings] through the cross layers of DCN-v2: x0 * (W (V x) + b) + x of rank `cross_rank`, or
//     x0 * (W x + b) + x if that is 0.
//   - DCNv1: the same with vectors, x0 * (w x) + b + x (arXiv 1708.05123).
//   - DHEN: layers of several interactions (dhen.h); all features have the width of d, as for Dot.
//   - Dot: [d, products of each pair of features]. All features must have the width of d: tables of another width
//     are projected by a Linear without bias, as DLRM's mixed-dimension embeddings are (arXiv 1909.11810;
//     facebookresearch/dlrm projects only narrower tables, this code projects all).
// - Its result goes through the top MLP (Linear + ReLU, the last without ReLU) and BCEWithLogits.
//
// Tables of equal width form one group, so the graph has about forty operators even for thousands of tables.
// The precision is lowered too: under mixed precision, the casts of autocast are operators of the graph (a
// 16-bit copy of each weight, cached until backward has used it). Under pure BF16, everything is BF16. Tables
// produce fp32 outputs except under pure BF16 (torchrec's default output type). The tables themselves are not
// part of the graph: the sharder places them.
//
// Blocks that activation checkpointing recomputes: the bottom MLP, Dot's products, each cross layer and DHEN
// layer, and the top MLP. Lookup, projection and concatenation belong to no block. Pure; any thread.
#pragma once

#include "base/result.h"
#include "crds/training_job.h"
#include "estimator/spec/forward_graph.h"

namespace plimsoll::estimator::inline spec {

// Maximum dimension of a model; sums of such widths do not overflow.
inline constexpr std::int64_t kMaxModelDim = std::int64_t{1} << 32;

// Errors: kInvalid naming the field: a dimension below 1 or above kMaxModelDim, an empty top MLP, a Dot
// interaction without bottom MLP, more than crds::kMaxEmbeddingTables tables. Throws BudgetExceeded.
Result<ForwardGraph> lower_dlrm(const crds::DlrmModel& model, const crds::TrainingSpec& training,
                                Budget* budget = nullptr);

}  // namespace plimsoll::estimator::spec
