#include "webhook/progress_watch.h"

#include <gtest/gtest.h>

namespace plimsoll::webhook {
namespace {

using namespace std::chrono_literals;

// Two admissions never ended and blocked all others, while /readyz returned 200.
TEST(ProgressWatch, FailsWhenWorkIsOverdueAndNothingIsFinished) {
  ProgressWatch watch;
  const auto now = std::chrono::steady_clock::now();
  EXPECT_TRUE(watch.check(now).ok());
  EXPECT_TRUE(watch.check(now + 1h).ok());
  const ProgressWatch::Work stuck(watch, now, now + 5s);
  const ProgressWatch::Work other(watch, now + 1s, now + 6s);
  EXPECT_TRUE(watch.check(now + 5s).ok());
  const Result<void> late = watch.check(now + 7s);
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(late.error().message.find("2 are in progress"), std::string::npos) << late.error().message;
}

TEST(ProgressWatch, OneThatIsStuckIsNoFailureWhileOthersAreFinished) {
  ProgressWatch watch;
  const auto now = std::chrono::steady_clock::now();
  const ProgressWatch::Work stuck(watch, now - 60s, now - 55s);
  EXPECT_FALSE(watch.check(now).ok());
  { const ProgressWatch::Work work(watch, now, now + 5s); }
  EXPECT_TRUE(watch.check(now + 1s).ok());
  EXPECT_FALSE(watch.check(now + 30s).ok());
}

}  // namespace
}  // namespace plimsoll::webhook
