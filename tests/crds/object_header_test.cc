#include "crds/object_header.h"

#include <gtest/gtest.h>

#include <concepts>

#include "tests/crds/test_jobs.h"

namespace plimsoll::crds {
namespace {

// A part as those of the kinds are: described for both visitors.
struct Limits {
  std::int64_t least = 1;
  std::int64_t most = 8;
};
template <class Visitor, class T>
requires std::same_as<std::remove_const_t<T>, Limits>
void describe(Visitor& visitor, T& limits) {
  visitor.integer("least", limits.least, Presence::kOptional, {0, 100});
  visitor.integer("most", limits.most, Presence::kOptional, {0, 100});
}

std::string header_errors(const Json& object) {
  FieldErrors errors;
  decode_header(object, "GPUModel", errors);
  return to_string(errors.list(), 100);
}

std::string part_errors(const std::string& object, Limits& limits) {
  const Json tree = yaml(object);
  FieldErrors errors;
  decode_part(tree, "spec", limits, errors);
  return to_string(errors.list(), 100);
}

TEST(ObjectHeader, HasNameAndNamespace) {
  const Json object =
      yaml("{apiVersion: plimsoll.dev/v1alpha1, kind: GPUModel, metadata: {name: a, namespace: b}}");
  FieldErrors errors;
  const ObjectHeader header = decode_header(object, "GPUModel", errors);
  EXPECT_TRUE(errors.empty());
  EXPECT_EQ(header.name, "a");
  EXPECT_EQ(header.namespace_name, "b");
}

TEST(ObjectHeader, WithoutMetadataItIsEmpty) {
  for (const char* metadata : {"{}", "null", "{name: null}"}) {
    EXPECT_EQ(header_errors(yaml("{apiVersion: plimsoll.dev/v1alpha1, kind: GPUModel, metadata: " +
                                 std::string(metadata) + "}")),
              "")
        << metadata;
  }
}

TEST(ObjectHeader, AnotherKindOrVersionIsAnError) {
  EXPECT_EQ(header_errors(yaml("{apiVersion: v1, kind: Pod}")),
            "apiVersion: must be plimsoll.dev/v1alpha1, is \"v1\"; kind: must be GPUModel, is \"Pod\"");
  EXPECT_EQ(header_errors(yaml("{kind: [GPUModel]}")),
            "apiVersion: must be plimsoll.dev/v1alpha1, is null; kind: must be GPUModel, is a list");
}

TEST(ObjectHeader, AnythingMayComeInPlaceOfAnObject) {
  EXPECT_EQ(header_errors(Json()), "GPUModel: must be an object, is null");
  EXPECT_EQ(header_errors(Json("GPUModel")), "GPUModel: must be an object, is a string");
  EXPECT_EQ(header_errors(yaml("{apiVersion: plimsoll.dev/v1alpha1, kind: GPUModel, metadata: {name: 5}}")),
            "metadata.name: must be a string, is an integer");
  EXPECT_EQ(header_errors(yaml("{apiVersion: plimsoll.dev/v1alpha1, kind: GPUModel, metadata: [a]}")),
            "metadata: must be an object, is a list");
}

TEST(DecodePart, ReadsAndChecks) {
  Limits limits;
  EXPECT_EQ(part_errors("{spec: {most: 5}}", limits), "");
  EXPECT_EQ(limits.least, 1);
  EXPECT_EQ(limits.most, 5);
  EXPECT_EQ(part_errors("{spec: {least: -1, most: 101}}", limits),
            "spec.least: must be at least 0, is -1; spec.most: must be at most 100, is 101");
}

TEST(DecodePart, WhatCouldNotBeReadIsNotChecked) {
  Limits limits;
  EXPECT_EQ(part_errors("{spec: {least: x, most: 101}}", limits),
            "spec.least: must be an integer, is a string");
}

TEST(DecodePart, AnAbsentPartKeepsItsDefaults) {
  for (const char* object : {"{}", "{spec: null}", "{spec: {}}"}) {
    Limits limits;
    EXPECT_EQ(part_errors(object, limits), "") << object;
    EXPECT_EQ(limits.most, 8);
  }
  Limits limits;
  EXPECT_EQ(part_errors("{spec: [5]}", limits), "spec: must be an object, is a list");
}

TEST(ToError, NamesTheFirstFieldsAndHowManyMore) {
  FieldErrors errors;
  for (int i = 0; i < 7; ++i) {
    const std::string field = "f" + std::to_string(i);
    errors.add(FieldPath(field), "wrong");
  }
  EXPECT_EQ(to_error(errors).code, ErrorCode::kInvalid);
  EXPECT_EQ(to_error(errors).message, "f0: wrong; f1: wrong; f2: wrong; f3: wrong; f4: wrong; and 2 more");
}

}  // namespace
}  // namespace plimsoll::crds
