#include "base/allocator.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <vector>

namespace plimsoll {
namespace {

TEST(Allocator, BlocksOfMegabytesAreNotMappedFromTheKernel) {
#ifndef __GLIBC__
  GTEST_SKIP() << "malloc is not glibc's";
#else
  use_server_allocator();
  use_server_allocator();
  if (::mallinfo2().arena == 0) {
    GTEST_SKIP() << "a sanitizer's malloc stands in for glibc's";
  }
  const auto mapped = [] { return ::mallinfo2().hblks; };
  const std::size_t before = mapped();
  const std::vector<char> large(8 << 20);
  EXPECT_EQ(mapped(), before);
  EXPECT_EQ(large.back(), 0);
  const std::vector<char> huge(64 << 20);
  EXPECT_EQ(mapped(), before + 1) << "what is larger than the limit goes back to the kernel at once";
  EXPECT_EQ(huge.back(), 0);
#endif
}

}  // namespace
}  // namespace plimsoll
