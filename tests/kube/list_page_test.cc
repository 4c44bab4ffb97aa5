#include "kube/list_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace plimsoll::kube {
namespace {

using ::testing::IsEmpty;

class ListPage : public ::testing::Test {
 protected:
  Result<Json> read(std::string_view body) {
    items_.clear();
    return read_list_page(body, {.begin = [] { ADD_FAILURE() << "that is the caller's"; },
                                 .take = [this](const JsonView& item) { items_.push_back(tree_of(item)); }});
  }
  std::string names() const {
    std::string text;
    for (const Json& item : items_) {
      text += text_member(item, {"apiVersion"}) + " " + text_member(item, {"kind"}) + " " +
              text_member(item, {"metadata", "name"}) + "; ";
    }
    return text;
  }

  std::vector<Json> items_;
};

TEST_F(ListPage, ItemsGoToTheReaderAndTheRestIsReturned) {
  const Result<Json> list =
      read(R"({"kind":"JobList","items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}],)"
           R"("apiVersion":"batch/v1","metadata":{"resourceVersion":"7","continue":"next"}})");
  ASSERT_TRUE(list) << to_string(list.error());
  EXPECT_EQ(names(), "batch/v1 Job a; batch/v1 Job b; ");
  EXPECT_FALSE(list->isMember("items"));
  EXPECT_EQ(text_member(*list, {"metadata", "resourceVersion"}), "7");
  EXPECT_EQ(text_member(*list, {"metadata", "continue"}), "next");
}

TEST_F(ListPage, ItemsKeepNamesOfTheirOwn) {
  ASSERT_TRUE(read(R"({"kind":"PodList","apiVersion":"v1","items":[)"
                   R"({"kind":"Job","apiVersion":"batch/v1"},{"kind":"Job"},{"apiVersion":"v2"},{}]})"));
  EXPECT_EQ(names(), "batch/v1 Job ;  Job ; v2  ; v1 Pod ; ");
}

// kubectl's own "List" has items of many kinds.
TEST_F(ListPage, AListOfNoKindNamesNothing) {
  for (const char* kind : {"List", "Pods", ""}) {
    ASSERT_TRUE(read(R"({"kind":")" + std::string(kind) + R"(","apiVersion":"v1","items":[{}]})"));
    ASSERT_EQ(items_.size(), 1U);
    EXPECT_TRUE(items_[0].empty()) << kind;
  }
}

TEST_F(ListPage, NoItemsAreAnEmptyList) {
  for (const char* body :
       {R"({"kind":"PodList","items":null})", R"({"kind":"PodList","items":[]})", R"({"kind":"PodList"})"}) {
    const Result<Json> list = read(body);
    ASSERT_TRUE(list) << body;
    EXPECT_THAT(items_, IsEmpty());
    EXPECT_EQ(write_json(*list), R"({"kind":"PodList"})");
  }
}

TEST_F(ListPage, WhatIsNoJsonObjectIsInvalid) {
  for (const char* body : {"", "[]", "5", "null", "{", R"({"items":[{}])", R"({"items":[]} trailing)"}) {
    const Result<Json> list = read(body);
    ASSERT_FALSE(list) << body;
    EXPECT_EQ(list.error().code, ErrorCode::kInvalid) << body;
  }
}

TEST_F(ListPage, NoItemFollowsOneThatIsNoJson) {
  const Result<Json> list =
      read(R"({"items":[{"metadata":{"name":"a"}},{"metadata":oops},{"metadata":{}}]})");
  ASSERT_FALSE(list);
  EXPECT_EQ(list.error().code, ErrorCode::kInvalid);
  EXPECT_LE(items_.size(), 1U);
}

}  // namespace
}  // namespace plimsoll::kube
