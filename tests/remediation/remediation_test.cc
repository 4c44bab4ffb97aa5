#include "remediation/remediation.h"

#include <gmock/gmock.h>

#include <random>
#include <set>

#include "crds/shared_memory.h"
#include "estimator/provisioner/size_exclusion.h"
#include "remediation/next_size.h"
#include "tests/estimator/provisioner_fixture.h"
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
using plimsoll::testing::parse;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kGiBOfRows = 2'097'152;  // rows of 128 FP32 columns in a GiB

Json transformer_object(const std::string& strategy, std::int64_t requested) {
  Json object = parse(R"({
    "apiVersion": "plimsoll.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "llm"},
    "spec": {
      "model": {"family": "llm", "transformer": {"layers": 4, "hidden": 4096, "heads": 16, "ffn": 16384,
                                                 "vocab": 32000, "seqLen": 1024}},
      "training": {"batchSizePerTrainer": 4},
      "trainers": {"perNode": 8},
      "template": {"spec": {"containers": [{"name": "trainer"}]}}}})");
  object["spec"]["training"]["parallelism"]["strategy"] = strategy;
  object["spec"]["trainers"]["replicas"] = static_cast<::Json::Int64>(requested);
  return object;
}

// A job whose attempts end as the test says, each next one as remediate() wants it.
struct History {
  explicit History(Json object, Cluster gpus_there) : now(std::move(object)), gpus(std::move(gpus_there)) {
    now["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555";
  }

  // As the webhook lets it in.
  History& admit() {
    now = plimsoll::testing::admitted(now, gpus);
    return *this;
  }

  Attempt& end(Outcome outcome) {
    const crds::TrainingJob job = decode(now);
    attempts.push_back({.number = number++,
                        .gpu_model = job.spec.trainers.gpu_model,
                        .trainers = job.spec.trainers.replicas,
                        .per_node = job.spec.trainers.per_node,
                        .expandable_segments = last.expandable_segments,
                        .shared_memory = last.shared_memory,
                        .outcome = outcome});
    return attempts.back();
  }

  Remediation decide() {
    const crds::TrainingJob job = decode(now);
    last = remediate({.job = &job,
                      .gpus = &gpus,
                      .profile = nullptr,
                      .attempts = &attempts,
                      .restarts_counted = counted,
                      .restarts_uncounted = uncounted});
    if (last.restart) {
      (last.counts ? counted : uncounted) += 1;
      std::string why;
      const std::optional<Json> patched = plimsoll::testing::apply_patch(now, last.patch, why);
      EXPECT_TRUE(patched) << why << " in " << write_json(last.patch);
      now = patched.value_or(now);
    }
    return last;
  }

  Remediation decide(Outcome outcome) {
    end(outcome);
    return decide();
  }

  std::int64_t trainers() const { return now["spec"]["trainers"]["replicas"].asInt64(); }
  std::string gpu_model() const { return now["spec"]["trainers"]["gpuModel"].asString(); }

  Json now;
  Cluster gpus;
  std::vector<Attempt> attempts;
  Remediation last;
  std::int64_t number = 0;
  std::int64_t counted = 0;
  std::int64_t uncounted = 0;
};

Bytes memory_of(const Cluster& gpus, const std::string& name) {
  for (const estimator::AvailableGpu& gpu : gpus) {
    if (gpu.model.name == name) {
      return gpu.model.memory;
    }
  }
  return {};
}

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

TEST(Remediation, HostMemoryIsRaisedUpToWhatNodesHave) {
  Json object = job_object(100, kGiBOfRows);
  Json& resources = object["spec"]["template"]["spec"]["containers"][0]["resources"];
  resources = parse(R"({"limits": {"memory": "64Gi"}, "requests": {"memory": "32Gi"}})");
  object["spec"]["failurePolicy"] = parse(R"({"oomBumpUpRatio": "1.5", "maxRestarts": 10})");
  History history(object, {available("A100-40GB", 8)});
  history.gpus[0].host_memory = 120_GiB;
  history.admit();
  Remediation next = history.decide(Outcome::kHostOutOfMemory);
  const auto memory = [&](const char* kind) {
    return text_member(history.now["spec"]["template"]["spec"]["containers"][0],
                       {"resources", kind, "memory"});
  };
  EXPECT_TRUE(next.restart && next.counts) << next.message;
  EXPECT_EQ(memory("limits"), "96Gi");
  EXPECT_EQ(memory("requests"), "48Gi");
  next = history.decide(Outcome::kHostOutOfMemory);
  EXPECT_TRUE(next.restart);
  EXPECT_EQ(memory("limits"), "108Gi") << "nine tenths of a node";
  next = history.decide(Outcome::kHostOutOfMemory);
  EXPECT_FALSE(next.restart);
  EXPECT_EQ(next.reason, "MaxResourcesReached");
  EXPECT_THAT(next.message, HasSubstr("data loader"));
}

// It grew by a ratio, again and again, to what was known before.
TEST(Remediation, HostMemoryIsRaisedToWhatWasPredicted) {
  Json object = job_object(100, kGiBOfRows);
  object["spec"]["template"]["spec"]["containers"][0]["resources"] =
      parse(R"({"limits": {"memory": "64Gi"}})");
  History history(object, {available("A100-40GB", 8)});
  history.gpus[0].host_memory = 1024_GiB;
  history.admit();
  history.end(Outcome::kHostOutOfMemory).predicted_host_memory = 233_GiB;
  const Remediation next = history.decide();
  EXPECT_TRUE(next.restart);
  EXPECT_THAT(next.message, HasSubstr("gets 233 GiB instead of 64.0 GiB, which is what its trainers take"));
}

// It was given more memory, which leaves /dev/shm as it is.
TEST(Remediation, AFullShmGetsALargerOneUpToWhatNodesHave) {
  Json object = job_object(100, kGiBOfRows);
  object["spec"]["template"]["spec"]["containers"][0]["resources"] =
      parse(R"({"limits": {"memory": "64Gi"}})");
  object["spec"]["failurePolicy"]["maxRestarts"] = 10;
  History history(object, {available("A100-40GB", 8)});
  history.gpus[0].host_memory = 120_GiB;
  history.admit();
  const Bytes first = crds::usual_shared_memory(std::min<std::int64_t>(8, history.trainers()));
  const auto full = [&] {
    history.end(Outcome::kHostOutOfMemory).shared_memory_full = true;
    return history.decide();
  };
  const auto limit = [&] {
    return text_member(history.now["spec"]["template"]["spec"]["containers"][0],
                       {"resources", "limits", "memory"});
  };
  Remediation next = full();
  EXPECT_TRUE(next.restart && next.counts) << next.message;
  EXPECT_EQ(next.reason, "HostOutOfMemory");
  EXPECT_EQ(next.delay, seconds(0));
  EXPECT_EQ(next.shared_memory, first);
  EXPECT_EQ(limit(), std::to_string(64 + first.count / (1_GiB).count) + "Gi");
  EXPECT_THAT(next.message, HasSubstr("/dev/shm was full on"));
  EXPECT_THAT(next.message, HasSubstr("gets " + to_string(first) + " instead of 64.0 MiB"));
  EXPECT_THAT(next.message, HasSubstr("counts against the container's memory"));
  next = full();
  EXPECT_EQ(next.shared_memory, first * 2);
  while (next.restart) {
    EXPECT_LE(*next.shared_memory, 54_GiB) << "half of nine tenths of a node";
    next = full();
  }
  EXPECT_EQ(next.reason, "MaxResourcesReached");
  EXPECT_EQ(limit(), "108Gi");
  EXPECT_THAT(next.message, HasSubstr("data loader"));
}

TEST(Remediation, ALargerShmIsKeptForAllLaterAttempts) {
  History history(job_object(100, kGiBOfRows), {available("A100-40GB", 8)});
  history.admit();
  history.end(Outcome::kHostOutOfMemory).shared_memory_full = true;
  const std::optional<Bytes> given = history.decide().shared_memory;
  ASSERT_TRUE(given);
  for (const Outcome outcome :
       {Outcome::kPreempted, Outcome::kHostOutOfMemory, Outcome::kSuspended, Outcome::kUnknown}) {
    EXPECT_EQ(history.decide(outcome).shared_memory, given) << name_of(outcome);
  }
}

TEST(Remediation, AFullShmThatIsNotPlimsollsIsLeftAndNamed) {
  struct Case {
    const char* pod;
    const char* said;
  };
  for (
      const Case& one :
      {Case{
           R"({"volumes": [{"name": "mine", "hostPath": {"path": "/dev/shm"}}], "containers": [{"name": "trainer",
                 "volumeMounts": [{"name": "mine", "mountPath": "/dev/shm"}]}]})",
           "volume mine"},
       Case{R"({"hostIPC": true, "containers": [{"name": "trainer"}]})", "hostIPC"},
       Case{R"({"containers": [{"name": "trainer"}, {"name": "cache"}]})",
            "/dev/shm of the container cache"}}) {
    Json object = job_object(100, kGiBOfRows);
    object["spec"]["template"]["spec"] = parse(one.pod);
    History history(object, {available("A100-40GB", 8)});
    Attempt& attempt = history.end(Outcome::kHostOutOfMemory);
    attempt.shared_memory_full = true;
    attempt.container = std::string(one.said).find("cache") == std::string::npos ? "trainer" : "cache";
    const Remediation next = history.decide();
    EXPECT_TRUE(next.restart && next.counts);
    EXPECT_TRUE(next.patch.empty());
    EXPECT_FALSE(next.shared_memory) << one.said;
    EXPECT_THAT(next.message, HasSubstr(one.said));
    EXPECT_GE(next.delay, seconds(10));
  }
}

TEST(Remediation, AFullShmWithoutASizeOfItsOwnNeedsMemory) {
  Json object = job_object(100, kGiBOfRows);
  object["spec"]["template"]["spec"] = parse(
      R"({"volumes": [{"name": "mine", "emptyDir": {"medium": "Memory"}}], "containers": [{"name": "trainer",
          "resources": {"limits": {"memory": "10Gi"}}, "volumeMounts": [{"name": "mine", "mountPath": "/dev/shm"}]}]})");
  History history(object, {available("A100-40GB", 8)});
  history.end(Outcome::kHostOutOfMemory).shared_memory_full = true;
  const Remediation next = history.decide();
  EXPECT_EQ(text_member(history.now["spec"]["template"]["spec"]["containers"][0],
                        {"resources", "limits", "memory"}),
            "12Gi");
  EXPECT_FALSE(next.shared_memory);
}

TEST(Remediation, AFullShmOfAJobThatIsNotPlimsollsToChangeStays) {
  for (const bool by_annotation : {false, true}) {
    Json object = job_object(100, kGiBOfRows);
    object["spec"]["provisioning"]["mode"] = by_annotation ? "Auto" : "Off";
    if (by_annotation) {
      object["metadata"]["annotations"][crds::kProvisioningAnnotation] = "disabled";
    }
    History history(object, {available("A100-40GB", 8)});
    history.end(Outcome::kHostOutOfMemory).shared_memory_full = true;
    const Remediation next = history.decide();
    EXPECT_TRUE(next.restart && next.patch.empty() && !next.shared_memory);
    EXPECT_THAT(next.message, HasSubstr("mount an emptyDir of medium Memory"));
  }
}

// A container beside the trainer, or before it, whose memory ran out: more for the trainer would not help.
TEST(Remediation, TheContainerThatWasKilledGetsTheMemory) {
  Json object = job_object(100, kGiBOfRows);
  Json& pod = object["spec"]["template"]["spec"];
  const Json given = parse(R"({"limits": {"memory": "1Gi"}})");
  pod["containers"][0]["resources"] = parse(R"({"limits": {"memory": "64Gi"}})");
  pod["containers"][1]["name"] = "cache";
  pod["containers"][1]["resources"] = given;
  pod["initContainers"][0]["name"] = "fetch";
  pod["initContainers"][0]["resources"] = given;
  for (const char* name : {"cache", "fetch", "istio-proxy"}) {
    History history(object, {available("A100-40GB", 8)});
    history.admit();
    history.end(Outcome::kHostOutOfMemory).container = name;
    EXPECT_TRUE(history.decide().restart);
    EXPECT_THAT(history.last.message, HasSubstr(std::string("the container ") + name));
    const Json& now = history.now["spec"]["template"]["spec"];
    const auto limit = [](const Json& container) {
      return text_member(container, {"resources", "limits", "memory"});
    };
    EXPECT_EQ(limit(now["containers"][0]), "64Gi") << name;
    EXPECT_EQ(limit(now["containers"][1]) != "1Gi", std::string(name) == "cache");
    EXPECT_EQ(limit(now["initContainers"][0]) != "1Gi", std::string(name) == "fetch");
  }
}

TEST(Remediation, HostMemoryThatIsNotGivenCannotBeRaised) {
  for (const char* resources : {"{}", R"({"limits": {"memory": "lots"}})", R"({"limits": {"cpu": 7}})"}) {
    Json object = job_object(100, kGiBOfRows);
    object["spec"]["template"]["spec"]["containers"][0]["resources"] = parse(resources);
    History history(object, {available("A100-40GB", 8)});
    const Remediation next = history.decide(Outcome::kHostOutOfMemory);
    EXPECT_TRUE(next.restart);
    EXPECT_TRUE(next.patch.empty());
    EXPECT_THAT(next.message, HasSubstr("resources.requests.memory"));
    EXPECT_GE(next.delay, seconds(10));
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
