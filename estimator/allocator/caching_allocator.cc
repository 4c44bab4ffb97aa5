#include "estimator/allocator/caching_allocator.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>

namespace plimsoll::estimator::inline allocator {
namespace {

// c10/cuda/CUDACachingAllocator.cpp: kMinBlockSize, kSmallSize, kSmallBuffer, kLargeBuffer, kMinLargeAlloc
// and kRoundLarge.
constexpr std::int64_t kMinBlockSize = 512;
constexpr std::int64_t kMib = std::int64_t{1} << 20;
constexpr std::int64_t kSmallSize = kMib;
constexpr std::int64_t kSmallBuffer = 2 * kMib;
constexpr std::int64_t kLargeBuffer = 20 * kMib;
constexpr std::int64_t kMinLargeAlloc = 10 * kMib;
constexpr std::int64_t kRoundLarge = 2 * kMib;

// More than the memory of any machine, and small enough that sums of it do not overflow.
constexpr std::int64_t kUnlimited = std::int64_t{1} << 60;
// Limit on the address range of one expandable segment (9/8 of the GPU's memory), so that the segments of all
// pools fit into 63 bits together.
constexpr std::int64_t kMaxAddressSpace = std::int64_t{1} << 56;

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

std::int64_t segment_size(std::int64_t size) {
  if (size <= kSmallSize) {
    return kSmallBuffer;
  }
  return size < kMinLargeAlloc ? kLargeBuffer : round_up(size, kRoundLarge);
}

std::int64_t page_size(bool small) {
  return small ? kSmallBuffer : kLargeBuffer;
}

}  // namespace

CachingAllocator::CachingAllocator(const AllocatorSettings& settings, Device device)
    : settings_(settings),
      max_split_(std::min(settings.max_split_size.count, kUnlimited)),
      rounds_to_divisions_(std::any_of(settings.roundup_power2_divisions.begin(),
                                       settings.roundup_power2_divisions.end(),
                                       [](std::int64_t divisions) { return divisions > 1; })),
      available_(std::clamp<std::int64_t>(device.available.count, 0, kUnlimited)),
      allowed_(kUnlimited) {
  const std::int64_t total = std::clamp<std::int64_t>(device.total.count, 0, kUnlimited);
  if (settings_.memory_fraction) {
    allowed_ = static_cast<std::int64_t>(std::floor(*settings_.memory_fraction * static_cast<double>(total)));
  }
  address_space_ = std::min(total + total / 8, kMaxAddressSpace);
  address_space_ = std::max(round_up(address_space_, kLargeBuffer), kLargeBuffer);
}

std::int64_t CachingAllocator::rounded(Bytes bytes) const {
  if (bytes.count < kMinBlockSize) {
    return kMinBlockSize;
  }
  if (!rounds_to_divisions_) {
    return round_up(bytes.count, kMinBlockSize);
  }
  const auto size = static_cast<std::uint64_t>(bytes.count);
  // The table starts at 1 MiB = 2^20.
  const auto power_of_two = static_cast<int>(std::bit_width(size)) - 1;
  const int interval = std::clamp(power_of_two - 20, 0, static_cast<int>(AllocatorSettings::kIntervals) - 1);
  const std::int64_t divisions = settings_.roundup_power2_divisions[static_cast<std::size_t>(interval)];
  if (divisions > 1 && bytes.count > kMinBlockSize * divisions) {
    if (std::has_single_bit(size)) {
      return bytes.count;
    }
    const auto power = static_cast<std::int64_t>(std::bit_floor(size));
    return round_up(bytes.count, power / divisions);
  }
  return round_up(bytes.count, kMinBlockSize);
}

CachingAllocator::Handle CachingAllocator::allocate_block(Bytes bytes, StreamId stream) {
  assert(bytes.count > 0 && stream < kStreams);
  if (bytes.count >= kUnlimited) {
    return -1;
  }
  const std::int64_t size = rounded(bytes);
  const bool small = size <= kSmallSize;
  std::int32_t found = find_free(size, stream, small);
  if (found < 0 && collects_garbage()) {
    collect_garbage();
  }
  if (found < 0) {
    found = new_segment(size, stream, small);
  }
  if (found < 0 && release_oversize(size, stream, small)) {
    found = new_segment(size, stream, small);
  }
  if (found < 0) {
    ++retries_;
    for (StreamId each = 0; each < kStreams; ++each) {
      synchronize(each);
    }
    empty_cache();
    found = new_segment(size, stream, small);
  }
  if (found < 0) {
    return -1;
  }
  return allocate_found_block(found, size);
}

// Removes the smallest cached block that is large enough from its pool and returns it; -1: none is usable.
std::int32_t CachingAllocator::find_free(std::int64_t size, StreamId stream, bool small) {
  if (collects_garbage()) {
    ++searches_[small ? 1 : 0];
  }
  FreeBlocks& blocks = pool(stream, small).free;
  // Oversize blocks serve only oversize requests of nearly the same size.
  const std::int64_t limit =
      size < max_split_ ? max_split_ : size + std::min(settings_.max_non_split_rounding.count, kUnlimited);
  if (!settings_.expandable_segments) {
    return blocks.take(size, limit);
  }
  FreeBlocks::Entry found = blocks.at_least(size);
  if (found == FreeBlocks::end()) {
    return -1;
  }
  // A block is ranked by the size to which it could grow, so that smaller gaps are filled first.
  const auto potential_size = [&](const FreeBlocks::Entry& entry) {
    const Block& block = at(entry.block);
    return block.size + (block.next >= 0 && !at(block.next).mapped ? at(block.next).size : 0);
  };
  for (auto next = blocks.next(found);
       next != FreeBlocks::end() && potential_size(next) < potential_size(found); next = blocks.next(next)) {
    found = next;
  }
  if (found.size >= limit) {
    return -1;
  }
  blocks.erase(found.size, found.address, found.block);
  return found.block;
}

void CachingAllocator::reserve(std::int64_t size) {
  reserved_ += size;
  reserved_peak_ = std::max(reserved_peak_, reserved_);
}

// Takes memory from the driver and returns it as a block that is in no pool; -1: the driver has too little.
std::int32_t CachingAllocator::new_segment(std::int64_t size, StreamId stream, bool small) {
  const std::int64_t bytes = segment_size(size);
  if (reserved_ + bytes > allowed_) {
    return -1;
  }
  if (settings_.expandable_segments) {
    return expand(size, stream, small);
  }
  if (!driver_has(bytes)) {
    return -1;
  }
  reserve(bytes);
  const std::int32_t id =
      new_block({.address = next_address_, .size = bytes, .stream = stream, .small = small});
  next_address_ += bytes;
  return id;
}

// The lowest place in the expandable segments with `size` usable bytes: an unmapped block, or a free block
// followed by unmapped blocks.
std::int32_t CachingAllocator::expandable_candidate(std::int64_t size, StreamId stream, bool small) {
  for (const auto& [address, id] : pool(stream, small).unmapped) {
    const std::int32_t first = free(at(id).previous) ? at(id).previous : id;
    std::int64_t usable = 0;
    for (std::int32_t each = first; usable < size && free(each); each = at(each).next) {
      usable += at(each).size;
    }
    if (usable >= size) {
      return first;
    }
  }
  const std::int32_t id = new_block({.address = next_address_,
                                     .size = std::max(address_space_, round_up(size, page_size(small))),
                                     .stream = stream,
                                     .small = small,
                                     .mapped = false,
                                     .expandable = true});
  next_address_ += at(id).size;
  pool(stream, small).unmapped.insert({at(id).address, id});
  return id;
}

std::int32_t CachingAllocator::expand(std::int64_t size, StreamId stream, bool small) {
  std::int32_t candidate = expandable_candidate(size, stream, small);
  if (!at(candidate).mapped && !map(candidate, std::min(at(candidate).size, size))) {
    return -1;
  }
  while (at(candidate).size < size) {
    const std::int32_t next = at(candidate).next;
    const std::int64_t missing = size - at(candidate).size;
    if (!map(next, std::min(missing, at(next).size))) {
      return -1;
    }
    candidate = next;  // map() merged the previous candidate into it
  }
  erase_free(candidate);
  return candidate;
}

// Maps the first `size` bytes of an unmapped block, rounded up to whole pages.
bool CachingAllocator::map(std::int32_t id, std::int64_t size) {
  const bool small = at(id).small;
  const std::int64_t bytes = round_up(size, page_size(small));
  if (!driver_has(bytes)) {
    return false;
  }
  auto& unmapped = pool_of(at(id)).unmapped;
  unmapped.erase({at(id).address, id});
  if (bytes < at(id).size) {
    Block rest = at(id);
    rest.address += bytes;
    rest.size -= bytes;
    const std::int32_t remaining = new_block(rest);
    link_after(remaining, id);
    unmapped.insert({at(remaining).address, remaining});
    at(id).size = bytes;
  }
  at(id).mapped = true;
  reserve(bytes);
  merge(id, at(id).previous);
  merge(id, at(id).next);
  insert_free(id);
  return true;
}

// Unmaps the whole pages of a free block.
void CachingAllocator::unmap(std::int32_t id) {
  const std::int64_t page = page_size(at(id).small);
  const std::int64_t begin = round_up(at(id).address, page);
  const std::int64_t end = (at(id).address + at(id).size) / page * page;
  if (begin >= end) {
    return;
  }
  erase_free(id);
  const auto cut = [&](std::int64_t address, std::int64_t size) {
    Block piece = at(id);
    piece.address = address;
    piece.size = size;
    return new_block(piece);
  };
  const std::int64_t block_end = at(id).address + at(id).size;
  if (at(id).address < begin) {
    const std::int32_t before = cut(at(id).address, begin - at(id).address);
    const std::int32_t previous = at(id).previous;
    at(before).previous = previous;
    at(before).next = id;
    if (previous >= 0) {
      at(previous).next = before;
    }
    at(id).previous = before;
    insert_free(before);
  }
  if (end < block_end) {
    const std::int32_t after = cut(end, block_end - end);
    link_after(after, id);
    insert_free(after);
  }
  at(id).address = begin;
  at(id).size = end - begin;
  at(id).mapped = false;
  merge(id, at(id).previous);
  merge(id, at(id).next);
  pool_of(at(id)).unmapped.insert({at(id).address, id});
  reserved_ -= end - begin;
}

bool CachingAllocator::should_split(const Block& block, std::int64_t size) const {
  const std::int64_t rest = block.size - size;
  if (block.small || settings_.expandable_segments) {
    return rest >= kMinBlockSize;
  }
  return size < max_split_ && rest > kSmallSize;
}

CachingAllocator::Handle CachingAllocator::allocate_found_block(std::int32_t id, std::int64_t size) {
  if (should_split(at(id), size)) {
    const std::int32_t remaining = new_block(at(id));
    at(remaining).address += size;
    at(remaining).size -= size;
    link_after(remaining, id);
    at(id).size = size;
    insert_free(remaining);
  }
  at(id).allocated = true;
  allocated_ += at(id).size;
  allocated_peak_ = std::max(allocated_peak_, allocated_);
  return id;
}

void CachingAllocator::release(Handle handle) {
  assert(handle >= 0 && index(handle) < blocks_.size() && at(handle).allocated && !at(handle).dead);
  at(handle).allocated = false;
  allocated_ -= at(handle).size;
  if (at(handle).pending_streams == 0) {
    free_block(handle);
  }
}

void CachingAllocator::free_block(std::int32_t id) {
  merge(id, at(id).previous);
  merge(id, at(id).next);
  insert_free(id);
}

// Merges a free neighbour into the block if both are mapped or both unmapped.
void CachingAllocator::merge(std::int32_t into, std::int32_t neighbour) {
  if (neighbour < 0 || !free(neighbour) || at(neighbour).mapped != at(into).mapped) {
    return;
  }
  if (at(neighbour).mapped) {
    erase_free(neighbour);
  } else {
    pool_of(at(neighbour)).unmapped.erase({at(neighbour).address, neighbour});
  }
  Block& block = at(into);
  const Block& merged = at(neighbour);
  if (block.previous == neighbour) {
    block.address = merged.address;
    block.previous = merged.previous;
    if (block.previous >= 0) {
      at(block.previous).next = into;
    }
  } else {
    block.next = merged.next;
    if (block.next >= 0) {
      at(block.next).previous = into;
    }
  }
  block.size += merged.size;
  discard(neighbour);
}

void CachingAllocator::use(Handle handle, StreamId stream) {
  assert(stream < kStreams && at(handle).allocated);
  const auto bit = static_cast<std::uint8_t>(1U << stream);
  if (stream != at(handle).stream && (at(handle).pending_streams & bit) == 0) {
    at(handle).pending_streams = static_cast<std::uint8_t>(at(handle).pending_streams | bit);
    users_[stream].push_back(handle);
  }
}

void CachingAllocator::synchronize(StreamId stream) {
  assert(stream < kStreams);
  const auto bit = static_cast<std::uint8_t>(1U << stream);
  for (const std::int32_t id : std::exchange(users_[stream], {})) {
    at(id).pending_streams = static_cast<std::uint8_t>(at(id).pending_streams & ~bit);
    if (at(id).pending_streams == 0 && !at(id).allocated) {
      free_block(id);
    }
  }
}

void CachingAllocator::release_segment(std::int32_t id) {
  erase_free(id);
  reserved_ -= at(id).size;
  discard(id);
}

void CachingAllocator::empty_cache() {
  for (Pool& pool : pools_) {
    for (const FreeBlocks::Entry& entry : pool.free.all()) {
      if (at(entry.block).expandable) {
        unmap(entry.block);
      } else if (!split(at(entry.block))) {
        release_segment(entry.block);
      }
    }
  }
}

// Releases unsplit cached blocks of the large pools whose age (searches since they were freed) is at least
// the average, until the reserved memory is below the threshold.
void CachingAllocator::collect_garbage() {
  const auto threshold = static_cast<std::int64_t>(
      std::floor(settings_.garbage_collection_threshold * static_cast<double>(allowed_)));
  if (reserved_ <= threshold) {
    return;
  }
  const std::int64_t target = reserved_ - threshold;
  std::vector<std::int32_t> candidates;
  std::int64_t total_age = 0;
  const auto age = [&](std::int32_t id) { return searches_[0] - at(id).searches_before; };
  for (StreamId stream = 0; stream < kStreams; ++stream) {
    for (const FreeBlocks::Entry& entry : pool(stream, false).free.all()) {
      if (!split(at(entry.block)) && !at(entry.block).expandable) {
        candidates.push_back(entry.block);
        total_age += age(entry.block);
      }
    }
  }
  std::int64_t reclaimed = 0;
  for (bool freed = true; freed && reclaimed < target && !candidates.empty();) {
    freed = false;
    const double threshold_age = static_cast<double>(total_age) / static_cast<double>(candidates.size());
    std::vector<std::int32_t> kept;
    for (const std::int32_t id : candidates) {
      if (static_cast<double>(age(id)) >= threshold_age) {
        freed = true;
        reclaimed += at(id).size;
        total_age -= age(id);
        release_segment(id);
      } else {
        kept.push_back(id);
      }
    }
    candidates = std::move(kept);
  }
}

// Releases oversize blocks (above max_split_size) first, because few requests can use them: one block that is
// large enough, or else as many of the largest as necessary.
bool CachingAllocator::release_oversize(std::int64_t size, StreamId stream, bool small) {
  if (max_split_ == kUnlimited || settings_.expandable_segments) {
    return false;
  }
  FreeBlocks& blocks = pool(stream, small).free;
  const std::int64_t wanted = std::max(size, max_split_);
  const FreeBlocks::Entry enough = blocks.at_least(wanted);
  if (enough != FreeBlocks::end()) {
    const std::int32_t id = enough.block;
    if (split(at(id))) {
      return false;
    }
    release_segment(id);
    return true;
  }
  std::vector<std::int32_t> oversize;
  for (auto each = blocks.at_least(max_split_); each != FreeBlocks::end(); each = blocks.next(each)) {
    oversize.push_back(each.block);
  }
  std::int64_t released = 0;
  for (auto id = oversize.rbegin(); id != oversize.rend() && released < wanted; ++id) {
    if (!split(at(*id))) {
      released += at(*id).size;
      release_segment(*id);
    }
  }
  return released >= wanted;
}

std::vector<CachingAllocator::View> CachingAllocator::snapshot() const {
  std::vector<View> views;
  for (const Block& block : blocks_) {
    if (!block.dead) {
      views.push_back({block.address, block.size, block.stream, block.allocated || block.pending_streams != 0,
                       block.mapped, block.previous < 0});
    }
  }
  std::sort(views.begin(), views.end(), [](const View& a, const View& b) { return a.address < b.address; });
  return views;
}

std::int64_t CachingAllocator::segments() const {
  return std::count_if(blocks_.begin(), blocks_.end(), [this](const Block& block) {
    return !block.dead && block.mapped && (block.previous < 0 || !at(block.previous).mapped);
  });
}

}  // namespace plimsoll::estimator::allocator
