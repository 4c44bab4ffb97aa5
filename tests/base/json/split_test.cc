#include "base/json/split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "tests/testing/random_seed.h"

namespace plimsoll {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(SplitArray, TakesTheElementsOut) {
  const std::string text = R"({"kind":"List","items":[{"a":[1,2]}, "x,]}" ,3],"metadata":{"items":[4]}})";
  const std::optional<SplitArray> split = split_array(text, "items");
  ASSERT_TRUE(split.has_value());
  EXPECT_THAT(split->elements, ElementsAre(R"({"a":[1,2]})", R"( "x,]}" )", "3"));
  EXPECT_EQ(split->rest, R"({"kind":"List","items":[],"metadata":{"items":[4]}})");
}

TEST(SplitArray, LooksAtTheOutermostMembersOnly) {
  const std::optional<SplitArray> split =
      split_array(R"({"items":{"items":[1]},"x":"items","y":[2],"q\"":[3],"items":[4]})", "items");
  ASSERT_TRUE(split.has_value());
  EXPECT_THAT(split->elements, ElementsAre("4"));
  for (const char* text : {R"({"metadata":{"items":[1]}})", R"({"items":null})", R"([["items",[1]]])", "[]",
                           "", R"({"item\u0073":[1]})"}) {
    EXPECT_FALSE(split_array(text, "items").has_value()) << text;
  }
}

TEST(SplitArray, MayBeEmpty) {
  for (const char* text : {R"({"items":[]})", "{\"items\" : [ \n]}"}) {
    const std::optional<SplitArray> split = split_array(text, "items");
    ASSERT_TRUE(split.has_value()) << text;
    EXPECT_THAT(split->elements, IsEmpty());
    EXPECT_TRUE(parse_json(split->rest).ok());
  }
}

// What is wrong shows when the parts are parsed, if it does not here.
TEST(SplitArray, LeavesNothingOutThatIsWrong) {
  for (const char* text : {R"({"items":[1,,2]})", R"({"items":[1,]})", R"({"items":[,]})",
                           R"({"items":[1 2]})", R"({"items":[1})", R"({"items":[1]]})", R"({"items":[1]} x)",
                           R"({"items":[{"a":1]})", R"({"items":["a)", R"({"items":[1)", R"({"items":["a\)",
                           R"({"items" [1]})", R"({"items":[1],"items":[2]})", R"("items":[1])"}) {
    const std::optional<SplitArray> split = split_array(text, "items");
    bool good = split ? parse_json(split->rest).ok() : parse_json(text).ok();
    for (const std::string_view element : split ? split->elements : std::vector<std::string_view>()) {
      good = good && parse_json(element).ok();
    }
    EXPECT_FALSE(good) << text;
  }
}

TEST(SplitArray, AgreesWithTheWholeTree) {
  const auto seed = plimsoll::testing::random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const std::vector<std::string> pieces = {"{", "}", "[", "]", ",", ":", "\"items\"", "\"a\\\"\"", "1", " "};
  for (int i = 0; i < 20'000; ++i) {
    std::string text = "{\"items\":[";
    for (std::uint64_t left = random() % 12; left > 0; --left) {
      text += pieces[random() % pieces.size()];
    }
    text += random() % 2 == 0 ? "]}" : "";
    const Result<Json> whole = parse_json(text);
    const std::optional<SplitArray> split = split_array(text, "items");
    if (!split) {
      ASSERT_FALSE(whole.ok() && (*whole)["items"].isArray()) << text;
      continue;
    }
    Result<Json> together = parse_json(split->rest);
    for (const std::string_view element : split->elements) {
      const Result<Json> parsed = parse_json(element);
      if (!parsed || !together) {
        together = Error(ErrorCode::kInvalid, "an element");
        break;
      }
      (*together)["items"].append(*parsed);
    }
    ASSERT_EQ(together.ok(), whole.ok()) << text;
    if (whole) {
      ASSERT_EQ(*together, *whole) << text;
    }
  }
}

}  // namespace
}  // namespace plimsoll
