// HeapTrimmer: gives memory that malloc keeps after a burst back to the system.
//
//   HeapTrimmer trimmer(limits.memory);      // until it is destroyed
//
// Once a second it looks at the resident memory of the process: where that is above a quarter of the limit,
// and has grown since it was trimmed last, it trims. One thread of its own.
#pragma once

#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>

#include "base/bytes.h"

namespace plimsoll::process {

class HeapTrimmer {
 public:
  explicit HeapTrimmer(Bytes memory_limit)
      : memory_limit_(memory_limit), thread_([this](const std::stop_token& stop) { run(stop); }) {}
  HeapTrimmer(const HeapTrimmer&) = delete;
  HeapTrimmer& operator=(const HeapTrimmer&) = delete;

 private:
  void run(const std::stop_token& stop) const;

  const Bytes memory_limit_;
  std::jthread thread_;
};

}  // namespace plimsoll::process
