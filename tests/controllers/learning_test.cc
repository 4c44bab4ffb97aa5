#include "controllers/learning.h"

#include <gmock/gmock.h>

#include <random>

#include "estimator/provisioner/cluster_view.h"
#include "tests/estimator/provisioner_fixture.h"
#include "tests/testing/random_seed.h"

namespace plimsoll::controllers {
namespace {

using crds::Attempt;
using crds::LearnedBounds;
using crds::Outcome;
using crds::ProfileSample;

LearnedJob job_of(int uid, std::vector<Attempt> attempts) {
  LearnedJob job{.uid = "uid-" + std::to_string(uid), .name = "job", .failure_policy = {}, .status = {}};
  for (std::size_t i = 0; i < attempts.size(); ++i) {
    attempts[i].number = static_cast<std::int64_t>(i);
    char time[40];
    std::snprintf(time, sizeof time, "2026-11-%02dT%02d:%02d:00Z", 1 + uid / 1440 % 28, uid / 60 % 24,
                  uid % 60);
    attempts[i].completion_time = attempts[i].outcome == Outcome::kRunning ? "" : time;
  }
  job.status.attempts = std::move(attempts);
  return job;
}

Attempt ended(Outcome outcome, Bytes estimated, std::optional<Bytes> observed = std::nullopt) {
  return {.gpu_model = "A100-80GB",
          .trainers = 16,
          .per_node = 8,
          .estimated = estimated,
          .observed_peak = observed,
          .outcome = outcome};
}

// The card has 80 GiB.
Attempt out_of_memory(Bytes estimated, Bytes needed) {
  Attempt attempt = ended(Outcome::kCudaOutOfMemory, estimated);
  attempt.out_of_memory.capacity = 80_GiB;
  attempt.out_of_memory.needed = needed;
  return attempt;
}

const std::vector<estimator::AvailableGpu>& gpus() {
  static const std::vector<estimator::AvailableGpu> present = [] {
    estimator::AvailableGpu gpu = plimsoll::testing::available("A100-80GB", 8);
    gpu.model.memory = 80_GiB;
    return std::vector{gpu};
  }();
  return present;
}

std::vector<ProfileSample> learned(const std::vector<LearnedJob>& jobs) {
  std::vector<ProfileSample> samples;
  for (const LearnedJob& job : jobs) {
    if (std::optional<ProfileSample> sample = sample_of(job, nullptr, gpus())) {
      samples = with_sample(std::move(samples), *std::move(sample));
    }
  }
  return samples;
}

LearnedBounds bounds(const std::vector<LearnedJob>& jobs, const std::string& model = "") {
  for (const LearnedBounds& entry : bounds_of(learned(jobs))) {
    if (entry.gpu_model == model) {
      return entry;
    }
  }
  return {};
}

// `count` jobs that needed `observed`, as the first of them from uid `from` on.
std::vector<LearnedJob> successes(int count, Bytes estimated, Bytes observed, int from = 1000) {
  std::vector<LearnedJob> jobs;
  for (int i = 0; i < count; ++i) {
    jobs.push_back(job_of(from + i, {ended(Outcome::kSucceeded, estimated, observed)}));
    jobs.back().status.estimate =
        plimsoll::testing::parse(R"({"gpuModel": "A100-80GB", "trainers": 16, "breakdown": {}})");
    jobs.back().status.estimate["breakdown"]["activationsBytes"] = static_cast<::Json::Int64>((30_GiB).count);
    jobs.back().status.estimate["breakdown"]["temporariesBytes"] = static_cast<::Json::Int64>((10_GiB).count);
  }
  return jobs;
}

template <class T>
std::vector<T> operator+(std::vector<T> a, const std::vector<T>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(Learning, OneOutOfMemoryIsEnoughAtOnce) {
  const LearnedBounds all = bounds({job_of(1, {out_of_memory(60_GiB, 83_GiB)})});
  EXPECT_EQ(all.shortfall, 23_GiB);
  EXPECT_FALSE(all.peak_correction);
  EXPECT_EQ(bounds({job_of(1, {out_of_memory(60_GiB, 83_GiB)})}, "a100-80gb").shortfall, 23_GiB)
      << "its model, too";
}

TEST(Learning, WhatWasLearnedAlreadyIsNotLearnedAgain) {
  Attempt expanded = ended(Outcome::kSucceeded, 70_GiB, 65_GiB);
  expanded.learned = 23_GiB;
  const std::vector<LearnedJob> once = {job_of(1, {out_of_memory(60_GiB, 83_GiB), expanded})};
  EXPECT_EQ(bounds(once).shortfall, 23_GiB);
  Attempt next = ended(Outcome::kSucceeded, 83_GiB, 80_GiB);
  next.learned = 23_GiB;
  EXPECT_EQ(bounds(once + std::vector{job_of(2, {next})}).shortfall, 23_GiB) << "60 estimated, 80 needed";
}

TEST(Learning, EachAttemptCountsOnce) {
  LearnedJob job = job_of(1, {out_of_memory(60_GiB, 83_GiB)});
  const std::optional<ProfileSample> first = sample_of(job, nullptr, gpus());
  ASSERT_TRUE(first);
  EXPECT_EQ(first->last_attempt, 0);
  EXPECT_FALSE(sample_of(job, &*first, gpus())) << "nothing new";
  job = job_of(1, {out_of_memory(60_GiB, 83_GiB), ended(Outcome::kRunning, 70_GiB)});
  EXPECT_FALSE(sample_of(job, &*first, gpus())) << "it runs";
  job = job_of(1, {out_of_memory(60_GiB, 83_GiB), ended(Outcome::kSucceeded, 70_GiB, 50_GiB)});
  const std::optional<ProfileSample> second = sample_of(job, &*first, gpus());
  ASSERT_TRUE(second);
  EXPECT_EQ(second->last_attempt, 1);
  EXPECT_EQ(*second->needed, 83_GiB) << "the attempt that exceeded its estimate most";
  EXPECT_TRUE(second->out_of_memory);
  EXPECT_FALSE(sample_of(job_of(2, {ended(Outcome::kRunning, 1_GiB)}), nullptr, gpus()));
}

TEST(Learning, OneJobHasOneVote) {
  std::vector<Attempt> many(12, out_of_memory(60_GiB, 90_GiB));
  const std::vector<ProfileSample> samples = learned({job_of(1, many)});
  EXPECT_EQ(samples.size(), 1U);
  const std::vector<LearnedJob> others = successes(5, 60_GiB, 58_GiB);
  EXPECT_EQ(bounds(std::vector{job_of(1, many)} + others).shortfall, std::nullopt)
      << "five others outvote it";
  EXPECT_EQ(bounds(std::vector{job_of(1, many)} + successes(4, 60_GiB, 58_GiB)).shortfall, 30_GiB);
}

TEST(Learning, OneJobTakesAtMostThreeFifthsOfACardFromTheOthers) {
  const LearnedJob liar = job_of(1, {out_of_memory(1_GiB, Bytes::max())});
  EXPECT_EQ(bounds({liar}).shortfall, 48_GiB);
  EXPECT_EQ(bounds({liar, job_of(2, {out_of_memory(1_GiB, Bytes::max())})}).shortfall, 48_GiB);
  EXPECT_EQ(bounds({liar, job_of(2, {out_of_memory(1_GiB, Bytes::max())}),
                    job_of(3, {out_of_memory(1_GiB, 900_GiB)})})
                .shortfall,
            80_GiB)
      << "three agree, and no card lacks more than itself";
}

TEST(Learning, SuccessesShrinkItByTheQuantileOnly) {
  const std::vector<LearnedJob> two = {job_of(1, {out_of_memory(60_GiB, 90_GiB)}),
                                       job_of(2, {out_of_memory(60_GiB, 88_GiB)})};
  EXPECT_EQ(bounds(two + successes(3, 60_GiB, 50_GiB)).shortfall, 30_GiB);
  EXPECT_TRUE(bounds(two + successes(30, 60_GiB, 50_GiB)).shortfall.has_value())
      << "two do not get lost so soon";
  EXPECT_FALSE(bounds(two + successes(62, 60_GiB, 50_GiB)).shortfall.has_value()) << "5% of 64 are three";
}

TEST(Learning, AnEstimateIsLoweredWhenFiveJobsAgreeAndNoneRanOut) {
  EXPECT_FALSE(bounds(successes(4, 60_GiB, 48_GiB)).peak_correction);
  // 12 of the 40 GiB of activations and temporaries were not needed; a twentieth stays on top.
  EXPECT_EQ(bounds(successes(5, 60_GiB, 48_GiB)).peak_correction, 0.75);
  EXPECT_EQ(bounds(successes(4, 60_GiB, 48_GiB) + successes(1, 60_GiB, 58_GiB, 9)).peak_correction,
            std::nullopt)
      << "the one that needed most decides";
  EXPECT_EQ(bounds(successes(9, 60_GiB, 1_GiB)).peak_correction, 0.5) << "to half at most";
  EXPECT_FALSE(bounds(successes(30, 60_GiB, 48_GiB) + std::vector{job_of(1, {out_of_memory(60_GiB, 81_GiB)})})
                   .peak_correction);
}

TEST(Learning, ALoweredEstimateIsMeasuredAgainstTheFullOne) {
  std::vector<LearnedJob> jobs = successes(5, 50_GiB, 48_GiB);
  for (LearnedJob& job : jobs) {
    job.status.attempts[0].learned = Bytes{} - 10_GiB;  // 0.75 of 40 GiB
    job.status.estimate["breakdown"]["activationsBytes"] = static_cast<::Json::Int64>((20_GiB).count);
  }
  EXPECT_EQ(bounds(jobs).peak_correction, 0.75) << "it stays, and does not lower itself further";
}

TEST(Learning, AnAttemptThatWasCutShortShowsOnlyThatItNeededMore) {
  EXPECT_FALSE(learned({job_of(1, {ended(Outcome::kPreempted, 60_GiB, 2_GiB)})}).front().needed);
  EXPECT_EQ(bounds({job_of(1, {ended(Outcome::kPreempted, 60_GiB, 64_GiB)})}).shortfall, 4_GiB);
  EXPECT_FALSE(learned({job_of(1, {ended(Outcome::kSucceeded, 60_GiB)})}).front().needed)
      << "nothing was seen";
}

TEST(Learning, FragmentsAreNoMatterOfSize) {
  Attempt attempt = out_of_memory(60_GiB, 81_GiB);
  attempt.out_of_memory.fragmentation = 19_GiB;
  EXPECT_EQ(bounds({job_of(1, {attempt})}).shortfall, 2_GiB);
}

TEST(Learning, AMessageWithoutFragmentsDoesNotShowThatTheCardWouldHaveDone) {
  // As of cudaMallocAsync: 75 GiB of tensors ran out on a card of 80, so that 5 GiB went elsewhere.
  EXPECT_EQ(learned({job_of(1, {out_of_memory(60_GiB, 75_GiB)})}).front().needed, 80_GiB + 1_B);
}

TEST(Learning, ACardThatOthersFillTeachesNothing) {
  Attempt attempt = out_of_memory(60_GiB, 79_GiB);
  attempt.observed_peak = 80_GiB;  // of the whole card
  attempt.observed_startup = 78_GiB;
  attempt.out_of_memory.held_by_others = 40_GiB;
  const std::vector<ProfileSample> samples = learned({job_of(1, {attempt})});
  EXPECT_TRUE(bounds_of(samples).empty());
  EXPECT_FALSE(samples.front().out_of_memory);
  EXPECT_EQ(samples.front().last_attempt, 0) << "seen";
  EXPECT_FALSE(relative_error(attempt));
}

TEST(Learning, FixedCostsAreTheCardsOwnAndBounded) {
  const auto job = [](int uid, Bytes context, Bytes communication) {
    Attempt attempt = ended(Outcome::kSucceeded, 60_GiB, 55_GiB);
    attempt.observed_context = context;
    attempt.observed_communication = communication;
    return job_of(uid, {attempt});
  };
  const std::vector<LearnedJob> two = {job(1, 600_MiB, 1_GiB), job(2, 500_MiB, 2_GiB)};
  EXPECT_FALSE(bounds(two, "a100-80gb").cuda_context) << "three must tell";
  const LearnedBounds three = bounds(two + std::vector{job(3, 550_MiB, 1_GiB)}, "a100-80gb");
  EXPECT_EQ(three.cuda_context, 630_MiB);
  EXPECT_EQ(three.communication, 2151_MiB);
  EXPECT_FALSE(bounds(two + std::vector{job(3, 550_MiB, 1_GiB)}).cuda_context) << "not on other cards";
  const LearnedBounds absurd = bounds(
      {job(1, 900_GiB, Bytes::max()), job(2, 900_GiB, 900_GiB), job(3, 900_GiB, 900_GiB)}, "a100-80gb");
  EXPECT_EQ(absurd.cuda_context, 4_GiB);
  EXPECT_EQ(absurd.communication, 16_GiB);
  const LearnedBounds nothing = bounds({job(1, 0_B, 0_B), job(2, 0_B, 0_B), job(3, 0_B, 0_B)}, "a100-80gb");
  EXPECT_EQ(nothing.cuda_context, 128_MiB);
  EXPECT_EQ(nothing.communication, 256_MiB);
}

// AMP's findings 5 and 6: the stages before training may take more than training does.
Attempt swapped(std::optional<Bytes> link, std::optional<Bytes> update) {
  Attempt attempt = ended(Outcome::kSucceeded, 60_GiB, 55_GiB);
  attempt.swap_plan = true;
  attempt.observed_host_bandwidth = link;
  attempt.observed_host_update_bandwidth = update;
  return attempt;
}

// One job is enough for the next plan; of several the median counts, so that none decides alone.
TEST(Learning, RatesOfTheHostAreThoseOfTheNodesWithThatGpuModel) {
  const auto job = [](int uid, Bytes link, Bytes update) { return job_of(uid, {swapped(link, update)}); };
  const LearnedBounds one = bounds({job(1, 50_GiB, 120_GiB)}, "a100-80gb");
  EXPECT_EQ(one.host_bandwidth, 50_GiB);
  EXPECT_EQ(one.host_update_bandwidth, 120_GiB);
  EXPECT_FALSE(one.shortfall) << "a swap plan's memory teaches nothing of the model's";
  EXPECT_FALSE(bounds({job(1, 50_GiB, 120_GiB)}).host_bandwidth) << "not on other cards";
  const std::vector<LearnedJob> three = {job(1, 50_GiB, 120_GiB), job(2, 400_GiB, 1_GiB),
                                         job(3, 48_GiB, 90_GiB)};
  EXPECT_EQ(bounds(three, "a100-80gb").host_bandwidth, 50_GiB);
  EXPECT_EQ(bounds(three, "a100-80gb").host_update_bandwidth, 90_GiB);
  const LearnedBounds absurd = bounds({job(1, 1_B, 90'000_GiB)}, "a100-80gb");
  EXPECT_EQ(absurd.host_bandwidth, 1_GiB);
  EXPECT_EQ(absurd.host_update_bandwidth, 512_GiB);

  Attempt later = swapped(std::nullopt, 80_GiB);
  later.number = 1;
  const LearnedBounds both = bounds({job_of(1, {swapped(50_GiB, 120_GiB), later})}, "a100-80gb");
  EXPECT_EQ(both.host_bandwidth, 50_GiB);
  EXPECT_EQ(both.host_update_bandwidth, 80_GiB) << "of the latest attempt that has it";
}

// The sample is that of the card on which the job exceeded its estimate.
TEST(Learning, RatesOfAnotherKindOfNodeAreNotTaken) {
  Attempt on_another = swapped(50_GiB, 120_GiB);
  on_another.number = 1;
  on_another.gpu_model = "H100-80GB";
  const std::vector<ProfileSample> samples =
      learned({job_of(1, {out_of_memory(60_GiB, 81_GiB), on_another})});
  ASSERT_EQ(samples.size(), 1U);
  EXPECT_EQ(samples[0].gpu_model, "A100-80GB");
  EXPECT_FALSE(samples[0].host_bandwidth);
}

TEST(Learning, StartUpIsLearnedApartFromTraining) {
  Attempt attempt = ended(Outcome::kSucceeded, 30_GiB, 48_GiB);
  attempt.observed_startup = 48_GiB;  // the peak is start-up's: what training takes is not known
  const LearnedBounds one = bounds({job_of(1, {attempt})}, "a100-80gb");
  EXPECT_EQ(one.startup, 48_GiB);
  EXPECT_FALSE(one.shortfall);
  attempt.observed_startup = 20_GiB;
  const LearnedBounds below = bounds({job_of(1, {attempt})}, "a100-80gb");
  EXPECT_EQ(below.startup, 20_GiB);
  EXPECT_EQ(below.shortfall, 18_GiB);
  EXPECT_FALSE(bounds({job_of(1, {attempt})}).startup) << "of another GPU model nothing is known";
}

TEST(Learning, AJobThatRanOutDuringStartUpTeachesStartUpAlone) {
  Attempt attempt = out_of_memory(30_GiB, 84_GiB);
  attempt.ended_in_startup = true;
  attempt.observed_startup = 70_GiB;
  const LearnedBounds alone = bounds({job_of(1, {attempt})}, "a100-80gb");
  EXPECT_EQ(alone.startup, 48_GiB) << "one job counts up to three fifths of its card";
  EXPECT_FALSE(alone.shortfall);
  const LearnedBounds three =
      bounds({job_of(1, {attempt}), job_of(2, {attempt}), job_of(3, {attempt})}, "a100-80gb");
  EXPECT_EQ(three.startup, 80_GiB);
}

TEST(Learning, TheLatestJobsAreRemembered) {
  std::vector<LearnedJob> jobs = successes(100, 60_GiB, 50_GiB);
  std::vector<ProfileSample> samples = learned(jobs);
  ASSERT_EQ(samples.size(), crds::kMaxSamples);
  EXPECT_EQ(samples.front().job_uid, "uid-1099");
  EXPECT_EQ(samples.back().job_uid, "uid-1036");
  const std::optional<ProfileSample> old = sample_of(jobs.front(), nullptr, gpus());
  EXPECT_EQ(with_sample(samples, *old), samples) << "older than all: nothing changes";
}

TEST(Learning, SamplesSurviveTheirJson) {
  const std::vector<ProfileSample> samples =
      learned(successes(3, 60_GiB, 50_GiB) + std::vector{job_of(1, {out_of_memory(60_GiB, 90_GiB)})});
  Json profile;
  profile["status"]["samples"] = crds::encode(samples);
  EXPECT_EQ(crds::decode_samples(profile), samples);
  for (const char* damaged :
       {R"({"status":{"samples":7}})", R"({"status":{"samples":[7,{},{"jobUID":3}]}})", "[]"}) {
    EXPECT_TRUE(crds::decode_samples(plimsoll::testing::parse(damaged)).empty()) << damaged;
  }
  EXPECT_EQ(
      crds::decode_samples(plimsoll::testing::parse(
          R"({"status":{"samples":[{"jobUID":"a","neededBytes":-4},{"jobUID":"a","neededBytes":9}]}})")),
      std::vector{ProfileSample{.job_uid = "a"}});
}

TEST(Learning, StatisticsTellHowFarEstimatesWere) {
  const Json statistics =
      statistics_of(learned(successes(3, 55_GiB, 50_GiB) + successes(1, 50_GiB, 50_GiB, 9) +
                            std::vector{job_of(1, {out_of_memory(60_GiB, 100_GiB)})}));
  EXPECT_EQ(
      write_json(statistics),
      R"({"jobs":5,"meanError":"14.0%","measured":5,"outOfMemory":1,"overEstimated":4,"p95Error":"40.0%","underEstimated":1})");
  EXPECT_EQ(write_json(statistics_of({})),
            R"({"jobs":0,"measured":0,"outOfMemory":0,"overEstimated":0,"underEstimated":0})");
}

TEST(Learning, RelativeErrors) {
  EXPECT_DOUBLE_EQ(*relative_error(ended(Outcome::kSucceeded, 55_GiB, 50_GiB)), 0.1);
  EXPECT_DOUBLE_EQ(*relative_error(out_of_memory(60_GiB, 80_GiB)), -0.25);
  EXPECT_FALSE(relative_error(ended(Outcome::kPreempted, 55_GiB, 50_GiB)));
  EXPECT_FALSE(relative_error(ended(Outcome::kSucceeded, 55_GiB)));
}

TEST(Learning, ProfilesAreNamedAfterTheFamily) {
  EXPECT_EQ(profile_name("ads-ctr"), "ads-ctr");
  EXPECT_NE(profile_name("Ads_CTR.v2"), profile_name("ads-ctr-v2"));
  EXPECT_THAT(profile_name("Ads_CTR.v2"), ::testing::MatchesRegex("ads-ctr-v2-[0-9a-f]+"));
  EXPECT_THAT(profile_name("ads-ctr", true), ::testing::MatchesRegex("ads-ctr-[0-9a-f]+"));
}

// What was learned is the next job's estimate: it is admitted where the first ended.
TEST(Learning, TheNextJobOfTheFamilyIsAdmittedAtTheRightSize) {
  using plimsoll::testing::decode;
  constexpr std::int64_t kGiBOfRows = 2'097'152;
  const std::vector<estimator::AvailableGpu> cluster = {plimsoll::testing::available("A100-40GB", 32)};
  const crds::TrainingJob job = decode(plimsoll::testing::job_object(100, kGiBOfRows));
  const estimator::Provision first = estimator::provision({.job = &job, .gpus = &cluster});
  ASSERT_TRUE(first.decided());
  const Bytes card = cluster.front().model.memory;
  const Bytes needed = card + 2_GiB;
  const estimator::Provision expanded = estimator::provision(
      {.job = &job,
       .gpus = &cluster,
       .failed = {{"A100-40GB", first.decision->trainers, first.decision->per_node, card, needed}}});
  ASSERT_TRUE(expanded.decided()) << expanded.reason;

  Attempt attempt{.gpu_model = "A100-40GB",
                  .trainers = first.decision->trainers,
                  .per_node = first.decision->per_node,
                  .estimated = first.decision->estimate.peak.upper_bound,
                  .out_of_memory = {.needed = needed},
                  .outcome = Outcome::kCudaOutOfMemory};
  Json profile = plimsoll::testing::parse(R"({"apiVersion": "plimsoll.dev/v1alpha1", "kind": "MemoryProfile",
      "metadata": {"name": "ads", "namespace": "ml"}, "spec": {"family": "ads"}})");
  const std::optional<ProfileSample> sample = sample_of(job_of(1, {attempt}), nullptr, cluster);
  ASSERT_TRUE(sample);
  profile["status"]["bounds"] = encode(bounds_of({*sample}));
  const auto view = estimator::make_cluster_view(estimator::GpuCatalog::built_in(), {}, {profile});
  ASSERT_NE(view->profile_of("ml", "ads"), nullptr);
  const estimator::Provision next =
      estimator::provision({.job = &job, .gpus = &cluster, .profile = view->profile_of("ml", "ads")});
  ASSERT_TRUE(next.decided()) << next.reason;
  EXPECT_EQ(next.decision->trainers, expanded.decision->trainers);
  EXPECT_GT(next.decision->estimate.learned, Bytes{});
  EXPECT_NEAR(static_cast<double>(next.decision->estimate.learned.count),
              static_cast<double>(expanded.decision->estimate.learned.count), 1 << 20);
}

TEST(Learning, BoundsStayInTheirBoundsWhateverJobsSay) {
  const std::uint32_t seed = plimsoll::testing::random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto bytes = [&] { return Bytes{static_cast<std::int64_t>(random() >> (1 + random() % 62))}; };
  for (int round = 0; round < 300; ++round) {
    std::vector<LearnedJob> jobs = successes(static_cast<int>(random() % 20), bytes(), bytes());
    for (std::uint64_t i = random() % 20; i > 0; --i) {
      Attempt attempt = out_of_memory(bytes(), bytes());
      attempt.outcome = static_cast<Outcome>(1 + random() % 9);
      attempt.observed_peak = bytes();
      attempt.observed_context = bytes();
      attempt.observed_communication = bytes();
      attempt.out_of_memory.fragmentation = bytes();
      attempt.observed_host_bandwidth = bytes();
      attempt.observed_host_update_bandwidth = bytes();
      attempt.learned = random() % 2 == 0 ? bytes() : Bytes{} - bytes();
      jobs.push_back(job_of(static_cast<int>(i), {attempt, attempt}));
    }
    const std::vector<ProfileSample> samples = learned(jobs);
    for (const LearnedBounds& entry : bounds_of(samples)) {
      ASSERT_TRUE(!entry.shortfall || (*entry.shortfall > Bytes{} && *entry.shortfall <= 80_GiB));
      ASSERT_TRUE(!entry.peak_correction || (*entry.peak_correction >= 0.5 && *entry.peak_correction < 1));
      ASSERT_FALSE(entry.shortfall && entry.peak_correction);
      ASSERT_TRUE(!entry.cuda_context || *entry.cuda_context <= 4_GiB);
      ASSERT_TRUE(!entry.communication || *entry.communication <= 16_GiB);
      ASSERT_TRUE(!entry.host_bandwidth ||
                  (*entry.host_bandwidth >= 1_GiB && *entry.host_bandwidth <= 512_GiB));
    }
    ASSERT_TRUE(statistics_of(samples).isObject());
    Json profile =
        plimsoll::testing::parse(R"({"apiVersion": "plimsoll.dev/v1alpha1", "kind": "MemoryProfile",
        "metadata": {"name": "a", "namespace": "b"}, "spec": {"family": "a"}})");
    profile["status"]["bounds"] = encode(bounds_of(samples));
    const Result<crds::MemoryProfile> read = crds::decode_memory_profile(profile);
    ASSERT_TRUE(read.ok()) << to_string(read.error());
  }
}

}  // namespace
}  // namespace plimsoll::controllers
