#include "estimator/allocator/replay.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

namespace plimsoll::estimator::inline allocator {
namespace {

// A ledger block may stand for very many equal blocks (for example 100,000 tables). Above this number, they
// are replayed as this many larger blocks.
constexpr std::int64_t kMaxCopies = 256;

// A ledger with the handles of its blocks.
struct Script {
  explicit Script(const Ledger& of, Budget* budget) : ledger(of), memory(budget) {}

  const Ledger& ledger;
  BudgetBytes memory;
  std::vector<std::int64_t> first_handle{};  // by BlockId, into handles
  std::vector<CachingAllocator::Handle> handles{};
  std::vector<BlockId> inputs{};
  std::vector<BlockId> leftovers{};  // blocks that an iteration allocates and does not free

  bool trains() const { return ledger.begin_of(Phase::kBackward) < ledger.events().size(); }
};

class Replay {
 public:
  Replay(const Ledger& ledger, const ReplayOptions& options)
      : options_(options), allocator_(options.settings, options.device) {
    current_ = &add(ledger);
    allocator_.reserve_blocks(ledger.blocks().size());
  }

  ReplayResult run() && {
    Script& usual = *current_;
    position_ = {-1, 0};
    for (std::size_t i = 0; i < usual.ledger.begin_of_iteration() && !failure_; ++i) {
      const MemoryEvent& event = usual.ledger.events()[i];
      if (event.kind == MemoryEvent::Kind::kAllocate && part(event.block) == Part::kOptimizerState) {
        state_.push_back(event.block);
        continue;
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
      iterate(usual, iterations);
    }
    for (const Ledger* const each : options_.afterwards) {
      if (!failure_) {
        iterate(each == &usual.ledger ? usual : script_of(*each), iterations++);
      }
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
  const Ledger::Block& block(BlockId id) const {
    return current_->ledger.blocks()[static_cast<std::size_t>(id)];
  }
  Part part(BlockId id) const { return block(id).part; }
  // The handle of the first copy; those of the other copies follow it.
  CachingAllocator::Handle& handle(BlockId id) {
    return current_->handles[static_cast<std::size_t>(current_->first_handle[static_cast<std::size_t>(id)])];
  }

  Script& add(const Ledger& ledger) {
    Script& script = scripts_.emplace_back(ledger, options_.budget);
    const auto blocks = static_cast<std::int64_t>(ledger.blocks().size());
    charge(options_.budget, ledger.blocks().size());
    script.memory.resize(Bytes{kBytesPerBlock} * blocks);
    script.first_handle.reserve(ledger.blocks().size() + 1);
    std::int64_t handles = 0;
    for (const Ledger::Block& block : ledger.blocks()) {
      script.first_handle.push_back(handles);
      handles += copies(block);
    }
    script.first_handle.push_back(handles);
    charge(options_.budget, static_cast<std::uint64_t>(handles));
    script.memory.resize(Bytes{kBytesPerBlock} * blocks + Bytes{kBytesPerHandle} * handles);
    script.handles.assign(static_cast<std::size_t>(handles), kNone);
    for (std::size_t i = 0; i < ledger.begin_of_iteration(); ++i) {
      const MemoryEvent& event = ledger.events()[i];
      if (event.kind == MemoryEvent::Kind::kAllocate &&
          ledger.blocks()[static_cast<std::size_t>(event.block)].part == Part::kInputs) {
        script.inputs.push_back(event.block);
      }
    }
    find_leftovers(script);
    return script;
  }
  Script& script_of(const Ledger& ledger) {
    const auto known = std::find_if(scripts_.begin(), scripts_.end(),
                                    [&](const Script& each) { return &each.ledger == &ledger; });
    return known != scripts_.end() ? *known : add(ledger);
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
    const std::int64_t* const first = &current_->first_handle[static_cast<std::size_t>(id)];
    CachingAllocator::Handle* const handles = current_->handles.data();
    for (std::int64_t at = first[0]; at < first[1]; ++at) {
      action(handles[at], at - first[0]);
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
  static void find_leftovers(Script& script) {
    const Ledger& ledger = script.ledger;
    std::vector<char> left(ledger.blocks().size(), 0);
    for (std::size_t i = ledger.begin_of_iteration(); i < ledger.events().size(); ++i) {
      const MemoryEvent& event = ledger.events()[i];
      if (event.kind == MemoryEvent::Kind::kAllocate || event.kind == MemoryEvent::Kind::kRelease) {
        left[static_cast<std::size_t>(event.block)] = event.kind == MemoryEvent::Kind::kAllocate ? 1 : 0;
      }
    }
    for (std::size_t i = 0; i < left.size(); ++i) {  // in order of allocation
      if (left[i] != 0) {
        script.leftovers.push_back(static_cast<BlockId>(i));
      }
    }
  }

  void apply(std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end && !failure_; ++i) {
      position_.event = i;
      apply(current_->ledger.events()[i]);
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
  void replace_inputs(Script& last, Script& next) {
    std::vector<CachingAllocator::Handle> kept;
    current_ = &last;
    for (const BlockId input : last.inputs) {
      if (options_.next_batch_early) {
        for_each_handle(input, [&](CachingAllocator::Handle& handle, std::int64_t) {
          kept.push_back(std::exchange(handle, kNone));
        });
      } else {
        release(input);
      }
    }
    current_ = &next;
    for (const BlockId input : next.inputs) {
      if (!failure_) {
        allocate(input);
      }
    }
    for (const CachingAllocator::Handle handle : kept) {
      if (handle != kNone) {
        allocator_.release(handle);
      }
    }
  }

  // Allocates again what was allocated before the iteration and freed inside it.
  void reallocate_persistent() {
    for (std::size_t i = 0; i < current_->ledger.begin_of_iteration() && !failure_; ++i) {
      const MemoryEvent& event = current_->ledger.events()[i];
      if (event.kind == MemoryEvent::Kind::kAllocate && handle(event.block) == kNone) {
        allocate(event.block);
      }
    }
  }

  // Takes over what the iteration did not free.
  void keep_leftovers() {
    for (const BlockId left : current_->leftovers) {
      for_each_handle(left, [&](CachingAllocator::Handle& handle, std::int64_t) {
        if (handle != kNone) {
          left_.push_back({part(left), std::exchange(handle, kNone)});
        }
      });
    }
  }
  // A loop calls zero_grad() before an iteration, not before a validation pass.
  void release_leftovers(bool gradients) {
    const auto stays = [&](const Left& each) { return !gradients && each.part == Part::kGradients; };
    for (const Left& each : left_) {
      if (!stays(each)) {
        allocator_.release(each.handle);
      }
    }
    std::erase_if(left_, [&](const Left& each) { return !stays(each); });
  }

  void iterate(Script& script, int iteration) {
    const Ledger& ledger = script.ledger;
    const std::size_t begin = ledger.begin_of_iteration();
    position_ = {iteration, begin};
    if (iteration > 0) {
      replace_inputs(*current_, script);
      if (&script == &scripts_.front()) {
        reallocate_persistent();
      }
      release_leftovers(script.trains());
      apply(begin, ledger.events().size());
    } else {
      iterate_first();
    }
    keep_leftovers();
  }

  void iterate_first() {
    const Ledger& ledger = current_->ledger;
    const std::size_t begin = ledger.begin_of_iteration();
    allocate_workspace(options_.forward_workspace);
    // If a phase was never entered, begin_of() is the end of the events.
    const std::size_t backward = ledger.begin_of(Phase::kBackward);
    const std::size_t step = ledger.begin_of(Phase::kOptimizerStep);
    if (backward <= step) {
      apply(begin, backward);
      allocate_workspace(options_.backward_workspace);
      apply(backward, step);
      allocate_state();
      apply(step, ledger.events().size());
    } else {
      apply(begin, step);
      allocate_state();
      apply(step, backward);
      allocate_workspace(options_.backward_workspace);
      apply(backward, ledger.events().size());
    }
  }

  struct Left {
    Part part = Part::kActivations;
    CachingAllocator::Handle handle = kNone;
  };
  struct Position {
    int iteration = -1;
    std::size_t event = 0;
  };

  const ReplayOptions& options_;
  CachingAllocator allocator_;
  std::deque<Script> scripts_;  // the first is the usual iteration
  Script* current_ = nullptr;
  std::vector<BlockId> state_;
  std::vector<Left> left_;
  Position position_;
  std::optional<OutOfMemory> failure_;
};

}  // namespace

ReplayResult replay(const Ledger& ledger, const ReplayOptions& options) {
  return Replay(ledger, options).run();
}

}  // namespace plimsoll::estimator::allocator
