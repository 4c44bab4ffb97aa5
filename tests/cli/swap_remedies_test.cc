#include "cli/swap_remedies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plimsoll::cli {
namespace {

using estimator::Remedy;
using ::testing::HasSubstr;

struct Answered {
  crds::TrainingSpec training;
  estimator::RemedySearch search;
  estimator::RemedyAnswer answer;

  Answered() {
    training.batch_size_per_trainer = 8;
    search.job.training = &training;
    search.job.trainers = 4;
    Remedy& requested = answer.as_requested;
    requested.setting = {.trainers = 4, .batch_size = 8};
    requested.device = 60_GiB;
    requested.seconds = 1;
    answer.considered = 20;
    answer.estimated = 3;
  }
};

TEST(SwapRemedies, SaysWhatEachChanges) {
  Answered given;
  Remedy more = given.answer.as_requested;
  more.setting.trainers = 8;
  more.setting.batch_size = 4;
  more.seconds = 0.6;
  given.answer.more_gpus = more;
  Remedy all = more;
  all.setting.accumulation = 2;
  all.setting.checkpointing = crds::ActivationCheckpointing::kFull;
  all.setting.offload = crds::Offload::kOptimizer;
  all.setting.offload_percent = 30;
  given.answer.best = all;
  const std::string text = remedies_text(given.search, given.answer);
  EXPECT_THAT(text, HasSubstr("as requested           nothing"));
  EXPECT_THAT(text, HasSubstr("does not fit"));
  EXPECT_THAT(text, HasSubstr("recomputation          -"));
  EXPECT_THAT(text, HasSubstr("does not suffice"));
  EXPECT_THAT(text, HasSubstr("more GPUs              8 GPUs"));
  EXPECT_THAT(text, HasSubstr("activationCheckpointing: Full, offload: Optimizer, offloadPercent: 30, "
                              "gradientAccumulation: 2, 8 GPUs"));
  EXPECT_THAT(text, HasSubstr("41.7")) << "0.6 s of 8 GPUs for 32 samples";
  EXPECT_THAT(text, HasSubstr("of 20 settings, the memory of 3 was estimated"));
}

TEST(SwapRemedies, WhatDoesNotFitIsNullForPrograms) {
  const Answered given;
  const JsonObject object = remedies_json(given.answer);
  const Json& json = object.json();
  EXPECT_TRUE(json["together"].isNull());
  EXPECT_TRUE(json["offload"].isNull());
  EXPECT_FALSE(json["fitsAsRequested"].asBool());
  EXPECT_EQ(json["asRequested"]["gpus"].asInt(), 4);
  EXPECT_EQ(json["asRequested"]["offloadPercent"].asInt(), 0);
  EXPECT_DOUBLE_EQ(json["asRequested"]["gpuSeconds"].asDouble(), 4);
  EXPECT_EQ(json["considered"].asInt(), 20);
}

}  // namespace
}  // namespace plimsoll::cli
