// FreeBlocks: the unused blocks of one pool of the allocator, ordered by size, then by address. Sizes are grouped into
// classes, eight to a power of two, and a set of bits says which classes have blocks: a search reads a few words and one
// short list. Training leaves many blocks of few sizes; a class with more than kMostListed keeps them in an
// OrderedBlocks, whose searches and insertions stay short however many there are.
//
//   FreeBlocks free;
//   free.insert(size, address, block);
//   std::int32_t taken = free.take(wanted, limit);  // removed from the pool; -1: none
//
// A value type, not thread-safe.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "estimator/allocator/ordered_blocks.h"

namespace plimsoll::estimator::inline allocator {

class FreeBlocks {
 public:
  using Entry = OrderedBlocks::Entry;

  // `size` >= 0. Single values, not an Entry: one that was written member by member and is copied at once as a whole waits
  // until all of its parts are in the cache.
  void insert(std::int64_t size, std::int64_t address, std::int32_t block);
  void erase(std::int64_t size, std::int64_t address, std::int32_t block);  // asserts that it is present
  // Removes and returns the smallest block of at least `size`, if it is smaller than `limit`. Among equal
  // sizes it takes the lowest address. -1: there is none.
  std::int32_t take(std::int64_t size, std::int64_t limit);

  // The entry that stands for "no block".
  static Entry end() { return {}; }
  // The smallest block of at least `size`; among equal sizes, the one with the lowest address.
  Entry at_least(std::int64_t size) const;
  // The next entry in order.
  Entry next(const Entry& entry) const;

  // All entries in order.
  std::vector<Entry> all() const;

 private:
  static constexpr std::size_t kMostListed = 64;
  static constexpr int kBitsOfClass = 3;  // of a size, after its highest bit
  static constexpr std::size_t kClasses = std::size_t{64 - kBitsOfClass} << kBitsOfClass;
  static constexpr std::size_t kWords = (kClasses + 63) / 64;

  struct Class {
    std::vector<Entry> listed;  // in descending order
    std::int32_t ordered = -1;  // once there are many: where they are in ordered_
  };

  static std::size_t class_of(std::int64_t size) {
    constexpr std::uint64_t kInPower = std::uint64_t{1} << kBitsOfClass;
    const auto bytes = static_cast<std::uint64_t>(size);
    if (bytes < kInPower) {
      return bytes;
    }
    const int shift = static_cast<int>(std::bit_width(bytes)) - 1 - kBitsOfClass;
    return (static_cast<std::size_t>(shift + 1) << kBitsOfClass) + ((bytes >> shift) & (kInPower - 1));
  }
  // The first class from this one that has blocks; kClasses: none.
  std::size_t occupied_from(std::size_t of) const {
    std::size_t word = of / 64;
    if (word >= kWords) {
      return kClasses;
    }
    std::uint64_t bits = occupied_[word] & (~std::uint64_t{0} << of % 64);
    while (bits == 0) {
      if (++word == kWords) {
        return kClasses;
      }
      bits = occupied_[word];
    }
    return word * 64 + static_cast<std::size_t>(std::countr_zero(bits));
  }
  void mark(std::size_t of) { occupied_[of / 64] |= std::uint64_t{1} << of % 64; }
  void unmark(std::size_t of) { occupied_[of / 64] &= ~(std::uint64_t{1} << of % 64); }
  void move_to_ordered(Class& of);
  Entry from(const Entry& least) const;

  std::vector<Class> classes_;  // none before the first insertion
  std::vector<OrderedBlocks> ordered_;
  std::array<std::uint64_t, kWords> occupied_{};
  std::size_t entries_ = 0;
};

}  // namespace plimsoll::estimator::allocator
