#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>

namespace plimsoll {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) {
    return invalid("must be even", std::to_string(value));
  }
  return value / 2;
}

Result<void> check(bool good) {
  if (!good) {
    return Error(ErrorCode::kConflict, "read again, then retry");
  }
  return {};
}

TEST(Result, HoldsAValueOrAnError) {
  EXPECT_EQ(*half(4), 2);
  const Result<int> odd = half(5);
  ASSERT_FALSE(odd.ok());
  EXPECT_EQ(odd.error().code, ErrorCode::kInvalid);
  EXPECT_EQ(to_string(odd.error()), "Invalid: must be even (near `5`)");
  EXPECT_TRUE(check(true).ok());
  EXPECT_EQ(check(false).error().code, ErrorCode::kConflict);
}

TEST(Result, MovesWhatCannotBeCopied) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(7));
  const std::unique_ptr<int> owned = *std::move(result);
  EXPECT_EQ(*owned, 7);
}

TEST(Result, ErrorsCanBeToldFromOneLevelUp) {
  Error error(ErrorCode::kTooManyRequests, "slow down");
  error.retry_after = std::chrono::seconds(3);
  const Error outer = error.within("list jobs").within("start");
  EXPECT_EQ(to_string(outer), "TooManyRequests: start: list jobs: slow down");
  EXPECT_EQ(outer.retry_after, std::chrono::seconds(3));
}

TEST(Result, CodesHaveTheNamesOfKubernetes) {
  EXPECT_STREQ(name_of(ErrorCode::kNotFound), "NotFound");
  EXPECT_STREQ(name_of(ErrorCode::kTooLarge), "RequestEntityTooLarge");
  EXPECT_STREQ(name_of(ErrorCode::kExpired), "Expired");
  EXPECT_STREQ(name_of(ErrorCode::kInternal), "InternalError");
}

#ifndef NDEBUG  // in a release assertions are off
TEST(ResultDeathTest, TakingTheWrongSideIsABug) {
  EXPECT_DEATH((void)*half(5), "ok\\(\\)");
  EXPECT_DEATH((void)half(4).error(), "ok\\(\\)");
}
#endif

}  // namespace
}  // namespace plimsoll
