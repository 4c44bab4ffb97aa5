#include "operator/heap_trimmer.h"

#include <algorithm>

#include "base/allocator.h"

namespace plimsoll::process {
namespace {

constexpr std::chrono::seconds kInterval{1};
constexpr Bytes kWorthTrimming = 16_MiB;  // of growth since the last time

}  // namespace

void HeapTrimmer::run(const std::stop_token& stop) const {
  const Bytes threshold{memory_limit_.count / 4};
  Bytes after_last;
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  while (!never.wait_for(lock, stop, kInterval, [&] { return stop.stop_requested(); })) {
    if (resident_memory() > std::max(threshold, after_last + kWorthTrimming)) {
      return_free_memory();
      after_last = resident_memory();
    } else {
      after_last = std::min(after_last, resident_memory());
    }
  }
}

}  // namespace plimsoll::process
