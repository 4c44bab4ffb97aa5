// A fixed number of threads with a bounded queue before them: cpprestsdk's own pool must never block, so what
// may block runs here. Thread-safe; stop() finishes what was taken and waits.
#pragma once

#include <utility>  // which Boost 1.74 needs first

#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>

namespace plimsoll::testing::fake {

class WorkerPool {
 public:
  // At most `limit` pieces of work wait or run at a time.
  WorkerPool(std::size_t threads, std::size_t limit) : limit_(limit), pool_(threads) {}
  ~WorkerPool() { stop(); }

  // False when there is too much to do or the pool has stopped.
  template <class Work>
  bool submit(Work work) {
    if (stopping_) {
      return false;
    }
    if (++pending_ > limit_) {
      --pending_;
      return false;
    }
    boost::asio::post(pool_, [this, work = std::move(work)]() mutable {
      work();
      --pending_;
    });
    return true;
  }

  void stop() {
    stopping_ = true;
    pool_.join();
  }

 private:
  const std::size_t limit_;
  std::atomic<bool> stopping_ = false;
  std::atomic<std::size_t> pending_ = 0;
  boost::asio::thread_pool pool_;
};

}  // namespace plimsoll::testing::fake
