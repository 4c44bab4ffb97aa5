// What holds of remediate() after any history.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <string>

#include "remediation/remediation.h"
#include "tests/remediation/history.h"
#include "tests/testing/random_cases.h"
#include "tests/testing/random_seed.h"

namespace plimsoll::remediation {
namespace {

using crds::Attempt;
using crds::Outcome;
using plimsoll::testing::available;
using plimsoll::testing::Cluster;
using plimsoll::testing::decode;
using plimsoll::testing::job_object;
using std::chrono::seconds;

// Random jobs, clusters and histories.
class RandomRun {
 public:
  explicit RandomRun(std::uint32_t seed) : random_(seed), history_(object(), cluster()) {
    if (chance(8) != 0) {
      history_.admit();
    }
  }

  void run() {
    const std::int64_t most = history_.now["spec"]["provisioning"]["maxTrainers"].asInt64();
    const std::int64_t budget = history_.now["spec"]["failurePolicy"]["maxRestarts"].asInt64();
    int preemptions = 0;
    for (int step = 0;; ++step) {
      ASSERT_LT(step, 200) << "does not end";
      const Outcome outcome = chance(3) == 0 && ++preemptions < 5 ? Outcome::kPreempted : failure();
      const std::int64_t before = history_.trainers();
      end(outcome);
      const Remediation next = history_.decide();
      ASSERT_FALSE(next.message.empty());
      ASSERT_LE(next.delay, seconds(540));
      ASSERT_LE(history_.counted, budget);
      if (!next.restart) {
        ASSERT_TRUE(next.patch.empty());
        return;
      }
      ASSERT_LE(history_.trainers(), std::max(most, before));
      if (outcome == Outcome::kCudaOutOfMemory) {
        ASSERT_LE(history_.trainers(), before * 4);
      }
      ASSERT_NO_FATAL_FAILURE(exceeds_what_failed());
    }
  }

 private:
  std::uint32_t chance(std::uint32_t of) { return static_cast<std::uint32_t>(random_() % of); }

  Json object() {
    Json job;
    switch (chance(4)) {
      case 0: job = transformer_object("DDP", 1 + chance(8)); break;
      case 1: job = transformer_object("FSDP", 1 + chance(3)); break;
      default: job = job_object(4 + chance(30), 4 * kGiBOfRows, 8 * (1 + chance(8)));
    }
    job["spec"]["provisioning"]["maxTrainers"] = 8 * (1 + chance(16));
    job["spec"]["failurePolicy"]["maxRestarts"] = chance(8);
    return job;
  }

  Cluster cluster() {
    Cluster gpus = {available("A100-40GB", 1 + chance(16))};
    if (chance(2) == 0) {
      gpus.push_back(available("A100-80GB", 1 + chance(4)));
    }
    if (chance(3) == 0) {
      gpus.push_back(available("V100-32GB", 1 + chance(32), 4));
    }
    return gpus;
  }

  Outcome failure() {
    constexpr Outcome kFailures[] = {Outcome::kCudaOutOfMemory,       Outcome::kCudaOutOfMemory,
                                     Outcome::kCudaOutOfMemory,       Outcome::kShardingFailure,
                                     Outcome::kInfrastructureFailure, Outcome::kUnknown,
                                     Outcome::kHostOutOfMemory};
    return kFailures[chance(std::size(kFailures))];
  }

  void end(Outcome outcome) {
    const Bytes card = memory_of(history_.gpus, history_.gpu_model());
    Attempt& attempt = history_.end(outcome);
    for (estimator::AvailableGpu& gpu : history_.gpus) {
      gpu.free_gpus = chance(static_cast<std::uint32_t>(gpu.total_gpus) + 1);
    }
    if (outcome == Outcome::kCudaOutOfMemory && chance(3) != 0) {
      attempt.out_of_memory.capacity = card - 500_MiB;
      attempt.out_of_memory.needed = *attempt.out_of_memory.capacity + 512_MiB * chance(20);
      attempt.out_of_memory.fragmentation = 256_MiB * chance(12);
    }
  }

  // Unless fragments are given their one try.
  void exceeds_what_failed() {
    for (const Attempt& attempt : history_.attempts) {
      const bool failed =
          attempt.outcome == Outcome::kCudaOutOfMemory || attempt.outcome == Outcome::kShardingFailure;
      const bool same_but_expandable = history_.last.expandable_segments && !attempt.expandable_segments;
      if (failed && !same_but_expandable && more_or_larger_is_asked(attempt)) {
        ASSERT_TRUE(history_.trainers() > attempt.trainers || memory_of(history_.gpus, history_.gpu_model()) >
                                                                  memory_of(history_.gpus, attempt.gpu_model))
            << history_.trainers() << " x " << history_.gpu_model() << " after " << attempt.trainers << " x "
            << attempt.gpu_model << "; " << history_.last.message;
      }
    }
  }

  // A sharding failure of a model without tables is no matter of its size.
  bool more_or_larger_is_asked(const Attempt& attempt) const {
    return attempt.outcome == Outcome::kCudaOutOfMemory ||
           estimator::more_trainers_take_less(decode(history_.now).spec);
  }

  std::mt19937 random_;
  History history_;
};

TEST(Remediation, RandomHistoriesEndAndNeverRepeatASizeThatFailed) {
  const std::uint32_t seed = plimsoll::testing::random_seed();
  for (int i = 0; i < plimsoll::testing::random_cases(1'000); ++i) {
    SCOPED_TRACE("seed " + std::to_string(seed + static_cast<std::uint32_t>(i)));
    RandomRun(seed + static_cast<std::uint32_t>(i)).run();
    if (::testing::Test::HasFatalFailure()) {
      return;
    }
  }
}

}  // namespace
}  // namespace plimsoll::remediation
