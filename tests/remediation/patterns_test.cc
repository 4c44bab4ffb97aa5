#include "remediation/patterns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/remediation/endings.h"

namespace plimsoll::remediation {
namespace {

using ::testing::HasSubstr;

const Pattern* first(std::string_view line) {
  static const Patterns& known = Patterns::built_in();
  const std::vector<PatternMatch> matches = known.match(line);
  return matches.empty() ? nullptr : matches.front().pattern;
}

TEST(Patterns, TellGpuHostAndRemarkApart) {
  ASSERT_NE(first(kOutOfMemory), nullptr);
  EXPECT_EQ(first(kOutOfMemory)->outcome, crds::Outcome::kCudaOutOfMemory);
  EXPECT_EQ(first(kOutOfMemory)->rule, Rule::kProof);
  EXPECT_EQ(first("terminate: STD::BAD_ALLOC")->outcome, crds::Outcome::kHostOutOfMemory);
  EXPECT_EQ(first("the GPU is cuda:0, out of memory, retrying")->rule, Rule::kMention);
  EXPECT_EQ(first("loss 0.3"), nullptr);
  EXPECT_EQ(first(""), nullptr);
}

TEST(Patterns, EachOneFindsItsOwnText) {
  for (const Pattern& pattern : Patterns::built_in().all()) {
    EXPECT_FALSE(pattern.library.empty() || pattern.source.empty()) << pattern.text;
    if (pattern.is_regex || !pattern.with.empty()) {
      continue;
    }
    bool found = false;
    for (const PatternMatch& match : Patterns::built_in().match("at 7: " + pattern.text + ", which is all")) {
      found = found || (match.pattern->text == pattern.text && match.at >= 6U);
    }
    EXPECT_TRUE(found) << pattern.text;
  }
}

TEST(Patterns, ALineNeedsAndLacksWhatItsPatternSays) {
  EXPECT_EQ(first("write /dev/shm/nccl-1: No space left on device")->outcome,
            crds::Outcome::kHostOutOfMemory);
  EXPECT_EQ(first("write /data/checkpoint: No space left on device"), nullptr);
  EXPECT_NE(first("mmap: Cannot allocate memory"), nullptr);
  EXPECT_EQ(first("ibv_reg_mr: Cannot allocate memory")->outcome, crds::Outcome::kInfrastructureFailure);
}

TEST(Patterns, AClustersOwnComeFirst) {
  const Result<Patterns> own = Patterns::with_own(
      "- {rule: proof, outcome: InfrastructureFailure, library: acme, text: ['cuda out of memory. tried to allocate']}\n"
      "- {rule: proof, outcome: UserError, regex: ['quota of team [a-z]+ is used up']}");
  ASSERT_TRUE(own) << own.error().message;
  const std::vector<PatternMatch> matches = own->match(kOutOfMemory);
  ASSERT_GE(matches.size(), 2U);
  EXPECT_EQ(matches[0].pattern->library, "acme");
  EXPECT_TRUE(matches[0].pattern->is_own);
  EXPECT_EQ(matches[1].pattern->outcome, crds::Outcome::kCudaOutOfMemory);
  EXPECT_EQ(own->match("the quota of team ads is used up").front().pattern->outcome,
            crds::Outcome::kUserError);
}

TEST(Patterns, AnExpressionThatIsNoneIsNamed) {
  const Result<Patterns> none = Patterns::with_own("- {rule: harmless, regex: ['(unclosed']}");
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("missing )"));
  EXPECT_EQ(none.error().fragment, "(unclosed");
  EXPECT_FALSE(Patterns::with_own("- {rule: harmless, regex: ['(?=ahead)x']}"));
  EXPECT_FALSE(Patterns::with_own("- {rule: harmless, regex: ['(((a{100}){100}){100})']}"));
}

TEST(Patterns, AnyBytesAreReadAndALongLineTakesLinearTime) {
  std::string line;
  for (int byte = 0; byte < 256; ++byte) {
    line += static_cast<char>(byte);
  }
  Patterns::built_in().match(line);
  // Expressions that make backtracking matchers take for ever.
  const Result<Patterns> hard = Patterns::with_own("- {rule: harmless, regex: ['(a*)*(a*)*(a*)*b']}");
  ASSERT_TRUE(hard);
  EXPECT_TRUE(hard->match(std::string(100'000, 'a')).empty());
}

}  // namespace
}  // namespace plimsoll::remediation
