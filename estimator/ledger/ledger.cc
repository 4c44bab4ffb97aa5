#include "estimator/ledger/ledger.h"

#include <algorithm>
#include <cassert>

namespace plimsoll::estimator::inline ledger {

const char* name_of(Phase phase) {
  constexpr const char* kNames[kPhases] = {"Forward", "Backward", "OptimizerStep"};
  return kNames[static_cast<std::size_t>(phase)];
}

const char* kind_of(Part part) {
  constexpr const char* kKinds[kParts] = {"parameter",  "gradient",  "optimizer state", "input",
                                          "activation", "temporary", "gradient bucket"};
  return kKinds[static_cast<std::size_t>(part)];
}

void Ledger::reserve(std::size_t blocks, std::size_t events) {
  blocks_.reserve(blocks_.size() + blocks);
  events_.reserve(events_.size() + events);
}

void Ledger::enter(Phase phase, Section section) {
  phase_ = phase;
  section_ = section;
  turns_.push_back({.event = events_.size(), .phase = phase, .section = section});
}

void Ledger::enter(Phase phase) {
  enter(phase, phase == Phase::kForward    ? Section::kForward
               : phase == Phase::kBackward ? Section::kEarlyBackward
                                           : Section::kOptimizerStep);
  std::int64_t& begin = begin_of_phase_[static_cast<std::size_t>(phase)];
  if (begin < 0) {
    begin = static_cast<std::int64_t>(events_.size());
  }
}

std::size_t Ledger::begin_of(Phase phase) const {
  const std::int64_t begin = begin_of_phase_[static_cast<std::size_t>(phase)];
  return begin < 0 ? events_.size() : static_cast<std::size_t>(begin);
}

std::size_t Ledger::begin_of_iteration() const {
  return std::min({begin_of(Phase::kForward), begin_of(Phase::kBackward), begin_of(Phase::kOptimizerStep)});
}

Bytes Ledger::whole_granules(Bytes bytes_of_one, std::int64_t count) const {
  const std::int64_t granules = bytes_of_one.count / granule_ + (bytes_of_one.count % granule_ != 0 ? 1 : 0);
  return Bytes{granules} * granule_ * count;
}

// `events`: up to this allocation.
void Ledger::count_allocation(const Block& block, std::size_t events) {
  parts_[static_cast<std::size_t>(block.part)] += block.bytes;
  live_ += block.bytes;
  if (Moment& highest = peaks_[static_cast<std::size_t>(section_)]; live_ > highest.live) {
    highest = {.live = live_, .parts = parts_, .phase = phase_, .events = events};
  }
}

void Ledger::count_release(const Block& block) {
  parts_[static_cast<std::size_t>(block.part)] -= block.bytes;
  live_ -= block.bytes;
}

BlockId Ledger::allocate(Part part, Bytes bytes_of_one, std::int64_t count, StreamId stream) {
  const auto id = static_cast<BlockId>(blocks_.size());
  blocks_.push_back({.part = part,
                     .stream = stream,
                     .count = count,
                     .bytes_of_one = bytes_of_one,
                     .bytes = whole_granules(bytes_of_one, count)});
  add_event({MemoryEvent::Kind::kAllocate, stream, id});
  count_allocation(blocks_.back(), events_.size());
  return id;
}

BlockId Ledger::allocate_dispensable(Part part, Bytes bytes) {
  const BlockId block = allocate(part, bytes);
  blocks_.back().dispensable = has_dispensable_ = true;
  return block;
}

void Ledger::release(BlockId block) {
  assert(block >= 0 && static_cast<std::size_t>(block) < blocks_.size());
  const Block& released = blocks_[static_cast<std::size_t>(block)];
  add_event({MemoryEvent::Kind::kRelease, released.stream, block});
  count_release(released);
}

void Ledger::use(BlockId block, StreamId stream) {
  assert(block >= 0 && static_cast<std::size_t>(block) < blocks_.size());
  add_event({MemoryEvent::Kind::kUse, stream, block});
}

void Ledger::synchronize(StreamId stream) {
  add_event({MemoryEvent::Kind::kSynchronize, stream, -1});
}

void Ledger::resize(BlockId block, Bytes bytes_of_one) {
  Block& resized = blocks_[static_cast<std::size_t>(block)];
  resized.bytes_of_one = bytes_of_one;
  resized.bytes = whole_granules(bytes_of_one, resized.count);
}

void Ledger::recount() {
  phase_ = Phase::kForward;
  section_ = Section::kForward;
  parts_ = {};
  live_ = {};
  peaks_ = {};
  auto turn = turns_.begin();
  charge(budget_, events_.size());
  for (std::size_t i = 0; i < events_.size(); ++i) {
    for (; turn != turns_.end() && turn->event == i; ++turn) {
      phase_ = turn->phase;
      section_ = turn->section;
    }
    const MemoryEvent& event = events_[i];
    if (event.kind == MemoryEvent::Kind::kAllocate) {
      count_allocation(blocks_[static_cast<std::size_t>(event.block)], i + 1);
    } else if (event.kind == MemoryEvent::Kind::kRelease) {
      count_release(blocks_[static_cast<std::size_t>(event.block)]);
    }
  }
}

const Ledger::Moment& Ledger::peak_moment() const {
  return *std::max_element(peaks_.begin(), peaks_.end(), [](const Moment& a, const Moment& b) {
    return a.live != b.live ? a.live < b.live : a.events > b.events;
  });
}

std::vector<BlockId> Ledger::live_at_peak() const {
  std::vector<char> alive(blocks_.size(), 0);
  const std::size_t events = peak_moment().events;
  for (std::size_t i = 0; i < events; ++i) {
    const MemoryEvent& event = events_[i];
    if (event.kind == MemoryEvent::Kind::kAllocate || event.kind == MemoryEvent::Kind::kRelease) {
      alive[static_cast<std::size_t>(event.block)] = event.kind == MemoryEvent::Kind::kAllocate ? 1 : 0;
    }
  }
  std::vector<BlockId> blocks;
  for (std::size_t i = 0; i < alive.size(); ++i) {
    if (alive[i] != 0) {
      blocks.push_back(static_cast<BlockId>(i));
    }
  }
  return blocks;
}

std::vector<BlockId> Ledger::largest_at_peak(std::size_t limit) const {
  std::vector<BlockId> live = live_at_peak();
  const auto bytes = [&](BlockId block) { return blocks_[static_cast<std::size_t>(block)].bytes; };
  limit = std::min(limit, live.size());
  std::partial_sort(live.begin(), live.begin() + static_cast<std::ptrdiff_t>(limit), live.end(),
                    [&](BlockId a, BlockId b) { return bytes(a) != bytes(b) ? bytes(a) > bytes(b) : a < b; });
  live.resize(limit);
  return live;
}

}  // namespace plimsoll::estimator::ledger
