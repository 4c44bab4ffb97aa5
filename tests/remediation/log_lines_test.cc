#include "remediation/log_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plimsoll::remediation {
namespace {

using ::testing::HasSubstr;

TEST(LogLines, LinesAreCutAroundTheirPlace) {
  const std::string text = "first\n" + std::string(1000, 'a') + "HERE" + std::string(1000, 'b') + "\r\nlast";
  const std::string line = line_at(text, text.find("HERE"));
  EXPECT_EQ(line.size(), 300U);
  EXPECT_THAT(line, HasSubstr("HERE"));
  EXPECT_EQ(line_at(text, 2), "first");
  EXPECT_EQ(line_at(text, text.size() - 1), "last");
  EXPECT_EQ(line_at("\nx", 0), "");
}

TEST(LogLines, BodiesAreFreeOfWhatLaunchersAndCollectorsPutBefore) {
  for (const char* prefix :
       {"", "    ", "[rank3]: ", "[default0]:", "(RayTrainWorker pid=812, ip=10.0.3.7) ",
        "[1,3]<stderr>: ", "0: ", "worker-1: ", "10.0.0.3: ", "2026-11-21T08:30:00.123Z ",
        "[2026-11-21 08:30:00,123] [ERROR] ", "704.7s  ", "12:00:01.5 [rank0]: ", "  | "}) {
    const std::string text = std::string(prefix) + "ValueError: x";
    const std::vector<LogLine> lines = log_lines(text);
    ASSERT_EQ(lines.size(), 1U);
    EXPECT_EQ(lines[0].body, "ValueError: x") << prefix;
    EXPECT_EQ(lines[0].text, text);
  }
  EXPECT_EQ(log_lines("10%|#  |\r20%|## |\rKeyError: 'a'")[0].body, "KeyError: 'a'");
  EXPECT_EQ(log_lines("[unclosed ValueError: x")[0].body, "[unclosed ValueError: x");
  EXPECT_TRUE(log_lines("").empty());
}

// Each took minutes when every prefix was looked for to the end of the line.
TEST(LogLines, LinesOfNothingButPrefixesTakeNoLongerThanOthers) {
  for (const std::string prefix : {"[a]", "[", "1 ", "(a) ", "| ", "\r", "a:1: "}) {
    std::string text;
    while (text.size() < 1U << 20U) {
      text += prefix;
    }
    EXPECT_EQ(log_lines(text).size(), 1U);
  }
}

TEST(LogLines, TerminalCodesAreLeftOut) {
  EXPECT_EQ(without_terminal_codes("\x1b[1;35mValueError\x1b[0m: \x07\tx\n\x1b[3"), "ValueError: \tx\n");
  EXPECT_EQ(without_terminal_codes("\xE2\x98\x83 snow"), "\xE2\x98\x83 snow");
}

std::vector<std::string> names_in(const std::string& text) {
  const std::vector<LogLine> lines = log_lines(text);
  std::vector<std::string> names;
  for (const LoggedException& one : exceptions_in(lines)) {
    EXPECT_LT(one.line, one.end);
    EXPECT_LE(one.end, lines.size());
    names.emplace_back(one.name);
  }
  return names;
}

TEST(LogLines, ExceptionsAreWhatEndsTracebacksOrIsNamedSo) {
  using ::testing::ElementsAre;
  EXPECT_THAT(names_in("Traceback (most recent call last):\n  File \"a\"\n    f()\nStopIteration\n"),
              ElementsAre("StopIteration"));
  EXPECT_THAT(names_in("a.b.SomeError: x\nOther::Error: y\nUserWarning: z\nKeyError\n"),
              ElementsAre("a.b.SomeError", "KeyError"));
  EXPECT_THAT(
      names_in("[rank1]: Traceback (most recent call last):\n[rank1]:   File \"a\"\n[rank1]: db.Gone: x"),
      ElementsAre("db.Gone"));
  EXPECT_THAT(
      names_in("Exception ignored in: <f>\nTraceback (most recent call last):\n  File \"a\"\nOSError: x\n"
               "ValueError: y"),
      ElementsAre("ValueError"));
  EXPECT_THAT(names_in("INFO ValueError: caught, going on\nthe ValueError: x"), ElementsAre());
}

}  // namespace
}  // namespace plimsoll::remediation
