#include "tests/testing/latch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace plimsoll::testing {
namespace {

TEST(Latch, HoldsAllThreadsUntilItIsOpened) {
  Latch latch("the test");
  std::atomic<bool> opened = false;
  std::atomic<int> early = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      latch.wait();
      early += opened ? 0 : 1;
    });
  }
  opened = true;
  latch.open();
  threads.clear();
  EXPECT_EQ(early, 0);
  latch.wait();  // stays open
}

}  // namespace
}  // namespace plimsoll::testing
