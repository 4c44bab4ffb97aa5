// TracePlan: when each storage of a trace is freed and which operators are recomputed, for an activation
// checkpointing policy. Independent of the batch. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/budget.h"
#include "base/result.h"
#include "crds/training_job.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline trace {

// Item numbers grouped by time, stored in one array.
class TimeTable {
 public:
  TimeTable() = default;
  // `times[i]` is the time of item i; items with a negative time are omitted.
  TimeTable(const std::vector<std::int32_t>& times, std::size_t end);
  std::span<const std::int32_t> at(std::size_t time) const {
    return {items_.data() + starts_[time], static_cast<std::size_t>(starts_[time + 1] - starts_[time])};
  }

 private:
  std::vector<std::int32_t> starts_;
  std::vector<std::int32_t> items_;
};

// A part of forward that is recomputed in backward, at time `at`.
struct Recomputation {
  std::int32_t begin = 0;  // operators [begin, end)
  std::int32_t end = 0;
  std::int32_t at = 0;
  // A storage that the second pass allocates.
  struct Storage {
    std::int32_t storage = 0;
    std::int32_t released_after = -1;  // freed after this forward operator; -1: see released_at
    std::int32_t released_at = -1;     // freed at this time of backward; -1: at the end of the pass
  };
  std::vector<Storage> storages;  // in the order of allocation
  TimeTable releases;             // indices into `storages` with a released_after, by operator of the pass
  std::vector<bool> skipped;      // by operator of the pass: true if its first results are kept and reused
};

struct TracePlan {
  std::vector<std::int32_t> death;            // by storage: when it is freed; -1: not in this iteration
  TimeTable births;                           // storages by the operator that allocates them
  TimeTable deaths;                           // storages by the time when they are freed
  std::vector<Recomputation> recomputations;  // ordered by time
};

// `version`: from 2.1 on, a recomputation stops when all tensors that backward needs exist
// (torch/utils/checkpoint.py: set_checkpoint_early_stop). 0: it never stops early (reentrant). `compiled`: results
// that selective checkpointing's policy keeps, but backward does not need, are freed; uncompiled they are kept
// (_CachingTorchDispatchMode). Errors: kInvalid if a module of kPerModule matches nothing. Throws the budget's BudgetExceeded.
Result<TracePlan> plan_trace(const Trace& trace, TorchVersion version,
                             crds::ActivationCheckpointing checkpointing,
                             const std::vector<std::string>& checkpoint_modules, Budget* budget = nullptr,
                             bool compiled = false);

// Of a forward pass under no_grad(), for which nothing is saved.
TracePlan plan_forward_only(const Trace& trace, Budget* budget = nullptr);

}  // namespace plimsoll::estimator::trace
