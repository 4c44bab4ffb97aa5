#include "tests/fake_apiserver/schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fake_apiserver/test_widgets.h"

namespace plimsoll::testing::fake {
namespace {

Json widget_schema() {
  return types_of_definition(*parse_json(kWidgetDefinition))[0].schema;
}

Json widget(const std::string& spec) {
  return *parse_json(R"({"apiVersion":"example.dev/v1","kind":"Widget","metadata":{"name":"x"},"spec":)" +
                     spec + "}");
}

std::string problems(const std::string& spec) {
  std::string text;
  for (const Cause& cause : validate_schema(widget(spec), widget_schema())) {
    text += (text.empty() ? "" : "; ") + cause.field + ": " + cause.message;
  }
  return text;
}

struct Wrong {
  const char* spec;
  const char* message;  // as kube-apiserver 1.36 says it
};

class Validation : public ::testing::TestWithParam<Wrong> {};

TEST_P(Validation, SaysWhatTheServerSays) {
  EXPECT_EQ(problems(GetParam().spec), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Messages, Validation,
    ::testing::Values(
        Wrong{"{}", "spec.size: Required value"}, Wrong{R"({"size":1})", ""},
        Wrong{R"({"size":"a"})",
              R"(spec.size: Invalid value: "string": spec.size in body must be of type integer: "string")"},
        Wrong{R"({"size":0})",
              "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1"},
        Wrong{R"({"size":11})",
              "spec.size: Invalid value: 11: spec.size in body should be less than or equal to 10"},
        Wrong{R"({"size":1.5})",
              R"(spec.size: Invalid value: "number": spec.size in body must be of type integer: "number")"},
        Wrong{R"({"size":1.0})", ""},
        Wrong{R"({"size":1,"color":"Blue"})",
              R"(spec.color: Unsupported value: "Blue": supported values: "Red", "Green")"},
        Wrong{R"({"size":1,"name":"A"})",
              R"(spec.name: Invalid value: "A": spec.name in body should be at least 2 chars long)"},
        Wrong{R"({"size":1,"name":"AB"})",
              R"(spec.name: Invalid value: "AB": spec.name in body should match '^[a-z]+$')"},
        Wrong{R"({"size":1,"name":"abcdef"})", "spec.name: Too long: may not be more than 5 bytes"},
        Wrong{R"({"size":1,"half":0})",
              "spec.half: Invalid value: 0: spec.half in body should be greater than 0"},
        Wrong{
            R"({"size":1,"big":5000000000})",
            R"(<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.big)"},
        Wrong{R"({"size":1,"flag":1})",
              R"(spec.flag: Invalid value: "integer": spec.flag in body must be of type boolean: "integer")"},
        Wrong{R"({"size":1,"when":"today"})",
              R"(spec.when: Invalid value: "today": spec.when in body must be of type date-time: "today")"},
        Wrong{R"({"size":1,"when":"2026-01-01T00:00:00Z"})", ""},
        Wrong{R"({"size":1,"list":[]})",
              "spec.list: Invalid value: 0: spec.list in body should have at least 1 items"},
        Wrong{R"({"size":1,"list":[1,2,3]})", "spec.list: Too many: 3: must have at most 2 items"},
        Wrong{
            R"({"size":1,"list":["a"]})",
            R"(spec.list[0]: Invalid value: "string": spec.list[0] in body must be of type integer: "string")"},
        Wrong{R"({"size":1,"set":["a","a"]})", R"(spec.set[1]: Duplicate value: "a")"},
        Wrong{R"({"size":1,"amount":"3Gi"})", ""}, Wrong{R"({"size":1,"amount":3})", ""},
        Wrong{
            R"({"size":1,"amount":true})",
            R"(spec.amount: Invalid value: "boolean": spec.amount in body must be of type integer,string: "boolean")"},
        Wrong{R"({"size":1,"maybe":null})", ""},
        Wrong{R"({"size":1,"parts":[{"name":"a"},{"name":"a"}]})",
              R"(spec.parts[1]: Duplicate value: {"name":"a"})"},
        Wrong{R"({"size":1,"parts":[{}]})", "spec.parts[0].name: Required value"},
        Wrong{R"({"size":1,"labels":{"a":"b","c":"d"}})",
              "spec.labels: Too many: 2: must have at most 1 item"},
        Wrong{
            R"({"size":1,"labels":{"a":1}})",
            R"(spec.labels.a: Invalid value: "integer": spec.labels.a in body must be of type string: "integer")"},
        Wrong{
            R"({"size":1,"either":{}})",
            R"(<nil>: Invalid value: "": "spec.either" must validate one and only one schema (oneOf). Found none valid)"},
        Wrong{R"({"size":1,"either":{"a":"x"}})", ""},
        Wrong{"[]", R"(spec: Invalid value: "array": spec in body must be of type object: "array")"}));

TEST(Schema, FillsInDefaultsAtAnyDepth) {
  Json object = widget(R"({"size":1,"parts":[{"name":"a"},{"name":"b","count":7}]})");
  apply_defaults(object, widget_schema());
  EXPECT_EQ(object["spec"]["color"].asString(), "Red");
  EXPECT_EQ(object["spec"]["parts"][0]["count"].asInt(), 1);
  EXPECT_EQ(object["spec"]["parts"][1]["count"].asInt(), 7);
}

TEST(Schema, TakesANullForAbsentUnlessItIsAllowed) {
  Json object = widget(R"({"size":1,"name":null,"color":null,"maybe":null})");
  apply_defaults(object, widget_schema());
  EXPECT_FALSE(object["spec"].isMember("name"));
  EXPECT_EQ(object["spec"]["color"].asString(), "Red");
  EXPECT_TRUE(object["spec"].isMember("maybe"));
}

TEST(Schema, DropsWhatItDoesNotKnow) {
  Json object = widget(
      R"({"size":1,"foo":1,"parts":[{"name":"a","zoo":{"deep":1}}],"any":{"x":{"y":1}},"labels":{"free":"z"}})");
  object["extra"] = 1;
  EXPECT_THAT(prune(object, widget_schema()),
              ::testing::UnorderedElementsAre("extra", "spec.foo", "spec.parts[0].zoo"));
  EXPECT_EQ(object["spec"]["any"]["x"]["y"].asInt(), 1);
  EXPECT_EQ(object["spec"]["labels"]["free"].asString(), "z");
  EXPECT_EQ(object["metadata"]["name"].asString(), "x");
  EXPECT_FALSE(object.isMember("extra"));
}

TEST(Schema, FindsRulesThatItCannotEvaluate) {
  EXPECT_FALSE(has_cel_rules(widget_schema()));
  EXPECT_TRUE(has_cel_rules(
      *parse_json(R"({"properties":{"spec":{"items":{"x-kubernetes-validations":[{"rule":"true"}]}}}})")));
}

}  // namespace
}  // namespace plimsoll::testing::fake
