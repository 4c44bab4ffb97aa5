#include "remediation/pattern_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plimsoll::remediation {
namespace {

using ::testing::HasSubstr;

std::string error_of(const std::string& yaml) {
  const Result<std::vector<Pattern>> read = read_patterns(yaml, true);
  return read ? "" : read.error().message;
}

TEST(PatternFile, EachTextIsAPatternWithWhatTheEntryShares) {
  const Result<std::vector<Pattern>> read = read_patterns(R"(
- rule: proof
  outcome: HostOutOfMemory
  sharedMemory: true
  library: acme
  versions: '>= 2'
  source: acme/src/pool.cc
  with: pool
  unless: retry
  text: ['pool exhausted', 'no pool']
  regex: ['pool [0-9]+ is full']
- {rule: harmless, text: ['just a warning']}
)",
                                                          true);
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->size(), 4U);
  const Pattern& third = (*read)[2];
  EXPECT_EQ(third.text, "pool [0-9]+ is full");
  EXPECT_TRUE(third.is_regex && third.is_own && third.shared_memory);
  EXPECT_EQ(third.outcome, crds::Outcome::kHostOutOfMemory);
  EXPECT_EQ(third.with + third.unless + third.library + third.versions, "poolretryacme>= 2");
  EXPECT_EQ(name_of((*read)[3].rule), "harmless");
  EXPECT_TRUE(read_patterns("", true)->empty());
}

TEST(PatternFile, WhatIsWrongIsNamed) {
  EXPECT_THAT(error_of("rule: proof"), HasSubstr("patterns are a list"));
  EXPECT_THAT(error_of("- proof"), HasSubstr("pattern 0: must be an object"));
  EXPECT_THAT(error_of("- {rule: prof, outcome: Unknown, text: [a]}"),
              HasSubstr("rule must be one of proof, mention"));
  EXPECT_THAT(error_of("- {rule: proof, outcome: Oom, text: [a]}"),
              HasSubstr("outcome must be one of CUDAOutOfMemory"));
  EXPECT_THAT(error_of("- {rule: proof, outcome: Succeeded, text: [a]}"),
              HasSubstr("outcome must be one of"));
  EXPECT_THAT(error_of("- {rule: harmless, outcome: Unknown, text: [a]}"),
              HasSubstr("harmless has no outcome"));
  EXPECT_THAT(error_of("- {rule: harmless, texts: [a]}"),
              HasSubstr("unknown member texts; did you mean text?"));
  EXPECT_THAT(error_of("- {rule: harmless, text: a}"), HasSubstr("text must be a list"));
  EXPECT_THAT(error_of("- {rule: harmless, text: [7]}"), HasSubstr("text must have texts of 1 to 300 bytes"));
  EXPECT_THAT(error_of("- {rule: harmless}"), HasSubstr("has neither text nor regex"));
  EXPECT_THAT(error_of("- {rule: harmless, with: [a], text: [a]}"), HasSubstr("with must be a text"));
  EXPECT_THAT(error_of("- {rule: proof, outcome: UserError, sharedMemory: true, text: [a]}"),
              HasSubstr("sharedMemory"));
  EXPECT_THAT(error_of("- {rule: harmless, text: [" + std::string(301, 'a') + "]}"),
              HasSubstr("1 to 300 bytes"));
  EXPECT_THAT(error_of("- ["), HasSubstr("line"));
}

TEST(PatternFile, AClusterHasSoManyOfItsOwnAndNotMore) {
  std::string file = "- rule: harmless\n  text:\n";
  for (std::size_t i = 0; i < kMostOwnPatterns; ++i) {
    file += "    - 'remark " + std::to_string(i) + "'\n";
  }
  EXPECT_EQ(error_of(file), "");
  EXPECT_THAT(error_of(file + "    - 'one more'\n"), HasSubstr("more than 500 texts"));
}

}  // namespace
}  // namespace plimsoll::remediation
