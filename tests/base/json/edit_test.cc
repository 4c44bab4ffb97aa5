#include "base/json/edit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plimsoll {
namespace {

using ::testing::HasSubstr;

Json json(const std::string& text) {
  const Result<Json> value = parse_json(text);
  EXPECT_TRUE(value.ok()) << text;
  return value ? *value : Json();
}

JsonObject nested() {
  JsonObject made;
  made["a"]["b"] = "c";
  made["list"].append(1);
  made["list"].append("x");
  return made;
}

Json as_json() {
  JsonObject made = nested();
  return made;
}

TEST(JsonObject, MakesWhatIsMissingOnTheWay) {
  EXPECT_EQ(write_json(as_json()), R"({"a":{"b":"c"},"list":[1,"x"]})");
  JsonArray list;
  list.append(nested());
  EXPECT_EQ(write_json(list.json()), R"([{"a":{"b":"c"},"list":[1,"x"]}])");
}

TEST(JsonEdit, ChangesWhatHasTheRightKinds) {
  JsonEdit edit(json(R"({"spec":{"volumes":[{"name":"a"}],"nothing":null}})"));
  edit["spec"]["volumes"].append("b");
  edit["spec"]["nothing"]["x"] = 1;
  edit["spec"].set_missing("volumes", "kept");
  edit["spec"].set_missing("new", true);
  for (const JsonPlace& volume : edit["spec"]["volumes"].elements()) {
    if (volume.value().isObject()) {
      volume["seen"] = true;
    }
  }
  edit.root().remove("absent");
  const Result<Json> changed = std::move(edit).take();
  ASSERT_TRUE(changed.ok());
  EXPECT_EQ(write_json(*changed),
            R"({"spec":{"new":true,"nothing":{"x":1},"volumes":[{"name":"a","seen":true},"b"]}})");
}

// jsoncpp throws at each of these.
TEST(JsonEdit, AWrongKindIsAnErrorAndChangesNothing) {
  const std::pair<const char*, void (*)(const JsonPlace&)> changes[] = {
      {R"({"a":"text"})", [](const JsonPlace& root) { root["a"]["b"] = 1; }},
      {R"({"a":[1]})", [](const JsonPlace& root) { root["a"]["b"]["c"] = 1; }},
      {R"({"a":{"b":1}})", [](const JsonPlace& root) { root["a"].append(1); }},
      {R"({"a":7})", [](const JsonPlace& root) { root["a"].append(1)["c"] = 2; }},
      {R"({"a":true})", [](const JsonPlace& root) { root["a"].remove("b"); }},
      {R"({"a":"x"})", [](const JsonPlace& root) { root["a"].set_missing("b", 1); }},
      {R"({"a":{}})", [](const JsonPlace& root) { EXPECT_TRUE(root["a"].elements().empty()); }},
  };
  for (const auto& [text, change] : changes) {
    JsonEdit edit(json(text));
    change(edit.root());
    EXPECT_EQ(write_json(edit.root().value()), text);
    const Result<Json> changed = std::move(edit).take();
    ASSERT_FALSE(changed.ok()) << text;
    EXPECT_EQ(changed.error().code, ErrorCode::kInvalid);
    EXPECT_THAT(changed.error().message, HasSubstr("must be in ")) << text;
  }
}

TEST(JsonEdit, ReadsElementsOfAnything) {
  EXPECT_EQ(element(json("[1,2]"), 1), Json(2));
  for (const char* text : {"[1,2]", "{}", "\"x\"", "7", "null"}) {
    Json value = json(text);
    EXPECT_TRUE(element(value, 2).isNull());
    EXPECT_EQ(find_element(value, 2), nullptr);
    EXPECT_EQ(find_member(value, "a"), nullptr);
    EXPECT_EQ(set_member(value, "a", 1), value.isObject());
    EXPECT_EQ(append_element(value, 1), value.isArray());
  }
}

}  // namespace
}  // namespace plimsoll
