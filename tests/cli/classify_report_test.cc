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

TEST(ClassifyReport, SaysOfACardThatOthersFillThatTheJobKeepsItsSize) {
  ExplainedEnd explained{.end = {.outcome = Outcome::kCudaOutOfMemory}};
  explained.end.out_of_memory = {.needed = 2_GiB, .capacity = 24_GiB, .held_by_others = 22_GiB};
  EXPECT_THAT(classify_text(explained, true), HasSubstr("others     22.0 GiB"));
  EXPECT_THAT(classify_text(explained, true), HasSubstr("on the same size, which keeps off this node"));
  EXPECT_EQ(classify_json(explained, true)["heldByOthersBytes"].value(), Json(::Json::Int64{22} << 30));
  explained.end.out_of_memory.needed = 30_GiB;
  EXPECT_THAT(classify_text(explained, true), HasSubstr("on more trainers or larger GPUs"));
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
