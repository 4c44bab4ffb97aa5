// The estimate on the CPU against real PyTorch (Debian's python3-torch 1.13.0, one thread, CPU): the
// peak of one steady-state iteration of DLRM's dense part, as tests/accuracy/dlrm_truth.py measures it.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "estimator/estimate/estimate.h"

namespace plimsoll::estimator {
namespace {

using crds::Interaction;
using crds::Optimizer;

struct Tables {
  std::int64_t dim = 0;
  std::int64_t count = 0;
};

struct Truth {
  const char* name;
  std::int64_t batch;
  std::int64_t dense_features;
  std::vector<std::int64_t> bottom_mlp;
  std::vector<Tables> tables;
  Interaction interaction;
  std::int64_t cross_rank;
  std::vector<std::int64_t> top_mlp;
  Optimizer optimizer;
  std::int64_t bytes;
};

const std::vector<Truth>& truths() {
  static const std::vector<Truth> kTruth = {
      {"mlp", 64, 512, {1024, 256}, {}, Interaction::kCat, 0, {128, 1}, Optimizer::kSGD, 6959376},
      {"mlp", 4096, 512, {1024, 256}, {}, Interaction::kCat, 0, {128, 1}, Optimizer::kSGD, 63201296},
      {"mlp", 64, 512, {1024, 256}, {}, Interaction::kCat, 0, {128, 1}, Optimizer::kAdam, 17457436},
      {"cat",
       512,
       13,
       {512, 256, 64},
       {{64, 26}},
       Interaction::kCat,
       0,
       {512, 256, 1},
       Optimizer::kAdagrad,
       23300628},
      {"cat",
       8192,
       13,
       {512, 256, 64},
       {{32, 6}, {64, 6}, {128, 6}},
       Interaction::kCat,
       0,
       {512, 256, 1},
       Optimizer::kSGD,
       144217360},
      {"dot",
       128,
       13,
       {512, 256, 128},
       {{128, 26}},
       Interaction::kDot,
       0,
       {1024, 1024, 512, 256, 1},
       Optimizer::kSGD,
       24664064},
      {"dot",
       2048,
       13,
       {512, 256, 128},
       {{128, 26}},
       Interaction::kDot,
       0,
       {1024, 1024, 512, 256, 1},
       Optimizer::kSGD,
       120556544},
      {"dot",
       2048,
       13,
       {512, 256, 128},
       {{128, 26}},
       Interaction::kDot,
       0,
       {1024, 1024, 512, 256, 1},
       Optimizer::kMomentum,
       130032132},
      {"dot",
       128,
       13,
       {512, 256, 128},
       {{128, 26}},
       Interaction::kDot,
       0,
       {1024, 1024, 512, 256, 1},
       Optimizer::kAdam,
       46307852},
      {"dot-mixed",
       1024,
       13,
       {512, 64},
       {{16, 8}, {32, 4}, {64, 6}},
       Interaction::kDot,
       0,
       {512, 256, 1},
       Optimizer::kSGD,
       24669120},
      {"dcn",
       256,
       13,
       {512, 256, 128},
       {{128, 26}},
       Interaction::kDCN,
       512,
       {1024, 1024, 512, 256, 1},
       Optimizer::kAdagrad,
       206718488},
      {"dcn",
       1024,
       13,
       {512, 256, 128},
       {{128, 26}},
       Interaction::kDCN,
       512,
       {1024, 1024, 512, 256, 1},
       Optimizer::kAdagrad,
       286774804},
      {"dcn-full",
       1024,
       13,
       {128, 32},
       {{32, 10}},
       Interaction::kDCN,
       0,
       {256, 1},
       Optimizer::kRMSprop,
       18302868},
  };
  return kTruth;
}

TEST(MemoryTruth, TheEstimateOnTheCpuMeetsRealPyTorch) {
  for (const Truth& truth : truths()) {
    crds::DlrmModel dlrm;
    dlrm.dense_features = truth.dense_features;
    dlrm.bottom_mlp = truth.bottom_mlp;
    dlrm.top_mlp = truth.top_mlp;
    dlrm.interaction = truth.interaction;
    dlrm.cross_layers = 3;
    dlrm.cross_rank = truth.cross_rank;
    std::int64_t tables = 0;
    for (const Tables& group : truth.tables) {
      dlrm.tables.push_back({.name = "t", .count = group.count, .rows = 1000, .dim = group.dim});
      tables += group.count;
    }
    crds::ModelSpec model;
    model.dlrm = dlrm;
    crds::TrainingSpec training;
    training.batch_size_per_trainer = truth.batch;
    training.optimizer = truth.optimizer;
    const EstimateRequest request{.model = &model, .training = &training, .device = Device::kCpu};

    const Result<Estimate> estimate = estimate_memory(request);
    ASSERT_TRUE(estimate.ok()) << to_string(estimate.error());
    // The measured run has no indices: its pooled embeddings are constant inputs. Here one table needs an
    // index and an offset per sample.
    const std::int64_t estimated = estimate->peak.allocated.count - truth.batch * tables * 2 * 8;
    const double error =
        100.0 * static_cast<double>(estimated - truth.bytes) / static_cast<double>(truth.bytes);
    std::printf("%-9s batch %5ld  measured %10ld  estimated %10ld  error %+6.2f%%  peak in %s\n", truth.name,
                static_cast<long>(truth.batch), static_cast<long>(truth.bytes), static_cast<long>(estimated),
                error, estimate->peak_phase.c_str());
    EXPECT_LT(std::abs(error), 0.05) << truth.name << " batch " << truth.batch;
  }
}

}  // namespace
}  // namespace plimsoll::estimator
