#include "cli/explanation.h"

#include <gmock/gmock.h>

#include <sstream>

namespace plimsoll::cli {
namespace {

using ::testing::HasSubstr;

TEST(ExplanationText, HasRuleSourceAndFiguresOfEachPart) {
  const std::string text =
      explanation_text({{.part = "parameters",
                         .bytes = 2_MiB,
                         .rule = "every replica holds all",
                         .sources = {"module.py", "a paper, section 3"},
                         .figures = {{"denseParameterBytes", 2097152}, {"strategy", "DDP"}}}});
  EXPECT_THAT(text, HasSubstr("parameters: 2.00 MiB\n"));
  EXPECT_THAT(text, HasSubstr("rule:   every replica holds all\n"));
  EXPECT_THAT(text, HasSubstr("source: module.py; a paper, section 3\n"));
  EXPECT_THAT(text, HasSubstr("from:   denseParameterBytes 2097152 (2.00 MiB), strategy DDP\n"));
}

TEST(ExplanationText, LongRulesAreWrapped) {
  std::string rule;
  for (int i = 0; i < 100; ++i) {
    rule += "word ";
  }
  std::istringstream lines(
      explanation_text({{.part = "p", .bytes = {}, .rule = rule, .sources = {"s"}, .figures = {}}}));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_LE(line.size(), 100U);
  }
  EXPECT_GT(count, 8);
}

}  // namespace
}  // namespace plimsoll::cli
