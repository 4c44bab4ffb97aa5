// FreeBlocks: the unused blocks of one of the allocator's pools, ordered by size, then by address. Training
// asks for the same few sizes again and again, so blocks of a size lie together in a bin that is found by its
// size alone; only where a size has no block is the next larger one looked for in order. Within a bin
// addresses are sorted, in chunks of bounded length, so that no insertion moves more than a kilobyte.
//
//   free.insert({size, address, block});
//   int block = free.take(wanted, limit);          // out of the pool; -1: none
//   for (auto at = free.at_least(wanted); at != free.end(); at = free.next(at)) use(free[at].block);
//
// A value type, not thread-safe. Positions are good until the next insertion, removal or search.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace plimsoll::estimator {

class FreeBlocks {
 public:
  struct Entry {
    std::int64_t size = 0;
    std::int64_t address = 0;
    std::int32_t block = -1;

    auto operator<=>(const Entry&) const = default;
  };
  struct Position {
    std::int32_t bin = -1;
    std::size_t chunk = 0;
    std::size_t index = 0;

    bool operator==(const Position&) const = default;
  };

  // Returns the number of the block's bin. `bin`: where a block of that size has been before, if known; it
  // saves a search.
  std::int32_t insert(const Entry& entry, std::int32_t bin = -1) {
    if (bin >= 0) {  // the usual way, worth its shortness: a block comes back, and lies lowest
      Bin& known = bins_[index(bin)];
      if (known.size == entry.size && known.ordered && known.lowest.size() < kLongest &&
          (known.lowest.empty() || entry.address < known.lowest.back().address)) {
        known.passed = 0;
        known.lowest.push_back({entry.address, entry.block});
        ++entries_;
        return bin;
      }
    }
    return insert_in_order(entry, bin);
  }
  // Asserts that it is there.
  void erase(const Entry& entry, std::int32_t bin = -1);
  void erase(Position position);
  // Takes the smallest block of at least `size` out, of equal ones that with the lowest address, if it is
  // smaller than `limit`; -1: there is none.
  std::int32_t take(std::int64_t size, std::int64_t limit);

  Position begin() {
    const std::int32_t first = first_with_blocks(order_.begin());
    return first < 0 ? end() : lowest(first);
  }
  static Position end() { return {}; }
  // The smallest block of at least `size`; of equal ones that with the lowest address.
  Position at_least(std::int64_t size);
  Position next(Position position) const;
  Entry operator[](Position position) const;

  bool empty() const { return entries_ == 0; }
  // In order.
  std::vector<Entry> all() const;

 private:
  static constexpr std::size_t kLongest = 64;
  // An empty bin stays in its place, for its size comes back, until it has been passed by this often.
  static constexpr std::uint8_t kMostPassed = 8;

  struct Spot {
    std::int64_t address = 0;
    std::int32_t block = -1;
  };
  using Chunk = std::vector<Spot>;  // the lowest address is the last
  struct Bin {
    std::int64_t size = 0;
    Chunk lowest;               // empty only when the bin is
    std::vector<Chunk> higher;  // the rest, of ascending addresses from the last chunk on; none is empty
    bool ordered = false;       // it is in order_
    std::uint8_t passed = 0;

    bool empty() const { return lowest.empty(); }
    // Chunk 0 is the lowest; then those of `higher` from its end.
    Chunk& chunk(std::size_t i) { return i == 0 ? lowest : higher[higher.size() - i]; }
    const Chunk& chunk(std::size_t i) const { return i == 0 ? lowest : higher[higher.size() - i]; }
  };
  using Order = std::map<std::int64_t, std::int32_t>;

  std::int32_t insert_in_order(const Entry& entry, std::int32_t bin);
  static std::size_t index(std::int32_t id) { return static_cast<std::size_t>(id); }
  std::size_t slot_of(std::int64_t size) const;
  std::int32_t find(std::int64_t size) const;  // the bin; -1: there never was such a size
  std::int32_t find_or_add(std::int64_t size);
  Position lowest(std::int32_t bin) const { return {bin, 0, bins_[index(bin)].lowest.size() - 1}; }
  std::int32_t first_with_blocks(Order::iterator first);  // the bin; -1: none
  std::int32_t bin_for(std::int64_t size);                // that has a block of at least `size`; -1: none
  static std::size_t chunk_of(const Bin& bin, std::int64_t address);
  static void remove(Bin& bin, std::size_t chunk, std::size_t index);

  std::vector<Bin> bins_;
  std::vector<std::int32_t> slots_;  // a hash table of sizes: bins, -1 where free; a power of two
  Order order_;                      // bins by size: all that have blocks, and some that have none
  std::size_t entries_ = 0;
};

}  // namespace plimsoll::estimator
