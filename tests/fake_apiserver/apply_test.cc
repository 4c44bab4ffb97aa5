#include "tests/fake_apiserver/apply.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fake_apiserver/field_set.h"
#include "tests/fake_apiserver/test_widgets.h"

namespace plimsoll::testing::fake {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The paths that a manager owns.
std::vector<std::string> owned(const Json& object, const std::string& manager) {
  for (const Json& entry : member(object, {"metadata", "managedFields"})) {
    if (text_member(entry, {"manager"}) == manager) {
      return FieldSet::of(member(entry, {"fieldsV1"})).paths();
    }
  }
  return {};
}

TEST(ServerSideApply, CreatesAndOwnsWhatWasApplied) {
  WidgetApi server;
  const Called made = server.apply("a", R"({"size":2,"parts":[{"name":"p"}],"list":[1,2]})", "me");
  ASSERT_EQ(made.code, 201) << made.message();
  EXPECT_EQ(made.body["spec"]["color"].asString(), "Red");
  // A keyed list is owned item by item, an atomic one as a whole; what the server defaulted is nobody's.
  EXPECT_THAT(owned(made.body, "me"),
              ElementsAre(".spec.list", R"(.spec.parts[kind="plain",name="p"])",
                          R"(.spec.parts[kind="plain",name="p"].name)", ".spec.size"));
}

TEST(ServerSideApply, RefusesAndForcesConflicts) {
  WidgetApi server;
  server.create("a", R"({"size":2})");
  const Called refused = server.apply("a", R"({"size":3})", "me");
  EXPECT_EQ(refused.code, 409);
  EXPECT_EQ(refused.message(),
            R"(Apply failed with 1 conflict: conflict with "tester" using example.dev/v1: .spec.size)");
  EXPECT_EQ(refused.body["details"]["causes"][0]["reason"].asString(), "FieldManagerConflict");
  const Called both = server.apply("a", R"({"size":3,"color":"Green"})", "me");
  EXPECT_EQ(
      both.message(),
      "Apply failed with 2 conflicts: conflicts with \"tester\" using example.dev/v1:\n- .spec.color\n- "
      ".spec.size");
  const Called forced = server.apply("a", R"({"size":3})", "me", true);
  EXPECT_EQ(forced.code, 200);
  EXPECT_EQ(forced.body["spec"]["size"].asInt(), 3);
  EXPECT_THAT(owned(forced.body, "me"), ElementsAre(".spec.size"));
  EXPECT_THAT(owned(forced.body, "tester"),
              ElementsAre(".spec", ".spec.color", ".spec.nested", ".spec.nested.depth", ".spec.perhaps"));
}

TEST(ServerSideApply, SharesWhatIsEqual) {
  WidgetApi server;
  server.create("a", R"({"size":2})");
  const Called same = server.apply("a", R"({"size":2})", "me");
  EXPECT_EQ(same.code, 200);
  EXPECT_THAT(owned(same.body, "me"), ElementsAre(".spec.size"));
  EXPECT_THAT(owned(same.body, "tester"), ::testing::Contains(".spec.size"));
}

TEST(ServerSideApply, TakesAwayWhatItsManagerGivesUp) {
  WidgetApi server;
  server.apply("a", R"({"size":2,"name":"abc","parts":[{"name":"p"},{"name":"q"}],"labels":{"x":"y"}})",
               "me");
  server.apply("a", R"({"size":2,"parts":[{"name":"q"}]})", "other");
  const Called less = server.apply("a", R"({"size":2})", "me");
  ASSERT_EQ(less.code, 200) << less.message();
  EXPECT_FALSE(less.body["spec"].isMember("name"));
  EXPECT_FALSE(less.body["spec"].isMember("labels"));
  // The other manager's item stays.
  ASSERT_EQ(less.body["spec"]["parts"].size(), 1U);
  EXPECT_EQ(less.body["spec"]["parts"][0]["name"].asString(), "q");
}

TEST(ServerSideApply, ChangesNothingTheSecondTime) {
  WidgetApi server;
  const Called first = server.apply("a", R"({"size":2,"parts":[{"name":"p"}]})", "me");
  const Called second = server.apply("a", R"({"size":2,"parts":[{"name":"p"}]})", "me");
  EXPECT_EQ(first.body["metadata"]["resourceVersion"], second.body["metadata"]["resourceVersion"]);
}

TEST(ServerSideApply, RefusesWhatTheServerRefuses) {
  WidgetApi server;
  EXPECT_THAT(server.apply("a", R"({"size":2})", "").message(),
              HasSubstr("fieldManager: Required value: is required for apply patch"));
  EXPECT_EQ(
      server.apply("a", R"({"size":2,"foo":1})", "me").message(),
      "failed to create typed patch object (default/a; example.dev/v1, Kind=Widget): .spec.foo: field not "
      "declared in schema");
  EXPECT_EQ(server.apply("a", R"({"size":20})", "me").code, 422);
  const Called managed = server.call(
      "PATCH", std::string(kWidgets) + "/a",
      R"({"apiVersion":"example.dev/v1","kind":"Widget","metadata":{"name":"a","managedFields":[{"manager":"x"}]}})",
      {{"fieldManager", "me"}}, "application/apply-patch+yaml");
  EXPECT_EQ(managed.message(), "metadata.managedFields must be nil");
}

TEST(ServerSideApply, KeepsStatusApart) {
  WidgetApi server;
  server.create("a", R"({"size":2})");
  const Called status = server.call("PATCH", std::string(kWidgets) + "/a/status",
                                    R"({"apiVersion":"example.dev/v1","kind":"Widget","metadata":{"name":"a"},
                      "spec":{"size":9},"status":{"ok":true}})",
                                    {{"fieldManager", "me"}}, "application/apply-patch+yaml");
  ASSERT_EQ(status.code, 200) << status.message();
  EXPECT_EQ(status.body["spec"]["size"].asInt(), 2);
  EXPECT_TRUE(status.body["status"]["ok"].asBool());
  EXPECT_THAT(owned(status.body, "me"), ElementsAre(".status.ok"));
}

TEST(ManagedFields, FollowUpdates) {
  WidgetApi server;
  server.apply("a", R"({"size":2,"name":"abc"})", "me");
  // An update takes over what it changes, and nothing else.
  const Called updated = server.merge("a", R"({"spec":{"size":5},"metadata":{"labels":{"k":"v"}}})");
  EXPECT_THAT(owned(updated.body, "tester"),
              ElementsAre(".metadata.labels", ".metadata.labels.k", ".spec.size"));
  EXPECT_THAT(owned(updated.body, "me"), ElementsAre(".spec.name"));
  const Called removed = server.merge("a", R"({"spec":{"name":null}})");
  EXPECT_TRUE(owned(removed.body, "me").empty());
}

TEST(FieldSet, SurvivesItsJsonForm) {
  const Json fields = *parse_json(
      R"({"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:spec":{"f:parts":{"k:{\"name\":\"p\"}":{".":{},"f:name":{}}}}})");
  EXPECT_EQ(FieldSet::of(fields).to_fields_v1(), fields);
}

}  // namespace
}  // namespace plimsoll::testing::fake
