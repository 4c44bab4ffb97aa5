#include "base/json_view.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace plimsoll {
namespace {

TEST(JsonView, ReadsEachKind) {
  const Result<JsonText> text = JsonText::parse(
      R"({"n": null, "b": true, "i": -7, "r": 1.5, "s": "a\u00e9", "a": [1, [2], {}], "o": {"k": 3}})");
  ASSERT_TRUE(text.ok()) << text.error().message;
  const JsonView root = text->root();
  ASSERT_EQ(root.kind(), JsonView::Kind::kObject);
  EXPECT_EQ(root.members().size(), 7U);
  EXPECT_EQ(root.member("n")->kind(), JsonView::Kind::kNull);
  EXPECT_EQ(root.member("b")->boolean(), true);
  EXPECT_EQ(root.member("i")->integer(), -7);
  EXPECT_EQ(root.member("i")->number(), -7.0);
  EXPECT_EQ(root.member("r")->number(), 1.5);
  EXPECT_EQ(root.member("r")->integer(), std::nullopt);
  EXPECT_EQ(root.member("s")->text(), "a\u00e9");
  EXPECT_EQ(root.member("o")->member("k")->integer(), 3);
  EXPECT_FALSE(root.member("missing").has_value());
  std::vector<JsonView::Kind> kinds;
  for (const JsonView element : root.member("a")->elements()) {
    kinds.push_back(element.kind());
  }
  EXPECT_EQ(kinds, (std::vector<JsonView::Kind>{JsonView::Kind::kInteger, JsonView::Kind::kArray,
                                                JsonView::Kind::kObject}));
}

TEST(JsonView, AValueOfAnotherKindIsNothing) {
  const Result<JsonText> text = JsonText::parse("[18446744073709551615, \"1\"]");
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text->root().members().size(), 0U);
  EXPECT_EQ(text->root().integer(), std::nullopt);
  for (const JsonView element : text->root().elements()) {
    EXPECT_EQ(element.integer(), std::nullopt) << "beyond 64 bits, and a string";
    EXPECT_TRUE(element.elements().empty());
  }
}

TEST(JsonView, ShowsDuplicateKeys) {
  const Result<JsonText> text = JsonText::parse(R"({"a": 1, "a": 2})");
  ASSERT_TRUE(text.ok());
  std::string keys;
  for (const auto& [key, value] : text->root().members()) {
    keys += key;
  }
  EXPECT_EQ(keys, "aa");
}

TEST(JsonView, SurvivesAMove) {
  Result<JsonText> text = JsonText::parse("[1, 2, 3]");
  ASSERT_TRUE(text.ok());
  const JsonView root = text->root();
  const JsonText moved = *std::move(text);
  EXPECT_EQ(root.elements().size(), 3U);
  EXPECT_EQ(moved.root().elements().size(), 3U);
}

TEST(JsonView, RefusesWhatIsNotJson) {
  for (const char* text : {"", " ", "{", "[1,]", "NaN", "[Infinity]", "{\"a\" 1}", "1 2", "\"\\ud800\"",
                           "\"\xff\"", "01", "'a'", "[1] x", "1e999", "123456789012345678901234567890"}) {
    EXPECT_FALSE(JsonText::parse(text).ok()) << text;
  }
}

TEST(JsonView, LimitsTheNesting) {
  const std::string deep(100000, '[');
  EXPECT_FALSE(JsonText::parse(deep).ok());
  const std::string fine = std::string(100, '[') + std::string(100, ']');
  EXPECT_TRUE(JsonText::parse(fine).ok());
}

}  // namespace
}  // namespace plimsoll
