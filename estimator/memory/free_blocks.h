// FreeBlocks: the unused blocks of one of the allocator's pools, ordered by size, then by address. A sorted
// sequence in chunks of bounded length, so that a search touches two short arrays and an insertion moves a
// few kilobytes at most, however many blocks there are.
//
//   free.insert({size, address, block});
//   for (auto at = free.at_least(wanted); at != free.end(); at = free.next(at)) use(free[at].block);
//
// A value type, not thread-safe. Positions are good until the next insertion or removal.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
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
    std::size_t chunk = 0;
    std::size_t index = 0;

    bool operator==(const Position&) const = default;
  };

  void insert(const Entry& entry);
  void erase(const Entry& entry);  // asserts that it is there

  Position begin() const { return {}; }
  Position end() const { return {chunks_.size(), 0}; }
  // The smallest block of at least `size`; of equal ones that with the lowest address.
  Position at_least(std::int64_t size) const;
  Position next(Position position) const;
  const Entry& operator[](Position position) const { return chunks_[position.chunk][position.index]; }

  bool empty() const { return chunks_.empty(); }
  // In order.
  std::vector<Entry> all() const;

 private:
  static constexpr std::size_t kLongest = 64;

  Position lower_bound(const Entry& entry) const;

  std::vector<std::vector<Entry>> chunks_;  // none is empty
  std::vector<Entry> last_;                 // of each chunk, side by side for the search
};

}  // namespace plimsoll::estimator
