// OrderedBlocks: very many unused blocks, ordered by size, then by address; what FreeBlocks keeps the crowded sizes in.
// It is a sorted sequence in chunks of limited length: a search reads two short arrays, and an insertion moves a few
// kilobytes at most, however many blocks there are. A size with many blocks ("crowded") has a bin of its own, which is
// found by the size alone.
//
//   OrderedBlocks ordered;
//   ordered.insert({size, address, block});
//   std::int32_t taken = ordered.take(wanted, limit);  // removed; -1: none
//
// A value type, not thread-safe.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace plimsoll::estimator::inline allocator {

class OrderedBlocks {
 public:
  struct Entry {
    std::int64_t size = 0;
    std::int64_t address = 0;
    std::int32_t block = -1;

    Entry() = default;
    Entry(std::int64_t of_size, std::int64_t at, std::int32_t id) : size(of_size), address(at), block(id) {}
    auto operator<=>(const Entry&) const = default;
  };

  void insert(const Entry& entry);
  void erase(const Entry& entry);  // asserts that it is present
  // Removes and returns the smallest block of at least `size`, if it is smaller than `limit`. Among equal
  // sizes it takes the lowest address. -1: there is none.
  std::int32_t take(std::int64_t size, std::int64_t limit);

  // The entry that stands for "no block".
  static Entry end() { return {}; }
  // The first entry at or after a size and address.
  Entry from(const Entry& least) const;

  bool empty() const { return entries_ == 0; }

 private:
  static constexpr std::size_t kMaxChunk = 64;
  // A size with this many adjacent entries in a chunk is crowded.
  static constexpr std::size_t kCrowd = 8;
  // An empty bin stays, because its size usually returns; it is removed after this many searches skipped it.
  static constexpr std::int32_t kMaxPassed = 64;

  // Sorted entries in chunks. No chunk is empty.
  class Sequence {
   public:
    struct Position {
      std::size_t chunk = 0;
      std::size_t index = 0;
    };

    // Returns true if the size of the entry has become crowded.
    bool insert(const Entry& entry);
    void erase(const Entry& entry);
    void erase(Position position);
    Position lower_bound(const Entry& entry) const;
    bool at_end(Position position) const { return position.chunk == chunks_.size(); }
    const Entry& operator[](Position position) const { return chunks_[position.chunk][position.index]; }

   private:
    std::vector<std::vector<Entry>> chunks_;
    std::vector<Entry> last_;  // the last entry of each chunk, stored together for the search
  };

  struct Spot {
    std::int64_t address = 0;
    std::int32_t block = -1;
  };
  using Chunk = std::vector<Spot>;  // descending addresses
  // The blocks of one crowded size.
  struct Bin {
    Chunk lowest;               // empty only if the bin is empty
    std::vector<Chunk> higher;  // the other chunks, none empty; the last one has the lowest addresses
    std::int32_t passed = 0;    // searches that skipped the empty bin

    // Chunk 0 is `lowest`; chunk i is the i-th of `higher` from its end.
    Chunk& chunk(std::size_t i) { return i == 0 ? lowest : higher[higher.size() - i]; }
    const Chunk& chunk(std::size_t i) const { return i == 0 ? lowest : higher[higher.size() - i]; }
    std::size_t chunk_of(std::int64_t address) const;
    void insert(const Spot& spot);
    void remove(std::size_t chunk, std::size_t index);
    // The spot with the lowest address at or above `address`; block -1: none.
    Spot at_or_above(std::int64_t address) const;
  };

  static Entry smaller(const Entry& a, const Entry& b);
  void crowd(std::int64_t size);

  std::vector<std::int64_t> crowded_;  // crowded sizes, ascending
  std::vector<Bin> bins_;              // the bin of each crowded size
  Sequence rest_;
  std::size_t entries_ = 0;
};

}  // namespace plimsoll::estimator::allocator
