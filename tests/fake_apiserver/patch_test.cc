#include "tests/fake_apiserver/patch.h"

#include <gtest/gtest.h>

namespace plimsoll::testing::fake {
namespace {

Json json(const std::string& text) {
  const auto parsed = parse_json(text);
  EXPECT_TRUE(parsed) << text;
  return parsed ? *parsed : Json();
}

struct JsonPatchCase {
  const char* object;
  const char* patch;
  const char* result;  // "" when it must be refused
};

class JsonPatch : public ::testing::TestWithParam<JsonPatchCase> {};

TEST_P(JsonPatch, FollowsRfc6902) {
  const auto result = apply_json_patch(json(GetParam().object), json(GetParam().patch));
  if (*GetParam().result == '\0') {
    EXPECT_FALSE(result) << write_json(*result);
  } else {
    ASSERT_TRUE(result) << result.status().message;
    EXPECT_EQ(*result, json(GetParam().result)) << write_json(*result);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Rfc, JsonPatch,
    ::testing::Values(
        JsonPatchCase{R"({"a":1})", R"([{"op":"add","path":"/b","value":2}])", R"({"a":1,"b":2})"},
        JsonPatchCase{R"({"a":[1,3]})", R"([{"op":"add","path":"/a/1","value":2}])", R"({"a":[1,2,3]})"},
        JsonPatchCase{R"({"a":[1]})", R"([{"op":"add","path":"/a/-","value":2}])", R"({"a":[1,2]})"},
        JsonPatchCase{R"({"a":[1]})", R"([{"op":"add","path":"/a/2","value":2}])", ""},
        JsonPatchCase{R"({"a":[1]})", R"([{"op":"add","path":"/a/01","value":2}])", ""},
        JsonPatchCase{R"({})", R"([{"op":"add","path":"/a/b","value":2}])", ""},
        JsonPatchCase{R"({"a":1})", R"([{"op":"add","path":"","value":[]}])", "[]"},
        JsonPatchCase{R"({"a":1,"b":2})", R"([{"op":"remove","path":"/a"}])", R"({"b":2})"},
        JsonPatchCase{R"({"a":[1,2]})", R"([{"op":"remove","path":"/a/0"}])", R"({"a":[2]})"},
        JsonPatchCase{R"({})", R"([{"op":"remove","path":"/a"}])", ""},
        JsonPatchCase{R"({"a":1})", R"([{"op":"replace","path":"/a","value":null}])", R"({"a":null})"},
        JsonPatchCase{R"({})", R"([{"op":"replace","path":"/a","value":1}])", ""},
        JsonPatchCase{R"({"a":1})", R"([{"op":"move","from":"/a","path":"/b"}])", R"({"b":1})"},
        JsonPatchCase{R"({"a":1})", R"([{"op":"copy","from":"/a","path":"/b"}])", R"({"a":1,"b":1})"},
        JsonPatchCase{R"({"a":{"x/y":1,"~":2}})",
                      R"([{"op":"test","path":"/a/x~1y","value":1},{"op":"test","path":"/a/~0","value":2}])",
                      R"({"a":{"x/y":1,"~":2}})"},
        JsonPatchCase{R"({"a":1})", R"([{"op":"test","path":"/a","value":"1"}])", ""},
        JsonPatchCase{R"({"a":1})", R"([{"op":"frobnicate","path":"/a"}])", ""},
        JsonPatchCase{R"({"a":1})", R"([{"op":"remove","path":"a"}])", ""},
        JsonPatchCase{R"({"a":1})", R"({"op":"remove","path":"/a"})", ""},
        JsonPatchCase{R"({"a":1})", "[7]", ""}));

TEST(JsonPatch, ReturnsTheStatusOfTheRealServer) {
  EXPECT_EQ(apply_json_patch(json("{}"), json("{}")).status().code, 400);
  const Status refused = apply_json_patch(json("{}"), json(R"([{"op":"remove","path":"/a"}])")).status();
  EXPECT_EQ(refused.code, 422);
  EXPECT_EQ(refused.reason, "Invalid");
}

TEST(MergePatch, MergesAndDeletes) {
  EXPECT_EQ(apply_merge_patch(json(R"({"a":{"b":1,"c":2},"d":[1]})"),
                              json(R"({"a":{"b":null,"e":{"f":3,"g":null}},"d":[2]})")),
            json(R"({"a":{"c":2,"e":{"f":3}},"d":[2]})"));
  EXPECT_EQ(apply_merge_patch(json(R"({"a":1})"), json("7")), json("7"));
}

Json strategic(const char* object, const char* patch) {
  const auto result = apply_strategic_merge(json(object), json(patch));
  EXPECT_TRUE(result);
  return result ? *result : Json();
}

TEST(StrategicMerge, MergesListsByTheirKey) {
  EXPECT_EQ(strategic(R"({"containers":[{"name":"a","image":"1"},{"name":"b"}]})",
                      R"({"containers":[{"name":"a","image":"2"},{"name":"c"}]})"),
            json(R"({"containers":[{"name":"a","image":"2"},{"name":"b"},{"name":"c"}]})"));
  EXPECT_EQ(strategic(R"({"conditions":[{"type":"Ready","status":"False"}]})",
                      R"({"conditions":[{"type":"Ready","status":"True"}]})"),
            json(R"({"conditions":[{"type":"Ready","status":"True"}]})"));
  EXPECT_EQ(strategic(R"({"ports":[{"port":80,"name":"a"}]})", R"({"ports":[{"port":80,"name":"b"}]})"),
            json(R"({"ports":[{"port":80,"name":"b"}]})"));
}

TEST(StrategicMerge, ReplacesOtherLists) {
  EXPECT_EQ(strategic(R"({"args":["a"],"taints":[{"key":"x"}]})", R"({"args":["b"],"taints":[]})"),
            json(R"({"args":["b"],"taints":[]})"));
}

TEST(StrategicMerge, FollowsDirectives) {
  EXPECT_EQ(strategic(R"({"containers":[{"name":"a"},{"name":"b"}]})",
                      R"({"containers":[{"name":"a","$patch":"delete"}]})"),
            json(R"({"containers":[{"name":"b"}]})"));
  EXPECT_EQ(
      strategic(R"({"containers":[{"name":"a"}]})", R"({"containers":[{"$patch":"replace"},{"name":"z"}]})"),
      json(R"({"containers":[{"name":"z"}]})"));
  EXPECT_EQ(
      strategic(R"({"strategy":{"type":"A","x":1}})", R"({"strategy":{"$patch":"replace","type":"B"}})"),
      json(R"({"strategy":{"type":"B"}})"));
  EXPECT_EQ(strategic(R"({"finalizers":["a","b"]})",
                      R"({"$deleteFromPrimitiveList/finalizers":["a"],"finalizers":["c"]})"),
            json(R"({"finalizers":["b","c"]})"));
  EXPECT_EQ(strategic(R"({"containers":[{"name":"a"},{"name":"b"}]})",
                      R"({"$setElementOrder/containers":[{"name":"b"},{"name":"a"}]})"),
            json(R"({"containers":[{"name":"b"},{"name":"a"}]})"));
  EXPECT_EQ(strategic(R"({"v":{"a":1,"b":2}})", R"({"v":{"$retainKeys":["b"],"b":3}})"),
            json(R"({"v":{"b":3}})"));
  EXPECT_EQ(strategic(R"({"a":1,"b":2})", R"({"a":null})"), json(R"({"b":2})"));
}

}  // namespace
}  // namespace plimsoll::testing::fake
