#include "remediation/remediation.h"

#include <gmock/gmock.h>

#include <set>

#include "crds/shared_memory.h"
#include "estimator/provisioner/size_exclusion.h"
#include "remediation/next_size.h"
#include "tests/estimator/provisioner_fixture.h"
#include "tests/remediation/history.h"

namespace plimsoll::remediation {
namespace {

using crds::Attempt;
using crds::Outcome;
using plimsoll::testing::available;
using plimsoll::testing::Cluster;
using plimsoll::testing::decode;
using plimsoll::testing::job_object;
using plimsoll::testing::parse;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Remediation, AfterCudaOutOfMemoryTheMissingBytesDecideTheNextSize) {
  History small(job_object(100, kGiBOfRows), {available("A100-40GB", 8)});
  small.admit();
  const std::int64_t first = small.trainers();
  const Bytes card = memory_of(small.gpus, "A100-40GB");
  Attempt& attempt = small.end(Outcome::kCudaOutOfMemory);
  attempt.out_of_memory.capacity = card;
  attempt.out_of_memory.needed = card + 1_GiB;
  const Remediation next = small.decide();
  EXPECT_TRUE(next.restart);
  EXPECT_TRUE(next.counts);
  EXPECT_EQ(next.reason, "CUDAOutOfMemory");
  EXPECT_EQ(next.delay, seconds(0));
  EXPECT_GT(small.trainers(), first);
  EXPECT_THAT(next.message, HasSubstr("CUDA out of memory on " + std::to_string(first) + " x A100-40GB"));
  EXPECT_THAT(next.message,
              HasSubstr("the next attempt has " + std::to_string(small.trainers()) + " x A100-40GB"));
  EXPECT_THAT(text_member(small.now, {"metadata", "annotations", crds::kReasonAnnotation}),
              HasSubstr(std::to_string(first) + " x A100-40GB ran out of memory"));
  EXPECT_EQ(text_member(small.now["spec"]["template"]["spec"]["containers"][0],
                        {"resources", "limits", "nvidia.com/gpu"}),
            std::to_string(std::min<std::int64_t>(8, small.trainers())));

  History large(job_object(100, kGiBOfRows), {available("A100-40GB", 8)});
  large.admit();
  large.end(Outcome::kCudaOutOfMemory).out_of_memory.needed = card + 12_GiB;
  large.decide();
  EXPECT_GT(large.trainers(), small.trainers()) << "more is missing";
}

TEST(Remediation, TheDecisionOnRecordHoldsWhatWasMissing) {
  History history(job_object(100, kGiBOfRows), {available("A100-40GB", 8)});
  history.admit();
  history.end(Outcome::kCudaOutOfMemory).out_of_memory.needed = memory_of(history.gpus, "A100-40GB") + 1_GiB;
  history.decide();
  const Json decision =
      parse(text_member(history.now, {"metadata", "annotations", crds::kDecisionAnnotation}));
  EXPECT_EQ(decision["trainers"].asInt64(), history.trainers());
  // The estimate without the correction is lower by what the first attempt lacked.
  Json fresh = history.now;
  fresh["spec"]["provisioning"]["minTrainers"] = static_cast<::Json::Int64>(history.trainers());
  const estimator::Provision plain = plimsoll::testing::provision(fresh, history.gpus);
  ASSERT_TRUE(plain.decided());
  EXPECT_GT(decision["upperBoundBytes"].asInt64(), plain.decision->estimate.peak.upper_bound.count);
}

TEST(Remediation, WithoutAnyFigureTheBumpRatioDecides) {
  const auto after = [](const char* ratio) {
    Json object = job_object(100, kGiBOfRows);
    object["spec"]["failurePolicy"]["oomBumpUpRatio"] = ratio;
    History history(object, {available("A100-40GB", 64)});
    history.admit();
    history.decide(Outcome::kCudaOutOfMemory);
    return history.trainers();
  };
  EXPECT_LT(after("1.1"), after("1.5"));
}

TEST(Remediation, SecondPassesGrowFromAllThatHasFailed) {
  History history(job_object(200, kGiBOfRows), {available("A100-40GB", 64), available("A100-80GB", 64)});
  history.now["spec"]["failurePolicy"]["maxRestarts"] = 10;
  history.admit();
  std::set<std::pair<std::string, std::int64_t>> sizes;
  for (int i = 0; i < 6; ++i) {
    EXPECT_TRUE(sizes.emplace(history.gpu_model(), history.trainers()).second)
        << history.trainers() << " x " << history.gpu_model() << " again";
    history.end(Outcome::kCudaOutOfMemory).out_of_memory.needed =
        memory_of(history.gpus, history.gpu_model()) + 200_MiB;
    if (!history.decide().restart) {
      break;
    }
  }
  EXPECT_GE(sizes.size(), 3U);
}

// A job that should have left most of the card free ran out of it: no card is large enough for the estimate
// and as much more as is assumed to be missing, but that is an assumption.
TEST(Remediation, WhatIsOnlyAssumedToBeMissingRulesOutNoLargerSize) {
  for (const std::optional<Bytes> over : {std::optional<Bytes>(), std::optional(4_GiB)}) {
    History history(job_object(4, kGiBOfRows), {available("A100-40GB", 8)});
    history.admit();
    ASSERT_EQ(history.trainers(), 1);
    std::int64_t before = 1;
    for (int i = 0; i < 3; ++i) {
      Attempt& attempt = history.end(Outcome::kCudaOutOfMemory);
      attempt.estimated = 7_GiB;
      if (over) {
        attempt.out_of_memory.needed = memory_of(history.gpus, "A100-40GB") + *over;
      }
      ASSERT_TRUE(history.decide().restart) << history.last.message;
      EXPECT_GT(history.trainers(), before);
      before = history.trainers();
    }
    EXPECT_EQ(history.decide(Outcome::kCudaOutOfMemory).reason, "ReachedMaxRestarts");
  }
  History far(job_object(4, kGiBOfRows), {available("A100-40GB", 8)});
  far.admit();
  far.end(Outcome::kCudaOutOfMemory).out_of_memory.needed = 4 * memory_of(far.gpus, "A100-40GB");
  EXPECT_EQ(far.decide().reason, "MaxResourcesReached");  // and this is no assumption
}

TEST(Remediation, AtMaxTrainersItFailsAndSaysWhatToDo) {
  Json object = job_object(100, kGiBOfRows);
  object["spec"]["provisioning"]["maxTrainers"] = 8;
  object["spec"]["provisioning"]["gpuModels"].append("A100-40GB");
  History history(object, {available("A100-40GB", 8), available("A100-80GB", 8)});
  history.admit();
  history.now["spec"]["trainers"]["replicas"] = 8;
  const Remediation end = history.decide(Outcome::kCudaOutOfMemory);
  EXPECT_FALSE(end.restart);
  EXPECT_EQ(end.reason, "MaxResourcesReached");
  EXPECT_TRUE(end.patch.empty());
  EXPECT_THAT(end.message, HasSubstr("maxTrainers 8"));
  EXPECT_THAT(end.message, HasSubstr("Raise spec.provisioning.maxTrainers"));
}

TEST(Remediation, MoreTrainersDoNotHelpAReplicatedModel) {
  History history(transformer_object("DDP", 8), {available("A100-40GB", 8), available("A100-80GB", 8)});
  history.admit();
  ASSERT_EQ(history.gpu_model(), "A100-40GB");
  const std::int64_t trainers = history.trainers();
  Remediation next = history.decide(Outcome::kCudaOutOfMemory);
  ASSERT_TRUE(next.restart) << next.message;
  EXPECT_EQ(history.gpu_model(), "A100-80GB") << "the next larger";
  EXPECT_EQ(history.trainers(), trainers);
  next = history.decide(Outcome::kCudaOutOfMemory);
  EXPECT_FALSE(next.restart);
  EXPECT_EQ(next.reason, "MaxResourcesReached");
  EXPECT_THAT(next.message, HasSubstr("FSDP or ZeRO"));
  EXPECT_THAT(next.message, HasSubstr("activation checkpointing"));
}

TEST(Remediation, ASharedModelGrows) {
  History history(transformer_object("FSDP", 2), {available("A100-40GB", 8)});
  history.admit();
  const std::int64_t before = history.trainers();
  history.end(Outcome::kCudaOutOfMemory).out_of_memory.needed = memory_of(history.gpus, "A100-40GB") + 10_MiB;
  const Remediation next = history.decide();
  ASSERT_TRUE(next.restart) << next.message;
  EXPECT_GT(history.trainers(), before);
}

TEST(Remediation, OneStepGrowsByAFactorAtMost) {
  Json object = job_object(100, kGiBOfRows);
  object["spec"]["failurePolicy"]["oomMaxGrowth"] = 2;
  History history(object, {available("A100-40GB", 512)});
  history.admit();
  const std::int64_t first = history.trainers();
  history.end(Outcome::kCudaOutOfMemory).out_of_memory.needed = memory_of(history.gpus, "A100-40GB") + 24_GiB;
  ASSERT_TRUE(history.decide().restart) << history.last.message;
  EXPECT_EQ(history.trainers(), 2 * first) << history.last.message;
}

TEST(Remediation, WithoutAnEstimateItGrowsByTheRatio) {
  // The graph cannot be read: the trainers are the user's.
  Json object = transformer_object("FSDP", 10);
  object["spec"]["model"].removeMember("transformer");
  object["spec"]["model"]["graph"]["configMapKeyRef"] = parse(R"({"name": "g", "key": "k"})");
  object["spec"]["trainers"] = parse(R"({"replicas": 16, "perNode": 8, "gpuModel": "A100-40GB"})");
  History history(object, {available("A100-40GB", 8), available("A100-80GB", 8)});
  const Remediation next = history.decide(Outcome::kCudaOutOfMemory);
  ASSERT_TRUE(next.restart) << next.message;
  EXPECT_EQ(history.trainers(), 24) << "16 by 1.2, in whole nodes";
  EXPECT_EQ(history.gpu_model(), "A100-40GB");
  EXPECT_THAT(next.message, Not(HasSubstr("peak at most")));
  EXPECT_FALSE(text_member(history.now, {"metadata", "annotations", crds::kDecisionAnnotation}).empty());

  object["spec"]["training"]["parallelism"]["strategy"] = "DDP";
  History replicated(object, history.gpus);
  ASSERT_TRUE(replicated.decide(Outcome::kCudaOutOfMemory).restart) << replicated.last.message;
  EXPECT_EQ(replicated.trainers(), 16);
  EXPECT_EQ(replicated.gpu_model(), "A100-80GB");
  EXPECT_FALSE(replicated.decide(Outcome::kCudaOutOfMemory).restart);
}

TEST(Remediation, PastTheDeadlineItGrowsByTheRatioToo) {
  History history(job_object(100, kGiBOfRows), {available("A100-40GB", 64)});
  history.admit();
  const std::int64_t first = history.trainers();
  history.end(Outcome::kCudaOutOfMemory);
  const crds::TrainingJob job = decode(history.now);
  Budget budget({.deadline = std::chrono::steady_clock::now() - seconds(1)});
  const Remediation next =
      remediate({.job = &job, .gpus = &history.gpus, .attempts = &history.attempts, .budget = &budget});
  ASSERT_TRUE(next.restart) << next.message;
  EXPECT_THAT(next.message, HasSubstr("next attempt has " + std::to_string(first + 1) + " x"));
  EXPECT_FALSE(next.patch.empty());
}

TEST(Remediation, OffAndInitialDoNotResize) {
  for (const char* mode : {"Off", "Initial"}) {
    Json object = job_object(100, kGiBOfRows, 8);
    object["spec"]["provisioning"]["mode"] = mode;
    object["spec"]["trainers"]["gpuModel"] = "A100-40GB";
    History history(object, {available("A100-40GB", 8)});
    const Remediation end = history.decide(Outcome::kCudaOutOfMemory);
    EXPECT_FALSE(end.restart);
    EXPECT_EQ(end.reason, "ResizingNotAllowed");
    EXPECT_THAT(end.message, HasSubstr(mode));

    object["spec"]["failurePolicy"] = parse(
        R"({"rules": [{"action": "RestartJobAndIgnoreMaxRestarts", "onCauses": ["CUDAOutOfMemory"]}]})");
    History ruled(object, {available("A100-40GB", 8)});
    int restarts = 0;
    while (ruled.decide(Outcome::kCudaOutOfMemory).restart && restarts < 1000) {
      EXPECT_EQ(ruled.trainers(), 8);
      ++restarts;
    }
    EXPECT_EQ(restarts, 103) << "a hundred exempted, and maxRestarts";
    EXPECT_EQ(ruled.last.reason, "ReachedMaxRestarts");
  }
  Json disabled = job_object(100, kGiBOfRows, 8);
  disabled["metadata"]["annotations"][crds::kProvisioningAnnotation] = "disabled";
  EXPECT_EQ(History(disabled, {available("A100-40GB", 8)}).decide(Outcome::kCudaOutOfMemory).reason,
            "ResizingNotAllowed");
}

TEST(Remediation, FragmentsAreGivenOneTryAtTheSameSize) {
  History history(job_object(100, kGiBOfRows), {available("A100-40GB", 8)});
  history.admit();
  const std::int64_t first = history.trainers();
  const auto out_of_memory = [&] {
    Attempt& attempt = history.end(Outcome::kCudaOutOfMemory);
    attempt.out_of_memory.capacity = 39_GiB;
    attempt.out_of_memory.needed = 41_GiB;
    attempt.out_of_memory.fragmentation = 3_GiB;
    return history.decide();
  };
  Remediation next = out_of_memory();
  EXPECT_TRUE(next.restart);
  EXPECT_TRUE(next.expandable_segments);
  EXPECT_TRUE(next.patch.empty());
  EXPECT_EQ(history.trainers(), first);
  EXPECT_THAT(next.message, HasSubstr("expandable_segments:True"));
  next = out_of_memory();
  EXPECT_TRUE(next.restart);
  EXPECT_TRUE(next.expandable_segments) << "it stays";
  EXPECT_GT(history.trainers(), first);
  const std::int64_t second = history.trainers();
  out_of_memory();
  EXPECT_NE(history.trainers(), second) << "tried once";
}

// A card of 40 GiB, of which others held 30: the job grew until it failed, and its family was taught that it needs a whole card.
void fill_by_others(Attempt& attempt, Bytes needed, const std::string& node) {
  attempt.out_of_memory = {
      .needed = needed, .capacity = 39_GiB, .fragmentation = 5_GiB, .held_by_others = 30_GiB};
  attempt.avoid_nodes.push_back(node);
}

TEST(Remediation, ACardThatOthersFillDoesNotMakeTheJobGrow) {
  History history(job_object(100, kGiBOfRows), {available("A100-40GB", 8)});
  history.admit();
  const std::int64_t first = history.trainers();
  fill_by_others(history.end(Outcome::kCudaOutOfMemory), 12_GiB, "node-7");
  const Remediation next = history.decide();
  EXPECT_TRUE(next.restart);
  EXPECT_TRUE(next.counts);
  EXPECT_TRUE(next.patch.empty());
  EXPECT_FALSE(next.expandable_segments) << "its fragments are not the cause";
  EXPECT_EQ(history.trainers(), first);
  EXPECT_EQ(
      next.message,
      "CUDA out of memory on " + std::to_string(first) +
          " x A100-40GB: others held 30.0 GiB of a card of 39.0 GiB on node node-7, where a trainer needed 12.0 GiB; "
          "the next attempt keeps its size, and avoids node node-7");
  EXPECT_TRUE(estimator::failed_sizes(decode(history.now), history.attempts, history.gpus).empty());
}

TEST(Remediation, AJobThatNoEmptyCardWouldHoldGrowsThoughOthersAreOnTheCard) {
  History history(job_object(100, kGiBOfRows), {available("A100-40GB", 8)});
  history.admit();
  const std::int64_t first = history.trainers();
  fill_by_others(history.end(Outcome::kCudaOutOfMemory), 46_GiB, "node-7");
  EXPECT_TRUE(history.decide().restart);
  EXPECT_GT(history.trainers(), first);
}

TEST(Remediation, CardsThatOthersFillCountTowardsMaxRestarts) {
  History history(job_object(100, kGiBOfRows), {available("A100-40GB", 8)});
  history.now["spec"]["provisioning"]["mode"] = "Off";  // the size stays, so that no resizing is asked for
  history.now["spec"]["failurePolicy"]["maxRestarts"] = 2;
  for (const char* node : {"node-1", "node-2"}) {
    fill_by_others(history.end(Outcome::kCudaOutOfMemory), 12_GiB, node);
    EXPECT_TRUE(history.decide().restart);
  }
  fill_by_others(history.end(Outcome::kCudaOutOfMemory), 12_GiB, "node-3");
  EXPECT_EQ(history.decide().reason, "ReachedMaxRestarts");
}

TEST(Remediation, FragmentsThatWouldNotDoAreNotTried) {
  struct Case {
    const char* what;
    Bytes needed, fragmentation;
    const char* environment;
  };
  for (const Case& one :
       {Case{"too few", 44_GiB, 3_GiB, ""}, Case{"ordinary rounding", 39_GiB + 10_MiB, 20_MiB, ""},
        Case{"the job's own setting", 41_GiB, 3_GiB, "PYTORCH_CUDA_ALLOC_CONF"}}) {
    Json object = job_object(100, kGiBOfRows);
    if (*one.environment != '\0') {
      object["spec"]["template"]["spec"]["containers"][0]["env"][0]["name"] = one.environment;
      object["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"] = "max_split_size_mb:128";
    }
    History history(object, {available("A100-40GB", 16)});
    history.admit();
    Attempt& attempt = history.end(Outcome::kCudaOutOfMemory);
    attempt.out_of_memory.capacity = 39_GiB;
    attempt.out_of_memory.needed = one.needed;
    attempt.out_of_memory.fragmentation = one.fragmentation;
    EXPECT_FALSE(history.decide().expandable_segments) << one.what;
    EXPECT_FALSE(history.last.patch.empty()) << one.what;
  }
}

TEST(Remediation, PreemptionIsNotChargedAndWaitsLongerEachTime) {
  History history(job_object(100, kGiBOfRows), {available("A100-40GB", 8)});
  history.admit();
  const Json before = history.now;
  std::vector<seconds> delays;
  for (int i = 0; i < 20; ++i) {
    const Remediation next = history.decide(Outcome::kPreempted);
    ASSERT_TRUE(next.restart);
    EXPECT_FALSE(next.counts);
    EXPECT_EQ(next.reason, "Preempted");
    delays.push_back(next.delay);
  }
  EXPECT_EQ(history.now, before);
  EXPECT_GE(delays.front(), seconds(10));
  EXPECT_LE(delays.front(), seconds(15));
  EXPECT_GE(delays.back(), seconds(360));
  EXPECT_LE(delays.back(), seconds(540));
  EXPECT_NE(delays[18], delays[19]) << "spread";

  History again(job_object(100, kGiBOfRows), {available("A100-40GB", 8)});
  again.admit();
  EXPECT_EQ(again.decide(Outcome::kPreempted).delay, delays.front()) << "from uid and attempt alone";
  again.now["metadata"]["uid"] = "another";
  std::set<seconds> spread;
  for (int i = 0; i < 20; ++i) {
    again.now["metadata"]["uid"] = std::to_string(i);
    again.attempts.clear();
    spread.insert(again.decide(Outcome::kPreempted).delay);
  }
  EXPECT_GT(spread.size(), 3U);
}

TEST(Remediation, APreemptedJobMovesToAnotherModelThatHasRoom) {
  History history(job_object(100, kGiBOfRows), {available("A100-40GB", 8), available("A100-80GB", 8)});
  history.now["spec"]["provisioning"]["gpuModels"].append("A100-40GB");
  history.now["spec"]["provisioning"]["gpuModels"].append("A100-80GB");
  history.now["spec"]["provisioning"]["objective"] = "LowestCost";
  history.admit();
  const std::string first = history.gpu_model();
  const std::size_t there = first == "A100-40GB" ? 0 : 1;
  const std::int64_t trainers = history.trainers();
  const History start = history;

  history.decide(Outcome::kPreempted);
  EXPECT_EQ(history.gpu_model(), first) << "its own have room";

  history = start;
  history.gpus[there].free_gpus = 1;
  ASSERT_TRUE(history.decide(Outcome::kPreempted).restart);
  EXPECT_NE(history.gpu_model(), first);
  EXPECT_GE(history.trainers(), trainers);
  EXPECT_FALSE(history.last.counts);

  history = start;
  history.gpus[there].free_gpus = 1;
  history.gpus[1 - there].free_gpus = 1;
  history.decide(Outcome::kPreempted);
  EXPECT_EQ(history.gpu_model(), first) << "nobody has room";

  history = start;
  history.gpus[there].free_gpus = 1;
  history.now["spec"]["provisioning"]["gpuModels"] = Json(::Json::arrayValue);
  history.now["spec"]["provisioning"]["gpuModels"].append(first);
  history.decide(Outcome::kPreempted);
  EXPECT_EQ(history.gpu_model(), first) << "the other is not allowed";

  history = start;
  history.gpus[there].free_gpus = 1;
  history.now["spec"]["provisioning"]["mode"] = "Initial";
  history.decide(Outcome::kPreempted);
  EXPECT_EQ(history.gpu_model(), first);
}

TEST(Remediation, TheFirstFailuresOfTheInfrastructureAreNotCharged) {
  History history(job_object(100, kGiBOfRows), {available("A100-40GB", 8)});
  int uncharged = 0;
  int restarts = 0;
  while (history.decide(Outcome::kInfrastructureFailure).restart && restarts < 100) {
    uncharged += history.last.counts ? 0 : 1;
    ++restarts;
  }
  EXPECT_EQ(uncharged, 5);
  EXPECT_EQ(restarts, 8);
  EXPECT_EQ(history.last.reason, "ReachedMaxRestarts");
}

TEST(Remediation, AShardingFailureGetsMoreTrainers) {
  History history(job_object(100, kGiBOfRows), {available("A100-40GB", 8)});
  history.admit();
  const std::int64_t first = history.trainers();
  Remediation next = history.decide(Outcome::kShardingFailure);
  EXPECT_TRUE(next.restart && next.counts) << next.message;
  EXPECT_GT(history.trainers(), first);

  History fixed(job_object(100, kGiBOfRows), {available("A100-40GB", 8)});
  fixed.now["spec"]["provisioning"]["mode"] = "Initial";
  next = fixed.decide(Outcome::kShardingFailure);
  EXPECT_TRUE(next.restart);
  EXPECT_TRUE(next.patch.empty());
}

TEST(Remediation, AUserErrorIsNotTriedAgain) {
  History history(job_object(100, kGiBOfRows), {available("A100-40GB", 8)});
  history.end(Outcome::kUserError).message = "ModuleNotFoundError: No module named 'models'";
  const Remediation end = history.decide();
  EXPECT_FALSE(end.restart);
  EXPECT_EQ(end.reason, "CodeError");
  EXPECT_THAT(end.message, HasSubstr("No module named 'models'"));
}

TEST(Remediation, WhatIsUnknownIsTriedAgainWithinTheBudget) {
  History history(job_object(100, kGiBOfRows), {available("A100-40GB", 8)});
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(history.decide(Outcome::kUnknown).restart);
    EXPECT_TRUE(history.last.counts);
  }
  EXPECT_FALSE(history.decide(Outcome::kUnknown).restart);
  EXPECT_EQ(history.last.reason, "ReachedMaxRestarts");
  EXPECT_THAT(history.last.message, HasSubstr("maxRestarts 3"));
}

TEST(Remediation, SuspensionIsNoFailure) {
  History history(job_object(100, kGiBOfRows), {available("A100-40GB", 8)});
  history.now["spec"]["failurePolicy"] =
      parse(R"({"maxRestarts": 0, "rules": [{"action": "FailJob", "onCauses": ["Unknown", "Preempted"]}]})");
  const Remediation next = history.decide(Outcome::kSuspended);
  EXPECT_TRUE(next.restart);
  EXPECT_FALSE(next.counts);
  EXPECT_TRUE(next.patch.empty());
}

TEST(Remediation, TheFirstRuleThatMatchesDecides) {
  const auto with_rules = [](const char* rules) {
    Json object = job_object(100, kGiBOfRows);
    object["spec"]["failurePolicy"]["rules"] = parse(rules);
    object["spec"]["failurePolicy"]["maxRestarts"] = 1;
    return History(object, {available("A100-40GB", 8)});
  };
  History history = with_rules(R"([{"action": "FailJob", "onCauses": ["Preempted"]}])");
  Remediation next = history.decide(Outcome::kPreempted);
  EXPECT_FALSE(next.restart);
  EXPECT_EQ(next.reason, "FailurePolicyRule");
  EXPECT_THAT(next.message, HasSubstr("rule 0"));

  history = with_rules(R"([{"action": "RestartJob", "onCauses": ["UserError"], "onExitCodes": [75]},
                           {"action": "FailJob", "onExitCodes": [75, 3]}])");
  history.end(Outcome::kUserError).exit_code = 75;
  EXPECT_TRUE(history.decide().restart) << "both lists match";
  history.end(Outcome::kUserError).exit_code = 75;
  EXPECT_EQ(history.decide().reason, "ReachedMaxRestarts");
  history.end(Outcome::kUnknown).exit_code = 3;
  next = history.decide();
  EXPECT_EQ(next.reason, "FailurePolicyRule");
  EXPECT_THAT(next.message, HasSubstr("rule 1"));
  history.end(Outcome::kUserError).exit_code = 4;
  EXPECT_EQ(history.decide().reason, "CodeError");
  history.end(Outcome::kUserError);
  EXPECT_EQ(history.decide().reason, "CodeError") << "no exit code is none of the list";

  history = with_rules(R"([{"action": "RestartJob", "onCauses": ["Preempted"]}])");
  EXPECT_TRUE(history.decide(Outcome::kPreempted).counts);
  EXPECT_EQ(history.decide(Outcome::kPreempted).reason, "ReachedMaxRestarts");

  history = with_rules(R"([{"action": "RestartJobAndIgnoreMaxRestarts", "onCauses": ["Unknown"]}])");
  int restarts = 0;
  while (history.decide(Outcome::kUnknown).restart && restarts < 1000) {
    ++restarts;
  }
  EXPECT_EQ(restarts, 101);
}

TEST(Remediation, AbsurdFiguresEndTheJobInWords) {
  History history(job_object(100, kGiBOfRows), {available("A100-40GB", 8)});
  history.admit();
  Attempt& attempt = history.end(Outcome::kCudaOutOfMemory);
  attempt.out_of_memory.needed = Bytes::max();
  attempt.out_of_memory.capacity = Bytes{0};
  attempt.out_of_memory.fragmentation = Bytes::max();
  attempt.trainers = 0;
  attempt.per_node = -3;
  attempt.gpu_model = "no such GPU";
  const Remediation next = history.decide();
  EXPECT_FALSE(next.message.empty());
  History nothing(job_object(100, kGiBOfRows), {});
  EXPECT_EQ(nothing.decide(Outcome::kCudaOutOfMemory).reason, "MaxResourcesReached");
}

}  // namespace
}  // namespace plimsoll::remediation
