#include "base/json/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <json/writer.h>

#include <cmath>
#include <random>
#include <thread>

#include "tests/testing/random_seed.h"

namespace plimsoll {
namespace {

using ::testing::HasSubstr;

std::string error_of(std::string_view text) {
  const Result<Json> value = parse_json(text);
  return value ? "parsed " + write_json(*value) : value.error().message;
}

TEST(Json, ReadsEveryKindOfValue) {
  const Result<Json> value =
      parse_json(R"( {"a": [1, -2.5, 1e3, true, false, null], "b": "\u00e9\n\"\\\/\ud83d\ude00", "c": {}} )");
  ASSERT_TRUE(value.ok()) << to_string(value.error());
  EXPECT_EQ((*value)["a"].size(), 6U);
  EXPECT_EQ((*value)["b"].asString(), "\xC3\xA9\n\"\\/\xF0\x9F\x98\x80");
  for (const char* text :
       {"0", "-0", "0.5", "-1.25E-2", "\"\"", "true", "null", "[]", "9223372036854775807"}) {
    EXPECT_TRUE(parse_json(text).ok()) << text;
  }
}

TEST(Json, IntegersStayExact) {
  EXPECT_EQ((*parse_json("9223372036854775807")).asInt64(), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ((*parse_json("-9223372036854775808")).asInt64(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ((*parse_json("18446744073709551615")).asUInt64(), std::numeric_limits<std::uint64_t>::max());
}

TEST(Json, RefusesWhatTheRfcRefuses) {
  for (const char* text : {"",
                           "  ",
                           "{",
                           "[",
                           "\"",
                           "{}}",
                           "[]]",
                           "{} {}",
                           "1 2",
                           "[1,]",
                           "[,1]",
                           "[1,,2]",
                           "{\"a\":1,}",
                           "{\"a\" 1}",
                           "{a:1}",
                           "{1:2}",
                           "{'a':1}",
                           "'a'",
                           "// comment\n1",
                           "/* comment */ 1",
                           "NaN",
                           "nan",
                           "Infinity",
                           "-Infinity",
                           "tru",
                           "nullx",
                           "01",
                           "-01",
                           "00",
                           "-",
                           "+1",
                           "1.",
                           ".5",
                           "1.e5",
                           "1e",
                           "1e+",
                           "1.5.5",
                           "0x10",
                           "1_000",
                           "\"a\nb\"",
                           "\"a\tb\"",
                           "\"\\x\"",
                           "\"\\u12\"",
                           "\"\\ud800\"",
                           "[1 2]",
                           "{\"a\":1 \"b\":2}",
                           "1e999"}) {
    EXPECT_THAT(error_of(text), HasSubstr("not valid JSON")) << text;
  }
}

TEST(Json, RefusesDuplicateKeys) {
  EXPECT_THAT(error_of(R"({"a": 1, "b": 2, "a": 3})"), HasSubstr("Duplicate key: 'a'"));
  EXPECT_THAT(error_of(R"({"x": {"a": 1, "\u0061": 3}})"), HasSubstr("Duplicate key"));
}

TEST(Json, RefusesBrokenUtf8) {
  for (const char* text : {"\"\xff\"", "\"\x80\"", "\"\xC0\xAF\"", "\"\xE0\x80\xAF\"", "\"\xED\xA0\x80\"",
                           "\"\xF5\x80\x80\x80\"", "\"\xF4\x90\x80\x80\"", "\"\xE2\x82\""}) {
    EXPECT_THAT(error_of(text), HasSubstr("broken UTF-8"));
  }
  EXPECT_TRUE(parse_json("\"\xE2\x82\xAC \xF0\x9F\x98\x80\"").ok());
}

TEST(Json, NestingIsLimited) {
  const auto nested = [](int levels) {
    return std::string(static_cast<std::size_t>(levels), '[') +
           std::string(static_cast<std::size_t>(levels), ']');
  };
  EXPECT_TRUE(parse_json(nested(kJsonDepthLimit)).ok());
  EXPECT_THAT(error_of(nested(kJsonDepthLimit + 1)), HasSubstr("nested deeper than 200 levels"));
  EXPECT_THAT(error_of(std::string(20'000, '[')), HasSubstr("nested deeper"));
  std::string objects;
  for (int i = 0; i < 20'000; ++i) {
    objects += "{\"a\":";
  }
  EXPECT_THAT(error_of(objects), HasSubstr("nested deeper"));
  EXPECT_TRUE(parse_json("\"" + std::string(20'000, '[') + "\"").ok()) << "brackets in a string are text";
}

TEST(Json, SaysWhere) {
  EXPECT_THAT(error_of("{\n  \"a\": 1,\n  \"b\": 01\n}"), HasSubstr("Line 3, Column 8"));
  EXPECT_THAT(error_of("{\n  \"a\": 1,\n  \"b\" 1\n}"), HasSubstr("Line 3"));
  EXPECT_LT(error_of("[" + std::string(100'000, 'x')).size(), 400U);
}

TEST(Json, SurvivesBinary) {
  std::string bytes;
  for (int i = 0; i < 1000; ++i) {
    bytes += static_cast<char>(i * 7);
  }
  EXPECT_FALSE(parse_json(bytes).ok());
  EXPECT_FALSE(parse_json(std::string_view("\0", 1)).ok());
  EXPECT_FALSE(parse_json(std::string_view("{}\0", 3)).ok());
}

TEST(Json, WritesEqualValuesAsEqualBytes) {
  const Json value = *parse_json(R"({"b": [1, 2.5, "é"], "a": {"y": null, "x": true}})");
  EXPECT_EQ(write_json(value), R"({"a":{"x":true,"y":null},"b":[1,2.5,"é"]})");
  EXPECT_EQ(*parse_json(write_json_pretty(value)), value);
  EXPECT_THAT(write_json_pretty(value), HasSubstr("\n  \"a\""));
  EXPECT_EQ((*parse_json(write_json(Json(0.1 + 0.2)))).asDouble(), 0.1 + 0.2);
}

Json random_value(std::mt19937_64& random, int depth) {
  switch (random() % (depth > 0 ? 8 : 6)) {
    case 0: return {};
    case 1: return random() % 2 == 0;
    case 2: return Json(static_cast<::Json::Int64>(random()));
    case 3: return Json(static_cast<::Json::UInt64>(random()));
    case 4: return std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 200) - 130);
    case 5: {
      std::string text;
      for (auto left = random() % 20; left > 0; --left) {
        text += random() % 8 == 0 ? "é" : std::string(1, static_cast<char>(random() % 128));
      }
      return {text.data(), text.data() + text.size()};
    }
    case 6: {
      Json array(::Json::arrayValue);
      for (auto left = random() % 4; left > 0; --left) {
        array.append(random_value(random, depth - 1));
      }
      return array;
    }
    default: {
      Json object(::Json::objectValue);
      for (auto left = random() % 4; left > 0; --left) {
        object["k\"\n" + std::to_string(random() % 100)] = random_value(random, depth - 1);
      }
      return object;
    }
  }
}

TEST(Json, WritesAsJsoncppDoesWithoutItsSpaces) {
  const auto seed = plimsoll::testing::random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  ::Json::StreamWriterBuilder theirs;
  theirs["indentation"] = "";
  theirs["emitUTF8"] = true;
  theirs["precision"] = 17;
  for (int i = 0; i < 2000; ++i) {
    const Json value = random_value(random, 4);
    ASSERT_EQ(write_json(value), ::Json::writeString(theirs, value));
  }
  for (const double odd : {0.0, -0.0, 1e300, 5e-324, 100.0, 1e16, 1e17, 123456789012345680.0}) {
    ASSERT_EQ(write_json(Json(odd)), ::Json::writeString(theirs, Json(odd)));
  }
  Json holes(::Json::arrayValue);
  holes[3] = 1;
  ASSERT_EQ(write_json(holes), ::Json::writeString(theirs, holes));
}

TEST(Json, MemberNeverThrows) {
  const Json pod = *parse_json(R"({"spec": {"nodeName": "n1", "containers": [1], "count": 5}})");
  EXPECT_EQ(member(pod, {"spec", "nodeName"}), "n1");
  EXPECT_TRUE(member(pod, {"spec", "missing", "deeper"}).isNull());
  EXPECT_TRUE(member(pod, {"spec", "containers", "name"}).isNull());
  EXPECT_TRUE(member(Json("text"), {"a"}).isNull());
  EXPECT_TRUE(member(Json(), {"a"}).isNull());
  EXPECT_EQ(member(pod, {}), pod);
  EXPECT_EQ(text_member(pod, {"spec", "nodeName"}), "n1");
  EXPECT_EQ(text_member(pod, {"spec", "count"}, "none"), "none");
  EXPECT_EQ(text_member(pod, {"spec", "missing"}), "");
}

TEST(Json, ThreadsDoNotDisturbEachOther) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 200; ++i) {
        const std::string text = "{\"t\":" + std::to_string(t) + ",\"i\":[" + std::to_string(i) + "]}";
        const Result<Json> value = parse_json(text);
        ASSERT_TRUE(value.ok());
        ASSERT_EQ((*value)["t"].asInt(), t);
        ASSERT_FALSE(parse_json("{\"t\":").ok());
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(Json, SurrogateEscapesComeInPairs) {
  EXPECT_TRUE(parse_json(R"(["\u00e9\\ude00"])").ok());  // an escaped backslash, then text
  for (const char* half : {R"(["\ud83d"])", R"(["\ude00"])", R"(["\ud83d\n"])", R"(["\ud83d\ud83d"])"}) {
    EXPECT_FALSE(parse_json(half).ok()) << half;
  }
}

}  // namespace
}  // namespace plimsoll
