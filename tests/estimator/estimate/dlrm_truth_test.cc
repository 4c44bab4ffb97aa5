// DCN-v1, sequences of embeddings and DHEN on the CPU against real PyTorch (PyPI's 2.15.0, one thread): the
// peak of one steady-state iteration, as tests/accuracy/dlrm_truth.py --newer measures it.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "estimator/estimate/estimate.h"

namespace plimsoll::estimator {
namespace {

using crds::DhenModule;
using crds::Interaction;
using crds::Optimizer;

struct Tables {
  std::int64_t dim = 0;
  std::int64_t count = 0;
};
struct Sequences {
  std::int64_t dim = 0;
  std::int64_t length = 0;
  std::int64_t count = 0;
};

struct Truth {
  const char* name;
  std::int64_t batch;
  Interaction interaction;
  std::vector<Tables> tables;
  std::vector<Sequences> sequences;
  std::vector<DhenModule> modules;
  Optimizer optimizer;
  std::int64_t bytes;
};

const std::vector<Truth>& truths() {
  static const std::vector<Truth> kTruth = {
      {"dcn-v1", 1024, Interaction::kDCNv1, {{64, 10}}, {}, {}, Optimizer::kSGD, 20233232},
      {"dcn-v1", 256, Interaction::kDCNv1, {{32, 4}, {64, 8}}, {}, {}, Optimizer::kAdagrad, 7041812},
      {"sequences", 512, Interaction::kCat, {{64, 6}}, {{64, 50, 3}}, {}, Optimizer::kSGD, 42711312},
      {"sequences",
       512,
       Interaction::kDCN,
       {{64, 6}},
       {{32, 20, 2}, {64, 100, 1}},
       {},
       Optimizer::kSGD,
       37318416},
      {"sequences", 256, Interaction::kDot, {{64, 6}}, {{64, 50, 2}}, {}, Optimizer::kSGD, 14394192},
      {"dhen-linear",
       512,
       Interaction::kDHEN,
       {{64, 15}},
       {},
       {DhenModule::kLinear},
       Optimizer::kSGD,
       15023492},
      {"dhen-dot", 512, Interaction::kDHEN, {{64, 15}}, {}, {DhenModule::kDot}, Optimizer::kSGD, 21497392},
      {"dhen-dcn", 512, Interaction::kDHEN, {{64, 15}}, {}, {DhenModule::kDCN}, Optimizer::kSGD, 29950768},
      {"dhen-attn",
       512,
       Interaction::kDHEN,
       {{64, 15}},
       {},
       {DhenModule::kAttention},
       Optimizer::kSGD,
       35919824},
      {"dhen",
       512,
       Interaction::kDHEN,
       {{64, 15}},
       {},
       {DhenModule::kDot, DhenModule::kLinear},
       Optimizer::kSGD,
       34442224},
      {"dhen",
       2048,
       Interaction::kDHEN,
       {{64, 15}},
       {},
       {DhenModule::kDot, DhenModule::kLinear, DhenModule::kDCN},
       Optimizer::kSGD,
       253811152},
      {"dhen",
       512,
       Interaction::kDHEN,
       {{64, 31}},
       {{64, 50, 1}},
       {DhenModule::kDot, DhenModule::kDCN, DhenModule::kLinear, DhenModule::kAttention},
       Optimizer::kAdam,
       238145720},
      {"dhen",
       64,
       Interaction::kDHEN,
       {{64, 31}},
       {},
       {DhenModule::kAttention, DhenModule::kLinear},
       Optimizer::kAdam,
       14481944},
  };
  return kTruth;
}

TEST(DlrmTruth, NewerInteractionsMeetRealPyTorch) {
  for (const Truth& truth : truths()) {
    crds::DlrmModel dlrm;
    dlrm.dense_features = 13;
    dlrm.bottom_mlp = {256, 64};
    dlrm.top_mlp = {256, 1};
    dlrm.interaction = truth.interaction;
    dlrm.cross_layers = 3;
    if (truth.interaction == Interaction::kDHEN) {
      dlrm.cross_rank = 128;
      dlrm.dhen = crds::DhenStack{.layers = 3, .features = 8, .modules = truth.modules, .heads = 4};
    }
    std::int64_t indices = 0;
    for (const Tables& group : truth.tables) {
      dlrm.tables.push_back({.name = "t", .count = group.count, .rows = 1000, .dim = group.dim});
      indices += 2 * group.count;  // and an offset each
    }
    for (const Sequences& group : truth.sequences) {
      dlrm.tables.push_back({.name = "s",
                             .count = group.count,
                             .rows = 1000,
                             .dim = group.dim,
                             .pooling_factor = static_cast<double>(group.length),
                             .sequence_length = group.length});
      indices += (group.length + 1) * group.count;
    }
    crds::ModelSpec model;
    model.dlrm = dlrm;
    crds::TrainingSpec training;
    training.batch_size_per_trainer = truth.batch;
    training.optimizer = truth.optimizer;
    const Result<Estimate> estimate =
        estimate_memory({.model = &model, .training = &training, .device = Device::kCpu});
    ASSERT_TRUE(estimate.ok()) << to_string(estimate.error());
    // The measured run has no indices: its embeddings are constant inputs.
    const std::int64_t estimated = estimate->peak.allocated.count - truth.batch * indices * 8;
    const double error =
        100.0 * static_cast<double>(estimated - truth.bytes) / static_cast<double>(truth.bytes);
    std::printf("%-12s batch %5ld  measured %10ld  estimated %10ld  error %+6.2f%%  peak in %s\n", truth.name,
                static_cast<long>(truth.batch), static_cast<long>(truth.bytes), static_cast<long>(estimated),
                error, estimate->peak_phase.c_str());
    EXPECT_LT(std::abs(error), 1.0) << truth.name << " batch " << truth.batch;
  }
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
  // Without tables there is one feature and no pair.
  crds::DlrmModel alone = stack_of({DhenModule::kDot, DhenModule::kAttention});
  alone.tables.clear();
  EXPECT_TRUE(estimate_of(alone).ok());
}

}  // namespace
}  // namespace plimsoll::estimator
