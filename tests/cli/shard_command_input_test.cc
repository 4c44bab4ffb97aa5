#include "cli/shard_command_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/subcommands.h"

namespace plimsoll::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What the options make of --tables, --batch-size and these arguments.
struct Read {
  ShardInput input;
  std::string error;
};

Read read(std::vector<std::string> arguments, const std::vector<crds::EmbeddingTable>& tables = {}) {
  arguments.insert(arguments.end(), {"--tables", "t.csv", "--batch-size", "512"});
  po::variables_map values;
  po::store(po::command_line_parser(arguments).options(shard_options()).run(), values);
  OptionReader options(values);
  Read read{.input = read_shard_input(options), .error = {}};
  if (!options.error()) {
    add_tables(options, tables, read.input.request);
  }
  read.error = options.error() ? to_string(*options.error()) : "";
  return read;
}

std::string error_of(std::vector<std::string> more, const std::vector<crds::EmbeddingTable>& tables = {}) {
  more.insert(more.end(), {"--trainers", "16", "--hbm", "80Gi"});
  return read(more, tables).error;
}

std::vector<crds::EmbeddingTable> two_tables() {
  return {{.name = "user", .rows = 100, .dim = 8}, {.name = "item", .count = 2, .rows = 100, .dim = 8}};
}

TEST(ShardInput, DescribesTheTrainers) {
  const Read got = read({"--trainers", "16", "--hbm", "80Gi", "--reserve", "5Gi", "--per-node", "4"});
  EXPECT_EQ(got.error, "");
  EXPECT_FALSE(got.input.fewest);
  EXPECT_EQ(got.input.request.topology.trainers, 16);
  EXPECT_EQ(got.input.request.topology.per_node, 4);
  EXPECT_EQ(got.input.request.batch_size, 512);
  EXPECT_EQ(got.input.request.budget, 75_GiB);
  EXPECT_TRUE(got.input.request.budgets.empty());
}

TEST(ShardInput, FewTrainersShareOneNode) {
  EXPECT_EQ(read({"--trainers", "3", "--hbm", "80Gi"}).input.request.topology.per_node, 3);
  const Read fewest = read({"--trainers", "auto", "--hbm", "80Gi"});
  EXPECT_TRUE(fewest.input.fewest);
  EXPECT_EQ(fewest.input.request.topology.per_node, 8);
  EXPECT_THAT(read({"--trainers", "12", "--hbm", "80Gi"}).error, HasSubstr("--per-node"));
}

TEST(ShardInput, TrainersMayHaveUnequalMemory) {
  const Read got = read({"--trainers", "3", "--hbm", "80Gi*2,40Gi", "--reserve", "10Gi"});
  EXPECT_EQ(got.error, "");
  EXPECT_THAT(got.input.request.budgets, ElementsAre(70_GiB, 70_GiB, 30_GiB));
  EXPECT_EQ(got.input.request.budget, 70_GiB) << "the largest";
  EXPECT_THAT(read({"--trainers", "4", "--hbm", "80Gi*2,40Gi"}).error, HasSubstr("of 3 trainers"));
  EXPECT_THAT(read({"--trainers", "auto", "--hbm", "80Gi,40Gi"}).error, HasSubstr("one --hbm for all"));
  for (const char* hbm : {"80Gi*0", "80Gi*", "80Gi*x", "80Gi*-1", "80Gi,", "", "5Gi"}) {
    EXPECT_NE(read({"--trainers", "1", "--hbm", hbm, "--reserve", "5Gi"}).error, "") << hbm;
  }
}

TEST(ShardInput, BandwidthsComeInAnyOrderAndTheRestKeepsItsDefault) {
  const estimator::Topology defaults;
  const estimator::Topology got =
      read({"--trainers", "1", "--hbm", "8Gi", "--topology", "hbm=2Gi,inter=1Gi"}).input.request.topology;
  EXPECT_EQ(got.hbm_bandwidth, 2_GiB);
  EXPECT_EQ(got.inter_node_bandwidth, 1_GiB);
  EXPECT_EQ(got.intra_node_bandwidth, defaults.intra_node_bandwidth);
  EXPECT_EQ(got.host_bandwidth, defaults.host_bandwidth);
}

TEST(ShardInput, SharesArePercentagesOrNumbers) {
  for (const char* share : {"12.5%", "0.125"}) {
    EXPECT_DOUBLE_EQ(
        read({"--trainers", "1", "--hbm", "8Gi", "--cache-ratio", share}).input.request.cache_ratio, 0.125);
  }
  for (const char* share : {"0", "101%", "half", "", "%"}) {
    EXPECT_THAT(error_of({"--cache-ratio", share}), HasSubstr("--cache-ratio must be a share")) << share;
  }
}

TEST(ShardInput, WhatIsMissingIsNamed) {
  EXPECT_THAT(read({"--hbm", "8Gi"}).error, HasSubstr("--trainers is required"));
  EXPECT_THAT(read({"--trainers", "8"}).error, HasSubstr("--hbm is required"));
}

TEST(ShardInput, ConstraintsAreOfTheTablesOfAGroupToo) {
  const Read got = read({"--trainers", "16", "--hbm", "8Gi", "--pin", "item.1=0,8-10", "--allow",
                         "user=row_wise,table_wise", "--pin", "user=3"},
                        two_tables());
  ASSERT_EQ(got.error, "");
  ASSERT_EQ(got.input.request.tables.size(), 3U);
  const std::vector<estimator::Constraint>& constraints = got.input.request.constraints;
  ASSERT_EQ(constraints.size(), 2U) << "one a table";
  EXPECT_EQ(constraints[0].table, 0);
  EXPECT_THAT(constraints[0].types,
              ElementsAre(estimator::ShardingType::kRowWise, estimator::ShardingType::kTableWise));
  EXPECT_THAT(constraints[0].ranks, ElementsAre(3));
  EXPECT_EQ(got.input.request.tables[static_cast<std::size_t>(constraints[1].table)].name, "item.1");
  EXPECT_THAT(constraints[1].ranks, ElementsAre(0, 8, 9, 10));
}

TEST(ShardInput, WrongConstraintsNameWhatIsWrong) {
  EXPECT_THAT(error_of({"--pin", "item=0"}, two_tables()), HasSubstr("no such table"));
  EXPECT_THAT(error_of({"--pin", "user"}, two_tables()), HasSubstr("TABLE=LIST"));
  EXPECT_THAT(error_of({"--allow", "user=diagonal"}, two_tables()), HasSubstr("sharding types are"));
  for (const char* ranks : {"", "x", "3-1", "-1", "1,,2", "65536"}) {
    EXPECT_THAT(error_of({"--pin", std::string("user=") + ranks}, two_tables()), HasSubstr("not ranks"))
        << ranks;
  }
}

}  // namespace
}  // namespace plimsoll::cli
