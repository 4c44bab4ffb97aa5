// Ledger: the memory events of one trainer's iteration. The simulation reports every allocation and free, in
// order; the ledger keeps the sums and the peak, by part. The sequence of events stays readable, for an
// allocator replay (estimator/allocator/replay.h).
//
//   Ledger ledger(kCudaGranule);
//   ledger.allocate(Part::kParameters, weight);  // before the first phase: live in every iteration
//   ledger.enter(Phase::kForward);
//   BlockId out = ledger.allocate(Part::kActivations, bytes);
//   ...
//   ledger.release(out);  // a block that is never released is freed when the next iteration begins
//
// Not thread-safe; each simulation owns its ledger. Sums saturate; the caller excludes sizes that would
// saturate.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/budget.h"
#include "base/bytes.h"

namespace plimsoll::estimator::inline ledger {

// Block sizes of the CUDA caching allocator are multiples of this (c10::cuda, kMinBlockSize).
inline constexpr std::int64_t kCudaGranule = 512;

enum class Part : std::uint8_t {
  kParameters,
  kGradients,
  kOptimizerState,
  kInputs,
  kActivations,
  kTemporaries,
  kDdpBuckets
};
inline constexpr std::size_t kParts = 7;
const char* kind_of(Part part);  // for users: "parameter", "gradient", "optimizer state", ...

enum class Phase { kForward, kBackward, kOptimizerStep };
inline constexpr std::size_t kPhases = 3;
const char* name_of(Phase phase);  // "Forward", "Backward", "OptimizerStep"

// Parts of an iteration whose peaks are recorded separately: each of these peaks is linear in the number of
// equal layers (estimator/estimate/equal_layers.h).
enum class Section : std::uint8_t { kForward, kEarlyBackward, kLateBackward, kOptimizerStep };
inline constexpr std::size_t kSections = 4;

using BlockId = std::int32_t;

// CUDA streams. The allocator keeps a separate pool for each.
using StreamId = std::uint8_t;
inline constexpr StreamId kComputeStream = 0;
inline constexpr StreamId kCommunicationStream = 1;
inline constexpr StreamId kReductionStream = 2;
inline constexpr StreamId kPreGatherStream = 3;  // FSDP1 casts there what it gathers

struct MemoryEvent {
  enum class Kind : std::uint8_t {
    kAllocate,     // `block` is allocated
    kRelease,      // `block` is freed
    kUse,          // `stream` also uses `block` (Tensor.record_stream)
    kSynchronize,  // all work submitted to `stream` so far is complete
  };
  Kind kind = Kind::kAllocate;
  StreamId stream = kComputeStream;
  BlockId block = -1;
};

class Ledger {
 public:
  struct Block {
    Part part = Part::kParameters;
    StreamId stream = kComputeStream;
    bool dispensable = false;  // training can continue without it, for example a cuDNN workspace
    std::int64_t count = 1;    // number of equal blocks that are allocated and freed together
    Bytes bytes_of_one;        // as requested
    Bytes bytes;               // of all `count` blocks, each rounded up to whole granules
  };

  // Sizes are rounded up to whole granules, as torch.cuda.max_memory_allocated counts them. Each event is one
  // unit of `budget`'s work; the lists take their memory from it.
  explicit Ledger(std::int64_t granule, Budget* budget = nullptr)
      : granule_(granule), budget_(budget), blocks_(budget), events_(budget), turns_(budget) {}

  // Reserves space in the lists: a large model has tens of thousands of blocks and events.
  void reserve(std::size_t blocks, std::size_t events);

  void enter(Phase phase);
  // The first half of backward is complete. Valid until the next phase is entered.
  void enter_late_backward() { enter(phase_, Section::kLateBackward); }
  // `count` equal blocks that are allocated and freed together.
  BlockId allocate(Part part, Bytes bytes_of_one, std::int64_t count = 1, StreamId stream = kComputeStream);
  // A block that is allocated only if the GPU has enough free memory: a cuDNN workspace. PyTorch tries the
  // next algorithm if it cannot be allocated (aten/src/ATen/native/cudnn/Conv_v8.cpp).
  BlockId allocate_dispensable(Part part, Bytes bytes);
  bool has_dispensable() const { return has_dispensable_; }
  void release(BlockId block);
  // Another stream than the block's own uses it. After the block is freed, the allocator may reuse it only
  // when that stream has completed its work.
  void use(BlockId block, StreamId stream);
  void synchronize(StreamId stream);

  // Gives a block another size, as if it had been allocated with it. Then recount() makes sums and peaks those of the
  // same events with the blocks' present sizes.
  void resize(BlockId block, Bytes bytes_of_one);
  void recount();

  Bytes live() const { return live_; }
  // The state at a peak; the first one if several are equal.
  struct Moment {
    Bytes live;
    std::array<Bytes, kParts> parts{};
    Phase phase = Phase::kForward;
    std::size_t events = 0;  // number of events up to the peak
  };
  Bytes peak() const { return peak_moment().live; }
  Bytes at_peak(Part part) const { return peak_moment().parts[static_cast<std::size_t>(part)]; }
  Phase peak_phase() const { return peak_moment().phase; }
  const Moment& peak_moment() const;
  const Moment& peak_of(Section section) const { return peaks_[static_cast<std::size_t>(section)]; }
  // Blocks that are live at the peak, in the order of allocation.
  std::vector<BlockId> live_at_peak() const;
  // The largest of them, at most `limit`, largest first.
  std::vector<BlockId> largest_at_peak(std::size_t limit) const;

  // Indexed by BlockId.
  const BudgetVector<Block>& blocks() const { return blocks_; }
  const BudgetVector<MemoryEvent>& events() const { return events_; }
  // The first event after `phase` was entered for the first time; the end if it was never entered.
  std::size_t begin_of(Phase phase) const;
  // Number of events before the first phase; all events if no phase was entered.
  std::size_t begin_of_iteration() const;

 private:
  // From this event on, peaks are of another phase or section.
  struct Turn {
    std::size_t event = 0;
    Phase phase = Phase::kForward;
    Section section = Section::kForward;
  };

  void add_event(const MemoryEvent& event) {
    charge(budget_, 1);
    events_.push_back(event);
  }
  Bytes whole_granules(Bytes bytes_of_one, std::int64_t count) const;
  void enter(Phase phase, Section section);
  void count_allocation(const Block& block, std::size_t events);
  void count_release(const Block& block);

  std::int64_t granule_;
  Budget* budget_;
  Phase phase_ = Phase::kForward;
  bool has_dispensable_ = false;
  BudgetVector<Block> blocks_;
  BudgetVector<MemoryEvent> events_;
  BudgetVector<Turn> turns_;
  std::array<std::int64_t, kPhases> begin_of_phase_ = {-1, -1, -1};  // positions in events_
  std::array<Bytes, kParts> parts_{};
  Bytes live_;
  Section section_ = Section::kForward;
  std::array<Moment, kSections> peaks_{};
};

}  // namespace plimsoll::estimator::ledger
