// Ledger: the account of one trainer's memory through an iteration. The simulator tells it every block that
// is allocated and released, in order; it keeps the sums and remembers the highest moment, by part. The
// sequence itself stays readable, for an allocator replay (estimator/allocator/replay.h).
//
//   Ledger ledger(kCudaGranule);
//   ledger.allocate(Part::kParameters, weight);  // before the first phase: lives from iteration to iteration
//   ledger.enter(Phase::kForward);
//   BlockId out = ledger.allocate(Part::kActivations, bytes);
//   ...
//   ledger.release(out);  // what is never released goes when the next iteration begins
//
// Not thread-safe; one simulation owns one. Sums saturate; the caller rules out sizes that would.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/budget.h"
#include "base/bytes.h"

namespace plimsoll::estimator::inline ledger {

// Blocks of the CUDA caching allocator are multiples of so many bytes (c10::cuda, kMinBlockSize).
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

enum class Phase { kForward, kBackward, kOptimizerStep };
inline constexpr std::size_t kPhases = 3;
const char* name_of(Phase phase);  // "Forward", "Backward", "OptimizerStep"

// Parts of an iteration whose peaks are kept apart: with the number of equal layers each grows along a
// straight line of its own (estimator/estimate/equal_layers.h).
enum class Section : std::uint8_t { kForward, kEarlyBackward, kLateBackward, kOptimizerStep };
inline constexpr std::size_t kSections = 4;

using BlockId = std::int32_t;

// CUDA streams. The allocator keeps the memory of each apart.
using StreamId = std::uint8_t;
inline constexpr StreamId kComputeStream = 0;
inline constexpr StreamId kCommunicationStream = 1;

struct MemoryEvent {
  enum class Kind : std::uint8_t {
    kAllocate,     // `block`
    kRelease,      // `block`
    kUse,          // `block` is used on `stream` too (Tensor.record_stream)
    kSynchronize,  // what `stream` was given so far is done
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
    bool dispensable = false;  // its user can do without, as cuDNN without a workspace
    std::int32_t of = -1;      // what mark() said
    std::int64_t count = 1;    // equal blocks that live and die together
    Bytes bytes_of_one;        // as asked for
    Bytes bytes;               // of all, in whole granules
  };

  // Blocks are counted rounded up to whole granules, as torch.cuda.max_memory_allocated counts them.
  // Each event is a unit of `budget`'s work, and the lists are of its memory.
  explicit Ledger(std::int64_t granule, Budget* budget = nullptr)
      : granule_(granule), budget_(budget), blocks_(budget), events_(budget) {}

  // Makes room for so many blocks and events: a large model has tens of thousands.
  void expect(std::size_t blocks, std::size_t events);

  void enter(Phase phase);
  // The first half of the operators' backward is done; until the next phase is entered.
  void enter_late_backward() { section_ = Section::kLateBackward; }
  // `count` equal blocks that live and die together.
  BlockId allocate(Part part, Bytes bytes_of_one, std::int64_t count = 1, StreamId stream = kComputeStream);
  // A block that is only taken where the card has room: cuDNN's workspaces, for PyTorch tries the next
  // algorithm when one cannot be had (aten/src/ATen/native/cudnn/Conv_v8.cpp).
  BlockId allocate_dispensable(Part part, Bytes bytes);
  bool has_dispensable() const { return has_dispensable_; }
  // What the block is of, in the caller's own numbers.
  void mark(BlockId block, std::int32_t of) { blocks_[static_cast<std::size_t>(block)].of = of; }
  void release(BlockId block);
  // A stream other than the block's own works with it: the allocator may hand its memory out again only when
  // that stream has come that far.
  void use(BlockId block, StreamId stream);
  void synchronize(StreamId stream);

  Bytes live() const { return live_; }
  // A highest moment; the first of equal ones.
  struct Moment {
    Bytes live;
    std::array<Bytes, kParts> parts{};
    Phase phase = Phase::kForward;
    std::size_t events = 0;  // that came before it
  };
  Bytes peak() const { return peak_moment().live; }
  Bytes at_peak(Part part) const { return peak_moment().parts[static_cast<std::size_t>(part)]; }
  Phase peak_phase() const { return peak_moment().phase; }
  const Moment& peak_moment() const;
  const Moment& peak_of(Section section) const { return peaks_[static_cast<std::size_t>(section)]; }
  // Blocks alive at the peak, in the order they were allocated.
  std::vector<BlockId> live_at_peak() const;
  // The largest of them, at most `most`, largest first.
  std::vector<BlockId> largest_at_peak(std::size_t most) const;

  // By BlockId.
  const BudgetVector<Block>& blocks() const { return blocks_; }
  const BudgetVector<MemoryEvent>& events() const { return events_; }
  // The first event after `phase` was entered for the first time; the end when it never was.
  std::size_t begin_of(Phase phase) const;
  // Events before this one belong to no iteration; all of them when no phase was entered.
  std::size_t begin_of_iteration() const;

 private:
  void add_event(const MemoryEvent& event) {
    charge(budget_, 1);
    events_.push_back(event);
  }

  std::int64_t granule_;
  Budget* budget_;
  Phase phase_ = Phase::kForward;
  bool has_dispensable_ = false;
  BudgetVector<Block> blocks_;
  BudgetVector<MemoryEvent> events_;
  std::array<std::int64_t, kPhases> begin_of_phase_ = {-1, -1, -1};  // positions in events_
  std::array<Bytes, kParts> parts_{};
  Bytes live_;
  Section section_ = Section::kForward;
  std::array<Moment, kSections> peaks_{};
};

}  // namespace plimsoll::estimator::ledger
