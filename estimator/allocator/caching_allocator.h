// CachingAllocator: a model of PyTorch's native CUDA caching allocator (c10/cuda/CUDACachingAllocator.cpp),
// to tell what a process reserves on the card for a sequence of allocations. No memory is touched.
//
//   CachingAllocator allocator({}, {.available = 11_GiB, .total = 12_GiB});
//   std::optional<CachingAllocator::Handle> x = allocator.allocate(100_MiB, kComputeStream);
//   if (!x) return out_of_memory();
//   allocator.release(*x);
//   allocator.reserved_peak();  // 100 MiB, kept in the cache
//
// Not thread-safe. Deterministic: segments get ascending addresses. Handles of another allocator, or released
// ones, assert.
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
    Bytes available = Bytes::max();  // what the driver can give this process
    Bytes total = Bytes::max();      // of the card: memory_fraction is a share of it
  };

  CachingAllocator(const AllocatorSettings& settings, Device device);
  // Makes room for so many blocks of its own.
  void expect(std::size_t blocks) { blocks_.reserve(blocks); }

  // `bytes` > 0, `stream` < kStreams.
  std::optional<Handle> allocate(Bytes bytes, StreamId stream);
  void release(Handle handle);
  // Another stream works with the block: once released it is handed out again only after synchronize(stream).
  void use(Handle handle, StreamId stream);
  void synchronize(StreamId stream);
  // Gives every segment back that holds no live block (torch.cuda.empty_cache).
  void empty_cache();

  Bytes allocated() const { return Bytes{allocated_}; }
  Bytes reserved() const { return Bytes{reserved_}; }
  Bytes allocated_peak() const { return Bytes{allocated_peak_}; }
  Bytes reserved_peak() const { return Bytes{reserved_peak_}; }
  // Held now. Of expandable segments each run of mapped pages is one.
  std::int64_t segments() const;
  // How often the driver had no memory left and cached blocks were given back.
  std::int64_t retries() const { return retries_; }

  // Size of an allocation once it is rounded (torch.cuda.memory's "allocated" counts whole blocks of it).
  std::int64_t rounded(Bytes bytes) const;

  struct View {
    std::int64_t address = 0;
    std::int64_t size = 0;
    StreamId stream = 0;
    bool allocated = false;  // or released, and still waiting for a stream
    bool mapped = true;
    bool first = false;  // of its segment
  };
  // All blocks by address, for tests and for people.
  std::vector<View> snapshot() const;

 private:
  struct Block {
    std::int64_t address = 0;
    std::int64_t size = 0;
    std::int32_t previous = -1;  // neighbours within the segment
    std::int32_t next = -1;
    std::int64_t born = 0;     // searches of its pool when it came into it
    std::uint8_t waiting = 0;  // streams that use it, a bit each
    StreamId stream = 0;
    bool small = false;
    bool allocated = false;
    bool mapped = true;
    bool expandable = false;
    bool dead = false;
  };
  struct Pool {
    FreeBlocks free;
    std::set<std::pair<std::int64_t, std::int32_t>> unmapped;  // by address
  };

  static std::size_t index(std::int32_t id) { return static_cast<std::size_t>(id); }
  Block& at(std::int32_t id) { return blocks_[index(id)]; }
  const Block& at(std::int32_t id) const { return blocks_[index(id)]; }
  Pool& pool(StreamId stream, bool small) { return pools_[std::size_t{stream} * 2 + (small ? 1 : 0)]; }
  Pool& pool_of(const Block& block) { return pool(block.stream, block.small); }
  bool split(const Block& block) const { return block.previous >= 0 || block.next >= 0; }
  bool free(std::int32_t id) const { return id >= 0 && !at(id).allocated && at(id).waiting == 0; }
  bool collects_garbage() const {
    return settings_.memory_fraction && settings_.garbage_collection_threshold > 0;
  }

  std::int32_t new_block(const Block& like);
  void retire(std::int32_t id);
  void insert_free(std::int32_t id);
  void erase_free(std::int32_t id);
  void link_after(std::int32_t id, std::int32_t before);

  std::int32_t find_free(std::int64_t size, StreamId stream, bool small);
  std::int32_t new_segment(std::int64_t size, StreamId stream, bool small);
  std::int32_t expand(std::int64_t size, StreamId stream, bool small);
  std::int32_t expandable_candidate(std::int64_t size, StreamId stream, bool small);
  bool map(std::int32_t id, std::int64_t size);
  void unmap(std::int32_t id);
  Handle hand_out(std::int32_t id, std::int64_t size);
  bool should_split(const Block& block, std::int64_t size) const;
  void take_back(std::int32_t id);
  void merge(std::int32_t into, std::int32_t neighbour);
  void collect_garbage();
  bool release_oversize(std::int64_t size, StreamId stream, bool small);
  void release_segment(std::int32_t id);
  bool driver_has(std::int64_t size) const { return size <= available_ - reserved_; }
  void reserve(std::int64_t size);

  AllocatorSettings settings_;
  std::int64_t max_split_;
  bool rounds_to_shares_;  // of a power of two, instead of to granules alone
  std::int64_t available_;
  std::int64_t allowed_;
  std::int64_t address_space_;  // of an expandable segment
  std::vector<Block> blocks_;
  std::vector<std::int32_t> retired_;
  std::array<Pool, 2 * kStreams> pools_;
  std::array<std::int64_t, 2> searches_{};  // while garbage is collected: in the large and small pools
  std::array<std::vector<std::int32_t>, kStreams> users_;  // blocks that a stream uses
  std::int64_t next_address_ = 0;
  std::int64_t allocated_ = 0, allocated_peak_ = 0;
  std::int64_t reserved_ = 0, reserved_peak_ = 0;
  std::int64_t retries_ = 0;
};

}  // namespace plimsoll::estimator::allocator
