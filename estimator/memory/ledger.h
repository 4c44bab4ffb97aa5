// Ledger: the account of one trainer's memory through an iteration. The simulator tells it every block that
// is allocated and released, in order; it keeps the sums and remembers the highest moment, by part. An
// allocator replay takes the same sequence of events.
//
// Not thread-safe; one simulation owns one. Sums saturate; the caller rules out sizes that would.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"

namespace plimsoll::estimator {

enum class Part {
  kParameters,
  kGradients,
  kOptimizerState,
  kInputs,
  kActivations,
  kTemporaries,
  kDdpBuckets
};
inline constexpr std::size_t kParts = 7;

enum class Phase { kForward, kBackward, kOptimizerStep };
const char* name_of(Phase phase);  // "Forward", "Backward", "OptimizerStep"

using BlockId = std::int32_t;

class Ledger {
 public:
  // Blocks are counted rounded up to whole granules, as torch.cuda.max_memory_allocated counts them.
  explicit Ledger(std::int64_t granule) : granule_(granule) {}

  void enter(Phase phase) { phase_ = phase; }
  // `count` equal blocks that live and die together.
  BlockId allocate(Part part, Bytes bytes_of_one, std::int64_t count = 1);
  void release(BlockId block);

  Bytes live() const { return live_; }
  Bytes peak() const { return peak_; }
  Bytes at_peak(Part part) const { return parts_at_peak_[static_cast<std::size_t>(part)]; }
  Phase peak_phase() const { return peak_phase_; }

 private:
  struct Block {
    Part part = Part::kParameters;
    Bytes bytes;
  };

  std::int64_t granule_;
  Phase phase_ = Phase::kForward;
  std::vector<Block> blocks_;
  std::array<Bytes, kParts> parts_{};
  Bytes live_;
  Bytes peak_;
  std::array<Bytes, kParts> parts_at_peak_{};
  Phase peak_phase_ = Phase::kForward;
};

}  // namespace plimsoll::estimator
