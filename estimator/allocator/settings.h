// AllocatorSettings: those options of PYTORCH_CUDA_ALLOC_CONF (PYTORCH_ALLOC_CONF in later releases) that
// change how much memory PyTorch's native CUDA caching allocator reserves on the GPU.
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
  // roundup_power2_divisions has a value for each power of two from 1 MiB to 64 GiB. The first value is also
  // used for smaller sizes, the last one for larger sizes.
  static constexpr std::size_t kIntervals = 16;

  Bytes max_split_size = Bytes::max();    // larger blocks are never split
  Bytes max_non_split_rounding = 20_MiB;  // they serve only requests that leave less than this unused
  std::array<std::int64_t, kIntervals> roundup_power2_divisions{};  // 0 and 1: no rounding
  double garbage_collection_threshold = 0;  // share of the allowed memory; 0: no garbage collection
  std::optional<double> memory_fraction;    // per_process_memory_fraction: share of the GPU's memory
  bool expandable_segments = false;

  bool operator==(const AllocatorSettings&) const = default;
};

// Parses the variable as PyTorch does (c10/core/AllocatorConfig.cpp, c10/cuda/CUDAAllocatorConfig.cpp):
// options are separated by commas, white space is ignored. Options that only affect pinned host memory or
// locking are accepted and have no effect. Errors: kInvalid naming the option (unknown, out of range,
// malformed, or given twice); kUnsupported for backend:cudaMallocAsync, whose pool belongs to the driver, and
// for large_segment_size_mb.
Result<AllocatorSettings> parse_allocator_settings(std::string_view text);

}  // namespace plimsoll::estimator::allocator
