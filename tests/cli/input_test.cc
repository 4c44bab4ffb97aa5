#include "cli/input.h"

#include <gmock/gmock.h>

#include "tests/cli/run_command.h"
#include "tests/cli/temporary_file.h"

namespace plimsoll::cli {
namespace {

using plimsoll::testing::TemporaryFile;
using ::testing::HasSubstr;

class InputTest : public ::testing::Test {
 protected:
  Result<std::vector<Document>> documents(const std::string& text) {
    in_.clear();
    in_.str(text);
    return read_documents({"-"}, console_);
  }

  std::istringstream in_;
  std::ostringstream out_, err_;
  Console console_{in_, out_, err_};
};

TEST_F(InputTest, OpensDocumentsAndLists) {
  const auto read = documents(
      "kind: A\n---\n---\nkind: List\nitems: [{kind: B}, {kind: C}]\n---\nkind: NodeList\nitems: []\n---\n"
      "kind: Shopping\nitems: [milk]\n");
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read->size(), 4U);
  EXPECT_EQ(text_member((*read)[0].object, {"kind"}), "A");
  EXPECT_EQ(text_member((*read)[2].object, {"kind"}), "C");
  EXPECT_EQ((*read)[2].where, "standard input, document 2, items[1]");
  EXPECT_EQ(text_member((*read)[3].object, {"kind"}), "Shopping");
}

TEST_F(InputTest, ItemsOfTheApiServersOwnListsTakeItsKind) {
  const auto read =
      documents(R"({"kind": "PodList", "apiVersion": "v1", "items": [{"metadata": {"name": "a"}}]})");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(text_member(read->front().object, {"kind"}), "Pod");
  EXPECT_EQ(text_member(read->front().object, {"apiVersion"}), "v1");
  const auto mixed =
      documents(R"({"kind": "List", "apiVersion": "v1", "items": [{"metadata": {"name": "a"}}]})");
  ASSERT_TRUE(mixed.ok());
  EXPECT_EQ(text_member(mixed->front().object, {"kind"}), "");
}

TEST_F(InputTest, ReadsOneObjectALine) {
  const auto read = documents("{\"kind\": \"A\"}\n\n{\"kind\": \"B\"}\r\n");
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read->size(), 2U);
  EXPECT_EQ((*read)[1].where, "standard input, document 2");
  EXPECT_THAT(documents("{\"kind\": \"A\"}\n{\"kind\": \n").error().message, HasSubstr("not valid YAML"));
}

TEST_F(InputTest, SeveralFilesAreReadInTheirOrder) {
  const TemporaryFile first("kind: A\n");
  const TemporaryFile second("{\"kind\": \"B\"}");
  const auto read = read_documents({first.path(), second.path()}, console_);
  ASSERT_TRUE(read.ok());
  ASSERT_EQ(read->size(), 2U);
  EXPECT_EQ((*read)[1].where, second.path());
}

TEST_F(InputTest, WhatCannotBeReadIsNamed) {
  EXPECT_EQ(read_input("/no/such/file", console_).error().code, ErrorCode::kNotFound);
  EXPECT_THAT(read_input("/no/such/file", console_).error().message, HasSubstr("/no/such/file"));
  EXPECT_THAT(read_input("/", console_).error().message, HasSubstr("folder"));
  EXPECT_THAT(documents("").error().message, HasSubstr("standard input has no documents"));
  EXPECT_THAT(documents("kind: [").error().message, HasSubstr("line 1"));
  EXPECT_THAT(documents("text").error().message, HasSubstr("not a Kubernetes object"));
  EXPECT_THAT(documents("kind: List\nitems: [{}, 1]").error().message, HasSubstr("items[1]"));
}

TEST_F(InputTest, TheSizeIsLimited) {
  const auto read = read_input("/dev/zero", console_);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, ErrorCode::kTooLarge);
  EXPECT_THAT(read.error().message, HasSubstr("64.0 MiB"));
  in_.str(std::string(static_cast<std::size_t>(kInputLimit.count), ' '));
  EXPECT_TRUE(read_input("-", console_).ok());
  in_.str(std::string(static_cast<std::size_t>(kInputLimit.count) + 1, ' '));
  in_.clear();
  EXPECT_FALSE(read_input("-", console_).ok());
}

}  // namespace
}  // namespace plimsoll::cli
