#include "estimator/provisioner/size_exclusion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plimsoll::estimator {
namespace {

using crds::Attempt;
using crds::Outcome;

AvailableGpu gpu(const std::string& name, Bytes memory) {
  AvailableGpu made;
  made.model.name = name;
  made.model.memory = memory;
  return made;
}

TEST(FailedSizes, MemoryThatPyTorchDidNotSeeIsMissingNextTime) {
  const crds::FailurePolicy policy;
  Attempt attempt{.number = 0};
  attempt.out_of_memory.capacity = 39_GiB;
  attempt.out_of_memory.needed = 40_GiB;
  EXPECT_EQ(needed_at_least(attempt, 40_GiB, policy), 41_GiB);
  attempt.out_of_memory.capacity = 90_GiB;
  EXPECT_EQ(needed_at_least(attempt, 40_GiB, policy), 40_GiB + 1_B) << "at least more than there is";
  attempt.out_of_memory.needed.reset();
  EXPECT_EQ(needed_at_least(attempt, 40_GiB, policy), 48_GiB);
  attempt.observed_peak = 50_GiB;
  EXPECT_EQ(needed_at_least(attempt, 40_GiB, policy), 60_GiB);
  EXPECT_EQ(needed_at_least(Attempt{}, 100_MiB, policy), 200_MiB);
  attempt.out_of_memory.needed = Bytes::max();
  EXPECT_EQ(needed_at_least(attempt, 40_GiB, policy), Bytes::max());
}

TEST(FailedSizes, RuleOutEverySizeThatIsNotLarger) {
  const std::vector<FailedSize> failed = {{"A100-40GB", 16, 8, 40_GiB, 41_GiB},
                                          {"V100-32GB", 24, 8, 32_GiB, {}}};
  EXPECT_EQ(trainers_ruled_out(failed, gpu("A100-40GB", 40_GiB)), 16);
  EXPECT_EQ(trainers_ruled_out(failed, gpu("a100-40gb", 48_GiB)), 16)
      << "the same model, whatever it reports";
  EXPECT_EQ(trainers_ruled_out(failed, gpu("V100-32GB", 32_GiB)), 24);
  EXPECT_EQ(trainers_ruled_out(failed, gpu("T4", 16_GiB)), 24) << "smaller GPUs hold less";
  EXPECT_EQ(trainers_ruled_out(failed, gpu("H100-80GB", 80_GiB)), 0);
  EXPECT_EQ(trainers_ruled_out({}, gpu("T4", 16_GiB)), 0);
}

TEST(FailedSizes, AreTheAttemptsThatRanOutOfMemoryOrCouldNotBeSharded) {
  crds::TrainingJob job;
  job.spec.trainers.replicas = 4;
  std::vector<Attempt> attempts;
  for (const Outcome outcome : {Outcome::kCudaOutOfMemory, Outcome::kPreempted, Outcome::kShardingFailure,
                                Outcome::kUserError, Outcome::kHostOutOfMemory}) {
    attempts.push_back({.number = static_cast<std::int64_t>(attempts.size()),
                        .gpu_model = "no such GPU",
                        .trainers = outcome == Outcome::kShardingFailure ? 8 : 0,
                        .outcome = outcome});
  }
  const std::vector<FailedSize> failed = failed_sizes(job, attempts, {gpu("A", 10_GiB), gpu("B", 30_GiB)});
  ASSERT_EQ(failed.size(), 2U);
  EXPECT_EQ(failed[0].trainers, 4) << "an attempt without a recorded size ran on the spec's";
  EXPECT_EQ(failed[0].capacity, 30_GiB) << "an unknown model may have been the largest";
  EXPECT_GT(failed[0].needed, 30_GiB);
  EXPECT_EQ(failed[1].trainers, 8);
  EXPECT_EQ(failed[1].needed, Bytes{});
}

}  // namespace
}  // namespace plimsoll::estimator
