// lower_dhen(): the layers of DHEN (Zhang et al., arXiv 2203.11014, section 3) as operators, and the
// interactions that plain DLRMs also use.
//
//   std::int64_t features = 27;
//   TensorId y = lower_dhen(builder, model, x, &features);   // x: batch x features x width
//
// A layer is Norm(Ensemble(x) + ShortCut(x)). The ensemble concatenates, feature by feature, the results of
// the modules, `dhen.features` each:
// - Dot: products of each pair of features, through Linear, ReLU, Linear
// - DCN: one cross layer of DCN-v2 over the concatenation of all features, through a Linear
// - Linear: combinations of the features
// - Attention: multi-head self-attention over the features (one kernel), then combinations of them
// The shortcut is x, or combinations of its features if their number changes. The norm is a LayerNorm over
// the width of a feature. Combinations are a Linear over the features, which are transposed to the last
// dimension. Each layer is a block for activation checkpointing and a unit for FSDP. Internal to lower_dlrm.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "crds/training_job.h"
#include "estimator/spec/model_builder.h"

namespace plimsoll::estimator::inline spec {

// Errors: kInvalid naming the field.
Result<void> check_dhen(const crds::DlrmModel& model);

// `features`: number of features of x; set to that of the result.
TensorId lower_dhen(ModelBuilder& builder, const crds::DlrmModel& model, TensorId x, std::int64_t* features);

// x: batch x features x width. Result: batch x features (features - 1) / 2.
TensorId pairwise_products(ModelBuilder& builder, const std::string& name, TensorId x);

// x0 * (W x + b) + x; W = U V with `rank` columns if that is not 0 (DCN-v2, arXiv 2008.13535).
TensorId cross_layer(ModelBuilder& builder, const std::string& name, TensorId x0, TensorId x,
                     std::int64_t width, std::int64_t rank);

}  // namespace plimsoll::estimator::spec
