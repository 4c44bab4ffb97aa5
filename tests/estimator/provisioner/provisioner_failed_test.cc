// What earlier attempts that ran out of memory teach the provisioner.
#include <gmock/gmock.h>

#include "estimator/provisioner/patch.h"
#include "tests/estimator/provisioner_fixture.h"

namespace plimsoll::estimator {
namespace {

using plimsoll::testing::available;
using plimsoll::testing::Cluster;
using plimsoll::testing::decode;
using plimsoll::testing::job_object;
using ::testing::HasSubstr;

constexpr std::int64_t kGiBOfRows = 2'097'152;  // rows of 128 FP32 columns in a GiB

class ProvisionerFailed : public ::testing::Test {
 protected:
  Provision ask(std::vector<FailedSize> failed) const {
    return provision({.job = &job_, .gpus = &cluster_, .failed = std::move(failed)});
  }
  Bytes card() const { return cluster_.front().model.memory; }

  crds::TrainingJob job_ = decode(job_object(100, kGiBOfRows));
  Cluster cluster_ = {available("A100-40GB", 32)};
};

TEST_F(ProvisionerFailed, WhatWasMissingIsAddedToTheEstimate) {
  const Provision before = ask({});
  ASSERT_TRUE(before.decided());
  const FailedSize failed{"A100-40GB", before.decision->trainers, before.decision->per_node, card(),
                          card() + 4_GiB};
  const Bytes missing = failed.needed - before.decision->estimate.peak.upper_bound;
  const Provision after = ask({failed});
  ASSERT_TRUE(after.decided()) << after.reason;
  const Decision& decision = *after.decision;
  EXPECT_GT(decision.trainers, before.decision->trainers);
  EXPECT_EQ(decision.estimate.breakdown.total(), decision.estimate.peak.upper_bound);
  EXPECT_GE(decision.estimate.breakdown.allocator_slack, missing);
  EXPECT_LE(decision.estimate.peak.upper_bound,
            card() - Bytes::ceil(0.05 * static_cast<double>(card().count)));
  EXPECT_LT(decision.plan.max_memory + missing, before.decision->plan.max_memory + missing);
}

TEST_F(ProvisionerFailed, ASizeWithoutFiguresIsRuledOutAlone) {
  const std::int64_t first = ask({}).decision->trainers;
  const Provision after = ask({{"a100-40gb", first, 8, card(), Bytes{}}});
  ASSERT_TRUE(after.decided()) << after.reason;
  EXPECT_EQ(after.decision->trainers, first + 1) << "whatever the case of the name";
}

TEST_F(ProvisionerFailed, LargerCardsRuleOutSmallerOnesAndNotTheOtherWayRound) {
  cluster_.push_back(available("A100-80GB", 32));
  job_.spec.provisioning.gpu_models = {"A100-40GB"};
  const Provision after_larger = ask({{"A100-80GB", 12, 8, 80_GiB, Bytes{}}});
  ASSERT_TRUE(after_larger.decided()) << after_larger.reason;
  EXPECT_EQ(after_larger.decision->trainers, 16) << "more than 12, in whole nodes";
  job_.spec.provisioning.gpu_models = {"A100-80GB"};
  const std::int64_t plain = ask({}).decision->trainers;
  EXPECT_EQ(ask({{"A100-40GB", 64, 8, 40_GiB, Bytes{}}}).decision->trainers, plain);
}

TEST_F(ProvisionerFailed, AModelThatIsGoneStillTeaches) {
  const std::int64_t first = ask({}).decision->trainers;
  const Provision after = ask({{"some GPU", 2, 2, card(), card() + 4_GiB}});
  ASSERT_TRUE(after.decided()) << after.reason;
  EXPECT_GT(after.decision->trainers, first);
}

TEST_F(ProvisionerFailed, NoCountIsLeft) {
  job_.spec.provisioning.max_trainers = 8;
  const Provision answer = ask({{"A100-40GB", 8, 8, card(), card() + 1_GiB}});
  EXPECT_FALSE(answer.decided());
  EXPECT_EQ(answer.event_reason, "NoFittingGPU");
  EXPECT_THAT(answer.reason, HasSubstr("out of memory on 8 trainers before"));
  EXPECT_THAT(answer.reason, HasSubstr("maxTrainers 8 leaves no larger count"));
}

TEST_F(ProvisionerFailed, NothingHoldsAnAbsurdNeed) {
  const Provision answer = ask({{"A100-40GB", 8, 8, card(), Bytes::max()}});
  EXPECT_FALSE(answer.decided());
  EXPECT_EQ(answer.event_reason, "NoFittingGPU");
  EXPECT_THAT(answer.reason, HasSubstr("which attempts needed beyond their estimate"));
}

// More trainers take as much before the first forward pass: only a larger card helps.
TEST_F(ProvisionerFailed, OutOfMemoryDuringStartUpTakesALargerCard) {
  const FailedSize failed{.gpu_model = "A100-40GB",
                          .trainers = 8,
                          .per_node = 8,
                          .capacity = card(),
                          .needed = 44_GiB,
                          .in_startup = true};
  const Provision none = ask({failed});
  EXPECT_FALSE(none.decided());
  EXPECT_THAT(none.reason,
              HasSubstr("start-up, before the first forward pass, takes 44.0 GiB on any number of "
                        "trainers"));
  cluster_.push_back(available("A100-80GB", 32));
  const Provision larger = ask({failed});
  ASSERT_TRUE(larger.decided()) << larger.reason;
  EXPECT_EQ(larger.decision->gpu_model, "A100-80GB");
}

TEST_F(ProvisionerFailed, WhatStartUpTookBeforeSizesTheNextJobOfTheFamily) {
  cluster_.push_back(available("A100-80GB", 32));
  job_ = decode(job_object(1, kGiBOfRows, 8));
  const std::string plain = ask({}).decision->gpu_model;
  EXPECT_EQ(plain, "A100-40GB");
  crds::MemoryProfile profile;
  for (const char* model : {"A100-40GB", "A100-80GB"}) {
    crds::LearnedBounds bounds;
    bounds.gpu_model = model;
    bounds.startup = 60_GiB;
    profile.bounds.push_back(bounds);
  }
  const Provision learned = provision({.job = &job_, .gpus = &cluster_, .profile = &profile});
  ASSERT_TRUE(learned.decided()) << learned.reason;
  EXPECT_EQ(learned.decision->gpu_model, "A100-80GB");
  EXPECT_EQ(learned.decision->estimate.peak.upper_bound, 60_GiB);
  EXPECT_EQ(learned.decision->estimate.breakdown.total(), 60_GiB);
}

TEST_F(ProvisionerFailed, UnestimatedMeansMinTrainers) {
  job_.spec.provisioning.min_trainers = 20;
  const Provision answer = provision({.job = &job_, .gpus = &cluster_, .unestimated = true});
  ASSERT_TRUE(answer.decided()) << answer.reason;
  EXPECT_EQ(answer.decision->trainers, 24) << "in whole nodes";
  EXPECT_EQ(answer.decision->estimate.peak.upper_bound, Bytes{});
  EXPECT_EQ(write_json(patch_for(job_, answer)).find("upperBoundBytes"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll::estimator
