#include "http/handler_slots.h"

#include <gtest/gtest.h>

namespace plimsoll::http {
namespace {

TEST(HandlerSlots, GivesQueuesAndRejects) {
  std::atomic<std::uint64_t> count = 0;
  HandlerSlots<int> slots(1, 3, count);
  int first = 1;
  int second = 2;
  int third = 3;
  int fourth = 4;
  EXPECT_EQ(slots.acquire(&first), Slot::kGiven);
  EXPECT_EQ(slots.acquire(&second), Slot::kQueued);
  EXPECT_EQ(slots.acquire(&third), Slot::kQueued);
  EXPECT_EQ(slots.acquire(&fourth), Slot::kRejected);
  EXPECT_EQ(count, 3U);
  EXPECT_EQ(slots.release(), &second);
  EXPECT_EQ(slots.acquire(&fourth), Slot::kQueued);
  EXPECT_EQ(slots.release(), &third);
  EXPECT_EQ(slots.release(), &fourth);
  EXPECT_EQ(slots.release(), nullptr);
  EXPECT_EQ(count, 0U);
  EXPECT_EQ(slots.acquire(&first), Slot::kGiven);
}

}  // namespace
}  // namespace plimsoll::http
