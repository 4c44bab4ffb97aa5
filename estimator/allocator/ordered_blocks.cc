#include "estimator/allocator/ordered_blocks.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <utility>

namespace plimsoll::estimator::inline allocator {
namespace {

constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min();
constexpr std::int32_t kFirst = std::numeric_limits<std::int32_t>::min();

}  // namespace

OrderedBlocks::Sequence::Position OrderedBlocks::Sequence::lower_bound(const Entry& entry) const {
  const auto chunk =
      static_cast<std::size_t>(std::lower_bound(last_.begin(), last_.end(), entry) - last_.begin());
  if (chunk == chunks_.size()) {
    return {chunk, 0};
  }
  const std::vector<Entry>& entries = chunks_[chunk];
  const auto found = std::lower_bound(entries.begin(), entries.end(), entry);
  return {chunk, static_cast<std::size_t>(found - entries.begin())};
}

bool OrderedBlocks::Sequence::insert(const Entry& entry) {
  if (chunks_.empty()) {
    chunks_.emplace_back().reserve(kMaxChunk + 1);
    last_.push_back(entry);
  }
  Position position = lower_bound(entry);
  if (at_end(position)) {
    position = {chunks_.size() - 1, chunks_.back().size()};
    last_.back() = entry;
  }
  std::vector<Entry>& chunk = chunks_[position.chunk];
  chunk.insert(chunk.begin() + static_cast<std::ptrdiff_t>(position.index), entry);
  const std::size_t first = position.index < kCrowd - 1 ? 0 : position.index - (kCrowd - 1);
  const std::size_t last = std::min(chunk.size() - 1, position.index + (kCrowd - 1));
  const bool crowded = (position.index - first == kCrowd - 1 && chunk[first].size == entry.size) ||
                       (last - position.index == kCrowd - 1 && chunk[last].size == entry.size);
  if (chunk.size() > kMaxChunk) {
    const auto middle = chunk.begin() + static_cast<std::ptrdiff_t>(chunk.size() / 2);
    std::vector<Entry> upper;
    upper.reserve(kMaxChunk + 1);
    upper.assign(middle, chunk.end());
    chunk.erase(middle, chunk.end());
    const auto after = static_cast<std::ptrdiff_t>(position.chunk) + 1;
    last_.insert(last_.begin() + after - 1, chunk.back());
    chunks_.insert(chunks_.begin() + after, std::move(upper));
  }
  return crowded;
}

void OrderedBlocks::Sequence::erase(const Entry& entry) {
  const Position position = lower_bound(entry);
  assert(!at_end(position) && (*this)[position] == entry);
  erase(position);
}

void OrderedBlocks::Sequence::erase(Position position) {
  std::vector<Entry>& chunk = chunks_[position.chunk];
  chunk.erase(chunk.begin() + static_cast<std::ptrdiff_t>(position.index));
  const auto at = static_cast<std::ptrdiff_t>(position.chunk);
  if (chunk.empty()) {
    chunks_.erase(chunks_.begin() + at);
    last_.erase(last_.begin() + at);
  } else {
    last_[position.chunk] = chunk.back();
  }
}

// The chunk that contains `address`, or into which it would be inserted.
std::size_t OrderedBlocks::Bin::chunk_of(std::int64_t address) const {
  if (higher.empty() || address <= lowest.front().address) {
    return 0;
  }
  // The chunks whose highest address is at least `address` are at the front of the list.
  const auto below = std::partition_point(
      higher.begin(), higher.end(), [&](const Chunk& chunk) { return chunk.front().address >= address; });
  return std::min(static_cast<std::size_t>(higher.end() - below) + 1, higher.size());
}

void OrderedBlocks::Bin::insert(const Spot& spot) {
  passed = 0;
  std::size_t at = 0;
  if (lowest.empty() || spot.address < lowest.back().address) {
    lowest.push_back(spot);
  } else {
    at = chunk_of(spot.address);
    Chunk& into = chunk(at);
    into.insert(std::partition_point(into.begin(), into.end(),
                                     [&](const Spot& each) { return each.address > spot.address; }),
                spot);
  }
  if (Chunk& full = chunk(at); full.size() > kMaxChunk) {
    const auto middle = full.begin() + static_cast<std::ptrdiff_t>(full.size() / 2);
    Chunk upper(full.begin(), middle);
    full.erase(full.begin(), middle);
    higher.insert(higher.end() - static_cast<std::ptrdiff_t>(at), std::move(upper));
  }
}

void OrderedBlocks::Bin::remove(std::size_t at, std::size_t index) {
  Chunk& from = chunk(at);
  from.erase(from.begin() + static_cast<std::ptrdiff_t>(index));
  if (!from.empty() || higher.empty()) {
    return;
  }
  if (at == 0) {
    lowest = std::move(higher.back());
    at = 1;
  }
  higher.erase(higher.end() - static_cast<std::ptrdiff_t>(at));
}

OrderedBlocks::Spot OrderedBlocks::Bin::at_or_above(std::int64_t address) const {
  if (lowest.empty()) {
    return {};
  }
  const Chunk& in = chunk(chunk_of(address));
  const auto below =
      std::partition_point(in.begin(), in.end(), [&](const Spot& each) { return each.address >= address; });
  return below == in.begin() ? Spot{} : *(below - 1);
}

// Moves all blocks of a size from the sequence to a new bin.
void OrderedBlocks::crowd(std::int64_t size) {
  const auto at = std::lower_bound(crowded_.begin(), crowded_.end(), size) - crowded_.begin();
  crowded_.insert(crowded_.begin() + at, size);
  Bin& bin = *bins_.insert(bins_.begin() + at, Bin{});
  for (auto each = rest_.lower_bound({size, kLowest, kFirst});
       !rest_.at_end(each) && rest_[each].size == size; each = rest_.lower_bound({size, kLowest, kFirst})) {
    bin.insert({rest_[each].address, rest_[each].block});
    rest_.erase(each);
  }
}

void OrderedBlocks::insert(const Entry& entry) {
  ++entries_;
  const auto at = std::lower_bound(crowded_.begin(), crowded_.end(), entry.size);
  if (at != crowded_.end() && *at == entry.size) {
    bins_[static_cast<std::size_t>(at - crowded_.begin())].insert({entry.address, entry.block});
  } else if (rest_.insert(entry)) {
    crowd(entry.size);
  }
}

void OrderedBlocks::erase(const Entry& entry) {
  --entries_;
  const auto at = std::lower_bound(crowded_.begin(), crowded_.end(), entry.size);
  if (at == crowded_.end() || *at != entry.size) {
    rest_.erase(entry);
    return;
  }
  Bin& bin = bins_[static_cast<std::size_t>(at - crowded_.begin())];
  const std::size_t chunk = bin.chunk_of(entry.address);
  const Chunk& in = bin.chunk(chunk);
  const auto spot = std::partition_point(in.begin(), in.end(),
                                         [&](const Spot& each) { return each.address > entry.address; });
  assert(spot != in.end() && spot->address == entry.address && spot->block == entry.block);
  bin.remove(chunk, static_cast<std::size_t>(spot - in.begin()));
}

std::int32_t OrderedBlocks::take(std::int64_t size, std::int64_t limit) {
  auto at =
      static_cast<std::size_t>(std::lower_bound(crowded_.begin(), crowded_.end(), size) - crowded_.begin());
  while (at < bins_.size() && bins_[at].lowest.empty()) {
    if (++bins_[at].passed < kMaxPassed) {
      ++at;
    } else {
      crowded_.erase(crowded_.begin() + static_cast<std::ptrdiff_t>(at));
      bins_.erase(bins_.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  // A size is either crowded or in the sequence.
  if (at == bins_.size() || crowded_[at] != size) {
    const Sequence::Position other = rest_.lower_bound({size, kLowest, kFirst});
    if (!rest_.at_end(other) && (at == bins_.size() || rest_[other].size < crowded_[at])) {
      if (rest_[other].size >= limit) {
        return -1;
      }
      const std::int32_t block = rest_[other].block;
      rest_.erase(other);
      --entries_;
      return block;
    }
  }
  if (at == bins_.size() || crowded_[at] >= limit) {
    return -1;
  }
  Bin& bin = bins_[at];
  const std::int32_t block = bin.lowest.back().block;
  if (bin.lowest.size() > 1) {
    bin.lowest.pop_back();
  } else {
    bin.remove(0, 0);
  }
  --entries_;
  return block;
}

OrderedBlocks::Entry OrderedBlocks::smaller(const Entry& a, const Entry& b) {
  return b.block < 0 || (a.block >= 0 && a < b) ? a : b;
}

OrderedBlocks::Entry OrderedBlocks::from(const Entry& least) const {
  const Sequence::Position other = rest_.lower_bound({least.size, least.address, kFirst});
  Entry found = rest_.at_end(other) ? end() : rest_[other];
  for (auto at = std::lower_bound(crowded_.begin(), crowded_.end(), least.size); at != crowded_.end(); ++at) {
    const Spot spot = bins_[static_cast<std::size_t>(at - crowded_.begin())].at_or_above(
        *at == least.size ? least.address : kLowest);
    if (spot.block >= 0) {
      return smaller(found, {*at, spot.address, spot.block});
    }
  }
  return found;
}

}  // namespace plimsoll::estimator::allocator
