#include "estimator/memory/free_blocks.h"

#include <algorithm>
#include <cassert>
#include <limits>

namespace plimsoll::estimator {

FreeBlocks::Position FreeBlocks::lower_bound(const Entry& entry) const {
  const auto chunk =
      static_cast<std::size_t>(std::lower_bound(last_.begin(), last_.end(), entry) - last_.begin());
  if (chunk == chunks_.size()) {
    return end();
  }
  const std::vector<Entry>& entries = chunks_[chunk];
  const auto found = std::lower_bound(entries.begin(), entries.end(), entry);
  return {chunk, static_cast<std::size_t>(found - entries.begin())};
}

void FreeBlocks::insert(const Entry& entry) {
  if (chunks_.empty()) {
    chunks_.emplace_back().reserve(kLongest + 1);
    last_.push_back(entry);
  }
  Position position = lower_bound(entry);
  if (position == end()) {
    position = {chunks_.size() - 1, chunks_.back().size()};
    last_.back() = entry;
  }
  std::vector<Entry>& chunk = chunks_[position.chunk];
  chunk.insert(chunk.begin() + static_cast<std::ptrdiff_t>(position.index), entry);
  if (chunk.size() > kLongest) {
    const auto middle = chunk.begin() + static_cast<std::ptrdiff_t>(chunk.size() / 2);
    std::vector<Entry> upper;
    upper.reserve(kLongest + 1);
    upper.assign(middle, chunk.end());
    chunk.erase(middle, chunk.end());
    const auto after = static_cast<std::ptrdiff_t>(position.chunk) + 1;
    last_.insert(last_.begin() + after - 1, chunk.back());
    chunks_.insert(chunks_.begin() + after, std::move(upper));
  }
}

void FreeBlocks::erase(const Entry& entry) {
  const Position position = lower_bound(entry);
  assert(position != end() && (*this)[position] == entry);
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

FreeBlocks::Position FreeBlocks::at_least(std::int64_t size) const {
  return lower_bound(
      {size, std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int32_t>::min()});
}

FreeBlocks::Position FreeBlocks::next(Position position) const {
  if (position.index + 1 < chunks_[position.chunk].size()) {
    return {position.chunk, position.index + 1};
  }
  return {position.chunk + 1, 0};
}

std::vector<FreeBlocks::Entry> FreeBlocks::all() const {
  std::vector<Entry> entries;
  for (const std::vector<Entry>& chunk : chunks_) {
    entries.insert(entries.end(), chunk.begin(), chunk.end());
  }
  return entries;
}

}  // namespace plimsoll::estimator
