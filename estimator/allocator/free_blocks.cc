#include "estimator/allocator/free_blocks.h"

#include <algorithm>
#include <cassert>
#include <limits>

namespace plimsoll::estimator::inline allocator {
namespace {

constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min();

// By size, then by address: blocks of one pool have different addresses.
bool precedes(const OrderedBlocks::Entry& a, std::int64_t size, std::int64_t address) {
  return a.size != size ? a.size < size : a.address < address;
}

}  // namespace

void FreeBlocks::move_to_ordered(Class& of) {
  of.ordered = static_cast<std::int32_t>(ordered_.size());
  OrderedBlocks& ordered = ordered_.emplace_back();
  for (const Entry& each : of.listed) {
    ordered.insert(each);
  }
  of.listed = {};
}

void FreeBlocks::insert(std::int64_t size, std::int64_t address, std::int32_t block) {
  assert(size >= 0);
  if (classes_.empty()) {
    classes_.resize(kClasses);
  }
  const std::size_t at = class_of(size);
  Class& in = classes_[at];
  ++entries_;
  mark(at);
  if (in.ordered < 0 && in.listed.size() == kMostListed) {
    move_to_ordered(in);
  }
  if (in.ordered >= 0) {
    ordered_[static_cast<std::size_t>(in.ordered)].insert({size, address, block});
    return;
  }
  if (in.listed.capacity() == 0) {
    constexpr std::size_t kUsual = 8;
    in.listed.reserve(kUsual);
  }
  auto place = in.listed.end();
  while (place != in.listed.begin() && precedes(*(place - 1), size, address)) {
    --place;
  }
  in.listed.emplace(place, size, address, block);
}

void FreeBlocks::erase(std::int64_t size, std::int64_t address, std::int32_t block) {
  const std::size_t at = class_of(size);
  Class& in = classes_[at];
  --entries_;
  if (in.ordered >= 0) {
    OrderedBlocks& ordered = ordered_[static_cast<std::size_t>(in.ordered)];
    ordered.erase({size, address, block});
    if (ordered.empty()) {
      unmark(at);
    }
    return;
  }
  auto found = in.listed.end();
  do {
    assert(found != in.listed.begin());
    --found;
  } while (found->address != address || found->size != size);
  in.listed.erase(found);
  if (in.listed.empty()) {
    unmark(at);
  }
}

std::int32_t FreeBlocks::take(std::int64_t size, std::int64_t limit) {
  const std::size_t least = class_of(std::max<std::int64_t>(size, 0));
  for (std::size_t at = occupied_from(least); at < kClasses; at = occupied_from(at + 1)) {
    Class& in = classes_[at];
    if (in.ordered >= 0) {
      OrderedBlocks& ordered = ordered_[static_cast<std::size_t>(in.ordered)];
      const std::int32_t block = ordered.take(size, limit);
      if (block < 0) {
        continue;
      }
      if (ordered.empty()) {
        unmark(at);
      }
      --entries_;
      return block;
    }
    auto found = in.listed.end();
    do {
      --found;
    } while (found->size < size && found != in.listed.begin());
    if (found->size < size) {
      continue;
    }
    if (found->size >= limit) {
      return -1;
    }
    const std::int32_t block = found->block;
    in.listed.erase(found);
    if (in.listed.empty()) {
      unmark(at);
    }
    --entries_;
    return block;
  }
  return -1;
}

// The first entry at or after a size and address.
FreeBlocks::Entry FreeBlocks::from(const Entry& least) const {
  for (std::size_t at = occupied_from(class_of(least.size)); at < kClasses; at = occupied_from(at + 1)) {
    const Class& in = classes_[at];
    if (in.ordered >= 0) {
      const Entry found = ordered_[static_cast<std::size_t>(in.ordered)].from(least);
      if (found != end()) {
        return found;
      }
      continue;
    }
    const auto after = std::find_if(in.listed.rbegin(), in.listed.rend(), [&](const Entry& each) {
      return !precedes(each, least.size, least.address);
    });
    if (after != in.listed.rend()) {
      return *after;
    }
  }
  return end();
}

FreeBlocks::Entry FreeBlocks::at_least(std::int64_t size) const {
  return from({std::max<std::int64_t>(size, 0), kLowest, -1});
}

FreeBlocks::Entry FreeBlocks::next(const Entry& entry) const {
  return from({entry.size, entry.address + 1, -1});
}

std::vector<FreeBlocks::Entry> FreeBlocks::all() const {
  std::vector<Entry> entries;
  entries.reserve(entries_);
  for (Entry each = at_least(0); each != end(); each = next(each)) {
    entries.push_back(each);
  }
  return entries;
}

}  // namespace plimsoll::estimator::allocator
