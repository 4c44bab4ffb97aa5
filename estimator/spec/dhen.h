// lower_dhen(): the layers of DHEN (Zhang et al., arXiv 2203.11014, section 3) as operators, and the
// interactions that they share with plain DLRMs.
//
//   std::int64_t features = 27;
//   TensorId y = lower_dhen(builder, model, x, &features);   // x: batch x features x width
//
// A layer: Norm(Ensemble(x) + ShortCut(x)). The ensemble puts side by side, feature by feature, what the
// modules give, `dhen.features` each:
// - Dot: products of each pair of features, through Linear, ReLU, Linear
// - DCN: one cross layer of DCN-v2 over all features side by side, through a Linear
// - Linear: combinations of the features
// - Attention: multi-head self-attention among the features (one kernel), then combinations of them
// The shortcut is x, or combinations of its features where their number changes; the norm is a LayerNorm over
// a feature's width. Combinations are a Linear over the features, which are brought to the last dimension.
// Each layer is a block for activation checkpointing and a unit for FSDP. Internal to lower_dlrm.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "crds/training_job.h"
#include "estimator/spec/model_builder.h"

namespace plimsoll::estimator::inline spec {

// Errors: kInvalid naming the field.
Result<void> check_dhen(const crds::DlrmModel& model);

// `features`: of x; afterwards of the result.
TensorId lower_dhen(ModelBuilder& builder, const crds::DlrmModel& model, TensorId x, std::int64_t* features);

// Of x, batch x features x width: batch x features (features - 1) / 2.
TensorId pairwise_products(ModelBuilder& builder, const std::string& name, TensorId x);

// x0 * (W x + b) + x, with W = U V of `rank` where that is not 0 (DCN-v2, arXiv 2008.13535).
TensorId cross_layer(ModelBuilder& builder, const std::string& name, TensorId x0, TensorId x,
                     std::int64_t width, std::int64_t rank);

}  // namespace plimsoll::estimator::spec
