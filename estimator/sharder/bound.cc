#include "estimator/sharder/bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace plimsoll::estimator {

namespace {

// Sums of doubles in another order may differ in the last digits; a bound must not profit from that.
constexpr double kRounding = 1e-12;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Relaxed {
  double total_ms = 0;
  double total_bytes = 0;
};

// The cheapest option of each table at this price, of those whose shard takes no longer than `longest`.
// False when a table has none.
bool relax(const Options& options, double price, double longest, Relaxed* answer) {
  *answer = {};
  for (std::size_t table = 0; table < options.tables(); ++table) {
    double least = kInfinity;
    const Option* best = nullptr;
    for (const Option& option : options.of(table)) {
      const double value = option.total_ms + price * option.total_bytes;
      if (value < least && option.ms <= longest) {
        least = value;
        best = &option;
      }
    }
    if (best == nullptr) {
      return false;
    }
    answer->total_ms += best->total_ms;
    answer->total_bytes += best->total_bytes;
  }
  return true;
}

// Maximises the Lagrangian over the price, by the sign of its slope: memory used minus memory there is.
// Stops early once the value passes `enough`.
TimeBound maximise(const Options& options, double longest, double trainers, double budget, double start,
                   double enough) {
  const double memory = trainers * budget;
  TimeBound best;
  Relaxed relaxed;
  const auto too_full_at = [&](double price) {
    if (!relax(options, price, longest, &relaxed)) {
      best.milliseconds = kInfinity;
      return false;
    }
    const double value = (relaxed.total_ms + price * (relaxed.total_bytes - memory)) / trainers;
    if (value > best.milliseconds) {
      best = {.milliseconds = value, .price = price};
    }
    return relaxed.total_bytes > memory;
  };
  if (!too_full_at(0) || best.milliseconds > enough) {
    return best;
  }
  double low = 0;
  double high = start > 0 ? start : std::max(relaxed.total_ms, 1e-9) / memory;
  constexpr int kGrowths = 30;
  for (int i = 0; i < kGrowths && best.milliseconds <= enough && too_full_at(high); ++i) {
    low = high;
    high *= 4;
  }
  constexpr int kHalvings = 12;
  for (int i = 0; i < kHalvings && best.milliseconds <= enough; ++i) {
    const double middle = low > 0 ? std::sqrt(low * high) : high / 16;
    (too_full_at(middle) ? low : high) = middle;
  }
  return best;
}

}  // namespace

TimeBound bound_time(const Options& options, std::int64_t trainers, double budget) {
  const double ranks = static_cast<double>(trainers);
  // The largest piece that cannot be avoided.
  double low = 0;
  for (std::size_t table = 0; table < options.tables(); ++table) {
    double shortest = kInfinity;
    for (const Option& option : options.of(table)) {
      shortest = std::min(shortest, option.ms);
    }
    low = std::max(low, shortest);
  }
  TimeBound best = maximise(options, kInfinity, ranks, budget, 0, kInfinity);
  low = std::max(low, best.milliseconds);

  // No plan takes T when the bound over options of shards within T is above T. That bound falls as T grows,
  // so the largest such T lies between one that is refused and one that is not.
  const auto refused = [&](double time) {
    const TimeBound within = maximise(options, time, ranks, budget, best.price, time);
    if (within.milliseconds <= time) {
      best.price = within.price;
    }
    return within.milliseconds > time;
  };
  if (refused(low)) {
    double high = low * 1.25;
    constexpr int kGrowths = 60;
    for (int i = 0; i < kGrowths && refused(high); ++i) {
      low = high;
      high *= 1.25;
    }
    constexpr double kTolerance = 1e-3;
    while (high > low * (1 + kTolerance)) {
      const double middle = (low + high) / 2;
      (refused(middle) ? low : high) = middle;
    }
  }
  best.milliseconds = low * (1 - kRounding);
  return best;
}

Infeasibility rule_out(const ShardRequest& request, const Options& options) {
  const double budget = std::min(static_cast<double>(request.budget.count), kLargestBudget);
  double needed = 0;
  double worst = 0;
  std::size_t worst_table = 0;
  for (std::size_t table = 0; table < options.tables(); ++table) {
    double least = kInfinity;
    for (const Option& option : options.of(table)) {
      least = std::min(least, option.total_bytes);
    }
    if (std::isinf(least)) {
      least = options.smallest(table).total_bytes;
      const double missing = options.smallest(table).bytes - budget;
      if (missing > worst) {
        worst = missing;
        worst_table = table;
      }
    }
    needed += least;
  }
  if (worst > 0) {
    const Option& option = options.smallest(worst_table);
    return {.constraint = "LargestPiece",
            .reason = "the smallest shard of table " + request.tables[worst_table].name + " (" +
                      name_of(option.type) + ") takes " + to_string(Bytes::ceil(option.bytes)) +
                      " with optimizer state and buffers, a trainer has " + to_string(request.budget) +
                      " for it: " + to_string(Bytes::ceil(worst)) + " missing",
            .missing = Bytes::ceil(worst)};
  }
  const double memory = budget * static_cast<double>(request.topology.trainers);
  if (needed > memory * (1 + kRounding)) {
    const Bytes missing = Bytes::ceil(needed - memory);
    return {.constraint = "TotalMemory",
            .reason = "the tables take at least " + to_string(Bytes::ceil(needed)) +
                      " with optimizer state and buffers, " + std::to_string(request.topology.trainers) +
                      " trainers have " + to_string(Bytes::ceil(memory)) +
                      " for them: " + to_string(missing) + " missing",
            .missing = missing};
  }
  return {};
}

StateBound::StateBound(const ShardRequest& request) {
  const CostModel model(request);
  for (const Table& table : request.tables) {
    Table unused = table;
    unused.lookups_per_sample = 0;
    state_ += static_cast<double>(TableCost(model, unused)
                                      .held(ShardingType::kTableWise, Kernel::kFused, table.rows, table.dim)
                                      .card.count);
    buffers_ += std::min(1.0, table.lookups_per_sample) * model.batch * static_cast<double>(table.dim) *
                static_cast<double>(table.element_bytes);
  }
}

bool StateBound::rules_out(std::int64_t trainers, Bytes budget) const {
  const double ranks = static_cast<double>(trainers);
  return state_ + buffers_ * ranks >
         ranks * std::min(static_cast<double>(budget.count), kLargestBudget) * (1 + kRounding);
}

}  // namespace plimsoll::estimator
