#include "estimator/memory/allocator_replay.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace plimsoll::estimator {
namespace {

// A ledger block may stand for very many equal ones (a hundred thousand tables); beyond this many they are
// replayed in so many heaps.
constexpr std::int64_t kMostSeparately = 256;

class Replay {
 public:
  Replay(const Ledger& ledger, const ReplayOptions& options)
      : ledger_(ledger), options_(options), allocator_(options.settings, options.device) {
    first_handle_.reserve(ledger.blocks().size() + 1);
    std::size_t handles = 0;
    for (const Ledger::Block& block : ledger.blocks()) {
      first_handle_.push_back(handles);
      handles += static_cast<std::size_t>(copies(block));
    }
    first_handle_.push_back(handles);
    handles_.assign(handles, kNone);
  }

  ReplayResult run() && {
    place_ = {-1, 0};
    for (std::size_t i = 0; i < ledger_.begin_of_iteration() && !failure_; ++i) {
      const MemoryEvent& event = ledger_.events()[i];
      if (event.kind == MemoryEvent::Kind::kAllocate && part(event.block) == Part::kOptimizerState) {
        state_.push_back(event.block);
        continue;
      }
      if (event.kind == MemoryEvent::Kind::kAllocate && part(event.block) == Part::kInputs) {
        inputs_.push_back(event.block);
      }
      place_.event = i;
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

  static std::int64_t copies(const Ledger::Block& block) {
    return std::clamp<std::int64_t>(block.count, 1, kMostSeparately);
  }
  // Of one copy; the first takes what does not divide.
  static Bytes bytes_of(const Ledger::Block& block, std::int64_t copy) {
    if (block.count <= kMostSeparately) {
      return block.count > 0 ? block.bytes_of_one : Bytes{};
    }
    const std::int64_t each = block.bytes.count / kMostSeparately;
    return Bytes{copy == 0 ? block.bytes.count - each * (kMostSeparately - 1) : each};
  }
  const Ledger::Block& block(BlockId id) const { return ledger_.blocks()[static_cast<std::size_t>(id)]; }
  Part part(BlockId id) const { return block(id).part; }

  bool take(Bytes bytes, StreamId stream, BlockId id, CachingAllocator::Handle& handle) {
    if (bytes.count <= 0) {
      return true;  // an empty tensor has no memory
    }
    const std::optional<CachingAllocator::Handle> taken = allocator_.allocate(bytes, stream);
    if (!taken && id >= 0 && block(id).dispensable) {
      return true;
    }
    if (!taken) {
      failure_ = OutOfMemory{.iteration = place_.iteration,
                             .event = place_.event,
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
    const auto index = static_cast<std::size_t>(id);
    for (std::size_t i = first_handle_[index]; i < first_handle_[index + 1]; ++i) {
      action(handles_[i], static_cast<std::int64_t>(i - first_handle_[index]));
    }
  }

  void allocate(BlockId id) {
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

  // The last batch is gone when the next one comes: `for x, y in loader` has rebound its names by then.
  void renew_inputs() {
    for (const BlockId input : inputs_) {
      release(input);
    }
    for (const BlockId input : inputs_) {
      if (!failure_) {
        allocate(input);
      }
    }
  }

  // What lives from before the iteration, and is released in it, is there again when the next begins.
  void restore() {
    for (std::size_t i = 0; i < ledger_.begin_of_iteration() && !failure_; ++i) {
      const MemoryEvent& event = ledger_.events()[i];
      const auto first =
          event.block < 0 ? handles_.size() : first_handle_[static_cast<std::size_t>(event.block)];
      if (event.kind == MemoryEvent::Kind::kAllocate && first < handles_.size() && handles_[first] == kNone) {
        allocate(event.block);
      }
    }
  }

  void iterate(int iteration) {
    const std::size_t begin = ledger_.begin_of_iteration();
    place_ = {iteration, begin};
    if (iteration > 0) {
      renew_inputs();
      restore();
      for (std::size_t i = begin; i < ledger_.events().size(); ++i) {
        if (ledger_.events()[i].kind == MemoryEvent::Kind::kAllocate) {
          release(ledger_.events()[i].block);
        }
      }
    }
    const std::size_t backward = ledger_.begin_of(Phase::kBackward);
    const std::size_t step = ledger_.begin_of(Phase::kOptimizerStep);
    CachingAllocator::Handle kept = kNone;
    // The end is a place too: a phase may be entered and do nothing.
    for (std::size_t i = begin; i <= ledger_.events().size() && !failure_; ++i) {
      place_.event = i;
      if (iteration == 0) {
        if (i == begin && !take(options_.forward_workspace, kComputeStream, -1, kept)) {
          return;
        }
        if (i == backward && !take(options_.backward_workspace, kComputeStream, -1, kept)) {
          return;
        }
        if (i == step) {
          for (const BlockId state : state_) {
            if (!failure_) {
              allocate(state);
            }
          }
        }
      }
      if (i < ledger_.events().size() && !failure_) {
        apply(ledger_.events()[i]);
      }
    }
  }

  struct Place {
    int iteration = -1;
    std::size_t event = 0;
  };

  const Ledger& ledger_;
  const ReplayOptions& options_;
  CachingAllocator allocator_;
  std::vector<std::size_t> first_handle_;  // by BlockId, into handles_; one more at the end
  std::vector<CachingAllocator::Handle> handles_;
  std::vector<BlockId> inputs_;
  std::vector<BlockId> state_;
  Place place_;
  std::optional<OutOfMemory> failure_;
};

}  // namespace

ReplayResult replay(const Ledger& ledger, const ReplayOptions& options) {
  return Replay(ledger, options).run();
}

}  // namespace plimsoll::estimator
