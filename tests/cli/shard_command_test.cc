#include <gmock/gmock.h>

#include <set>

#include "base/gzip.h"
#include "tests/cli/run_command.h"

namespace plimsoll::cli {
namespace {

using plimsoll::testing::Outcome;
using plimsoll::testing::run;
using ::testing::HasSubstr;

// 16 tables of a GiB each.
std::string tables() {
  std::string csv = "# a comment\nname,rows,dim,pooling_factor\n";
  for (int i = 0; i < 16; ++i) {
    csv += "t" + std::to_string(i) + ",2097152,128," + std::to_string(i + 1) + "\n";
  }
  return csv;
}

Outcome shard(std::vector<std::string> arguments, const std::string& csv = tables()) {
  arguments.insert(arguments.begin(), {"--tables", "-", "--batch-size", "512"});
  return run(run_shard, arguments, csv);
}

TEST(ShardCommand, KeepsTheJsonContract) {
  const Outcome outcome = shard({"--trainers", "8", "--hbm", "8Gi", "--verify", "-o", "json"});
  EXPECT_EQ(outcome.code, kExitDone) << outcome.err;
  const Json json = outcome.json();
  EXPECT_TRUE(json["feasible"].asBool());
  for (const char* key : {"maxMs", "meanMs", "lowerBoundMs"}) {
    EXPECT_GT(json["perf"][key].asDouble(), 0) << key;
  }
  for (const char* key : {"maxBytes", "meanBytes", "nodeMaxBytes", "nodeMeanBytes"}) {
    EXPECT_GT(json["memory"][key].asInt64(), 0) << key;
  }
  EXPECT_GT(json["elapsedSeconds"].asDouble(), 0);
  EXPECT_TRUE(json["verified"].asBool());
  ASSERT_EQ(json["plan"].size(), 16U);
  std::set<std::string> names;
  for (const Json& entry : json["plan"]) {
    names.insert(entry["table"].asString());
    EXPECT_TRUE(entry["shardingType"].isString());
    ASSERT_GT(entry["shards"].size(), 0U);
    for (const char* key : {"rank", "rowBegin", "rowEnd", "columnBegin", "columnEnd"}) {
      EXPECT_TRUE(entry["shards"][0][key].isInt64()) << key;
    }
  }
  EXPECT_EQ(names.size(), 16U);
}

TEST(ShardCommand, WhatDoesNotFitIsExitOneWithTheConstraint) {
  const Outcome outcome = shard({"--trainers", "2", "--hbm", "4Gi", "-o", "json"});
  EXPECT_EQ(outcome.code, kExitRefused);
  const Json json = outcome.json();
  EXPECT_FALSE(json["feasible"].asBool());
  EXPECT_EQ(json["constraint"].asString(), "TotalMemory");
  EXPECT_GT(json["missingBytes"].asInt64(), 7LL << 30);
  EXPECT_FALSE(json["reason"].asString().empty());
  EXPECT_THAT(outcome.err, HasSubstr("plimsoll: "));
}

// It named what is without the reserve: who gave the trainers that much ran out again.
TEST(ShardCommand, WhatWouldFitCountsTheReserve) {
  const Json json = shard({"--trainers", "2", "--hbm", "40Gi", "--reserve", "39Gi", "-o", "json"}).json();
  const Bytes enough{json["remedy"]["bytesPerTrainer"].asInt64()};
  EXPECT_GT(enough, 40_GiB);
  EXPECT_EQ(Bytes{json["missingBytes"].asInt64()}, (enough - 40_GiB) * 2);
  EXPECT_THAT(json["reason"].asString(), HasSubstr(to_string((enough - 40_GiB) * 2) + " more in all"));
  EXPECT_EQ(shard({"--trainers", "2", "--hbm", std::to_string(enough.count), "--reserve", "39Gi"}).code,
            kExitDone);
}

TEST(ShardCommand, AutoTakesTheFewestThatFit) {
  const Outcome outcome = shard({"--trainers", "auto", "--hbm", "5Gi", "--reserve", "1Gi", "-o", "json"});
  EXPECT_EQ(outcome.code, kExitDone) << outcome.err;
  const std::int64_t trainers = outcome.json()["trainers"].asInt64();
  EXPECT_GT(trainers, 3);
  EXPECT_LE(trainers, 8);
  EXPECT_EQ(shard({"--trainers", std::to_string(trainers), "--hbm", "4Gi"}).code, kExitDone);
  EXPECT_EQ(shard({"--trainers", std::to_string(trainers - 1), "--hbm", "4Gi"}).code, kExitRefused);
}

TEST(ShardCommand, PeopleGetASummary) {
  const Outcome outcome = shard({"--trainers", "16", "--hbm", "8Gi", "--verify"});
  EXPECT_EQ(outcome.code, kExitDone);
  EXPECT_THAT(outcome.out, HasSubstr("16 tables on 16 trainers, 8 a node"));
  EXPECT_THAT(outcome.out, HasSubstr("times the lower bound"));
  EXPECT_THAT(outcome.out, HasSubstr("verified"));
}

TEST(ShardCommand, SlowerLinksCostMore) {
  const auto milliseconds = [](const std::string& topology) {
    return shard({"--trainers", "16", "--hbm", "8Gi", "--topology", topology, "-o", "json"})
        .json()["perf"]["maxMs"]
        .asDouble();
  };
  EXPECT_GT(milliseconds("intra=60Gi,inter=1.25Gi,hbm=89Gi"),
            2 * milliseconds("intra=600Gi,inter=12.5Gi,hbm=897Gi"));
}

TEST(ShardCommand, TheOptimizersStateCounts) {
  EXPECT_EQ(shard({"--trainers", "8", "--hbm", "5Gi", "--optimizer", "SGD"}).code, kExitDone);
  EXPECT_EQ(shard({"--trainers", "8", "--hbm", "5Gi", "--optimizer", "Adam"}).code, kExitRefused);
}

TEST(ShardCommand, GzipIsUnderstood) {
  EXPECT_EQ(shard({"--trainers", "8", "--hbm", "8Gi"}, gzip(tables())).code, kExitDone);
}

TEST(ShardCommand, WrongUsageIsExitTwo) {
  const std::vector<std::string> good = {"--trainers", "8", "--hbm", "8Gi"};
  for (const std::vector<std::string>& wrong : std::vector<std::vector<std::string>>{
           {"--trainers", "12", "--hbm", "8Gi"},
           {"--trainers", "0", "--hbm", "8Gi"},
           {"--trainers", "-1", "--hbm", "8Gi"},
           {"--trainers", "many", "--hbm", "8Gi"},
           {"--trainers", "8"},
           {"--trainers", "8", "--hbm", "8Qi"},
           {"--trainers", "8", "--hbm", "-8Gi"},
           {"--trainers", "8", "--hbm", "8Gi", "--reserve", "8Gi"},
           {"--trainers", "8", "--hbm", "8Gi", "--reserve", "x"},
           {"--trainers", "8", "--hbm", "8Gi", "--per-node", "0"},
           {"--trainers", "8", "--hbm", "8Gi", "--optimizer", "Adamant"},
           {"--trainers", "8", "--hbm", "8Gi", "--optimizer", "AdamW8bit"},
           {"--trainers", "8", "--hbm", "8Gi", "--topology", "intra"},
           {"--trainers", "8", "--hbm", "8Gi", "--topology", "intra=0"},
           {"--trainers", "8", "--hbm", "8Gi", "--topology", "intra=1Gi,intra=2Gi"},
           {"--trainers", "8", "--hbm", "8Gi", "--topology", "warp=1Gi"},
           {"--trainers", "8", "--hbm", "8Gi", "--verify=maybe"},
       }) {
    const Outcome outcome = shard(wrong);
    EXPECT_EQ(outcome.code, kExitUsage) << ::testing::PrintToString(wrong);
    EXPECT_FALSE(outcome.err.empty());
  }
  for (const char* csv : {"", "# only comments\n", "name,rows,dim,pooling_factor\n", "t0,1\n", "t0,x,8,1\n",
                          "t0,-1,8,1\n", "t0,10,8,1,2\n", "t0,99999999999999999999999,8,1\n"}) {
    EXPECT_EQ(shard(good, csv).code, kExitUsage) << csv;
  }
  EXPECT_EQ(run(run_shard, {}).code, kExitUsage);
  EXPECT_EQ(
      run(run_shard, {"--tables", "/no/such/file", "--trainers", "8", "--hbm", "8Gi", "--batch-size", "1"})
          .code,
      kExitUsage);
}

TEST(ShardCommand, SaysWhatWouldDo) {
  const Outcome outcome = shard({"--trainers", "2", "--hbm", "4Gi", "-o", "json"});
  const Json json = outcome.json();
  const std::int64_t trainers = json["remedy"]["trainers"].asInt64();
  const std::int64_t bytes = json["remedy"]["bytesPerTrainer"].asInt64();
  EXPECT_EQ(shard({"--trainers", std::to_string(trainers), "--hbm", "4Gi"}).code, kExitDone);
  EXPECT_EQ(shard({"--trainers", "2", "--hbm", std::to_string(bytes)}).code, kExitDone);
  EXPECT_TRUE(json["table"].isNull());
  EXPECT_THAT(outcome.err, HasSubstr("trainers fit, or 2 with"));
}

TEST(ShardCommand, TorchrecFormNamesTheModule) {
  const Outcome outcome = shard({"--trainers", "8", "--hbm", "8Gi", "-o", "torchrec", "--module", "a.b"});
  EXPECT_EQ(outcome.code, kExitDone) << outcome.err;
  const Json json = outcome.json();
  ASSERT_EQ(json["a.b"].size(), 16U);
  EXPECT_TRUE(json["a.b"]["t0"]["sharding_type"].isString());
}

TEST(ShardCommand, TakesConstraintsAndUnequalTrainers) {
  const Outcome outcome = shard({"--trainers", "8", "--hbm", "2Gi*4,8Gi*4", "--allow", "t3=row_wise", "--pin",
                                 "t4=1,5-6", "--verify", "-o", "json"});
  ASSERT_EQ(outcome.code, kExitDone) << outcome.err;
  const Json json = outcome.json();
  EXPECT_EQ(json["plan"][3]["shardingType"].asString(), "row_wise");
  for (const Json& shard : json["plan"][4]["shards"]) {
    EXPECT_THAT((std::set<int>{1, 5, 6}), ::testing::Contains(shard["rank"].asInt()));
  }
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_LE(json["ranks"][rank]["memoryBytes"].asInt64(), 2LL << 30);
  }
}

TEST(ShardCommand, KeepsColdTablesOnTheHost) {
  std::string csv;
  for (int i = 0; i < 16; ++i) {
    csv += "t" + std::to_string(i) + ",2097152,128,0.0001\n";
  }
  const std::vector<std::string> arguments = {"--trainers", "2", "--hbm", "4Gi", "-o", "json"};
  EXPECT_EQ(shard(arguments, csv).code, kExitRefused);
  std::vector<std::string> with_host = arguments;
  with_host.insert(with_host.end(), {"--host-memory", "16Gi", "--cache-ratio", "1%", "--verify"});
  const Outcome outcome = shard(with_host, csv);
  ASSERT_EQ(outcome.code, kExitDone) << outcome.err;
  EXPECT_GT(outcome.json()["ranks"][0]["hostBytes"].asInt64(), 0);
}

TEST(ShardCommand, CountsBytesAsTheKernelsAllocateThemWhenAsked) {
  const std::string seldom = "t,1000000,128,0.25\n";
  const auto bytes = [&](std::vector<std::string> options) {
    options.insert(options.end(), {"--trainers", "1", "--hbm", "8Gi", "--verify", "-o", "json"});
    const Outcome outcome = shard(options, seldom);
    EXPECT_EQ(outcome.code, kExitDone) << outcome.err;
    return outcome.json()["memory"]["maxBytes"].asInt64();
  };
  const std::int64_t state = 1'000'000 * (128 + 1) * 4 + 8 * 512 / 4;
  EXPECT_EQ(bytes({}), state + 512 / 4 * 128 * 4);
  EXPECT_EQ(bytes({"--bytes", "allocated"}), state + 512 * 128 * 4);
  EXPECT_EQ(bytes({"--cost", "stages"}), state + 512 * 128 * 4);
}

TEST(ShardCommand, WrongOptionsAreExitTwo) {
  const std::vector<std::vector<std::string>> wrong = {
      {"--hbm", "8Gi*3"},
      {"--hbm", "8Gi*x"},
      {"--hbm", "8Gi*0"},
      {"--hbm", "8Gi,"},
      {"--hbm", "8Gi*99999999"},
      {"--hbm", "8Gi", "--cost", "guess"},
      {"--hbm", "8Gi", "--bytes", "few"},
      {"--hbm", "8Gi", "--pipeline", "oil"},
      {"--hbm", "8Gi", "--cache-ratio", "0"},
      {"--hbm", "8Gi", "--cache-ratio", "nan"},
      {"--hbm", "8Gi", "--time-slack", "-1%"},
      {"--hbm", "8Gi", "--time-slack", "x"},
      {"--hbm", "8Gi", "--host-memory", "-1"},
      {"--hbm", "8Gi", "--allow", "t0"},
      {"--hbm", "8Gi", "--allow", "nothere=row_wise"},
      {"--hbm", "8Gi", "--allow", "t0=diagonal"},
      {"--hbm", "8Gi", "--pin", "t0=8"},
      {"--hbm", "8Gi", "--pin", "t0=3-1"},
      {"--hbm", "8Gi", "--pin", "t0=a"},
      {"--hbm", "8Gi", "--pin", "t0="},
      {"--hbm", "8Gi", "-o", "pytorch"},
  };
  for (std::vector<std::string> arguments : wrong) {
    SCOPED_TRACE(arguments.back());
    arguments.insert(arguments.end(), {"--trainers", "8"});
    const Outcome outcome = shard(arguments);
    EXPECT_EQ(outcome.code, kExitUsage);
    EXPECT_THAT(outcome.err, HasSubstr("plimsoll: "));
  }
}

}  // namespace
}  // namespace plimsoll::cli
