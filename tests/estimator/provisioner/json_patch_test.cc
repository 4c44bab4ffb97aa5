#include "estimator/provisioner/json_patch.h"

#include <gtest/gtest.h>

#include "tests/estimator/patch_applier.h"

namespace plimsoll::estimator {
namespace {

Json json(const std::string& text) {
  Result<Json> value = parse_json(text);
  EXPECT_TRUE(value.ok()) << text;
  return value ? *value : Json();
}

Json applied(const Json& document, const Json& patch) {
  std::string why;
  const std::optional<Json> result = testing::apply_patch(document, patch, why);
  EXPECT_TRUE(result) << why << " in " << write_json(patch);
  return result.value_or(Json());
}

TEST(JsonPatch, EscapesPointersAsRfc6901Says) {
  EXPECT_EQ(json_pointer({"a", "nvidia.com/gpu", "m~n", Json::ArrayIndex{3}}), "/a/nvidia.com~1gpu/m~0n/3");
  EXPECT_EQ(json_pointer({""}), "/");
}

TEST(JsonPatch, CreatesMissingParentsInOneOperation) {
  const Json document = json(R"({"spec":{"template":{}}})");
  JsonPatchBuilder patch(document, {{"metadata", "annotations"}, {"spec", "template"}});
  EXPECT_TRUE(patch.set({"metadata", "annotations", "a/b"}, "x"));
  EXPECT_TRUE(patch.set({"spec", "template", "spec", "nodeSelector", "k/p"}, "v"));
  EXPECT_TRUE(patch.set({"spec", "template", "spec", "nodeSelector", "other"}, "w"));
  const Json operations = std::move(patch).take();
  EXPECT_EQ(operations.size(), 3U);
  EXPECT_EQ(write_json(applied(document, operations)),
            R"({"metadata":{"annotations":{"a/b":"x"}},"spec":{"template":{"spec":{"nodeSelector":)"
            R"({"k/p":"v","other":"w"}}}}})");
}

TEST(JsonPatch, WritesNothingForWhatIsThere) {
  const Json document = json(R"({"a":{"text":"x","signed":8,"list":[{"b":1}]}})");
  JsonPatchBuilder patch(document, {{"a"}});
  EXPECT_TRUE(patch.set({"a", "text"}, "x"));
  EXPECT_TRUE(patch.set({"a", "signed"}, Json(::Json::UInt64{8})));
  EXPECT_TRUE(patch.set({"a", "list", Json::ArrayIndex{0}, "b"}, 1));
  EXPECT_EQ(std::move(patch).take().size(), 0U);
}

TEST(JsonPatch, ReplacesNullParentsAsIfTheyWereMissing) {
  const Json document = json(R"({"metadata":{"annotations":null}})");
  JsonPatchBuilder patch(document, {{"metadata", "annotations"}});
  EXPECT_TRUE(patch.set({"metadata", "annotations", "k"}, "v"));
  EXPECT_EQ(write_json(applied(document, std::move(patch).take())),
            R"({"metadata":{"annotations":{"k":"v"}}})");
}

TEST(JsonPatch, LeavesParentsOfTheWrongTypeAlone) {
  const Json document = json(R"({"a":{"selector":"not a map","list":[1]}})");
  JsonPatchBuilder patch(document, {{"a"}});
  EXPECT_FALSE(patch.set({"a", "selector", "k"}, "v"));
  EXPECT_FALSE(patch.set({"a", "list", Json::ArrayIndex{7}, "k"}, "v"));
  EXPECT_FALSE(patch.append({"a", "selector"}, "v"));
  EXPECT_FALSE(patch.append({"a", "missing"}, "v"));
  EXPECT_EQ(std::move(patch).take().size(), 0U);
}

TEST(JsonPatch, AppendsToArrays) {
  const Json document = json(R"({"a":{"list":[1]}})");
  JsonPatchBuilder patch(document, {{"a"}});
  EXPECT_TRUE(patch.append({"a", "list"}, 2));
  EXPECT_TRUE(patch.set({"a", "list", Json::ArrayIndex{0}}, 7));
  EXPECT_EQ(write_json(applied(document, std::move(patch).take())), R"({"a":{"list":[7,2]}})");
}

}  // namespace
}  // namespace plimsoll::estimator
