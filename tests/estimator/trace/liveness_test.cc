#include "estimator/trace/liveness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace plimsoll::estimator {
namespace {

using crds::ActivationCheckpointing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr TorchVersion kBefore = 113;  // the version 1.13
constexpr TorchVersion kStopsEarly = 201;

std::vector<std::int32_t> at(const TimeTable& table, std::size_t time) {
  return {table.at(time).begin(), table.at(time).end()};
}

TEST(TimeTable, GroupsItemsByTime) {
  const TimeTable table({3, 0, -1, 3, 2}, 4);
  EXPECT_THAT(at(table, 0), ElementsAre(1));
  EXPECT_THAT(at(table, 1), IsEmpty());
  EXPECT_THAT(at(table, 2), ElementsAre(4));
  EXPECT_THAT(at(table, 3), ElementsAre(0, 3));
  EXPECT_THAT(at(table, 4), IsEmpty());
}

// Tensors and storages of the trace below, which have equal numbers.
enum Value : std::int32_t { kX, kA, kB };

// Two operators in the module layers.0, x -> a -> b, then the loss; backward in reverse. Python frees a after the
// second operator and b after the loss. Autograd saves a until the backward of the first (operator 5) and, unless it
// needs only a, b until that of the second (operator 4).
Trace two_operators(bool saves_b = true) {
  Trace trace;
  trace.modules = {"layers.0", "loss"};
  trace.operator_names = {"aten::mm", "aten::relu", "aten::loss"};
  trace.forward_end = 2;
  trace.loss_end = 3;
  trace.storages.push_back({.bytes = {}, .allocated_at = -1, .released_at = -1});
  trace.storages.push_back({.bytes = {}, .allocated_at = 0, .released_at = 2});
  trace.storages.push_back({.bytes = {}, .allocated_at = 1, .released_at = 3});
  for (const std::int32_t value : {kX, kA, kB}) {
    trace.tensors.push_back({.storage = value});
  }
  trace.operands.assign({kX, kA, kA, kB, kB});
  trace.operators.push_back({.name = 0, .module = 0, .inputs = {0, 1}, .outputs = {1, 1}});
  trace.operators.push_back({.name = 1, .module = 0, .inputs = {2, 1}, .outputs = {3, 1}});
  trace.operators.push_back({.name = 2, .module = 1, .inputs = {4, 1}, .outputs = {}});
  trace.operators.push_back({.name = 2, .module = 1, .inputs = {}, .outputs = {}});
  trace.operators.push_back({.name = 1, .module = 0, .inputs = {}, .outputs = {}});
  trace.operators.push_back({.name = 0, .module = 0, .inputs = {}, .outputs = {}});
  trace.saved.push_back({.tensor = kA, .packed_at = 1, .unpacked_at = 5, .released_at = 6});
  if (saves_b) {
    trace.saved.push_back({.tensor = kB, .packed_at = 2, .unpacked_at = 4, .released_at = 5});
  }
  return trace;
}

TracePlan planned(const Trace& trace, ActivationCheckpointing checkpointing,
                  TorchVersion version = kStopsEarly, const std::vector<std::string>& modules = {}) {
  Result<TracePlan> plan = plan_trace(trace, version, checkpointing, modules);
  EXPECT_TRUE(plan.ok()) << (plan ? "" : to_string(plan.error()));
  return plan ? *std::move(plan) : TracePlan{};
}

TEST(Liveness, AutogradKeepsWhatItSavedUntilBackward) {
  const TracePlan plan = planned(two_operators(), ActivationCheckpointing::kNone);
  EXPECT_THAT(plan.recomputations, IsEmpty());
  EXPECT_THAT(plan.death, ElementsAre(-1, 6, 5));
  EXPECT_THAT(at(plan.births, 0), ElementsAre(kA));
  EXPECT_THAT(at(plan.births, 1), ElementsAre(kB));
  EXPECT_THAT(at(plan.deaths, 5), ElementsAre(kB));
  EXPECT_THAT(at(plan.deaths, 6), ElementsAre(kA));
}

TEST(Liveness, CheckpointingFreesABlockAndRunsItAgain) {
  const TracePlan plan = planned(two_operators(), ActivationCheckpointing::kFull);
  EXPECT_THAT(plan.death, ElementsAre(-1, 2, 3)) << "in forward as soon as Python has freed them";
  ASSERT_EQ(plan.recomputations.size(), 1U);
  const Recomputation& again = plan.recomputations.front();
  EXPECT_EQ(again.begin, 0);
  EXPECT_EQ(again.end, 2);
  EXPECT_EQ(again.at, 4) << "when backward first needs a result";
  ASSERT_EQ(again.storages.size(), 2U);
  EXPECT_EQ(again.storages[0].storage, kA);
  EXPECT_EQ(again.storages[0].released_at, 6);
  EXPECT_EQ(again.storages[1].storage, kB);
  EXPECT_EQ(again.storages[1].released_at, 5);
  EXPECT_THAT(again.skipped, ElementsAre(false, false));
}

TEST(Liveness, APassStopsEarlyFromTorch21On) {
  // Only a is needed, which exists after the first operator.
  const Trace trace = two_operators(false);
  const TracePlan early = planned(trace, ActivationCheckpointing::kFull, kStopsEarly);
  ASSERT_EQ(early.recomputations.size(), 1U);
  EXPECT_EQ(early.recomputations[0].end, 1);
  EXPECT_EQ(early.recomputations[0].storages.size(), 1U);
  const TracePlan whole = planned(trace, ActivationCheckpointing::kFull, kBefore);
  ASSERT_EQ(whole.recomputations.size(), 1U);
  EXPECT_EQ(whole.recomputations[0].end, 2);
  EXPECT_EQ(whole.recomputations[0].storages.size(), 2U);
  const TracePlan reentrant = planned(trace, ActivationCheckpointing::kFull, 0);
  EXPECT_EQ(reentrant.recomputations[0].end, 2);
}

TEST(Liveness, SelectiveCheckpointingKeepsMatrixProducts) {
  const TracePlan plan = planned(two_operators(), ActivationCheckpointing::kSelective);
  ASSERT_EQ(plan.recomputations.size(), 1U);
  EXPECT_THAT(plan.recomputations[0].skipped, ElementsAre(true, false));
  EXPECT_EQ(plan.death[kA], -1) << "the second pass takes it over and frees it";
  EXPECT_EQ(plan.death[kB], 3);
}

TEST(Liveness, HalfSelectiveCheckpointingKeepsEverySecondProduct) {
  Trace trace = two_operators();
  trace.operators[1].name = 0;  // both are products
  const TracePlan plan = planned(trace, ActivationCheckpointing::kSelectiveHalf);
  ASSERT_EQ(plan.recomputations.size(), 1U);
  EXPECT_THAT(plan.recomputations[0].skipped, ElementsAre(true, false));
  EXPECT_THAT(planned(trace, ActivationCheckpointing::kSelective).recomputations[0].skipped,
              ElementsAre(true, true));
}

TEST(Liveness, ModulesToCheckpointAreNamed) {
  const Trace trace = two_operators();
  EXPECT_EQ(
      planned(trace, ActivationCheckpointing::kPerModule, kStopsEarly, {"layers.*"}).recomputations.size(),
      1U);
  const TracePlan loss = planned(trace, ActivationCheckpointing::kPerModule, kStopsEarly, {"loss"});
  EXPECT_THAT(loss.recomputations, IsEmpty()) << "the loss is no part of the forward";
  EXPECT_THAT(loss.death, ElementsAre(-1, 6, 5));
}

TEST(Liveness, AModuleThatMatchesNothingIsInvalid) {
  const auto refused = [](const std::string& module, const char* text) {
    const Result<TracePlan> plan =
        plan_trace(two_operators(), kStopsEarly, ActivationCheckpointing::kPerModule, {"layers.0", module});
    ASSERT_FALSE(plan.ok()) << module;
    EXPECT_EQ(plan.error().code, ErrorCode::kInvalid);
    EXPECT_THAT(plan.error().message, HasSubstr(text));
  };
  refused("layers.1", "no module of the graph matches \"layers.1\"");
  refused("layers.0.mlp", "matches \"layers.0.mlp\"");
  refused("", "has no name");
}

TEST(Liveness, GroupsOfModulesReplaceTheirNames) {
  Trace trace = two_operators();
  trace.modules = {"", ""};
  trace.module_groups = {{.unit = 0, .block = 0}, {.unit = -1, .block = -1}};
  EXPECT_EQ(planned(trace, ActivationCheckpointing::kFull).recomputations.size(), 1U);
  trace.module_groups[0].block = -1;
  EXPECT_THAT(planned(trace, ActivationCheckpointing::kFull).recomputations, IsEmpty());
}

TEST(Liveness, TheBudgetPays) {
  Budget budget({.work = 3});
  const Trace trace = two_operators();
  EXPECT_THROW(static_cast<void>(plan_trace(trace, kStopsEarly, ActivationCheckpointing::kNone, {}, &budget)),
               BudgetExceeded);
}

}  // namespace
}  // namespace plimsoll::estimator
