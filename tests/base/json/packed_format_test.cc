#include "base/json/packed_format.h"

#include <gtest/gtest.h>

#include <limits>

namespace plimsoll::packed {
namespace {

std::string packed(const Json& value) {
  std::string bytes;
  append(value, nullptr, bytes);
  return bytes;
}

std::string packed(const char* text) {
  return packed(*parse_json(text));
}

// One byte for the tag, and a varint of the zigzag-encoded number: 7 bits a byte, so -64 and 63 are the last of one.
TEST(PackedFormat, SmallIntegersAreShort) {
  for (const auto& [number, size] :
       {std::pair{0, 2}, {63, 2}, {-64, 2}, {64, 3}, {-65, 3}, {8191, 3}, {8192, 4}}) {
    const std::string bytes = packed(Json(number));
    EXPECT_EQ(bytes.size(), static_cast<std::size_t>(size)) << number;
    EXPECT_EQ(integer(bytes.data()), number);
    EXPECT_EQ(behind(bytes.data()), bytes.data() + bytes.size()) << number;
  }
}

TEST(PackedFormat, IntegersOf64BitsKeepTheirValue) {
  constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t number : {kMin, kMax, std::int64_t{-1}}) {
    const std::string bytes = packed(Json(::Json::Int64{number}));
    EXPECT_EQ(integer(bytes.data()), number);
    EXPECT_EQ(unsigned_integer(bytes.data()).has_value(), number >= 0) << number;
  }
  constexpr std::uint64_t kLarge = std::numeric_limits<std::uint64_t>::max();
  const std::string bytes = packed(Json(::Json::UInt64{kLarge}));
  EXPECT_EQ(kind(bytes.data()), JsonView::Kind::kInteger);
  EXPECT_EQ(integer(bytes.data()), std::nullopt) << "it does not fit";
  EXPECT_EQ(unsigned_integer(bytes.data()), kLarge);
  EXPECT_EQ(number(bytes.data()), 18446744073709551616.0) << "the nearest double";
}

TEST(PackedFormat, EachValueKnowsItsKindAndItsEnd) {
  const std::pair<const char*, JsonView::Kind> values[] = {
      {"null", JsonView::Kind::kNull},        {"true", JsonView::Kind::kBoolean},
      {"7", JsonView::Kind::kInteger},        {"0.5", JsonView::Kind::kReal},
      {R"("a-0")", JsonView::Kind::kString},  {R"("Running")", JsonView::Kind::kString},
      {"[1,[2],{}]", JsonView::Kind::kArray}, {R"({"a":{"b":[]}})", JsonView::Kind::kObject}};
  for (const auto& [text_of_value, expected] : values) {
    const std::string bytes = packed(text_of_value) + "more";
    EXPECT_EQ(kind(bytes.data()), expected) << text_of_value;
    EXPECT_STREQ(behind(bytes.data()), "more") << text_of_value;
  }
}

TEST(PackedFormat, AValueOfAnotherKindIsNothing) {
  const std::string text_bytes = packed(R"("true")");
  EXPECT_EQ(boolean(text_bytes.data()), std::nullopt);
  EXPECT_EQ(integer(text_bytes.data()), std::nullopt);
  EXPECT_EQ(number(text_bytes.data()), std::nullopt);
  EXPECT_EQ(text(text_bytes.data()), "true");
  const std::string boolean_bytes = packed("true");
  EXPECT_EQ(text(boolean_bytes.data()), std::nullopt);
  EXPECT_EQ(boolean(boolean_bytes.data()), true);
  EXPECT_EQ(integer(packed("1.5").data()), std::nullopt);
}

TEST(PackedFormat, ContentsLieOneBehindAnother) {
  const std::string bytes = packed(R"([5,"two words",null])");
  const Contents list = contents(bytes.data());
  EXPECT_EQ(list.count, 3U);
  EXPECT_EQ(integer(list.begin), 5);
  const char* second = behind(list.begin);
  EXPECT_EQ(text(second), "two words");
  const char* third = behind(second);
  EXPECT_EQ(kind(third), JsonView::Kind::kNull);
  EXPECT_EQ(behind(third), list.end);
  EXPECT_EQ(list.end, bytes.data() + bytes.size());
}

TEST(PackedFormat, AnObjectIsNamesAndValuesOfWhatIsKept) {
  const Json object = *parse_json(R"({"metadata":{"name":"a","uid":"u"},"spec":{"x":1},"status":2})");
  const JsonSelection kept = JsonSelection().only({}, {"metadata", "status"}).only({"metadata"}, {"name"});
  std::string bytes;
  append(object, &kept, bytes);
  const Contents all = contents(bytes.data());
  ASSERT_EQ(all.count, 2U);
  EXPECT_EQ(text(all.begin), "metadata");
  const char* metadata = behind(all.begin);
  EXPECT_EQ(contents(metadata).count, 1U);
  EXPECT_EQ(text(contents(metadata).begin), "name");
  const char* status = behind(metadata);
  EXPECT_EQ(text(status), "status");
  EXPECT_EQ(integer(behind(status)), 2);
}

// A word that many objects have is a number of two bytes; what users write is not shared.
TEST(PackedFormat, NamesAndEnumeratedTextsAreShared) {
  EXPECT_EQ(packed(R"("Running")").size(), packed(R"("Succeeded")").size());
  EXPECT_LT(packed(R"("Succeeded")").size(), packed(R"("succeeded")").size());
  EXPECT_EQ(text(packed(R"("Succeeded")").data()), "Succeeded");
}

}  // namespace
}  // namespace plimsoll::packed
