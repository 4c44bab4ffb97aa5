#include "cli/classify_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plimsoll::cli {
namespace {

using remediation::AttemptEnd;
using remediation::ExplainedEnd;
using remediation::Outcome;
using remediation::Priority;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ClassifyReport, SaysOfAFullShmWhatCuresIt) {
  ExplainedEnd explained{.end = {.outcome = Outcome::kHostOutOfMemory, .shared_memory = true}};
  EXPECT_THAT(classify_text(explained, true),
              HasSubstr("with a larger /dev/shm: an emptyDir of medium Memory"));
  explained.end.shared_memory = false;
  EXPECT_THAT(classify_text(explained, true), HasSubstr("more memory for the container"));
  EXPECT_THAT(classify_text(explained, true), HasSubstr("nothing else was seen"));
}

TEST(ClassifyReport, AnAttemptThatHasNotFailedNeedsNothing) {
  for (const Outcome outcome : {Outcome::kSucceeded, Outcome::kRunning}) {
    EXPECT_THAT(classify_text({.end = {.outcome = outcome}}, true), HasSubstr("the attempt has not failed"));
  }
}

TEST(ClassifyReport, WhatOthersWroteIsShortAndMovesNoCursor) {
  AttemptEnd other{.outcome = Outcome::kUnknown,
                   .evidence = {.pod = "a", .text = "\x1b[2J" + std::string(500, 'x')}};
  const std::string text = classify_text({.others = {{Priority::kNothing, other}}}, true);
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, HasSubstr(std::string(80, 'x') + "..."));
}

}  // namespace
}  // namespace plimsoll::cli
