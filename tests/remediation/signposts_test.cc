#include "remediation/signposts.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/testing/random_seed.h"

namespace plimsoll::remediation {
namespace {

Json pod_that_said(const std::string& message, const char* state = "state") {
  Json pod;
  pod["status"]["containerStatuses"][0][state]["terminated"]["message"] = message;
  return pod;
}

// docs/signposts.md's example.
const char* const kPeak =
    R"({"plimsoll":1,"stage":"peak","rank":0,"iteration":412,"torch":"2.15.0","allocatedBytes":52613349376,"reservedBytes":55834574848,"deviceUsedBytes":57974196224,"capacityBytes":85093056512,"contextBytes":1339621376,"device":"NVIDIA A100-SXM4-80GB"})";

TEST(Signposts, TheHighestOfAllTrainersAndPods) {
  const std::string other =
      R"({"plimsoll":1,"stage":"peak","rank":9,"allocatedBytes":1000,"reservedBytes":55900000000,"contextBytes":700})";
  const Signposts seen =
      read_signposts({pod_that_said(std::string(kPeak) + "\n[rank0]: torch.OutOfMemoryError\n"),
                      pod_that_said("warming up\n" + other + "\n", "lastState")});
  EXPECT_EQ(seen.peak, Bytes{57974196224});
  EXPECT_EQ(seen.allocated, Bytes{52613349376});
  EXPECT_EQ(seen.reserved, Bytes{55900000000});
  EXPECT_EQ(seen.context, Bytes{1339621376});
  EXPECT_EQ(seen.communication, Bytes{57974196224 - 55834574848 - 1339621376});
  EXPECT_EQ(seen.lines, 2U);
}

TEST(Signposts, StartUpIsWhatWasTakenBeforeTheFirstForwardPass) {
  const Signposts seen = read_signposts(
      {pod_that_said(R"({"plimsoll":1,"stage":"sharding","training":false,"deviceUsedBytes":70})"
                     "\n"
                     R"({"plimsoll":1,"stage":"setup","training":false,"deviceUsedBytes":75})"
                     "\n"
                     R"({"plimsoll":1,"stage":"peak","training":true,"deviceUsedBytes":90})")});
  EXPECT_EQ(seen.startup, Bytes{75});
  EXPECT_EQ(seen.peak, Bytes{90});
  EXPECT_EQ(seen.in_startup, 2U);
  EXPECT_EQ(seen.in_training, 1U);
  const Signposts older = read_signposts({pod_that_said(kPeak)});  // a version that does not say it
  EXPECT_FALSE(older.startup);
  EXPECT_EQ(older.in_startup + older.in_training, 0U);
  EXPECT_FALSE(
      read_signposts({pod_that_said(R"({"plimsoll":1,"training":"no","deviceUsedBytes":70})")}).startup);
}

TEST(Signposts, AllocatorAndContextWhereTheCardWasNotSeen) {
  EXPECT_EQ(
      read_signposts({pod_that_said(R"({"plimsoll":1,"stage":"ddp","reservedBytes":100,"contextBytes":7})")})
          .peak,
      Bytes{107});
  EXPECT_FALSE(read_signposts({pod_that_said(R"({"plimsoll":1,"stage":"ddp","reservedBytes":100})")}).peak);
}

TEST(Signposts, WithoutAnyNothingIsKnown) {
  const Signposts none =
      read_signposts({pod_that_said(R"({"plimsoll":1,"stage":"peak","rank":0,"device":"cpu"})")});
  EXPECT_FALSE(none.peak || none.allocated || none.reserved || none.context || none.communication);
  EXPECT_EQ(none.lines, 0U);
  EXPECT_EQ(read_signposts({}).lines, 0U);
}

// Of both ways the slower one, since a plan has one bandwidth.
TEST(Signposts, RatesOfTheHostAreThoseOfTheFastestTrainer) {
  const auto line = [](const std::string& rates) {
    return pod_that_said(R"({"plimsoll":1,"stage":"peak",)" + rates + "}\n");
  };
  const Signposts seen = read_signposts({
      line(
          R"("hostToDeviceBytesPerSecond":55000,"deviceToHostBytesPerSecond":50000,"hostUpdateBytesPerSecond":9000)"),
      line(R"("hostToDeviceBytesPerSecond":40000,"hostUpdateBytesPerSecond":12000)"),
  });
  EXPECT_EQ(seen.host_bandwidth, Bytes{50000});
  EXPECT_EQ(seen.host_update_bandwidth, Bytes{12000});
  for (const char* const wrong : {"0", "-5", "\"9\"", "1.5", "true", "null", "[]", "900000000000000000"}) {
    const Signposts none = read_signposts(
        {line("\"hostToDeviceBytesPerSecond\":" + std::string(wrong) +
              ",\"deviceToHostBytesPerSecond\":" + wrong + ",\"hostUpdateBytesPerSecond\":" + wrong)});
    EXPECT_FALSE(none.host_bandwidth) << wrong;
    EXPECT_FALSE(none.host_update_bandwidth) << wrong;
  }
  EXPECT_EQ(seen.lines, 0U) << "they are no figures of memory";
}

TEST(Signposts, WhatCannotBeIsPassedOver) {
  for (const char* line :
       {R"({"plimsoll":1,"deviceUsedBytes":-5})", R"({"plimsoll":1,"deviceUsedBytes":"many"})",
        R"({"plimsoll":1,"deviceUsedBytes":9e99})", R"({"plimsoll":1,"deviceUsedBytes":5000000000000})",
        R"({"plimsoll":1,"deviceUsedBytes":9223372036854775807,"contextBytes":9223372036854775807})",
        R"({"plimsoll":2,"deviceUsedBytes":5})", R"({"plimsoll":1,"deviceUsedBytes":5)",
        R"({"plimsoll":1,"deviceUsedBytes":90,"capacityBytes":80})",
        R"([rank0]: {"plimsoll":1,"deviceUsedBytes":5})", R"({"plimsoll":)", "", "\n\n\n"}) {
    EXPECT_FALSE(read_signposts({pod_that_said(line)}).peak) << line;
  }
  Json pods(::Json::arrayValue);
  for (const char* broken :
       {"7", "{}", R"({"status":3})", R"({"status":{"containerStatuses":{"a":1}}})",
        R"({"status":{"containerStatuses":[4,{"state":[]},{"state":{"terminated":{"message":8}}}]}})"}) {
    EXPECT_EQ(read_signposts({*parse_json(broken)}).lines, 0U) << broken;
  }
}

TEST(Signposts, MessagesAreReadAsFarAsAKubeletKeepsThem) {
  std::string flood;
  while (flood.size() < (std::size_t{16} << 20)) {
    flood += "{\"plimsoll\":1,\"deviceUsedBytes\":1}\n";
  }
  EXPECT_LT(read_signposts({pod_that_said(flood)}).lines, 400U);
  EXPECT_EQ(read_signposts({pod_that_said("{\"plimsoll\":" + std::string(1 << 20, '['))}).lines, 0U);
}

TEST(Signposts, NoTextHarms) {
  const std::uint32_t seed = plimsoll::testing::random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 3'000; ++i) {
    std::string text = kPeak;
    for (std::uint32_t edits = random() % 6; edits > 0; --edits) {
      text[random() % text.size()] = static_cast<char>(random());
    }
    const Signposts seen = read_signposts({pod_that_said(text)});
    EXPECT_TRUE(!seen.peak || (*seen.peak >= Bytes{} && *seen.peak <= 4097_GiB)) << text;
  }
}

}  // namespace
}  // namespace plimsoll::remediation
