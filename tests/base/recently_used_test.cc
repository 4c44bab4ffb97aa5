#include "base/recently_used.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(RecentlyUsed, ForgetsWhatWasUsedLeastRecently) {
  RecentlyUsed<int> values(2);
  values.put("a", 1);
  values.put("b", 2);
  EXPECT_NE(values.find("a"), nullptr);
  values.put("c", 3);
  EXPECT_EQ(values.find("b"), nullptr);
  EXPECT_EQ(*values.find("a"), 1);
  values.put("a", 5);
  EXPECT_EQ(*values.find("a"), 5);
}

}  // namespace
}  // namespace plimsoll
