// HeapMeter: the heap that this thread takes, at most, from one point on.
//
//   HeapMeter::start(256_MiB);      // more than that aborts the process, with a line that says so
//   decide(job);
//   const Bytes peak = HeapMeter::peak();
//
// It sees every malloc and free of the process: those of C++, of C libraries, of whatever is linked. Where a
// sanitizer owns the allocator, its hooks tell; elsewhere malloc itself is replaced by one that counts and
// hands on to glibc's. What is freed without having been allocated since the start makes the count smaller.
// One thread at a time may use it.
#pragma once

#include "base/bytes.h"

namespace plimsoll::testing {

class HeapMeter {
 public:
  static void start(Bytes limit = Bytes::max());
  static void stop();  // the peak stays as it is
  static Bytes peak();
};

}  // namespace plimsoll::testing
