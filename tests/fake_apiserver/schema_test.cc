#include "tests/fake_apiserver/schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fake_apiserver/test_widgets.h"

namespace plimsoll::testing::fake {
namespace {

Json widget_schema() {
  return types_of_definition(widget_definition())[0].schema;
}

Json widget(const std::string& spec) {
  return *parse_json(R"({"apiVersion":"example.dev/v1","kind":"Widget","metadata":{"name":"x"},"spec":)" +
                     spec + "}");
}

TEST(Schema, FillsInDefaultsAtAnyDepth) {
  Json object = widget(R"({"size":1,"parts":[{"name":"a"},{"name":"b","count":7}]})");
  apply_defaults(object, widget_schema());
  EXPECT_EQ(object["spec"]["color"].asString(), "Red");
  EXPECT_EQ(object["spec"]["parts"][0]["count"].asInt(), 1);
  EXPECT_EQ(object["spec"]["parts"][1]["count"].asInt(), 7);
}

TEST(Schema, TreatsNullAsAbsentUnlessNullable) {
  Json object = widget(R"({"size":1,"name":null,"color":null,"maybe":null})");
  apply_defaults(object, widget_schema());
  EXPECT_FALSE(object["spec"].isMember("name"));
  EXPECT_EQ(object["spec"]["color"].asString(), "Red");
  EXPECT_TRUE(object["spec"].isMember("maybe"));
}

TEST(Schema, PrunesUnknownFields) {
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

TEST(Schema, ListsRulesThatItCannotEvaluate) {
  UnevaluatedRules rules = unevaluated_rules(widget_schema());
  ASSERT_EQ(rules.size(), 1U);
  EXPECT_EQ(rules[0].construct + " " + rules[0].rule, "format no-such-format");
  EXPECT_FALSE(has_cel_rules(rules));
  rules = unevaluated_rules(*parse_json(
      R"({"properties":{"spec":{"items":{"x-kubernetes-validations":[
            {"rule":"self.a > 0","message":"a must be positive","fieldPath":".a"}]}}}})"));
  ASSERT_EQ(rules.size(), 1U);
  EXPECT_TRUE(has_cel_rules(rules));
  EXPECT_EQ(rules[0].field, "spec[].a");
  EXPECT_EQ(rules[0].rule, "self.a > 0");
  EXPECT_EQ(rules[0].message, "a must be positive");
}

}  // namespace
}  // namespace plimsoll::testing::fake
