#include "base/json/packed.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing/random_seed.h"

namespace plimsoll {
namespace {

Json parsed(std::string_view text) {
  Result<Json> value = parse_json(text);
  EXPECT_TRUE(value.ok()) << text;
  return value ? *value : Json();
}

TEST(PackedJson, ReadsWhereItLies) {
  const PackedJson packed(parsed(R"({
    "metadata": {"name": "a-0", "labels": {"plimsoll.dev/job-name": "a", "": "empty"}, "finalizers": []},
    "spec": {"nodeName": "gpu-1", "priority": -3, "overhead": null, "hostNetwork": false, "share": 0.25},
    "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}, {}, [7, 8]]}
  })"));
  const JsonView pod = *packed;
  EXPECT_EQ(text_member(pod, {"metadata", "name"}), "a-0");
  EXPECT_EQ(text_member(pod, {"metadata", "labels", "plimsoll.dev/job-name"}), "a");
  EXPECT_EQ(text_member(pod, {"metadata", "labels", ""}), "empty");
  EXPECT_EQ(text_member(pod, {"status", "phase"}), "Running");
  EXPECT_EQ(member(pod, {"spec", "priority"}).integer(), -3);
  EXPECT_EQ(member(pod, {"spec", "priority"}).number(), -3.0);
  EXPECT_EQ(member(pod, {"spec", "share"}).number(), 0.25);
  EXPECT_EQ(member(pod, {"spec", "hostNetwork"}).boolean(), false);
  EXPECT_TRUE(pod.member("spec")->member("overhead")->is_null());
  EXPECT_FALSE(pod.member("specs").has_value());
  EXPECT_TRUE(member(pod, {"metadata", "finalizers"}).is_array());
  EXPECT_TRUE(member(pod, {"metadata", "finalizers"}).elements().empty());
  EXPECT_EQ(pod.members().size(), 3U);
  std::vector<JsonView::Kind> kinds;
  for (const JsonView condition : member(pod, {"status", "conditions"}).elements()) {
    kinds.push_back(condition.kind());
  }
  EXPECT_EQ(kinds, (std::vector<JsonView::Kind>{JsonView::Kind::kObject, JsonView::Kind::kObject,
                                                JsonView::Kind::kArray}));
}

TEST(PackedJson, AValueOfAnotherKindIsNothing) {
  const PackedJson packed(parsed(R"([null, true, 1, 2.5, "x", [], {}, "Word"])"));
  for (const JsonView value : (*packed).elements()) {
    const JsonView::Kind kind = value.kind();
    EXPECT_EQ(value.boolean().has_value(), kind == JsonView::Kind::kBoolean);
    EXPECT_EQ(value.integer().has_value(), kind == JsonView::Kind::kInteger);
    EXPECT_EQ(value.unsigned_integer().has_value(), kind == JsonView::Kind::kInteger);
    EXPECT_EQ(value.number().has_value(), kind == JsonView::Kind::kInteger || kind == JsonView::Kind::kReal);
    EXPECT_EQ(value.text().has_value(), kind == JsonView::Kind::kString);
    EXPECT_TRUE(value.elements().empty());
    EXPECT_TRUE(value.members().empty());
    EXPECT_FALSE(value.member("x").has_value());
  }
}

TEST(PackedJson, KeepsEachValueExactly) {
  using Limits = std::numeric_limits<std::int64_t>;
  for (const std::int64_t number : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{63}, std::int64_t{64},
                                    std::int64_t{-64}, std::int64_t{-65}, Limits::min(), Limits::max()}) {
    const PackedJson packed(Json(static_cast<::Json::Int64>(number)));
    EXPECT_EQ((*packed).integer(), number);
    EXPECT_EQ((*packed).unsigned_integer().has_value(), number >= 0);
  }
  const std::uint64_t large = std::numeric_limits<std::uint64_t>::max();
  const PackedJson packed(Json(static_cast<::Json::UInt64>(large)));
  EXPECT_EQ((*packed).integer(), std::nullopt);
  EXPECT_EQ((*packed).unsigned_integer(), large);
  EXPECT_EQ((*packed).number(), static_cast<double>(large));
  for (const char* text : {"null", "[null]", "[]", "{}", "\"\"", "\"True\"", "-0.0", "1e300", "5e-324",
                           R"("with\u0000nul")", R"({"\u0000":1})", R"({"a":{"a":{"a":[[[{}]]]}}})"}) {
    EXPECT_EQ(write_json(PackedJson(parsed(text)).tree()), write_json(parsed(text))) << text;
  }
}

TEST(PackedJson, TextsOfAnyLengthAndMembersInTheirOrder) {
  for (const std::size_t length : {0U, 1U, 63U, 64U, 127U, 128U, 16'383U, 16'384U, 70'000U}) {
    Json object;
    object["z"] = std::string(length, 'X');
    object[std::string(length, 'K')] = "a";
    const PackedJson packed(object);
    EXPECT_EQ(packed.tree(), object) << length;
  }
  const Result<JsonText> text = JsonText::parse(R"({"b": 1, "a": 2, "c": [3]})");
  ASSERT_TRUE(text.ok());
  const PackedJson packed(text->root());
  std::string names;
  for (const auto& [name, value] : (*packed).members()) {
    names += name;
  }
  EXPECT_EQ(names, "bac");
  EXPECT_EQ(PackedJson(*packed).tree(), packed.tree()) << "packed of packed";
}

TEST(PackedJson, IsAPointer) {
  PackedJson none;
  EXPECT_FALSE(none);
  EXPECT_TRUE(none == nullptr);
  const PackedJson one(Json(1));
  const PackedJson same = one;
  EXPECT_TRUE(one);
  EXPECT_TRUE(one == same);
  EXPECT_FALSE(one == PackedJson(Json(1))) << "equal, and another";
  none = one;
  EXPECT_EQ((*none).integer(), 1);
}

TEST(PackedJson, LivesAsLongAsACopyOfIt) {
  auto first = std::make_unique<PackedJson>(parsed(R"({"a": "text that is longer than any word"})"));
  const PackedJson second = *first;
  const JsonView view = **first;
  first.reset();
  EXPECT_EQ(text_member(view, {"a"}), "text that is longer than any word");
}

Json random_value(std::mt19937_64& random, int depth) {
  const auto roll = [&](std::uint64_t sides) { return random() % sides; };
  const auto text = [&] {
    return std::string(roll(4) == 0 ? roll(300) : roll(12), static_cast<char>('A' + roll(40)));
  };
  switch (roll(depth > 0 ? 9 : 7)) {
    case 0: return {};
    case 1: return roll(2) == 0;
    case 2: {
      const auto number = static_cast<::Json::Int64>(random() >> roll(64));
      return roll(2) == 0 ? number : ~number;
    }
    case 3: return static_cast<::Json::UInt64>(random());
    case 4: return static_cast<double>(random()) / static_cast<double>(1 + roll(1000));
    case 5: return std::string(std::vector<const char*>{"True", "Running", "false"}[roll(3)]);
    case 6: return text();
    case 7: {
      Json list(::Json::arrayValue);
      for (std::uint64_t left = roll(6); left > 0; --left) {
        list.append(random_value(random, depth - 1));
      }
      return list;
    }
    default: {
      Json object(::Json::objectValue);
      for (std::uint64_t left = roll(6); left > 0; --left) {
        object[text()] = random_value(random, depth - 1);
      }
      return object;
    }
  }
}

TEST(PackedJson, IsWhatItWasMadeOf) {
  const auto seed = plimsoll::testing::random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int i = 0; i < 3000; ++i) {
    const Json value = random_value(random, 5);
    const PackedJson packed(value);
    ASSERT_TRUE(*packed == JsonView(value)) << write_json(value);
    ASSERT_EQ(write_json(packed.tree()), write_json(value));
  }
}

}  // namespace
}  // namespace plimsoll
