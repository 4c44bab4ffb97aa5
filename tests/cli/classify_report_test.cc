#include "cli/classify_explanation.h"

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

TEST(ClassifyExplanation, SaysOfAFullShmWhatCuresIt) {
  ExplainedEnd explained{.end = {.outcome = Outcome::kHostOutOfMemory, .shared_memory = true}};
  EXPECT_THAT(classify_explanation_text(explained), HasSubstr("mount an emptyDir of medium Memory there"));
  explained.end.shared_memory = false;
  EXPECT_THAT(classify_explanation_text(explained), HasSubstr("more memory for the container"));
  EXPECT_THAT(classify_explanation_text(explained), HasSubstr("nothing else was seen"));
}

TEST(ClassifyExplanation, AnAttemptThatHasNotFailedNeedsNothing) {
  for (const Outcome outcome : {Outcome::kSucceeded, Outcome::kRunning}) {
    EXPECT_THAT(classify_explanation_text({.end = {.outcome = outcome}}),
                HasSubstr("the attempt has not failed"));
  }
}

TEST(ClassifyExplanation, WhatOthersWroteIsShortAndMovesNoCursor) {
  AttemptEnd other{.outcome = Outcome::kUnknown,
                   .evidence = {.pod = "a", .text = "\x1b[2J" + std::string(500, 'x')}};
  const std::string text = classify_explanation_text({.others = {{Priority::kNothing, other}}});
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, HasSubstr(std::string(80, 'x') + "..."));
}

}  // namespace
}  // namespace plimsoll::cli
