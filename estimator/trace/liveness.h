// TracePlan: when each storage of a trace dies, and what runs twice, under a way of activation checkpointing.
// Independent of the batch. Pure; any thread.
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

// Items by time, in one pool.
class TimeTable {
 public:
  TimeTable() = default;
  // `times[i]` is the time of item i; negative ones are left out.
  TimeTable(const std::vector<std::int32_t>& times, std::size_t end);
  std::span<const std::int32_t> at(std::size_t time) const {
    return {items_.data() + starts_[time], static_cast<std::size_t>(starts_[time + 1] - starts_[time])};
  }

 private:
  std::vector<std::int32_t> starts_;
  std::vector<std::int32_t> items_;
};

// A part of forward that runs again inside backward, at time `at`.
struct Recomputation {
  std::int32_t begin = 0;  // operators [begin, end)
  std::int32_t end = 0;
  std::int32_t at = 0;
  // What the second pass makes, in the order it does.
  struct Storage {
    std::int32_t storage = 0;
    std::int32_t released_after = -1;  // operator of forward; -1: see released_at
    std::int32_t released_at = -1;     // time in backward; -1: when the pass has ended
  };
  std::vector<Storage> storages;
  TimeTable releases;         // of `storages`, by operator of the pass: those with a released_after
  std::vector<bool> skipped;  // by operator of the pass: it takes over the results of the first pass
};

struct TracePlan {
  std::vector<std::int32_t> death;            // by storage; -1: never in this iteration
  TimeTable births;                           // storages by operator
  TimeTable deaths;                           // storages by time
  std::vector<Recomputation> recomputations;  // by time
};

// `version`: from 2.1 on a second pass stops once it has made all that backward asks for
// (torch/utils/checkpoint.py: set_checkpoint_early_stop); 0 where none does (reentrant). Errors: kInvalid
// when a module of kPerModule matches nothing. Throws the budget's BudgetExceeded.
Result<TracePlan> plan_trace(const Trace& trace, TorchVersion version,
                             crds::ActivationCheckpointing checkpointing,
                             const std::vector<std::string>& checkpoint_modules, Budget* budget = nullptr);

}  // namespace plimsoll::estimator::trace
