#include "estimator/speed/throughput.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json/view.h"
#include "estimator/speed/iteration_time.h"
#include "tests/estimator/llama_job.h"
#include "tests/estimator/provisioner_fixture.h"

namespace plimsoll::estimator {
namespace {

using plimsoll::testing::available;
using plimsoll::testing::Cluster;
using plimsoll::testing::decode;
using plimsoll::testing::job_object;
using plimsoll::testing::provision;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing::kLlama8B;
using testing::llama_job;

constexpr std::int64_t kGiBOfRows = 2'097'152;  // x 128 in FP32

Throughput of(std::int64_t trainers, double seconds, double rate) {
  return {.gpu_model = "H100-80GB",
          .trainers = trainers,
          .iteration = {.seconds = seconds, .samples_per_second = rate, .uncertainty = 1.25, .parts = {}}};
}

TEST(MinThroughput, IsSamplesASecondOrAShareOfTheRequested) {
  crds::ProvisioningSpec provisioning;
  EXPECT_FALSE(min_throughput_of(provisioning));
  provisioning.min_throughput = "1500.5";
  EXPECT_DOUBLE_EQ(*min_throughput_of(provisioning)->samples_per_second(std::nullopt), 1500.5);
  provisioning.min_throughput = "90%";
  EXPECT_DOUBLE_EQ(*min_throughput_of(provisioning)->samples_per_second(2000), 1800);
  const Result<double> unknown = min_throughput_of(provisioning)->samples_per_second(std::nullopt);
  ASSERT_FALSE(unknown.ok());
  EXPECT_THAT(unknown.error().message, HasSubstr("give it in samples a second"));
}

TEST(Throughput, GpuHoursAreThoseOfAllTrainers) {
  // 8 GPUs x 1e6 samples / (1000 samples/s x 3600 s/h)
  EXPECT_NEAR(of(8, 1, 1000).gpu_hours_per_million_samples(), 2.2222, 1e-4);
  EXPECT_EQ(of(8, 0, 0).gpu_hours_per_million_samples(), 0);
}

TEST(Throughput, FiguresHaveThreeDigits) {
  EXPECT_EQ(rounded_text(0.041234), "0.0412");
  EXPECT_EQ(rounded_text(1.0), "1.00");
  EXPECT_EQ(rounded_text(999.9), "1000");
  EXPECT_EQ(rounded_text(15531), "15500");
  EXPECT_EQ(rounded_text(1e300), "0") << "no throughput";
  EXPECT_EQ(rounded_text(0), "0");
  EXPECT_EQ(rounded_text(1e-12), "0.000000000");
}

TEST(Throughput, StandsBesideThatOfTheRequested) {
  const Json json = to_json(of(8, 0.5, 1000), of(32, 0.25, 8000));
  EXPECT_EQ(write_json(json),
            R"({"gpuHoursPerMillionSamples":"2.22","iterationSeconds":"0.500","requested":)"
            R"({"gpuHoursPerMillionSamples":"1.11","iterationSeconds":"0.250","samplesPerSecond":"8000"},)"
            R"("samplesPerSecond":"1000","uncertainty":"1.25"})");
  EXPECT_THAT(
      compared_text(of(8, 0.5, 1000), of(32, 0.25, 8000)),
      AllOf(HasSubstr("8 x H100-80GB take about 0.500 s an iteration, 1000 samples a second, 2.22 GPU-hours"),
            HasSubstr("the requested 32 x H100-80GB: 0.250 s")));
}

// A model without tables, whose replicas may be reduced.
crds::TrainingJob language_model(const std::string& min_throughput) {
  crds::TrainingJob job = llama_job(kLlama8B, 1, 1, 64);
  job.spec.provisioning.min_throughput = min_throughput;
  return job;
}

double rate_of(const crds::TrainingJob& job, const AvailableGpu& gpu, std::int64_t trainers) {
  crds::TrainingSpec training = job.spec.training;
  const Result<IterationTime> time = iteration_time({.job = {.model = &job.spec.model,
                                                             .training = &training,
                                                             .gpu = &gpu.model,
                                                             .trainers = trainers,
                                                             .per_node = 8}});
  EXPECT_TRUE(time.ok()) << time.error().message;
  return time ? time->samples_per_second : 0;
}

TEST(MinThroughput, TheFewestThatReachItAreGiven) {
  const Cluster cluster = {available("H100-80GB", 8)};
  const Provision any = provision(language_model(""), cluster);
  ASSERT_TRUE(any.decided()) << any.reason;
  const crds::TrainingJob job = language_model("40");
  const Provision answer = provision(job, cluster);
  ASSERT_TRUE(answer.decided()) << answer.reason;
  EXPECT_GT(answer.decision->trainers, any.decision->trainers);
  EXPECT_GE(rate_of(job, cluster.front(), answer.decision->trainers), 40);
  EXPECT_LT(rate_of(job, cluster.front(), answer.decision->trainers - 8), 40);
}

TEST(MinThroughput, AShareIsOfTheRequestedTrainers) {
  const Cluster cluster = {available("H100-80GB", 8)};
  const crds::TrainingJob job = language_model("50%");
  const Provision answer = provision(job, cluster);
  ASSERT_TRUE(answer.decided()) << answer.reason;
  const double half = rate_of(job, cluster.front(), 64) / 2;
  EXPECT_GE(rate_of(job, cluster.front(), answer.decision->trainers), half);
  EXPECT_LT(rate_of(job, cluster.front(), answer.decision->trainers - 8), half);
}

TEST(MinThroughput, WhatCannotBeReachedIsRefusedWithTheMostThatCan) {
  const Provision answer = provision(language_model("100000"), {available("H100-80GB", 8)});
  ASSERT_FALSE(answer.decided());
  EXPECT_EQ(answer.event_reason, "NoFittingGPU");
  EXPECT_THAT(answer.reason, AllOf(HasSubstr("64 x H100-80GB take about "),
                                   HasSubstr("and provisioning.minThroughput is 100000")));
}

// The throughput of a card without figures is not known, so that it cannot be promised.
TEST(MinThroughput, ACardWithoutFiguresIsNotGiven) {
  crds::TrainingJob job = language_model("1");
  const Provision answer = provision(job, {available("A40", 8), available("H100-80GB", 8)});
  ASSERT_TRUE(answer.decided()) << answer.reason;
  EXPECT_EQ(answer.decision->gpu_model, "H100-80GB");
  const Provision none = provision(job, {available("A40", 8)});
  ASSERT_FALSE(none.decided());
  EXPECT_THAT(none.reason, HasSubstr("provisioning.minThroughput is set: "));
}

TEST(MinThroughput, OfTablesCountsTheirExchanges) {
  Json object = job_object(64, kGiBOfRows);
  const Cluster cluster = {available("A100-80GB", 32)};
  const Provision any = provision(decode(object), cluster);
  ASSERT_TRUE(any.decided()) << any.reason;
  ASSERT_TRUE(any.decision->throughput && any.decision->requested);
  EXPECT_LT(any.decision->trainers, 128);
  EXPECT_EQ(any.decision->requested->trainers, 128);
  EXPECT_THAT(any.warnings, Contains(HasSubstr("the requested 128 x A100-80GB: ")));
  object["spec"]["provisioning"]["minThroughput"] = "100%";
  const Provision same = provision(decode(object), cluster);
  ASSERT_TRUE(same.decided()) << same.reason;
  EXPECT_GT(same.decision->trainers, any.decision->trainers);
  EXPECT_GE(same.decision->throughput->iteration.samples_per_second,
            same.decision->requested->iteration.samples_per_second);
}

// DDP takes as much on any number, which once ended the search at the first.
TEST(MinThroughput, ReplicasAreRaisedToIt) {
  crds::TrainingJob job = language_model("");
  job.spec.model.transformer->layers = 4;
  job.spec.training.parallelism.strategy = crds::ParallelStrategy::kDDP;
  const Cluster cluster = {available("H100-80GB", 8)};
  const double rate = rate_of(job, cluster.front(), 32);
  job.spec.provisioning.min_throughput = std::to_string(static_cast<std::int64_t>(rate));
  const Provision answer = provision(job, cluster);
  ASSERT_TRUE(answer.decided()) << answer.reason;
  EXPECT_EQ(answer.decision->trainers, 32);
}

TEST(LowestCostPerSample, IsTheLeastOfAllCardsThatHoldTheJob) {
  crds::TrainingJob job = language_model("");
  job.spec.provisioning.objective = crds::Objective::kLowestCostPerSample;
  const Cluster cluster = {available("A100-80GB", 8), available("H100-80GB", 8), available("V100-32GB", 8)};
  const Provision answer = provision(job, cluster);
  ASSERT_TRUE(answer.decided()) << answer.reason;
  const auto price = [&](const Alternative& each) { return each.cost / each.samples_per_second; };
  int compared = 0;
  for (const Alternative& each : answer.alternatives) {
    if (each.fits) {
      ++compared;
      EXPECT_GE(price(each), price(answer.alternatives.front()));
    }
  }
  EXPECT_EQ(compared, 2);
  EXPECT_EQ(answer.alternatives.front().gpu_model, answer.decision->gpu_model);
  EXPECT_THAT(answer.reason, HasSubstr("GPUs cost the least for the same samples"));
}

TEST(LowestCostPerSample, WithoutTimesTheCheapestAnHourAreTaken) {
  crds::TrainingJob job = language_model("");
  job.spec.provisioning.objective = crds::Objective::kLowestCostPerSample;
  const Provision answer = provision(job, {available("A40", 8)});
  ASSERT_TRUE(answer.decided()) << answer.reason;
  EXPECT_FALSE(answer.decision->throughput);
  EXPECT_THAT(answer.warnings, Contains(HasSubstr("the time of an iteration is not known")));
}

}  // namespace
}  // namespace plimsoll::estimator
