#include "estimator/memory/free_blocks.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

namespace plimsoll::estimator {
namespace {

// Fibonacci hashing: 2^64 over the golden ratio.
constexpr std::uint64_t kSpread = 0x9E3779B97F4A7C15U;

}  // namespace

// Where `size` is in the table, or would be.
std::size_t FreeBlocks::slot_of(std::int64_t size) const {
  const std::size_t mask = slots_.size() - 1;
  const int shift = 64 - std::countr_zero(slots_.size());
  std::size_t slot = static_cast<std::size_t>((static_cast<std::uint64_t>(size) * kSpread) >> shift);
  while (slots_[slot] >= 0 && bins_[index(slots_[slot])].size != size) {
    slot = (slot + 1) & mask;
  }
  return slot;
}

std::int32_t FreeBlocks::find(std::int64_t size) const {
  return slots_.empty() ? -1 : slots_[slot_of(size)];
}

std::int32_t FreeBlocks::find_or_add(std::int64_t size) {
  if (bins_.size() * 2 >= slots_.size()) {
    slots_.assign(std::max<std::size_t>(64, slots_.size() * 2), -1);
    for (std::size_t i = 0; i < bins_.size(); ++i) {
      slots_[slot_of(bins_[i].size)] = static_cast<std::int32_t>(i);
    }
  }
  std::int32_t& bin = slots_[slot_of(size)];
  if (bin < 0) {
    bin = static_cast<std::int32_t>(bins_.size());
    bins_.emplace_back().size = size;
  }
  return bin;
}

// The chunk that holds `address`, or would.
std::size_t FreeBlocks::chunk_of(const Bin& bin, std::int64_t address) {
  if (bin.higher.empty() || address <= bin.lowest.front().address) {
    return 0;
  }
  // Chunks whose highest address is at least this one, from the end of the list.
  const auto above = std::partition_point(bin.higher.begin(), bin.higher.end(), [&](const Chunk& chunk) {
    return chunk.front().address >= address;
  });
  const auto chunk = static_cast<std::size_t>(bin.higher.end() - above) + 1;
  return std::min(chunk, bin.higher.size());
}

std::int32_t FreeBlocks::insert_in_order(const Entry& entry, std::int32_t hint) {
  const std::int32_t id = hint >= 0 && bins_[index(hint)].size == entry.size ? hint : find_or_add(entry.size);
  Bin& bin = bins_[index(id)];
  if (!bin.ordered) {
    order_.emplace(bin.size, id);
    bin.ordered = true;
  }
  bin.passed = 0;
  ++entries_;
  const Spot spot{entry.address, entry.block};
  std::size_t at = 0;
  if (bin.lowest.empty() || entry.address < bin.lowest.back().address) {
    bin.lowest.push_back(spot);
  } else {
    at = chunk_of(bin, entry.address);
    Chunk& chunk = bin.chunk(at);
    chunk.insert(std::partition_point(chunk.begin(), chunk.end(),
                                      [&](const Spot& each) { return each.address > entry.address; }),
                 spot);
  }
  if (Chunk& full = bin.chunk(at); full.size() > kLongest) {
    const auto middle = full.begin() + static_cast<std::ptrdiff_t>(full.size() / 2);
    Chunk upper(full.begin(), middle);
    full.erase(full.begin(), middle);
    bin.higher.insert(bin.higher.end() - static_cast<std::ptrdiff_t>(at), std::move(upper));
  }
  return id;
}

void FreeBlocks::remove(Bin& bin, std::size_t at, std::size_t index) {
  Chunk& chunk = bin.chunk(at);
  chunk.erase(chunk.begin() + static_cast<std::ptrdiff_t>(index));
  if (!chunk.empty() || bin.higher.empty()) {
    return;
  }
  if (at == 0) {
    bin.lowest = std::move(bin.higher.back());
    at = 1;
  }
  bin.higher.erase(bin.higher.end() - static_cast<std::ptrdiff_t>(at));
}

void FreeBlocks::erase(Position position) {
  remove(bins_[index(position.bin)], position.chunk, position.index);
  --entries_;
}

void FreeBlocks::erase(const Entry& entry, std::int32_t hint) {
  const std::int32_t id = hint >= 0 && bins_[index(hint)].size == entry.size ? hint : find(entry.size);
  assert(id >= 0);
  Bin& bin = bins_[index(id)];
  const std::size_t at = chunk_of(bin, entry.address);
  const Chunk& chunk = bin.chunk(at);
  const auto spot = std::partition_point(chunk.begin(), chunk.end(),
                                         [&](const Spot& each) { return each.address > entry.address; });
  assert(spot != chunk.end() && spot->address == entry.address && spot->block == entry.block);
  remove(bin, at, static_cast<std::size_t>(spot - chunk.begin()));
  --entries_;
}

std::int32_t FreeBlocks::first_with_blocks(Order::iterator first) {
  while (first != order_.end()) {
    Bin& bin = bins_[index(first->second)];
    if (!bin.empty()) {
      return first->second;
    }
    if (++bin.passed < kMostPassed) {
      ++first;
    } else {
      bin.ordered = false;
      first = order_.erase(first);
    }
  }
  return -1;
}

std::int32_t FreeBlocks::bin_for(std::int64_t size) {
  const std::int32_t exact = find(size);
  return exact >= 0 && !bins_[index(exact)].empty() ? exact : first_with_blocks(order_.lower_bound(size));
}

std::int32_t FreeBlocks::take(std::int64_t size, std::int64_t limit) {
  const std::int32_t id = bin_for(size);
  if (id < 0 || bins_[index(id)].size >= limit) {
    return -1;
  }
  Bin& bin = bins_[index(id)];
  const std::int32_t block = bin.lowest.back().block;
  if (bin.lowest.size() > 1) {
    bin.lowest.pop_back();
  } else {
    remove(bin, 0, 0);
  }
  --entries_;
  return block;
}

FreeBlocks::Position FreeBlocks::at_least(std::int64_t size) {
  const std::int32_t bin = bin_for(size);
  return bin < 0 ? end() : lowest(bin);
}

FreeBlocks::Position FreeBlocks::next(Position position) const {
  if (position.index > 0) {
    return {position.bin, position.chunk, position.index - 1};
  }
  const Bin& bin = bins_[index(position.bin)];
  if (position.chunk < bin.higher.size()) {
    return {position.bin, position.chunk + 1, bin.chunk(position.chunk + 1).size() - 1};
  }
  for (auto each = order_.upper_bound(bin.size); each != order_.end(); ++each) {
    if (!bins_[index(each->second)].empty()) {
      return lowest(each->second);
    }
  }
  return end();
}

FreeBlocks::Entry FreeBlocks::operator[](Position position) const {
  const Bin& bin = bins_[index(position.bin)];
  const Spot& spot = bin.chunk(position.chunk)[position.index];
  return {bin.size, spot.address, spot.block};
}

std::vector<FreeBlocks::Entry> FreeBlocks::all() const {
  std::vector<Entry> entries;
  entries.reserve(entries_);
  for (const auto& [size, id] : order_) {
    const Bin& bin = bins_[index(id)];
    for (std::size_t at = 0; at <= bin.higher.size(); ++at) {
      const Chunk& chunk = bin.chunk(at);
      for (auto spot = chunk.rbegin(); spot != chunk.rend(); ++spot) {
        entries.push_back({size, spot->address, spot->block});
      }
    }
  }
  return entries;
}

}  // namespace plimsoll::estimator
