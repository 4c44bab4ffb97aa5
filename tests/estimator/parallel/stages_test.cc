#include "estimator/parallel/stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/estimator/graph_files.h"
#include "tests/estimator/operator_trace.h"

namespace plimsoll::estimator {
namespace {

using ::testing::ElementsAre;
using testing::gpt;
using ::testing::HasSubstr;
using testing::OperatorTrace;

std::vector<std::int32_t> parts_of(const Trace& trace, std::int64_t parts,
                                   const std::vector<std::string>& blocks = {}) {
  const Result<std::vector<std::int32_t>> result = parts_of_operators(trace, parts, blocks);
  EXPECT_TRUE(result.ok()) << (result ? "" : result.error().message);
  return result ? *result : std::vector<std::int32_t>();
}

std::string refusal(std::int64_t parts, const std::vector<std::string>& blocks = {}) {
  const Result<std::vector<std::int32_t>> result = parts_of_operators(gpt().traces.front(), parts, blocks);
  EXPECT_TRUE(result.ok() || result.error().code == ErrorCode::kInvalid);
  return result ? "" : result.error().message;
}

// The part of each operator of the module and its submodules; -1 if they are on several.
std::int32_t part_of(const std::string& module, const std::vector<std::int32_t>& parts) {
  const Trace& trace = gpt().traces.front();
  std::vector<std::int32_t> found;
  for (std::size_t op = 0; op < trace.operators.size(); ++op) {
    const std::int32_t id = trace.operators[op].module;
    if (id >= 0 && (trace.modules[index(id)] + ".").starts_with(module + ".")) {
      found.push_back(parts[op]);
    }
  }
  EXPECT_FALSE(found.empty()) << module;
  return std::count(found.begin(), found.end(), found.front()) == std::ssize(found) ? found.front() : -1;
}

TEST(PipelineParts, ABlockIsOnOnePartInForwardAndBackward) {
  const std::vector<std::int32_t> parts = parts_of(gpt().traces.front(), 4);
  for (std::int32_t block = 0; block < 4; ++block) {
    EXPECT_EQ(part_of("blocks." + std::to_string(block), parts), block);
  }
  EXPECT_EQ(part_of("tokens", parts), 0) << "what comes before the blocks";
  EXPECT_EQ(part_of("norm", parts), 3) << "what comes after them";
  EXPECT_EQ(part_of("head", parts), 3);
}

// Of four blocks, part p of three begins with block 4 p / 3.
TEST(PipelineParts, PartsThatDoNotDivideTheBlocksDifferByOne) {
  const std::vector<std::int32_t> parts = parts_of(gpt().traces.front(), 3);
  EXPECT_EQ(part_of("blocks.0", parts), 0);
  EXPECT_EQ(part_of("blocks.1", parts), 1);
  EXPECT_EQ(part_of("blocks.2", parts), 2);
  EXPECT_EQ(part_of("blocks.3", parts), 2);
}

TEST(PipelineParts, OnePartRunsEverything) {
  EXPECT_THAT(parts_of(gpt().traces.front(), 1), ::testing::Each(0));
}

TEST(PipelineParts, NamedBlocksReplaceTheNumberedOnes) {
  const std::vector<std::int32_t> parts = parts_of(gpt().traces.front(), 2, {"blocks.0", "norm"});
  EXPECT_EQ(part_of("blocks.3", parts), 0);
  EXPECT_EQ(part_of("norm", parts), 1);
  EXPECT_EQ(part_of("head", parts), 1);
  EXPECT_EQ(parts_of(gpt().traces.front(), 4, {"blocks.*"}), parts_of(gpt().traces.front(), 4));
}

// Backward runs the parts in reverse; what is in no block belongs to the part whose backward ran before it.
TEST(PipelineParts, OperatorsOutsideOfBlocksFollowTheOthers) {
  OperatorTrace built;
  for (const char* module : {"", "layers.0", "", "layers.1", ""}) {
    built.add("aten::mm", {}, {}, {}, module);
  }
  built.trace.forward_end = built.trace.loss_end = 5;
  for (const char* module : {"", "layers.1", "", "layers.0", ""}) {
    built.add("aten::mm", {}, {}, {}, module);
  }
  EXPECT_THAT(parts_of(built.trace, 2), ElementsAre(0, 0, 0, 1, 1, 1, 1, 1, 0, 0));
}

TEST(PipelineParts, TooFewBlocksAndPatternsWithoutAMatchAreRefused) {
  EXPECT_THAT(refusal(5), HasSubstr("5 parts needs as many blocks; the graph has 4"));
  EXPECT_THAT(refusal(5), HasSubstr("--stage-blocks"));
  EXPECT_THAT(refusal(2, {"blocks.1"}), HasSubstr("the graph has 1"));
  EXPECT_THAT(refusal(2, {"blocks.*", "layers.*"}), HasSubstr("no block of the graph matches \"layers.*\""));
  EXPECT_LT(refusal(2, {std::string(10'000, 'x')}).size(), 200U) << "a long pattern is cut";
}

TEST(PipelineParts, ManyPatternsAreTakenFromTheBudget) {
  Budget budget({.work = 1000});
  const Result<std::vector<std::int32_t>> result = budget.run([&] {
    return parts_of_operators(gpt().traces.front(), 2, std::vector<std::string>(1000, "blocks.*"), &budget);
  });
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kTooLarge);
}

}  // namespace
}  // namespace plimsoll::estimator
