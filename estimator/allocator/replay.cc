#include "estimator/allocator/replay.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace plimsoll::estimator::inline allocator {
namespace {

// A ledger block may stand for very many equal blocks (for example 100,000 tables). Above this number, they
// are replayed as this many larger blocks.
constexpr std::int64_t kMaxCopies = 256;

class Replay {
 public:
  Replay(const Ledger& ledger, const ReplayOptions& options)
      : ledger_(ledger), options_(options), allocator_(options.settings, options.device) {
    const auto blocks = static_cast<std::int64_t>(ledger.blocks().size());
    charge(options.budget, ledger.blocks().size());
    memory_.resize(Bytes{kBytesPerBlock} * blocks);
    first_handle_.reserve(ledger.blocks().size() + 1);
    std::int64_t handles = 0;
    for (const Ledger::Block& block : ledger.blocks()) {
      first_handle_.push_back(handles);
      handles += copies(block);
    }
    charge(options.budget, static_cast<std::uint64_t>(handles));
    memory_.resize(Bytes{kBytesPerBlock} * blocks + Bytes{kBytesPerHandle} * handles);
    handles_.assign(static_cast<std::size_t>(handles), kNone);
    allocator_.reserve_blocks(ledger.blocks().size());
    find_leftovers();
  }

  ReplayResult run() && {
    position_ = {-1, 0};
    for (std::size_t i = 0; i < ledger_.begin_of_iteration() && !failure_; ++i) {
      const MemoryEvent& event = ledger_.events()[i];
      if (event.kind == MemoryEvent::Kind::kAllocate && part(event.block) == Part::kOptimizerState) {
        state_.push_back(event.block);
        continue;
      }
      if (event.kind == MemoryEvent::Kind::kAllocate && part(event.block) == Part::kInputs) {
        inputs_.push_back(event.block);
      }
      position_.event = i;
      apply(event);
    }
    int iterations = 0;
    for (Bytes before = Bytes{-1}; iterations < options_.iterations && !failure_; ++iterations) {
      if (iterations > 1 && allocator_.reserved_peak() == before) {
        break;
      }
      before = allocator_.reserved_peak();
      iterate(iterations);
    }
    return {.allocated_peak = allocator_.allocated_peak(),
            .reserved_peak = allocator_.reserved_peak(),
            .reserved = allocator_.reserved(),
            .segments = allocator_.segments(),
            .retries = allocator_.retries(),
            .iterations = iterations,
            .out_of_memory = failure_};
  }

 private:
  static constexpr CachingAllocator::Handle kNone = -1;
  // Memory of this object's lists per ledger block, and of a handle with the allocator's block behind it.
  static constexpr std::int64_t kBytesPerBlock = 64;
  static constexpr std::int64_t kBytesPerHandle = 64;

  static std::int64_t copies(const Ledger::Block& block) {
    return std::clamp<std::int64_t>(block.count, 1, kMaxCopies);
  }
  // Bytes of one copy; the first copy also has the remainder of the division.
  static Bytes bytes_of(const Ledger::Block& block, std::int64_t copy) {
    if (block.count <= kMaxCopies) {
      return block.count > 0 ? block.bytes_of_one : Bytes{};
    }
    const std::int64_t each = block.bytes.count / kMaxCopies;
    return Bytes{copy == 0 ? block.bytes.count - each * (kMaxCopies - 1) : each};
  }
  const Ledger::Block& block(BlockId id) const { return ledger_.blocks()[static_cast<std::size_t>(id)]; }
  Part part(BlockId id) const { return block(id).part; }
  // The handle of the first copy; those of the other copies follow it.
  CachingAllocator::Handle& handle(BlockId id) {
    return handles_[static_cast<std::size_t>(first_handle_[static_cast<std::size_t>(id)])];
  }

  bool take(Bytes bytes, StreamId stream, BlockId id, CachingAllocator::Handle& handle) {
    if (bytes.count <= 0) {
      return true;  // an empty tensor has no memory
    }
    const std::optional<CachingAllocator::Handle> taken = allocator_.allocate(bytes, stream);
    if (!taken && id >= 0 && block(id).dispensable) {
      return true;
    }
    if (!taken) {
      failure_ = OutOfMemory{.iteration = position_.iteration,
                             .event = position_.event,
                             .block = id,
                             .requested = bytes,
                             .allocated = allocator_.allocated(),
                             .reserved = allocator_.reserved()};
      return false;
    }
    handle = *taken;
    return true;
  }

  template <class Action>
  void for_each_handle(BlockId id, Action action) {
    CachingAllocator::Handle* const first = &handle(id);
    const std::int64_t count = copies(block(id));
    for (std::int64_t copy = 0; copy < count; ++copy) {
      action(first[copy], copy);
    }
  }

  void allocate(BlockId id) {
    if (block(id).count == 1) {  // nearly always
      take(block(id).bytes_of_one, block(id).stream, id, handle(id));
      return;
    }
    charge(options_.budget, static_cast<std::uint64_t>(copies(block(id))));
    for_each_handle(id, [&](CachingAllocator::Handle& handle, std::int64_t copy) {
      if (!failure_) {
        take(bytes_of(block(id), copy), block(id).stream, id, handle);
      }
    });
  }
  void release(BlockId id) {
    for_each_handle(id, [&](CachingAllocator::Handle& handle, std::int64_t) {
      if (handle != kNone) {
        allocator_.release(std::exchange(handle, kNone));
      }
    });
  }

  void apply(const MemoryEvent& event) {
    charge(options_.budget, 1);
    switch (event.kind) {
      case MemoryEvent::Kind::kAllocate: allocate(event.block); break;
      case MemoryEvent::Kind::kRelease: release(event.block); break;
      case MemoryEvent::Kind::kUse:
        for_each_handle(event.block, [&](CachingAllocator::Handle& handle, std::int64_t) {
          if (handle != kNone) {
            allocator_.use(handle, event.stream);
          }
        });
        break;
      case MemoryEvent::Kind::kSynchronize: allocator_.synchronize(event.stream); break;
    }
  }

  // Finds the blocks that the iteration allocates and does not free; they are freed when the next one begins.
  void find_leftovers() {
    std::vector<char> left(ledger_.blocks().size(), 0);
    const std::size_t begin = ledger_.begin_of_iteration();
    for (std::size_t i = begin; i < ledger_.events().size(); ++i) {
      const MemoryEvent& event = ledger_.events()[i];
      if (event.kind == MemoryEvent::Kind::kAllocate || event.kind == MemoryEvent::Kind::kRelease) {
        left[static_cast<std::size_t>(event.block)] = event.kind == MemoryEvent::Kind::kAllocate ? 1 : 0;
      }
    }
    for (std::size_t i = 0; i < left.size(); ++i) {  // in order of allocation
      if (left[i] != 0) {
        leftovers_.push_back(static_cast<BlockId>(i));
      }
    }
  }

  void apply(std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end && !failure_; ++i) {
      position_.event = i;
      apply(ledger_.events()[i]);
    }
    position_.event = end;
  }

  void allocate_workspace(Bytes bytes) {
    CachingAllocator::Handle kept = kNone;
    if (!failure_) {
      take(bytes, kComputeStream, -1, kept);
    }
  }
  void allocate_state() {
    for (const BlockId state : state_) {
      if (!failure_) {
        allocate(state);
      }
    }
  }

  // The last batch is freed before the next one is allocated, because `for x, y in loader` has rebound its
  // variables by then. If the loader itself copies batches to the GPU, both are allocated for a moment.
  void replace_inputs() {
    std::vector<CachingAllocator::Handle> last;
    for (const BlockId input : inputs_) {
      if (options_.next_batch_early) {
        for_each_handle(input, [&](CachingAllocator::Handle& handle, std::int64_t) {
          last.push_back(std::exchange(handle, kNone));
        });
      } else {
        release(input);
      }
    }
    for (const BlockId input : inputs_) {
      if (!failure_) {
        allocate(input);
      }
    }
    for (const CachingAllocator::Handle handle : last) {
      if (handle != kNone) {
        allocator_.release(handle);
      }
    }
  }

  // Allocates again what was allocated before the iteration and freed inside it.
  void reallocate_persistent() {
    for (std::size_t i = 0; i < ledger_.begin_of_iteration() && !failure_; ++i) {
      const MemoryEvent& event = ledger_.events()[i];
      if (event.kind == MemoryEvent::Kind::kAllocate && handle(event.block) == kNone) {
        allocate(event.block);
      }
    }
  }

  void iterate(int iteration) {
    const std::size_t begin = ledger_.begin_of_iteration();
    position_ = {iteration, begin};
    if (iteration > 0) {
      replace_inputs();
      reallocate_persistent();
      for (const BlockId left : leftovers_) {
        release(left);
      }
    }
    if (iteration > 0) {
      apply(begin, ledger_.events().size());
      return;
    }
    allocate_workspace(options_.forward_workspace);
    // If a phase was never entered, begin_of() is the end of the events.
    const std::size_t backward = ledger_.begin_of(Phase::kBackward);
    const std::size_t step = ledger_.begin_of(Phase::kOptimizerStep);
    if (backward <= step) {
      apply(begin, backward);
      allocate_workspace(options_.backward_workspace);
      apply(backward, step);
      allocate_state();
      apply(step, ledger_.events().size());
    } else {
      apply(begin, step);
      allocate_state();
      apply(step, backward);
      allocate_workspace(options_.backward_workspace);
      apply(backward, ledger_.events().size());
    }
  }

  struct Position {
    int iteration = -1;
    std::size_t event = 0;
  };

  const Ledger& ledger_;
  const ReplayOptions& options_;
  CachingAllocator allocator_;
  BudgetBytes memory_{options_.budget};
  std::vector<std::int64_t> first_handle_;  // by BlockId, into handles_
  std::vector<CachingAllocator::Handle> handles_;
  std::vector<BlockId> inputs_;
  std::vector<BlockId> state_;
  std::vector<BlockId> leftovers_;
  Position position_;
  std::optional<OutOfMemory> failure_;
};

}  // namespace

ReplayResult replay(const Ledger& ledger, const ReplayOptions& options) {
  return Replay(ledger, options).run();
}

}  // namespace plimsoll::estimator::allocator
