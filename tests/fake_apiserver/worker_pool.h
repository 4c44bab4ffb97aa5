// A fixed number of threads with a bounded queue before them: cpprestsdk's own pool must never block, so what
// may block runs here. Thread-safe; stop() finishes what was taken and waits.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace plimsoll::testing::fake {

class WorkerPool {
 public:
  WorkerPool(std::size_t threads, std::size_t queue_limit);
  ~WorkerPool() { stop(); }

  // False when the queue is full or the pool has stopped.
  bool submit(std::function<void()> work);
  void stop();

 private:
  void run();

  const std::size_t queue_limit_;
  std::mutex mutex_;
  std::condition_variable wakes_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace plimsoll::testing::fake
