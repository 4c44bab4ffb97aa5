#include "base/allocator.h"

#include <malloc.h>

namespace plimsoll {

void use_server_allocator() {
#ifdef __GLIBC__
  constexpr int kLargestOfHeap = 32 << 20;  // glibc's own limit for it
  constexpr int kMostFree = 64 << 20;
  ::mallopt(M_MMAP_THRESHOLD, kLargestOfHeap);
  ::mallopt(M_TRIM_THRESHOLD, kMostFree);
#endif
}

}  // namespace plimsoll
