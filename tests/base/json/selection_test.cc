#include "base/json/selection.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "base/json/json.h"
#include "base/json/packed.h"

namespace plimsoll {
namespace {

constexpr std::string_view kPod = R"({
  "kind": "Pod",
  "metadata": {"name": "a-0", "annotations": {"long": "text", "short": "x"}, "managedFields": [{"f": 1}]},
  "status": {"phase": "Running", "conditions": [{"type": "Ready", "at": 1}, 7, {"type": "Other", "at": 2}]}
})";

std::string kept_of(std::string_view text, const JsonSelection& selection) {
  const Result<JsonText> parsed = JsonText::parse(text);
  EXPECT_TRUE(parsed.ok()) << text;
  return parsed ? write_json(PackedJson(parsed->root(), selection).tree()) : "";
}

TEST(JsonSelection, KeepsAllWhenItIsEmpty) {
  EXPECT_EQ(kept_of(kPod, {}), write_json(*parse_json(kPod)));
}

TEST(JsonSelection, KeepsOnlyOrAllBut) {
  EXPECT_EQ(kept_of(kPod, JsonSelection().only({}, {"kind", "nothing"})), R"({"kind":"Pod"})");
  EXPECT_EQ(kept_of(kPod, JsonSelection().without({}, {"metadata", "nothing", "status"})),
            R"({"kind":"Pod"})");
  EXPECT_EQ(kept_of(kPod, JsonSelection().only({}, {})), "{}");
}

TEST(JsonSelection, RulesHoldAtTheirPathAlone) {
  EXPECT_EQ(kept_of(kPod, JsonSelection()
                              .only({}, {"metadata", "status"})
                              .without({"metadata"}, {"managedFields"})
                              .without({"metadata", "annotations"}, {"long"})
                              .only({"status"}, {"phase"})),
            R"({"metadata":{"annotations":{"short":"x"},"name":"a-0"},"status":{"phase":"Running"}})");
  // Below what is left out a rule says nothing, and in what is no object there is nothing to leave out.
  EXPECT_EQ(
      kept_of(kPod,
              JsonSelection().only({}, {"kind"}).only({"kind"}, {"x"}).only({"metadata", "name"}, {"name"})),
      R"({"kind":"Pod"})");
}

TEST(JsonSelection, OfAnArrayIsOfEachObjectInIt) {
  EXPECT_EQ(kept_of(kPod, JsonSelection()
                              .only({}, {"status"})
                              .only({"status"}, {"conditions"})
                              .only({"status", "conditions"}, {"type"})),
            R"({"status":{"conditions":[{"type":"Ready"},7,{"type":"Other"}]}})");
}

TEST(JsonSelection, ALaterRuleReplacesTheEarlier) {
  EXPECT_EQ(kept_of(kPod, JsonSelection().only({}, {"metadata"}).only({}, {"kind"})), R"({"kind":"Pod"})");
}

}  // namespace
}  // namespace plimsoll
