#include "cli/shard_command_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace plimsoll::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Tables of half a GiB each: a million rows of 128 FP32 columns.
estimator::ShardRequest request_of(int tables, std::int64_t trainers) {
  estimator::ShardRequest request;
  for (int i = 0; i < tables; ++i) {
    request.tables.push_back({.name = "t" + std::to_string(i), .rows = 1 << 20, .dim = 128});
  }
  request.topology.trainers = trainers;
  request.batch_size = 512;
  request.budget = 8_GiB;
  return request;
}

std::string report(const estimator::ShardRequest& request, bool unicode = false) {
  const Result<estimator::Plan> plan = estimator::shard(request, nullptr);
  EXPECT_TRUE(plan) << to_string(plan.error());
  std::istringstream in;
  std::ostringstream out;
  Console console{in, out, out, unicode};
  print_shard_report(console, request, *plan, 0.0125);
  return out.str();
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

TEST(ShardReport, SaysWhatWasPlacedWhereAndHowFast) {
  const std::string text = report(request_of(12, 4));
  EXPECT_THAT(text, HasSubstr("12 tables on 4 trainers, 4 a node, " + to_string(8_GiB) + " each"));
  EXPECT_THAT(text, HasSubstr("times the lower bound on the time"));
  EXPECT_THAT(text, HasSubstr("critical path"));
  EXPECT_THAT(text, HasSubstr("imbalance"));
  EXPECT_THAT(text, HasSubstr("placed in 12.5 ms"));
}

TEST(ShardReport, OnlyTheLargestTablesAreNamed) {
  estimator::ShardRequest request = request_of(12, 4);
  request.tables[7].rows *= 2;
  const std::string text = report(request);
  const std::string sizes = text.substr(text.find("largest tables"));
  EXPECT_THAT(sizes.substr(0, sizes.find('\n', sizes.find('\n') + 1)), HasSubstr("t7"))
      << "the largest first";
  EXPECT_EQ(count(sizes.substr(0, sizes.find("\n\n")), to_string(512_MiB)), 7U) << "eight in all";
}

TEST(ShardReport, UnequalTrainersHaveTheirMostNamed) {
  estimator::ShardRequest request = request_of(4, 2);
  request.budgets = {8_GiB, 4_GiB};
  EXPECT_THAT(report(request), HasSubstr("2 trainers, 2 a node, " + to_string(8_GiB) + " at most"));
}

// 32 lines at most: 40 ranks are five nodes of eight.
TEST(ShardReport, ManyRanksAreToldByTheirNodes) {
  const std::string few = report(request_of(32, 32));
  EXPECT_THAT(few, Not(HasSubstr("node, its worst rank")));
  const std::string many = report(request_of(40, 40));
  EXPECT_THAT(many, HasSubstr("node, its worst rank"));
  EXPECT_THAT(many, Not(HasSubstr("the fullest")));
}

}  // namespace
}  // namespace plimsoll::cli
