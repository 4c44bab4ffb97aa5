#include "tests/fuzz/heap_meter.h"

#include <malloc.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define PLIMSOLL_SANITIZER_ALLOCATES 1
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PLIMSOLL_SANITIZER_ALLOCATES 1
#endif

#ifdef PLIMSOLL_SANITIZER_ALLOCATES
// As compiler-rt's sanitizer/allocator_interface.h declares them, a header that g++ does not ship.
extern "C" {
int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void*, std::size_t),
                                              void (*on_free)(const volatile void*));
int __sanitizer_get_ownership(const volatile void* block);
std::size_t __sanitizer_get_allocated_size(const volatile void* block);
}
#endif

namespace plimsoll::testing {
namespace {

// Plain integers: they must work before any constructor has run.
thread_local bool metering = false;
thread_local std::int64_t live = 0;
thread_local std::int64_t highest = 0;
thread_local std::int64_t most = 0;

void allocated(std::size_t size) {
  if (!metering) {
    return;
  }
  live += static_cast<std::int64_t>(size);
  if (live > highest) {
    highest = live;
    if (live > most) {
      metering = false;
      // No stream: there is no memory to spend.
      constexpr std::string_view kMessage = "heap limit exceeded: one execution holds more than it may\n";
      [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kMessage.data(), kMessage.size());
      std::abort();
    }
  }
}

void freed(std::size_t size) {
  if (metering) {
    live -= static_cast<std::int64_t>(size);
  }
}

#ifdef PLIMSOLL_SANITIZER_ALLOCATES
void on_malloc(const volatile void* /*block*/, std::size_t size) {
  allocated(size);
}
void on_free(const volatile void* block) {
  if (metering && block != nullptr) {
    const void* const plain = const_cast<const void*>(block);
    if (__sanitizer_get_ownership(plain) != 0) {
      freed(__sanitizer_get_allocated_size(plain));
    }
  }
}
[[maybe_unused]] const int hooks = __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
#endif

}  // namespace

void HeapMeter::start(Bytes limit) {
  live = highest = 0;
  most = limit.count;
  metering = true;
}

void HeapMeter::stop() {
  metering = false;
}

Bytes HeapMeter::peak() {
  return Bytes{highest};
}

#ifndef PLIMSOLL_SANITIZER_ALLOCATES
// For the definitions below, which must be outside all namespaces.
void count_allocated(void* block) {
  allocated(::malloc_usable_size(block));
}
void count_freed(void* block) {
  freed(::malloc_usable_size(block));
}
#endif

}  // namespace plimsoll::testing

#ifndef PLIMSOLL_SANITIZER_ALLOCATES
extern "C" {

// glibc's own, under the names that it keeps for programs that replace malloc.
void* __libc_malloc(std::size_t size);                           // NOLINT(bugprone-reserved-identifier)
void* __libc_calloc(std::size_t count, std::size_t size);        // NOLINT(bugprone-reserved-identifier)
void* __libc_realloc(void* block, std::size_t size);             // NOLINT(bugprone-reserved-identifier)
void* __libc_memalign(std::size_t alignment, std::size_t size);  // NOLINT(bugprone-reserved-identifier)
void __libc_free(void* block);                                   // NOLINT(bugprone-reserved-identifier)

void* malloc(std::size_t size) noexcept {
  void* const block = __libc_malloc(size);
  plimsoll::testing::count_allocated(block);
  return block;
}

void* calloc(std::size_t count, std::size_t size) noexcept {
  void* const block = __libc_calloc(count, size);
  plimsoll::testing::count_allocated(block);
  return block;
}

void* realloc(void* block, std::size_t size) noexcept {
  plimsoll::testing::count_freed(block);
  void* const moved = __libc_realloc(block, size);
  plimsoll::testing::count_allocated(moved != nullptr || size == 0 ? moved : block);
  return moved;
}

void* memalign(std::size_t alignment, std::size_t size) noexcept {
  void* const block = __libc_memalign(alignment, size);
  plimsoll::testing::count_allocated(block);
  return block;
}

void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  return memalign(alignment, size);
}

int posix_memalign(void** block, std::size_t alignment, std::size_t size) noexcept {
  constexpr int kNoMemory = 12;  // ENOMEM
  *block = memalign(alignment, size);
  return *block == nullptr ? kNoMemory : 0;
}

void free(void* block) noexcept {
  plimsoll::testing::count_freed(block);
  __libc_free(block);
}

}  // extern "C"
#endif
