#include "base/allocator.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace plimsoll {

void use_server_allocator([[maybe_unused]] int heaps) {
#ifdef __GLIBC__
  constexpr int kLargestOfHeap = 32 << 20;  // glibc's own limit for it
  constexpr int kMaxFree = 64 << 20;
  ::mallopt(M_MMAP_THRESHOLD, kLargestOfHeap);
  ::mallopt(M_TRIM_THRESHOLD, kMaxFree);
  ::mallopt(M_ARENA_MAX, std::max(1, heaps));
#endif
}

void return_free_memory() {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

Bytes resident_memory() {
  std::ifstream file("/proc/self/statm");  // total and resident, in pages
  std::int64_t total = 0;
  std::int64_t resident = 0;
  return file >> total >> resident ? Bytes{resident} * ::sysconf(_SC_PAGE_SIZE) : Bytes();
}

}  // namespace plimsoll
