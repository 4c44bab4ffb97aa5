#include "kube/sleeper.h"

#include <gtest/gtest.h>

#include <future>

namespace plimsoll::kube {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

TEST(SystemSleeper, SleepsForTheWholeTimeUnlessItIsStopped) {
  const auto began = steady_clock::now();
  EXPECT_TRUE(system_sleeper().sleep_for(milliseconds(20), {}));
  EXPECT_GE(steady_clock::now() - began, milliseconds(20));
}

TEST(SystemSleeper, DoesNotSleepOnceAStopIsRequested) {
  std::stop_source stop;
  stop.request_stop();
  EXPECT_FALSE(system_sleeper().sleep_for(hours(1), stop.get_token()));
  EXPECT_FALSE(system_sleeper().sleep_for(milliseconds(0), stop.get_token()));
}

TEST(SystemSleeper, AStopWakesOnlyThoseItIsFor) {
  std::stop_source first;
  std::stop_source second;
  std::future<bool> one =
      std::async(std::launch::async, [&] { return system_sleeper().sleep_for(hours(1), first.get_token()); });
  std::future<bool> other = std::async(
      std::launch::async, [&] { return system_sleeper().sleep_for(hours(1), second.get_token()); });
  first.request_stop();
  EXPECT_FALSE(one.get());
  EXPECT_EQ(other.wait_for(milliseconds(0)), std::future_status::timeout) << "still asleep";
  second.request_stop();
  EXPECT_FALSE(other.get());
}

}  // namespace
}  // namespace plimsoll::kube
