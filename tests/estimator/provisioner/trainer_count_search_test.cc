#include "estimator/provisioner/trainer_count_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/estimator/provisioner_fixture.h"

namespace plimsoll::estimator {
namespace {

using ::testing::HasSubstr;

class TrainerCount : public ::testing::Test {
 protected:
  // The first candidate of the job, with its bound.
  Candidate bounded(const Json& object, const std::vector<FailedSize>& failed = {}) {
    job_ = plimsoll::testing::decode(object);
    request_ = {.job = &job_, .gpus = &gpus_};
    search_.emplace(request_);
    search_->learn_from(failed);
    Candidates candidates = candidates_for(job_.spec, nullptr, original_request_of(job_), gpus_, failed);
    EXPECT_EQ(candidates.list.size(), 1U);
    const Result<void> bounded = search_->bound(candidates.list.front());
    EXPECT_TRUE(bounded.ok()) << bounded.error().message;
    return candidates.list.front();
  }

  const std::vector<AvailableGpu> gpus_ = {plimsoll::testing::available("A100-80GB", 64)};
  crds::TrainingJob job_;
  ProvisionRequest request_;
  std::optional<TrainerCountSearch> search_;
};

TEST_F(TrainerCount, FitsNowhereBelowItsBoundAndWithinTheGpu) {
  const Candidate candidate = bounded(plimsoll::testing::job_object(1000, 4'000'000));
  ASSERT_EQ(candidate.impossible, "");
  std::string why_not;
  const std::optional<Fit> fit = search_->run(candidate, candidate.most, why_not);
  ASSERT_TRUE(fit) << why_not;
  EXPECT_GE(fit->trainers, candidate.bound);
  EXPECT_LE(fit->estimate.peak.upper_bound, 80_GiB);
  EXPECT_EQ(fit->plan.ranks.size(), static_cast<std::size_t>(fit->trainers));
  EXPECT_FALSE(search_->run(candidate, fit->trainers - 8, why_not));
  EXPECT_NE(why_not, "");
}

TEST_F(TrainerCount, WhatAttemptsLackedIsAddedToTheEstimate) {
  const Json object = plimsoll::testing::job_object(1000, 4'000'000);
  const Candidate before = bounded(object);
  std::string why_not;
  const std::optional<Fit> first = search_->run(before, before.most, why_not);
  ASSERT_TRUE(first) << why_not;
  const FailedSize failed{"A100-80GB", first->trainers, 8, 80_GiB, first->estimate.peak.upper_bound + 4_GiB};
  const Candidate after = bounded(object, {failed});
  EXPECT_GT(after.least, first->trainers);
  const std::optional<Fit> second = search_->run(after, after.most, why_not);
  ASSERT_TRUE(second) << why_not;
  EXPECT_GT(second->trainers, first->trainers);
  EXPECT_GE(second->estimate.learned, 3_GiB);
}

TEST_F(TrainerCount, AModelThatExceedsAGpuIsImpossible) {
  Json object = plimsoll::testing::job_object(1, 1000);
  object["spec"]["model"]["dlrm"]["topMLP"][0] = 1'000'000;
  object["spec"]["model"]["dlrm"]["bottomMLP"][0] = 1'000'000;
  EXPECT_THAT(bounded(object).impossible, HasSubstr("the model without its embeddings exceeds"));
}

}  // namespace
}  // namespace plimsoll::estimator
