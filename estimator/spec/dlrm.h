// lower_dlrm(): a DLRM spec as an operator graph, the way torchrec's DLRM and DLRM_DCN run it.
//
//   Result<ForwardGraph> graph = lower_dlrm(*job.spec.model.dlrm, job.spec.training);
//
// The operators, from the inputs to the loss:
// - Dense features go through the bottom MLP (Linear + ReLU each) and give d, as wide as the MLP's last layer.
// - Embeddings are the pooled outputs of all tables, one buffer of batch x (sum of the tables' columns). It is split
//   into the tables' parts and concatenated again (the copies of SparseArch). A table with a sequence length sends
//   its rows as they are: they are padded to that length (as torchrec's KeyedJaggedTensor.to_padded_dense does) and
//   summed before they join the pooled ones.
// - The interaction is one of these:
//   - Cat: [d, embeddings].
//   - DCN: [d, embeddings] through the cross layers of DCN-v2: x0 * (W (V x) + b) + x of rank `cross_rank`, and
//     x0 * (W x + b) + x where that is 0.
//   - DCNv1: the same with vectors, x0 * (w x) + b + x (arXiv 1708.05123).
//   - DHEN: layers of several interactions (dhen.h); as wide as d, as for Dot.
//   - Dot: [d, products of each pair of features]. All features must be as wide as d: tables that are not are
//     projected by a Linear without bias each, as DLRM's mixed-dimension embeddings are (arXiv 1909.11810;
//     facebookresearch/dlrm projects narrower tables only, we any).
// - Its result goes through the top MLP (Linear + ReLU, the last without) and BCEWithLogits.
//
// Tables of equal width become one group, so the graph stays some forty operators for thousands of tables.
// The precision is lowered too: under mixed precision the casts that autocast makes are operators of the
// graph (a half copy of each weight, cached until backward has used it); pure BF16 is BF16 throughout; tables
// feed fp32 outputs to all but pure BF16 (torchrec's default output type). The tables themselves are the
// sharder's.
//
// Blocks that activation checkpointing computes again as one: the bottom MLP, Dot's products, each cross
// layer and layer of DHEN, the top MLP. Looking up, projecting and putting side by side belong to none.
//
// Pure; any thread.
#pragma once

#include "base/result.h"
#include "crds/training_job.h"
#include "estimator/spec/forward_graph.h"

namespace plimsoll::estimator::inline spec {

// No dimension of a model is larger; with it no sum of widths can overflow.
inline constexpr std::int64_t kMaxModelDim = std::int64_t{1} << 32;

// Errors: kInvalid naming the field: a dimension below 1 or above kMaxModelDim, an empty top MLP, a Dot
// interaction without bottom MLP, more than crds::kMaxEmbeddingTables tables. Throws BudgetExceeded.
Result<ForwardGraph> lower_dlrm(const crds::DlrmModel& model, const crds::TrainingSpec& training,
                                Budget* budget = nullptr);

}  // namespace plimsoll::estimator::spec
