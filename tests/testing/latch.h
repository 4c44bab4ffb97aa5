// A gate that a test opens: what a handler waits for in place of sleeping.
//
//   Latch answer("the answer");
//   Server server(options, [&](const Request&) { answer.wait(); return Response(); });
//   ...                  // whatever must happen while the handler runs
//   answer.open();
//
// Stays open. wait() fails the test after kPatience, so that a broken product does not hang it. Thread-safe.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>

#include "tests/testing/patience.h"

namespace plimsoll::testing {

class Latch {
 public:
  // `what`: for the failure.
  explicit Latch(std::string what) : what_(std::move(what)) {}

  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    opened_.notify_all();
  }

  void wait() {
    std::unique_lock lock(mutex_);
    if (!opened_.wait_for(lock, kPatience, [this] { return is_open_; })) {
      ADD_FAILURE() << "waited in vain for: " << what_;
    }
  }

 private:
  const std::string what_;
  std::mutex mutex_;
  std::condition_variable opened_;
  bool is_open_ = false;
};

}  // namespace plimsoll::testing
