#include "estimator/parallel/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/estimator/operator_trace.h"

namespace plimsoll::estimator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::OperatorTrace;

// "4 enter 1": before operator 4, the forward of unit 1 begins. Backward: "8 back 1 then 0".
std::vector<std::string> written(const std::vector<UnitEvent>& events) {
  std::vector<std::string> texts;
  for (const UnitEvent& event : events) {
    constexpr const char* kNames[] = {"enter", "leave", "end", "back", "out"};
    texts.push_back(std::to_string(event.time) + " " + kNames[static_cast<int>(event.kind)] + " " +
                    std::to_string(event.unit));
    if (event.kind == UnitEvent::Kind::kEnterBackward) {
      texts.back() += " then " + std::to_string(event.next);
    }
  }
  return texts;
}

// One operator in each of these modules, forward and then backward.
OperatorTrace running(const std::vector<std::string>& forward, const std::vector<std::string>& backward) {
  OperatorTrace built;
  for (const std::string& module : forward) {
    built.add("aten::mm", {}, {}, {}, module);
  }
  built.trace.forward_end = static_cast<std::int32_t>(forward.size());
  built.add("aten::sum", {}, {}, {}, "");
  built.trace.loss_end = built.trace.forward_end + 1;
  for (const std::string& module : backward) {
    built.add("aten::mm", {}, {}, {}, module);
  }
  return built;
}

TEST(TraceUnits, NumberedModulesWithSubmodulesAreUnits) {
  OperatorTrace built =
      running({"embed", "layers.0.linear", "", "layers.0.linear", "layers.1.linear", "head"},
              {"head", "layers.1.linear", "layers.0.linear", "embed"});
  for (const char* name : {"embed.weight", "layers.0.linear.weight", "layers.1.linear.weight",
                           "layers.1.linear.bias", "head.weight", "scale"}) {
    built.parameter(name, {4});
  }
  const TraceUnits units = units_of(built.trace);
  EXPECT_THAT(units.of_parameter, ElementsAre(kRootUnit, 0, 1, 1, kRootUnit, kRootUnit));
  EXPECT_THAT(written(units.events),
              ElementsAre("0 enter -1", "1 enter 0", "4 leave 0", "4 enter 1", "5 leave 1", "6 end -1",
                          "8 back 1 then 0", "9 out 1", "9 back 0 then -1", "10 out 0"));
}

TEST(TraceUnits, WithoutNumbersEachChildOfTheModelIsAUnit) {
  OperatorTrace built = running({"encoder.up", "decoder"}, {"decoder", "encoder.up"});
  for (const char* name : {"encoder.up.weight", "encoder.down.weight", "decoder.weight", "scale"}) {
    built.parameter(name, {4});
  }
  const TraceUnits units = units_of(built.trace);
  EXPECT_THAT(units.of_parameter, ElementsAre(0, 0, 1, kRootUnit));
  EXPECT_THAT(written(units.events),
              ElementsAre("0 enter -1", "0 enter 0", "1 leave 0", "1 enter 1", "2 leave 1", "2 end -1",
                          "3 back 1 then 0", "4 out 1", "4 back 0 then -1", "5 out 0"));
}

// The last unit is gathered before the loss's backward: 1.5 to 2 % of what FSDP took on an H100 were missing.
TEST(TraceUnits, ARootThatReturnsTheLossBeginsBackwardWithIt) {
  const OperatorTrace built = running({"layers.0.a", "head"}, {"head", "layers.0.a"});
  EXPECT_THAT(written(units_of(built.trace, true).events),
              ElementsAre("0 enter -1", "0 enter 0", "1 leave 0", "1 enter 1", "2 leave 1", "2 end -1",
                          "3 back -1 then 1", "3 back 1 then 0", "4 out 1", "4 back 0 then -1", "5 out 0"));
}

TEST(TraceUnits, AUnitThatRunsTwiceIsEnteredTwice) {
  OperatorTrace built = running({"layers.0.a", "layers.1.a", "layers.0.a"}, {});
  built.parameter("layers.0.a.weight", {4});
  built.parameter("layers.1.a.weight", {4});
  EXPECT_THAT(written(units_of(built.trace).events),
              ElementsAre("0 enter -1", "0 enter 0", "1 leave 0", "1 enter 1", "2 leave 1", "2 enter 0",
                          "3 leave 0", "3 end -1"));
}

TEST(TraceUnits, GroupsOfTheTraceReplaceTheNames) {
  OperatorTrace built = running({"a", "b"}, {});
  built.parameter("a.weight", {4});
  built.parameter("b.weight", {4});
  built.trace.parameters[0].unit = 5;
  built.trace.module_groups = {{.unit = 5}, {.unit = kRootUnit}, {.unit = kRootUnit}};
  const TraceUnits units = units_of(built.trace);
  EXPECT_THAT(units.of_parameter, ElementsAre(5, kRootUnit));
  EXPECT_THAT(written(units.events), ElementsAre("0 enter -1", "0 enter 5", "1 leave 5", "2 end -1"));
}

TEST(NumberedBlocks, AreThePrefixesUpToTheNumber) {
  Trace trace;
  trace.modules = {"", "layers", "layers.0", "layers.0.mlp.1", "convs.1", "head"};
  EXPECT_THAT(numbered_blocks(trace), ElementsAre("", "", "layers.0", "layers.0", "", ""))
      << "convs.1 has no submodules, and layers.0 has";
  trace.modules = {"", "convs.0", "convs.1", "head"};
  EXPECT_THAT(numbered_blocks(trace), ElementsAre("", "convs.0", "convs.1", ""));
  trace.modules = {};
  EXPECT_THAT(numbered_blocks(trace), IsEmpty());
}

}  // namespace
}  // namespace plimsoll::estimator
