#include "base/mutex.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <thread>
#include <vector>

namespace plimsoll {
namespace {

class Counter {
 public:
  void add() {
    const MutexLock lock(mutex_);
    ++count_;
    changed_.notify_all();
  }
  void wait_for(int count) {
    MutexLock lock(mutex_);
    changed_.wait(lock, [&]() PLIMSOLL_REQUIRES(mutex_) { return count_ >= count; });
  }
  int count() {
    const MutexLock lock(mutex_);
    return count_;
  }

 private:
  Mutex mutex_;
  std::condition_variable_any changed_;
  int count_ PLIMSOLL_GUARDED_BY(mutex_) = 0;
};

// What the lock's end unlocked a second time was another lock of the same mutex.
TEST(Mutex, ALockThatWasUnlockedUnlocksNoOther) {
  for (int i = 0; i < 200; ++i) {
    Mutex mutex;
    int value = 0;  // guarded by mutex
    {
      MutexLock first(mutex);
      first.unlock();
      mutex.lock();
    }
    int seen = 0;
    std::thread other([&] {
      const MutexLock lock(mutex);
      seen = value;
    });
    std::this_thread::yield();
    value = 1;
    mutex.unlock();
    other.join();
    ASSERT_EQ(seen, 1);
  }
}

TEST(Mutex, OneThreadAtATime) {
  Counter counter;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 1000; ++j) {
        counter.add();
      }
    });
  }
  counter.wait_for(4000);
  EXPECT_EQ(counter.count(), 4000);
}

}  // namespace
}  // namespace plimsoll
