#include "base/yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/testing/random_seed.h"

namespace plimsoll {
namespace {

using ::testing::HasSubstr;

Json one(std::string_view text) {
  Result<std::vector<Json>> documents = parse_yaml_documents(text);
  if (!documents || documents->size() != 1) {
    ADD_FAILURE() << (documents ? "not one document" : to_string(documents.error())) << "\n" << text;
    return Json();
  }
  return std::move(documents->front());
}

std::string error_of(std::string_view text) {
  const Result<std::vector<Json>> documents = parse_yaml_documents(text);
  return documents ? "parsed" : to_string(documents.error());
}

TEST(Yaml, ResolvesScalarsAsKubectlDoes) {
  // What `kubectl create --dry-run=client -o json` (1.36) made of each.
  const std::pair<const char*, const char*> cases[] = {{"yes", "true"},
                                                       {"y", "true"},
                                                       {"off", "false"},
                                                       {"oN", "\"oN\""},
                                                       {"tRUE", "\"tRUE\""},
                                                       {"~", "null"},
                                                       {"Null", "null"},
                                                       {"nUll", "\"nUll\""},
                                                       {"", "null"},
                                                       {"017", "15"},
                                                       {"08", "8"},
                                                       {"0o17", "15"},
                                                       {"0O17", "15"},
                                                       {"0x1f", "31"},
                                                       {"0X1F", "31"},
                                                       {"0b101", "5"},
                                                       {"1_000", "1000"},
                                                       {"_1", "\"_1\""},
                                                       {"+5", "5"},
                                                       {"--5", "\"--5\""},
                                                       {"1e3", "1000"},
                                                       {"1.5", "1.5"},
                                                       {"1.", "1"},
                                                       {".5", "0.5"},
                                                       {"-.5", "-0.5"},
                                                       {".", "\".\""},
                                                       {"1.5e3", "1500"},
                                                       {"-0", "0"},
                                                       {"5%", "\"5%\""},
                                                       {"80Gi", "\"80Gi\""},
                                                       {"0x", "\"0x\""},
                                                       {"0b2", "\"0b2\""},
                                                       {"1e", "\"1e\""},
                                                       {"e3", "\"e3\""},
                                                       {"1e400", "\"1e400\""},
                                                       {"1,000", "\"1,000\""},
                                                       {"nan", "\"nan\""},
                                                       {"inf", "\"inf\""},
                                                       {"-0x1f", "-31"},
                                                       {"12:30:45", "\"12:30:45\""},
                                                       {"2001-01-01", "\"2001-01-01\""},
                                                       {"\"5\"", "\"5\""},
                                                       {"'yes'", "\"yes\""},
                                                       {"!!str 5", "\"5\""},
                                                       {"!!int \"5\"", "5"},
                                                       {"! 5", "\"5\""},
                                                       {"!foo 5", "\"5\""},
                                                       {"!!binary aGVsbG8=", "\"hello\""},
                                                       {"9223372036854775807", "9223372036854775807"},
                                                       {"-9223372036854775808", "-9223372036854775808"}};
  for (const auto& [text, json] : cases) {
    EXPECT_EQ(write_json(one("a: " + std::string(text) + "\n")["a"]), json) << text;
  }
}

TEST(Yaml, KeysAreText) {
  EXPECT_EQ(write_json(one("{yes: 1, 1: 2, 0x1f: 3, 1.5: 4, 'no': 5}")),
            R"({"1":2,"1.5":4,"31":3,"no":5,"true":1})");
  EXPECT_THAT(error_of("{? [1] : 2}"), HasSubstr("a key must be a plain string"));
}

TEST(Yaml, ReadsSeveralDocuments) {
  const auto documents = parse_yaml_documents("# comment\n---\na: 1\n---\n---\n# nothing\n---\n- b\n...\n");
  ASSERT_TRUE(documents.ok());
  ASSERT_EQ(documents->size(), 2U);
  EXPECT_EQ((*documents)[0]["a"], 1);
  EXPECT_EQ((*documents)[1][0], "b");
  EXPECT_EQ(parse_yaml_documents("\xEF\xBB\xBF# é\r\na: é€😀\r\n---\r\nb: 2\r\n--- {c: 3}\r\n")->size(), 3U);
  EXPECT_THAT(error_of("a: 1\n---\nb: [\n"), HasSubstr("line 4"));
  for (const char* empty : {"", " \n", "---\n", "# only a comment\n"}) {
    EXPECT_TRUE(parse_yaml_documents(empty).ok() && parse_yaml_documents(empty)->empty()) << empty;
  }
}

TEST(Yaml, ReadsJsonAndFlowStyle) {
  EXPECT_EQ(one("{\"a\": [1, 2]}")["a"].size(), 2U);
  EXPECT_EQ(one("{a: [1, two]}")["a"][1], "two");
  EXPECT_EQ(one("\n\t {\"a\": 1}\r\n")["a"], 1);
}

TEST(Yaml, ReadsBlocksAndWindowsLineEnds) {
  EXPECT_EQ(one("a: |\n  x\n  y\n")["a"], "x\ny\n");
  EXPECT_EQ(one("a: >-\n  x\n  y\n")["a"], "x y");
  EXPECT_EQ(one("a: 1\r\nb: two\r\n")["b"], "two");
}

TEST(Yaml, FollowsAliasesAndMergeKeys) {
  EXPECT_EQ(write_json(one("{a: &x {p: 1, q: 2}, b: *x}")), R"({"a":{"p":1,"q":2},"b":{"p":1,"q":2}})");
  EXPECT_EQ(write_json(one("{a: &x {p: 1, q: 2}, b: {<<: *x, q: 3}}")["b"]), R"({"p":1,"q":3})");
  EXPECT_EQ(write_json(one("{a: &x {p: 1}, c: &y {r: 5, p: 9}, b: {q: 3, <<: [*x, *y]}}")["b"]),
            R"({"p":1,"q":3,"r":5})");
  EXPECT_EQ(one("{'<<': 5}")["<<"], 5);
  EXPECT_THAT(error_of("{a: {<<: 5}}"), HasSubstr("<< must name a map"));
  EXPECT_THAT(error_of("{a: {<<: [5]}}"), HasSubstr("<< must name maps"));
}

TEST(Yaml, RefusesAliasesThatContainThemselves) {
  for (const char* text : {"a: &x [*x]", "a: &x {b: *x}", "&x {a: [1, {b: *x}], c: *x}", "a: &x {<<: *x}"}) {
    EXPECT_THAT(error_of(text), HasSubstr("Invalid: not valid YAML")) << text;
  }
  EXPECT_THAT(error_of("a: *nobody"), HasSubstr("not valid YAML"));
}

TEST(Yaml, RefusesBillionLaughs) {
  std::string text = "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before;
    for (int j = 0; j < 9; ++j) {
      text += ", " + before;
    }
    text += "]\n";
  }
  EXPECT_THAT(error_of(text), HasSubstr("nodes once aliases are followed"));
  std::string maps = "a0: &a0 {x: 1}\n";
  for (int i = 1; i < 40; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    maps +=
        "a" + std::to_string(i) + ": &a" + std::to_string(i) + " {l: " + before + ", r: " + before + "}\n";
  }
  EXPECT_THAT(error_of(maps), HasSubstr("nodes once aliases are followed"));
}

TEST(Yaml, NestingIsLimited) {
  EXPECT_THAT(error_of(std::string(20'000, '[')), HasSubstr("nested"));
  EXPECT_FALSE(parse_yaml_documents("a: " + std::string(20'000, '[')).ok());
  EXPECT_FALSE(parse_yaml_documents("a: " + std::string(20'000, '[') + std::string(20'000, ']')).ok());
  EXPECT_FALSE(parse_yaml_documents("a: " + std::string(20'000, '{')).ok());
  std::string dashes;
  for (int i = 0; i < 20'000; ++i) {
    dashes += "- ";
  }
  EXPECT_FALSE(parse_yaml_documents(dashes + "x").ok());
  std::string questions;
  for (int i = 0; i < 20'000; ++i) {
    questions += "? ";
  }
  EXPECT_FALSE(parse_yaml_documents(questions + "x").ok());
  std::string deeper;
  for (int i = 0; i < 1000; ++i) {
    deeper += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
  }
  EXPECT_FALSE(parse_yaml_documents(deeper).ok());
  EXPECT_TRUE(parse_yaml_documents("a: " + std::string(150, '[') + std::string(150, ']')).ok());
}

TEST(Yaml, RefusesDuplicateKeys) {
  EXPECT_THAT(error_of("a: 1\nb: 2\na: 3\n"),
              HasSubstr("line 3, column 1: the key is twice in the map (near `a`)"));
  EXPECT_THAT(error_of("{1: x, \"1\": y}"), HasSubstr("key is twice"));
  EXPECT_THAT(error_of("{\"a\": 1, \"a\": 2}"), HasSubstr("key is twice"));
}

TEST(Yaml, RefusesWhatIsBroken) {
  for (const char* text : {"a: [1, 2", "a: {b: 1", "a: 'x", "a: \"x", "a:\n\t- b", "a: b: c", "- a\nb: 1",
                           "a: !!binary ?", "%YAML 9.9\n---\na: 1", "@", "`", "a: .inf", "a: .NaN"}) {
    EXPECT_THAT(error_of(text), HasSubstr("not valid YAML")) << text;
  }
}

TEST(Yaml, BinaryDataThatIsNoTextIsAnErrorAndNotAStringThatCannotBeWritten) {
  EXPECT_THAT(error_of("a: !!binary 333333333333\n"), HasSubstr("binary data that is not UTF-8"));
}

TEST(Yaml, SurvivesBinary) {
  EXPECT_THAT(error_of(std::string_view("\x7f"
                                        "ELF\0\0",
                                        6)),
              HasSubstr("binary"));
  const std::uint32_t seed = plimsoll::testing::random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 300; ++i) {
    std::string bytes(random() % 60, '\0');
    for (char& c : bytes) {
      c = static_cast<char>(random());
    }
    (void)parse_yaml_documents(bytes).ok();  // any answer but a crash
  }
}

TEST(Yaml, StrayTextIsNoDocument) {
  EXPECT_THAT(error_of("- a\nb: 1\n"), HasSubstr("line 2, column 1: text after the end of the document"));
  // yaml-cpp's own loop over documents never ends on these.
  for (const char* text : {",,,~[#::-~1@!{!-}<<", "%@]\n\n&-',:ab~"}) {
    EXPECT_THAT(error_of(text), HasSubstr("not valid YAML")) << text;
  }
  (void)parse_yaml_documents("%[:&'@|!]&#b@]|*',\"]a->1#").ok();
}

TEST(Yaml, SurvivesRandomMarkup) {
  const std::uint32_t seed = plimsoll::testing::random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::string alphabet = "[]{}:,-?&*!|>'\"%@`#\n ab1~<";
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    for (std::size_t length = random() % 30; text.size() < length;) {
      text += alphabet[random() % alphabet.size()];
    }
    (void)parse_yaml_documents(text).ok();
  }
}

TEST(Yaml, WhatIsWrittenReadsBack) {
  const std::vector<std::string> texts = {
      "",        "a",     "yes",     "null",     "~",          "5",     "0x1f", "1e3",    "-",
      "- a",     "a: b",  "a #b",    "#a",       " a",         "a ",    "a\nb", "a\nb\n", "\n",
      "\n\n",    "a\n\n", " a\nb\n", "a \nb\n",  "a\tb",       "\"a\"", "'a'",  "{a}",    "[a]",
      "*a",      "&a",    "!a",      "%a",       "@a",         "`a",    "|",    ">",      "?",
      "? a",     ":",     "a:",      "<<",       "=",          "---",   "...",  "5%",     "80Gi",
      "é€😀",     "\x01",  "\x7f",    "a\r\nb\n", "2001-01-01", "1_000", "y",    "off",    "{\"a\": 1}\n",
      "\xC2\x85"};
  Json object(::Json::objectValue);
  for (const std::string& text : texts) {
    object[text]["value"] = text;
    object[text]["list"].append(text);
  }
  object["numbers"].append(1.5);
  object["numbers"].append(-3);
  object["numbers"].append(Json(::Json::UInt64{18446744073709551615U}));
  object["numbers"].append(1e300);
  object["numbers"].append(true);
  object["numbers"].append(Json());
  object["empty list"] = Json(::Json::arrayValue);
  object["empty map"] = Json(::Json::objectValue);
  const std::string yaml = write_yaml(object);
  EXPECT_EQ(one(yaml), object) << yaml;
  for (const std::string& text : texts) {
    EXPECT_EQ(one("- 1\n- " + write_yaml(Json(text)))[1], Json(text)) << write_yaml(Json(text));
  }
}

TEST(Yaml, ControlCharactersAtTheEndOfTextAreKept) {
  const Json object = *parse_json("{\"a\\r\": \"2001-01-01\\r\", \"b\": \"x\\t\", \"c\": \"\\u007f\"}");
  EXPECT_EQ(one(write_yaml(object)), object) << write_yaml(object);
}

TEST(Yaml, NoncharactersOfUnicodeAreKept) {
  const Json object =
      *parse_json("{\"a\": [\"\xEF\xBF\xBF\"], \"b\": \"\xEF\xBF\xBD\", \"\xEF\xB7\x90\": 1}");
  EXPECT_EQ(one(write_yaml(object)), object) << write_yaml(object);
  EXPECT_EQ(one("- 1\n- " + write_yaml(Json("\xF0\x9F\xBF\xBE")))[1], Json("\xF0\x9F\xBF\xBE"));
}

TEST(Yaml, AGenuineReplacementCharacterStaysInBlockStyle) {
  EXPECT_EQ(write_yaml(*parse_json("{\"a\": {\"b\": \"\xEF\xBF\xBD\"}}")), "a:\n  b: \xEF\xBF\xBD\n");
}

// They became bytes that are no UTF-8, and what was written with them could not be read.
TEST(Yaml, EscapesOfTwoCharactersAreCharacters) {
  const Json object = one(R"({"a\_": "\N\_\L\P", b: "\xe9\u00e9\_"})");
  EXPECT_EQ(object, *parse_json(R"({"a\u00a0": "\u0085\u00a0\u2028\u2029", "b": "\u00e9\u00e9\u00a0"})"));
  EXPECT_EQ(one(write_yaml(object)), object) << write_yaml(object);
}

// What was written with a key of more than 1024 characters, such as 300 control characters, could not be read.
TEST(Yaml, LongKeysAreKept) {
  std::string next_lines;
  std::string noncharacters;
  for (int i = 0; i < 400; ++i) {
    next_lines += "\xC2\x85";         // written as \x85
    noncharacters += "\xEF\xBF\xBF";  // \uffff
  }
  for (const std::string& key :
       {next_lines, noncharacters, std::string(1021, 'k'), std::string(1022, 'k'), std::string(5000, 'k'),
        std::string(255, '\x10'), std::string(300, '\x10'), std::string(300, '"')}) {
    for (const Json& value : {Json("text"), Json(1), *parse_json(R"({"a": [1, {"b": "two\nlines\n"}]})")}) {
      Json object;
      object[key] = value;
      object["short"]["nested"][key] = value;
      EXPECT_EQ(one(write_yaml(object)), object) << key.size() << " characters: " << write_yaml(object);
    }
  }
}

TEST(Yaml, WritesBlockStyle) {
  EXPECT_EQ(write_yaml(*parse_json(R"({"b": [1, {"c": "x"}], "a": "two\nlines\n", "d": {}})")),
            "a: |\n  two\n  lines\nb:\n  - 1\n  - c: x\nd: {}\n");
}

}  // namespace
}  // namespace plimsoll
