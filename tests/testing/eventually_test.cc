#include "tests/testing/eventually.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace plimsoll::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(Eventually, LooksUntilTheConditionHolds) {
  int looks = 0;
  EXPECT_TRUE(eventually("the third look", [&] { return ++looks == 3; }));
  EXPECT_EQ(looks, 3);
}

TEST(Eventually, TakesValuesAndMatchers) {
  std::vector<std::string> names;
  const auto look = [&] {
    names.push_back("a");
    return names;
  };
  EXPECT_TRUE(eventually("a name", look, Not(IsEmpty())));
  EXPECT_TRUE(eventually(
      "three names", [&] { return look().size(); }, 3U));
  EXPECT_TRUE(eventually(
      "the text", [&] { return names.front(); }, "a"));
}

TEST(Eventually, SaysWhatItWaitedForAndWhatItSawLast) {
  int size = 5;
  const ::testing::AssertionResult result = eventually(
      "the queue is empty", [&] { return size > 3 ? --size : size; }, 0, 20ms);
  EXPECT_FALSE(result);
  EXPECT_THAT(result.message(), HasSubstr("the queue is empty"));
  EXPECT_THAT(result.message(), HasSubstr("expected: is equal to 0"));
  EXPECT_THAT(result.message(), HasSubstr("last seen: 3"));
}

// The state may have come while this thread had no processor.
TEST(Eventually, LooksOnceAfterTheLimit) {
  EXPECT_TRUE(eventually(
      "what holds", [] { return true; }, true, 0s));
  int looks = 0;
  EXPECT_TRUE(eventually(
      "a late state",
      [&] {
        std::this_thread::sleep_for(5ms);
        return ++looks == 2;
      },
      true, 1ms));
}

}  // namespace
}  // namespace plimsoll::testing
