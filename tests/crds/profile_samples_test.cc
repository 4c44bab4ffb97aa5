#include "crds/profile_samples.h"

#include <gtest/gtest.h>

#include "tests/crds/test_jobs.h"

namespace plimsoll::crds {
namespace {

Json profile_with(const Json& samples) {
  Json object;
  set(object, "status.samples", samples);
  return object;
}

TEST(ProfileSamples, ComeBackAsTheyWereWritten) {
  const std::vector<ProfileSample> samples = {{.job_uid = "u-1",
                                               .job = "ads",
                                               .last_attempt = 3,
                                               .time = "2026-11-21T10:00:00Z",
                                               .gpu_model = "A100-40GB",
                                               .trainers = 8,
                                               .capacity = 40_GiB,
                                               .estimated = 30_GiB,
                                               .needed = 41_GiB,
                                               .transient = 2_GiB,
                                               .out_of_memory = true,
                                               .context = 500_MiB,
                                               .communication = Bytes{0},
                                               .host_bandwidth = 50_GiB,
                                               .host_update_bandwidth = 120_GiB},
                                              {.job_uid = "u-2"}};
  EXPECT_EQ(decode_samples(profile_with(encode(samples))), samples);
  EXPECT_TRUE(decode_samples(profile_with(encode({}))).empty());
}

TEST(ProfileSamples, WhatIsUnknownIsNotWritten) {
  const Json list = encode({{.job_uid = "u-1"}});
  ASSERT_EQ(list.size(), 1U);
  for (const char* field : {"job", "time", "gpuModel", "estimatedBytes", "neededBytes", "contextBytes"}) {
    EXPECT_FALSE(list[0].isMember(field)) << field;
  }
}

TEST(ProfileSamples, AFieldOfAWrongTypeIsUnknown) {
  const Json list = yaml(
      "[{jobUID: u-1, job: 5, lastAttempt: -1, trainers: eight, capacityBytes: -7, neededBytes: 1.5, "
      "estimatedBytes: 99999999999999999999, outOfMemory: 1}]");
  EXPECT_EQ(decode_samples(profile_with(list)), (std::vector<ProfileSample>{{.job_uid = "u-1"}}));
}

TEST(ProfileSamples, OneThatNamesNoJobIsSkippedAndTheFirstOfAJobCounts) {
  const Json list = yaml(
      "[{trainers: 1}, 5, null, [], {jobUID: 5}, {jobUID: a, trainers: 1}, {jobUID: a, trainers: 2}, "
      "{jobUID: b, trainers: 3}]");
  EXPECT_EQ(decode_samples(profile_with(list)),
            (std::vector<ProfileSample>{{.job_uid = "a", .trainers = 1}, {.job_uid = "b", .trainers = 3}}));
}

TEST(ProfileSamples, AtMostSixtyFourAreRead) {
  std::vector<ProfileSample> many;
  for (int i = 0; i < 100; ++i) {
    many.push_back({.job_uid = std::to_string(i)});
  }
  const std::vector<ProfileSample> read = decode_samples(profile_with(encode(many)));
  ASSERT_EQ(read.size(), kMaxSamples);
  EXPECT_EQ(read.back().job_uid, "63");
}

TEST(ProfileSamples, AnObjectOfAnyShapeHasNone) {
  for (const char* object :
       {"null", "[]", "5", "{}", R"({"status":[]})", R"({"status":{"samples":{"jobUID":"a"}}})"}) {
    EXPECT_TRUE(decode_samples(*parse_json(object)).empty()) << object;
  }
}

}  // namespace
}  // namespace plimsoll::crds
