// CachingAllocator: a model of PyTorch's native CUDA caching allocator (c10/cuda/CUDACachingAllocator.cpp).
// It computes how much memory a process reserves on the GPU for a sequence of allocations; it allocates no
// memory itself.
//
//   CachingAllocator allocator({}, {.available = 11_GiB, .total = 12_GiB});
//   std::optional<CachingAllocator::Handle> x = allocator.allocate(100_MiB, kComputeStream);
//   if (!x) return out_of_memory();
//   allocator.release(*x);
//   allocator.reserved_peak();  // 100 MiB: the block is cached
//
// Not thread-safe. Deterministic: segments get ascending addresses. A handle of another allocator, or of a
// freed block, fails an assertion.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "estimator/allocator/free_blocks.h"
#include "estimator/allocator/settings.h"
#include "estimator/ledger/ledger.h"

namespace plimsoll::estimator::inline allocator {

class CachingAllocator {
 public:
  using Handle = std::int32_t;
  static constexpr std::size_t kStreams = 8;

  struct Device {
    Bytes available = Bytes::max();  // memory that the driver can give this process
    Bytes total = Bytes::max();      // memory of the GPU; memory_fraction is a share of it
  };

  CachingAllocator(const AllocatorSettings& settings, Device device);
  // Reserves space in the allocator's own lists.
  void reserve_blocks(std::size_t blocks) { blocks_.reserve(blocks); }

  // `bytes` > 0, `stream` < kStreams.
  std::optional<Handle> allocate(Bytes bytes, StreamId stream) {
    const Handle handle = allocate_block(bytes, stream);
    return handle < 0 ? std::optional<Handle>() : std::optional(handle);
  }
  void release(Handle handle);
  // Records that another stream uses the block. After it is freed, it is reused only after
  // synchronize(stream).
  void use(Handle handle, StreamId stream);
  void synchronize(StreamId stream);
  // Gives every segment without a live block back to the driver (torch.cuda.empty_cache).
  void empty_cache();

  Bytes allocated() const { return Bytes{allocated_}; }
  Bytes reserved() const { return Bytes{reserved_}; }
  Bytes allocated_peak() const { return Bytes{allocated_peak_}; }
  Bytes reserved_peak() const { return Bytes{reserved_peak_}; }
  // Segments reserved now. In expandable segments, each run of mapped pages counts as one.
  std::int64_t segments() const;
  // How many times the driver had no memory left, so that cached blocks were given back.
  std::int64_t retries() const { return retries_; }

  // Size of the block for an allocation: the rounded size. torch.cuda.memory_allocated counts these sizes.
  std::int64_t rounded(Bytes bytes) const;

  struct View {
    std::int64_t address = 0;
    std::int64_t size = 0;
    StreamId stream = 0;
    bool allocated = false;  // true also for a freed block that waits for a stream
    bool mapped = true;
    bool first = false;  // the first block of its segment
  };
  // All blocks, ordered by address. For tests and debugging.
  std::vector<View> snapshot() const;

 private:
  struct Block {
    std::int64_t address = 0;
    std::int64_t size = 0;
    std::int32_t previous = -1;  // neighbour blocks within the segment
    std::int32_t next = -1;
    std::int64_t searches_before = 0;  // searches of its pool before the block was freed into it
    std::uint8_t pending_streams = 0;  // streams that still use it, one bit each
    StreamId stream = 0;
    bool small = false;
    bool allocated = false;
    bool mapped = true;
    bool expandable = false;
    bool dead = false;
  };
  struct Pool {
    FreeBlocks free;
    std::set<std::pair<std::int64_t, std::int32_t>> unmapped;  // (address, block)
  };

  static std::size_t index(std::int32_t id) { return static_cast<std::size_t>(id); }
  Block& at(std::int32_t id) { return blocks_[index(id)]; }
  const Block& at(std::int32_t id) const { return blocks_[index(id)]; }
  Pool& pool(StreamId stream, bool small) { return pools_[std::size_t{stream} * 2 + (small ? 1 : 0)]; }
  Pool& pool_of(const Block& block) { return pool(block.stream, block.small); }
  bool split(const Block& block) const { return block.previous >= 0 || block.next >= 0; }
  bool free(std::int32_t id) const { return id >= 0 && !at(id).allocated && at(id).pending_streams == 0; }
  bool collects_garbage() const {
    return settings_.memory_fraction && settings_.garbage_collection_threshold > 0;
  }

  // -1: not enough memory. Not optional: returned in a register, it can be read sooner than its parts from memory.
  Handle allocate_block(Bytes bytes, StreamId stream);
  std::int32_t new_block(const Block& like) {  // which may be one of blocks_
    if (unused_ids_.empty()) {
      blocks_.push_back(like);
      return static_cast<std::int32_t>(blocks_.size()) - 1;
    }
    const std::int32_t id = unused_ids_.back();
    unused_ids_.pop_back();
    at(id) = like;
    return id;
  }
  void discard(std::int32_t id) {
    at(id).dead = true;
    unused_ids_.push_back(id);
  }
  void insert_free(std::int32_t id) {
    Block& block = at(id);
    block.searches_before = searches_[block.small ? 1 : 0];
    pool_of(block).free.insert(block.size, block.address, id);
  }
  void erase_free(std::int32_t id) {
    const Block& block = at(id);
    pool_of(block).free.erase(block.size, block.address, id);
  }
  void link_after(std::int32_t id, std::int32_t before) {
    Block& block = at(id);
    block.previous = before;
    block.next = at(before).next;
    at(before).next = id;
    if (block.next >= 0) {
      at(block.next).previous = id;
    }
  }

  std::int32_t find_free(std::int64_t size, StreamId stream, bool small);
  std::int32_t new_segment(std::int64_t size, StreamId stream, bool small);
  std::int32_t expand(std::int64_t size, StreamId stream, bool small);
  std::int32_t expandable_candidate(std::int64_t size, StreamId stream, bool small);
  bool map(std::int32_t id, std::int64_t size);
  void unmap(std::int32_t id);
  Handle allocate_found_block(std::int32_t id, std::int64_t size);
  bool should_split(const Block& block, std::int64_t size) const;
  void free_block(std::int32_t id);
  void merge(std::int32_t into, std::int32_t neighbour);
  void collect_garbage();
  bool release_oversize(std::int64_t size, StreamId stream, bool small);
  void release_segment(std::int32_t id);
  bool driver_has(std::int64_t size) const { return size <= available_ - reserved_; }
  void reserve(std::int64_t size);

  AllocatorSettings settings_;
  std::int64_t max_split_;
  bool rounds_to_divisions_;  // rounds to divisions of a power of two, not only to kMinBlockSize
  std::int64_t available_;
  std::int64_t allowed_;
  std::int64_t address_space_;  // size of an expandable segment
  std::vector<Block> blocks_;
  std::vector<std::int32_t> unused_ids_;
  std::array<Pool, 2 * kStreams> pools_;
  std::array<std::int64_t, 2> searches_{};  // of the large and the small pools, if garbage is collected
  std::array<std::vector<std::int32_t>, kStreams> users_;  // blocks that each stream uses
  std::int64_t next_address_ = 0;
  std::int64_t allocated_ = 0, allocated_peak_ = 0;
  std::int64_t reserved_ = 0, reserved_peak_ = 0;
  std::int64_t retries_ = 0;
};

}  // namespace plimsoll::estimator::allocator
