#include "tests/fake_apiserver/selector.h"

#include <gtest/gtest.h>

namespace plimsoll::testing::fake {
namespace {

Json labels(std::initializer_list<std::pair<const char*, const char*>> pairs) {
  Json json(::Json::objectValue);
  for (const auto& [key, value] : pairs) {
    json[key] = value;
  }
  return json;
}

bool selects(const std::string& selector, const Json& labelled) {
  const auto parsed = LabelSelector::parse(selector);
  EXPECT_TRUE(parsed) << selector << ": " << parsed.status().message;
  return parsed && parsed->matches(labelled);
}

TEST(LabelSelector, FollowsTheGrammar) {
  const Json object = labels({{"a", "b"}, {"tier", "web"}});
  for (const char* fits : {"", "a=b", "a==b", " a = b ", "a!=c", "z!=c", "a in (b,c)", "a,tier", "!z",
                           "a notin (c)", "z notin (c)", "a=b,tier in (web, db),!z"}) {
    EXPECT_TRUE(selects(fits, object)) << fits;
  }
  for (const char* differs : {"a=c", "z", "!a", "a!=b", "a in (c)", "a notin (b)", "a=b,tier=db", "a="}) {
    EXPECT_FALSE(selects(differs, object)) << differs;
  }
  EXPECT_TRUE(selects("!a", Json()));
}

TEST(LabelSelector, RefusesWhatItCannotRead) {
  for (const char* wrong : {"a b", "a in b", "=b", "a in (b", ",", "a=b c"}) {
    const auto parsed = LabelSelector::parse(wrong);
    ASSERT_FALSE(parsed) << wrong;
    EXPECT_EQ(parsed.status().code, 400);
  }
  EXPECT_EQ(LabelSelector::parse("a b").status().message,
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt");
}

TEST(LabelSelector, ReadsTheObjectForm) {
  const auto parsed = LabelSelector::of(*parse_json(
      R"({"matchLabels":{"a":"b"},"matchExpressions":[{"key":"n","operator":"NotIn","values":["kube-system"]},
          {"key":"x","operator":"DoesNotExist"}]})"));
  ASSERT_TRUE(parsed);
  EXPECT_TRUE(parsed->matches(labels({{"a", "b"}, {"n", "default"}})));
  EXPECT_FALSE(parsed->matches(labels({{"a", "b"}, {"n", "kube-system"}})));
  EXPECT_FALSE(parsed->matches(labels({{"a", "b"}, {"x", ""}})));
  EXPECT_TRUE(LabelSelector::of(Json(::Json::objectValue))->matches(Json()));
  EXPECT_FALSE(LabelSelector::of(*parse_json(R"({"matchExpressions":[{"key":"n","operator":"Near"}]})")));
}

TEST(FieldSelector, KnowsTheFieldsOfItsType) {
  const Registry registry;
  const TypePtr pods = registry.find("", "v1", "pods");
  const Json pod = *parse_json(
      R"({"metadata":{"name":"p","namespace":"n"},"spec":{"nodeName":"x"},"status":{"phase":"Running"}})");
  const auto fits = FieldSelector::parse("spec.nodeName=x,status.phase!=Failed,metadata.name==p", *pods);
  ASSERT_TRUE(fits);
  EXPECT_TRUE(fits->matches(pod));
  EXPECT_EQ(fits->required_name(), "p");
  EXPECT_FALSE(FieldSelector::parse("status.phase=Failed", *pods)->matches(pod));
  const auto unknown = FieldSelector::parse("spec.foo=x", *pods);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.status().message, "field label not supported: spec.foo");
  EXPECT_FALSE(FieldSelector::parse("x", *pods));
  // A field that is not there counts as empty.
  EXPECT_TRUE(FieldSelector::parse("spec.nodeName=", *pods)->matches(Json(::Json::objectValue)));
}

}  // namespace
}  // namespace plimsoll::testing::fake
