// DLRM and DHEN on the CPU against real PyTorch: the highest point of one steady-state iteration, as
// tests/accuracy/dlrm_truth.py measures it.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "estimator/estimate/estimate.h"
#include "tests/estimator/data_files.h"

namespace plimsoll::estimator {
namespace {

using crds::DhenModule;
using crds::Interaction;

// Errors of all estimates are below `percent`.
void expect_estimates_within(double percent, const std::string& file) {
  for (const testing::MeasuredRun& run : testing::measured_runs(file)) {
    const std::int64_t batch = run.spec.training.batch_size_per_trainer;
    const Result<Estimate> estimate =
        estimate_memory({.model = &run.spec.model, .training = &run.spec.training, .device = Device::kCpu});
    ASSERT_TRUE(estimate.ok()) << to_string(estimate.error());
    // The measured run has no indices; the estimate has one per lookup, and offsets.
    std::int64_t indices = 0;
    for (const crds::EmbeddingTable& table : run.spec.model.dlrm->tables) {
      indices += (table.sequence_length > 0 ? table.sequence_length + 1 : 2) * table.count;
    }
    const std::int64_t estimated = estimate->peak.allocated.count - batch * indices * 8;
    const double error = 100.0 * static_cast<double>(estimated - run.bytes) / static_cast<double>(run.bytes);
    std::printf("%-12s batch %5ld  measured %10ld  estimated %10ld  error %+6.2f%%  peak in %s\n",
                run.name.c_str(), static_cast<long>(batch), static_cast<long>(run.bytes),
                static_cast<long>(estimated), error, estimate->peak_phase.c_str());
    EXPECT_LT(std::abs(error), percent) << run.name << " batch " << batch;
  }
}

TEST(MemoryTruth, TheEstimateOnTheCpuMeetsRealPyTorch) {
  expect_estimates_within(0.05, "estimate/dlrm_torch1.yaml");
}

TEST(DlrmTruth, NewerInteractionsMeetRealPyTorch) {
  expect_estimates_within(1.0, "estimate/dlrm_torch2.yaml");
}

crds::DlrmModel stack_of(std::vector<DhenModule> modules) {
  crds::DlrmModel dlrm;
  dlrm.bottom_mlp = {64};
  dlrm.top_mlp = {1};
  dlrm.interaction = Interaction::kDHEN;
  dlrm.dhen = crds::DhenStack{.layers = 2, .features = 4, .modules = std::move(modules), .heads = 4};
  dlrm.tables = {{.name = "t", .count = 5, .rows = 10, .dim = 16}};
  return dlrm;
}

Result<Estimate> estimate_of(const crds::DlrmModel& dlrm) {
  crds::ModelSpec model;
  model.dlrm = dlrm;
  crds::TrainingSpec training;
  training.batch_size_per_trainer = 32;
  return estimate_memory({.model = &model, .training = &training, .device = Device::kCpu});
}

TEST(Dhen, WhatCannotBeIsRefusedByName) {
  crds::DlrmModel missing = stack_of({DhenModule::kDot});
  missing.dhen.reset();
  crds::DlrmModel empty = stack_of({});
  crds::DlrmModel odd = stack_of({DhenModule::kAttention});
  odd.dhen->heads = 7;
  crds::DlrmModel headless = stack_of({DhenModule::kAttention});
  headless.dhen->heads = 0;
  crds::DlrmModel negative = stack_of({DhenModule::kDot});
  negative.dhen->layers = -1;
  crds::DlrmModel bottomless = stack_of({DhenModule::kDot});
  bottomless.bottom_mlp.clear();
  crds::DlrmModel endless = stack_of({DhenModule::kDot});
  endless.tables.front().sequence_length = -3;
  const std::pair<const char*, crds::DlrmModel> cases[] = {
      {"dhen is missing", missing}, {"dhen: layers", empty},    {"dhen.heads", odd},
      {"dhen.heads", headless},     {"dhen: layers", negative}, {"bottomMLP", bottomless},
      {"sequenceLength", endless}};
  for (const auto& [what, model] : cases) {
    const Result<Estimate> estimate = estimate_of(model);
    ASSERT_FALSE(estimate.ok()) << what;
    EXPECT_NE(estimate.error().message.find(what), std::string::npos) << estimate.error().message;
  }
  // Without tables there is one feature, and no pair.
  crds::DlrmModel alone = stack_of({DhenModule::kDot, DhenModule::kAttention});
  alone.tables.clear();
  EXPECT_TRUE(estimate_of(alone).ok());
}

}  // namespace
}  // namespace plimsoll::estimator
