#include "crds/request_id.h"

#include <gtest/gtest.h>

#include <string>

#include "base/json/edit.h"

namespace plimsoll::crds {
namespace {

std::string id_of(const std::string& annotation) {
  JsonObject object;
  object["metadata"]["annotations"][kRequestIdAnnotation] = annotation;
  return request_id_of(JsonView(std::move(object).take()));
}

TEST(RequestId, IsTheUidOfAnAdmission) {
  EXPECT_EQ(id_of("0b8ea5a6-8a33-4b34-a4b1-1a1f2d6f1f6e"), "0b8ea5a6-8a33-4b34-a4b1-1a1f2d6f1f6e");
  EXPECT_EQ(request_id_of(JsonView(Json())), "");
}

// Anybody may write the annotation: it is in each line of the log and in each object of an attempt.
TEST(RequestId, WhatHasNotItsFormIsNoId) {
  EXPECT_EQ(id_of(std::string(65, 'a')), "");
  EXPECT_EQ(id_of("a b"), "");
  EXPECT_EQ(id_of("a\nlevel=info"), "");
  EXPECT_EQ(id_of("\xff"), "");
}

}  // namespace
}  // namespace plimsoll::crds
