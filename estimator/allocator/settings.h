// AllocatorSettings: what PYTORCH_CUDA_ALLOC_CONF (PYTORCH_ALLOC_CONF in later releases) sets of PyTorch's
// native CUDA caching allocator, as far as it changes what is reserved on the card.
//
//   Result<AllocatorSettings> settings =
//       parse_allocator_settings("max_split_size_mb:128,expandable_segments:True");
//
// Plain values; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"

namespace plimsoll::estimator::inline allocator {

struct AllocatorSettings {
  // roundup_power2_divisions has a value for each power of two from 1 MiB to 64 GiB; the first and the last
  // hold for what is smaller and larger.
  static constexpr std::size_t kIntervals = 16;

  Bytes max_split_size = Bytes::max();    // larger blocks are never split
  Bytes max_non_split_rounding = 20_MiB;  // and serve only requests that leave less than this
  std::array<std::int64_t, kIntervals> roundup_power2_divisions{};  // 0 and 1: no rounding
  double garbage_collection_threshold = 0;                          // share of the allowed memory; 0: never
  std::optional<double> memory_fraction;  // per_process_memory_fraction: of the card's memory
  bool expandable_segments = false;
};

// As PyTorch reads the variable (c10/core/AllocatorConfig.cpp, c10/cuda/CUDAAllocatorConfig.cpp): options
// separated by commas, blanks ignored. Options that only concern pinned host memory or locking are accepted
// and change nothing.
// Errors: kInvalid naming the option (unknown, out of its range, malformed, given twice); kUnsupported for
// backend:cudaMallocAsync, whose pool is the driver's, and for large_segment_size_mb.
Result<AllocatorSettings> parse_allocator_settings(std::string_view text);

}  // namespace plimsoll::estimator::allocator
