#include "estimator/memory/ledger.h"

#include <cassert>

namespace plimsoll::estimator {

const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::kForward: return "Forward";
    case Phase::kBackward: return "Backward";
    case Phase::kOptimizerStep: return "OptimizerStep";
  }
  assert(false);
  return "";
}

BlockId Ledger::allocate(Part part, Bytes bytes_of_one, std::int64_t count) {
  const std::int64_t granules = bytes_of_one.count / granule_ + (bytes_of_one.count % granule_ != 0 ? 1 : 0);
  const Bytes bytes = Bytes{granules} * granule_ * count;
  blocks_.push_back({part, bytes});
  parts_[static_cast<std::size_t>(part)] += bytes;
  live_ += bytes;
  if (live_ > peak_) {
    peak_ = live_;
    parts_at_peak_ = parts_;
    peak_phase_ = phase_;
  }
  return static_cast<BlockId>(blocks_.size()) - 1;
}

void Ledger::release(BlockId block) {
  assert(block >= 0 && static_cast<std::size_t>(block) < blocks_.size());
  Block& released = blocks_[static_cast<std::size_t>(block)];
  parts_[static_cast<std::size_t>(released.part)] -= released.bytes;
  live_ -= released.bytes;
  released.bytes = Bytes{};
}

}  // namespace plimsoll::estimator
