// FreeBlocks: the unused blocks of one of the allocator's pools, ordered by size, then by address. A sorted
// sequence in chunks of bounded length, so that a search touches two short arrays and an insertion moves a
// few kilobytes at most, however many blocks there are. Training leaves many blocks of the same few sizes:
// those of a size that is crowded lie in a bin of their own, which is found by the size alone.
//
//   FreeBlocks free;
//   free.insert({size, address, block});
//   std::int32_t taken = free.take(wanted, limit);  // out of the pool; -1: none
//
// A value type, not thread-safe.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace plimsoll::estimator::inline allocator {

class FreeBlocks {
 public:
  struct Entry {
    std::int64_t size = 0;
    std::int64_t address = 0;
    std::int32_t block = -1;

    auto operator<=>(const Entry&) const = default;
  };

  void insert(const Entry& entry);
  void erase(const Entry& entry);  // asserts that it is there
  // Takes the smallest block of at least `size` out, of equal ones that with the lowest address, if it is
  // smaller than `limit`; -1: there is none.
  std::int32_t take(std::int64_t size, std::int64_t limit);

  // No block.
  static Entry end() { return {}; }
  // The smallest block of at least `size`; of equal ones that with the lowest address.
  Entry at_least(std::int64_t size) const;
  // The one behind it in order.
  Entry next(const Entry& entry) const;

  bool empty() const { return entries_ == 0; }
  // In order.
  std::vector<Entry> all() const;

 private:
  static constexpr std::size_t kMaxChunk = 64;
  // So many neighbours of one size make it crowded.
  static constexpr std::size_t kCrowd = 8;
  // An empty bin keeps its place, for its size comes back, until it has been passed by this often.
  static constexpr std::int32_t kMaxPassed = 64;

  // In order, in chunks none of which is empty.
  class Sequence {
   public:
    struct Position {
      std::size_t chunk = 0;
      std::size_t index = 0;
    };

    // Whether the entry has become one of a crowd.
    bool insert(const Entry& entry);
    void erase(const Entry& entry);
    void erase(Position position);
    Position lower_bound(const Entry& entry) const;
    bool at_end(Position position) const { return position.chunk == chunks_.size(); }
    const Entry& operator[](Position position) const { return chunks_[position.chunk][position.index]; }

   private:
    std::vector<std::vector<Entry>> chunks_;
    std::vector<Entry> last_;  // of each chunk, side by side for the search
  };

  struct Spot {
    std::int64_t address = 0;
    std::int32_t block = -1;
  };
  using Chunk = std::vector<Spot>;  // the lowest address is the last
  // Blocks of a crowded size.
  struct Bin {
    Chunk lowest;               // empty only when the bin is
    std::vector<Chunk> higher;  // the rest, of ascending addresses from the last chunk on; none is empty
    std::int32_t passed = 0;

    // Chunk 0 is the lowest; then those of `higher` from its end.
    Chunk& chunk(std::size_t i) { return i == 0 ? lowest : higher[higher.size() - i]; }
    const Chunk& chunk(std::size_t i) const { return i == 0 ? lowest : higher[higher.size() - i]; }
    std::size_t chunk_of(std::int64_t address) const;
    void insert(const Spot& spot);
    void remove(std::size_t chunk, std::size_t index);
    // The lowest spot at or above `address`; block -1: none.
    Spot at_or_above(std::int64_t address) const;
  };

  static Entry smaller(const Entry& a, const Entry& b);
  Entry from(const Entry& least) const;
  void crowd(std::int64_t size);

  std::vector<std::int64_t> crowded_;  // sizes, ascending
  std::vector<Bin> bins_;              // of each
  Sequence rest_;
  std::size_t entries_ = 0;
};

}  // namespace plimsoll::estimator::allocator
