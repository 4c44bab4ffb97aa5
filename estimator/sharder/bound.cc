#include "estimator/sharder/bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/words.h"

namespace plimsoll::estimator::inline sharder {

namespace {

// Sums of doubles in another order may differ in the last digits; the bound must not exceed them.
constexpr double kRounding = 1e-12;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Relaxed {
  double value = 0;  // of the prices' objective
  double total_bytes = 0;
  double total_host = 0;
};

// The cheapest option of each table at these prices, of those whose shard takes no longer than `longest`.
// False when a table has none.
bool relax(const Options& options, const Prices& prices, double longest, Relaxed* answer) {
  *answer = {};
  options.charge_scan();
  for (std::size_t table = 0; table < options.tables(); ++table) {
    double least = kInfinity;
    const Option* best = nullptr;
    for (const Option& option : options.of(table)) {
      const double value = prices.of(option);
      if (value < least && option.ms <= longest) {
        least = value;
        best = &option;
      }
    }
    if (best == nullptr) {
      return false;
    }
    answer->value += least;
    answer->total_bytes += best->total_bytes;
    answer->total_host += best->total_host;
  }
  return true;
}

// The Lagrangian of one request, for shards that take no longer than `longest`.
class Dual {
 public:
  Dual(const Options& options, std::int64_t trainers, const MemoryLimits& limits, double longest)
      : options_(options), trainers_(static_cast<double>(trainers)), limits_(limits), longest_(longest) {}

  // Maximises over the price of GPU memory. The value is concave and piecewise linear; its slope is the memory
  // used minus the memory available. So the next price is where the lines on either side of the maximum meet.
  // Stops early once the value exceeds `enough`.
  TimeBound maximise(double host_price, double start, double enough) {
    best_ = {.milliseconds = 0, .prices = {.card = 0, .host = host_price}};
    Line rising = line_at(best_.prices);
    if (rising.slope <= 0 || best_.milliseconds > enough) {
      return best_;
    }
    Line falling;
    double price = start > 0 ? start : std::max(relaxed_.value, 1e-9) / std::max(limits_.all_gpus, 1.0);
    constexpr int kGrowths = 30;
    for (int i = 0; i < kGrowths && best_.milliseconds <= enough; ++i) {
      falling = line_at({.card = price, .host = host_price});
      if (falling.slope <= 0) {
        break;
      }
      rising = falling;
      price *= 4;
    }
    constexpr int kMeetings = 12;
    constexpr double kTolerance = 1e-6;
    for (int i = 0; i < kMeetings && falling.slope <= 0 && best_.milliseconds <= enough; ++i) {
      const double meeting = (falling.at(0) - rising.at(0)) / (rising.slope - falling.slope);
      if (!(rising.at(meeting) > best_.milliseconds * trainers_ * (1 + kTolerance))) {
        break;
      }
      const Line between = line_at({.card = meeting, .host = host_price});
      (between.slope > 0 ? rising : falling) = between;
    }
    return best_;
  }

  // Maximises over the price of host memory too, where host memory is scarce.
  TimeBound maximise_both() {
    TimeBound best = maximise(0, 0, kInfinity);
    if (limits_.host <= 0 || !relax(options_, best.prices, longest_, &relaxed_) ||
        relaxed_.total_host <= limits_.host * trainers_) {
      return best;
    }
    // From the price at which host memory costs as much as GPU memory; the best of a few is near the optimum.
    double price =
        std::max(best.prices.card, best.milliseconds * 1e-3 / std::max(limits_.all_gpus / trainers_, 1.0));
    constexpr int kPrices = 8;
    for (int i = 0; i < kPrices; ++i, price /= 2) {
      const TimeBound found = maximise(price, best.prices.card, kInfinity);
      if (found.milliseconds > best.milliseconds) {
        best = found;
      }
    }
    return best;
  }

 private:
  // The value, of all trainers, around one price of GPU memory.
  struct Line {
    double price = 0;
    double value = 0;
    double slope = 0;  // above 0: more memory is used than is available

    double at(double other) const { return value + slope * (other - price); }
  };

  Line line_at(const Prices& prices) {
    if (!relax(options_, prices, longest_, &relaxed_)) {
      best_.milliseconds = kInfinity;
      return {};
    }
    const double memory = prices.card * limits_.all_gpus + prices.host * limits_.host * trainers_;
    const double value = relaxed_.value - memory;
    if (value / trainers_ > best_.milliseconds) {
      best_ = {.milliseconds = value / trainers_, .prices = prices};
    }
    return {.price = prices.card, .value = value, .slope = relaxed_.total_bytes - limits_.all_gpus};
  }

  const Options& options_;
  double trainers_;
  const MemoryLimits& limits_;
  double longest_;
  TimeBound best_;
  Relaxed relaxed_;
};

}  // namespace

TimeBound bound_time(const Options& options, std::int64_t trainers, const MemoryLimits& limits) {
  // At least the shortest option of every table.
  double low = 0;
  options.charge_scan();
  for (std::size_t table = 0; table < options.tables(); ++table) {
    double shortest = kInfinity;
    for (const Option& option : options.of(table)) {
      shortest = std::min(shortest, option.ms);
    }
    low = std::max(low, shortest);
  }
  TimeBound best = Dual(options, trainers, limits, kInfinity).maximise_both();
  low = std::max(low, best.milliseconds);

  // No plan takes T when the bound over options whose shards take at most T exceeds T. That bound falls as T
  // grows, so the largest such T is found by bisection.
  const auto refused = [&](double time) {
    const TimeBound within =
        Dual(options, trainers, limits, time).maximise(best.prices.host, best.prices.card, time);
    if (within.milliseconds <= time) {
      best.prices = within.prices;
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

double least_budget(const ShardRequest& request, const Options& options) {
  options.charge_scan();
  double piece = 0;
  double all = 0;
  for (std::size_t table = 0; table < options.tables(); ++table) {
    piece = std::max(piece, options.smallest(table).bytes);
    all += options.lightest(table);
  }
  return std::max(piece, all * (1 - kRounding) / static_cast<double>(request.topology.trainers));
}

Infeasibility rule_out(const ShardRequest& request, const Options& options) {
  const MemoryLimits limits(request);
  for (std::size_t table = 0; table < options.tables(); ++table) {
    if (!options.possible(table)) {
      const std::string& name = request.tables[table].name;
      return {.constraint = "Pinned",
              .reason = "no sharding type that table " + name + " is allowed is possible on " +
                        std::to_string(request.topology.trainers) + " trainers and the ranks it is pinned to",
              .missing = {},
              .table = name};
    }
  }
  // The least bytes in GPU memory, and in GPU and host memory together.
  double needed = 0;
  double needed_with_host = 0;
  double worst = 0;
  std::size_t worst_table = 0;
  options.charge_scan();
  for (std::size_t table = 0; table < options.tables(); ++table) {
    double least = kInfinity;
    double least_with_host = kInfinity;
    for (const Option& option : options.of(table)) {
      least = std::min(least, option.total_bytes);
      least_with_host = std::min(least_with_host, option.total_bytes + option.total_host);
    }
    if (std::isinf(least)) {
      least = least_with_host = options.smallest(table).total_bytes;
      const double missing = options.smallest(table).bytes - limits.gpu;
      if (missing > worst) {
        worst = missing;
        worst_table = table;
      }
    }
    needed += least;
    needed_with_host += least_with_host;
  }
  if (worst > 0) {
    const Option& option = options.smallest(worst_table);
    const std::string& name = request.tables[worst_table].name;
    // The other tables need room, too, and equal trainers grow alike.
    const auto trainers = static_cast<double>(request.topology.trainers);
    const Bytes missing = Bytes::ceil(
        request.budgets.empty() ? (least_budget(request, options) - limits.gpu) * trainers : worst);
    return {.constraint = "LargestPiece",
            .reason =
                "the smallest shard of table " + name + " (" + name_of(option.type) + ") takes " +
                to_string(Bytes::ceil(option.bytes)) + " with optimizer state and buffers, a trainer has " +
                to_string(Bytes::ceil(limits.gpu)) + " for it: at least " + to_string(missing) + " missing" +
                (request.budgets.empty() ? " on " + counted(request.topology.trainers, "trainer") : ""),
            .missing = missing,
            .table = name};
  }
  const bool with_host = limits.host > 0 && needed <= limits.all_gpus * (1 + kRounding);
  const double memory = with_host
                            ? limits.all_gpus + limits.host * static_cast<double>(request.topology.trainers)
                            : limits.all_gpus;
  const double least = with_host ? needed_with_host : needed;
  if (least > memory * (1 + kRounding)) {
    const Bytes missing = Bytes::ceil(least - memory);
    return {.constraint = "TotalMemory",
            .reason = "the tables take at least " + to_string(Bytes::ceil(least)) +
                      " with optimizer state and buffers, " + counted(request.topology.trainers, "trainer") +
                      (request.topology.trainers == 1 ? " has " : " have ") + to_string(Bytes::ceil(memory)) +
                      (with_host ? " on cards and hosts" : "") + " for them: " + to_string(missing) +
                      " missing",
            .missing = missing,
            .table = {}};
  }
  return {};
}

StateBound::StateBound(const ShardRequest& request)
    : applies_(request.host_budget.count == 0 && request.budgets.empty()) {
  const CostModel model(request);
  // A pipeline keeps outputs for no longer than the exchange, unless that is when the peak is.
  const bool outputs = request.pipeline == Pipeline::kNone || request.embeddings_at_peak;
  for (const Table& table : request.tables) {
    charge(request.work_budget, 1);
    const Held held =
        TableCost(model, table).held(ShardingType::kTableWise, Kernel::kFused, table.rows, table.dim);
    state_ += static_cast<double>(held.weights.count) + static_cast<double>(held.optimizer.count);
    if (outputs) {
      const double rows = !table.pooled           ? table.lookups_per_sample
                          : model.allocated_bytes ? table.pooled_rows()
                                                  : table.pooled_rows_looked_up();
      buffers_ +=
          rows * model.batch * static_cast<double>(table.dim) * static_cast<double>(table.element_bytes);
    }
  }
}

bool StateBound::rules_out(std::int64_t trainers, Bytes budget) const {
  if (!applies_) {
    return false;
  }
  const double ranks = static_cast<double>(trainers);
  return state_ + buffers_ * ranks >
         ranks * std::min(static_cast<double>(budget.count), kLargestBudget) * (1 + kRounding);
}

}  // namespace plimsoll::estimator::sharder
