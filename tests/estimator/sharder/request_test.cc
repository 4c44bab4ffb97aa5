#include "estimator/sharder/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/estimator/sharder_instances.h"

namespace plimsoll::estimator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

void expect_invalid(const Result<void>& checked, const std::string& text) {
  ASSERT_FALSE(checked.ok()) << text;
  EXPECT_EQ(checked.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(checked.error().message, HasSubstr(text));
}

TEST(ShardRequestChecks, GroupsOfTablesAreExpanded) {
  const std::vector<Table> tables = expand_tables({{.name = "user",
                                                    .count = 3,
                                                    .rows = 10,
                                                    .dim = 8,
                                                    .dtype = crds::DataType::kFP16,
                                                    .pooling_factor = 4,
                                                    .lookup_frequency = 0.5},
                                                   {.name = "item", .rows = 20, .dim = 16}});
  ASSERT_EQ(tables.size(), 4U);
  EXPECT_EQ(tables[0].name, "user.0");
  EXPECT_EQ(tables[2].name, "user.2");
  EXPECT_EQ(tables[2].element_bytes, 2);
  EXPECT_EQ(tables[2].lookups_per_sample, 2);
  EXPECT_EQ(tables[3].name, "item");
}

TEST(ShardRequestChecks, TheNumberOfTrainersIsNotATablesConcern) {
  ShardRequest request = some_tables(8);
  request.topology.trainers = -3;
  EXPECT_TRUE(check_tables(request).ok());
}

TEST(ShardRequestChecks, SharesOutOfRangeAreNamed) {
  for (const double bad : {0.0, 1.01, -0.2, std::numeric_limits<double>::quiet_NaN()}) {
    ShardRequest request = some_tables(8);
    request.cache_ratio = bad;
    expect_invalid(check_tables(request), "cache ratio");
  }
  for (const double bad : {-0.01, 10.5, std::numeric_limits<double>::infinity()}) {
    ShardRequest request = some_tables(8);
    request.time_slack = bad;
    expect_invalid(check_tables(request), "time slack");
  }
  ShardRequest request = some_tables(8);
  request.host_budget = Bytes{-1};
  expect_invalid(check_tables(request), "host's memory");
  request.host_budget = Bytes{0};
  request.cache_ratio = 1;
  request.time_slack = 0;
  EXPECT_TRUE(check_tables(request).ok());
}

TEST(ShardRequestChecks, AboveOneNodeOnlyWholeNodes) {
  EXPECT_TRUE(check_trainers({.trainers = 5, .per_node = 8}).ok());
  EXPECT_TRUE(check_trainers({.trainers = 16, .per_node = 8}).ok());
  EXPECT_TRUE(check_trainers({.trainers = kMaxTrainers, .per_node = 8}).ok());
  expect_invalid(check_trainers({.trainers = 17, .per_node = 8}), "multiple of the 8 of a node, are 17");
  expect_invalid(check_trainers({.trainers = kMaxTrainers + 8, .per_node = 8}), "trainers must be from 1");
}

TEST(ShardRequestChecks, EachTrainerHasABudgetOrNone) {
  ShardRequest request = some_tables(8);
  request.budgets.assign(8, 1_GiB);
  EXPECT_TRUE(check_ranks(request).ok());
  request.budgets.pop_back();
  expect_invalid(check_ranks(request), "budgets of 7 trainers for 8");
}

TEST(RankSet, HasThePinnedRanksOrAll) {
  const RankSet pinned({1, 4, 5, 6, 7}, 12);
  EXPECT_THAT(pinned.in(0, 12), ElementsAre(1, 4, 5, 6, 7));
  EXPECT_THAT(pinned.in(5, 2), ElementsAre(5, 6));
  EXPECT_THAT(pinned.whole_nodes(4), ElementsAre(1));
  EXPECT_THAT(pinned.whole_nodes(2), ElementsAre(2, 3));
  const RankSet all({}, 4);
  EXPECT_THAT(all.in(0, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(all.whole_nodes(2), ElementsAre(0, 1));
}

TEST(ShardRequestChecks, ConstraintsAreFoundByTable) {
  ShardRequest request = some_tables(8);
  EXPECT_THAT(constraints_by_table(request), IsEmpty());
  request.constraints = {{.table = 23}, {.table = 2}};
  const std::vector<const Constraint*> by_table = constraints_by_table(request);
  ASSERT_EQ(by_table.size(), 24U);
  EXPECT_EQ(by_table[2], &request.constraints[1]);
  EXPECT_EQ(by_table[23], &request.constraints.front());
  EXPECT_EQ(by_table[3], nullptr);
}

TEST(ShardRequestChecks, AnUnfittableRequestSaysWhyTwice) {
  const Infeasibility found{
      .constraint = "TotalMemory", .reason = "2 GiB missing", .missing = 2_GiB, .table = {}};
  Infeasibility why;
  const Error error = unfittable(found, &why);
  EXPECT_EQ(error.code, ErrorCode::kUnfittable);
  EXPECT_EQ(error.message, "TotalMemory: 2 GiB missing");
  EXPECT_EQ(why.missing, 2_GiB);
  EXPECT_EQ(unfittable(found, nullptr).message, error.message);
}

}  // namespace
}  // namespace plimsoll::estimator
