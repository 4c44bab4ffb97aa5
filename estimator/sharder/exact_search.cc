#include "estimator/sharder/exact_search.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "estimator/sharder/cost.h"

namespace plimsoll::estimator::inline sharder {

namespace {

constexpr std::size_t kMaxTables = 8;
constexpr std::int64_t kMaxTrainers = 8;
constexpr std::int64_t kMaxSteps = 150'000;  // some milliseconds
// A plan must take less than this share of the best time so far to be searched for.
constexpr double kWorthwhile = 0.999;

struct Load {
  double exchange = 0;  // all of the time, unless stages run in lockstep
  double compute = 0;
  double card = 0;
  double host = 0;

  bool operator==(const Load&) const = default;
};

// Depth-first over tables, the slowest first; over a table's options, the fastest first; over ranks of equal
// load, the first only.
class Enumeration {
 public:
  Enumeration(const ShardRequest& request, const Options& options, const MemoryLimits& limits,
              double milliseconds)
      : request_(request),
        options_(options),
        limits_(limits),
        model_(request),
        limit_(milliseconds),
        loads_(static_cast<std::size_t>(model_.trainers)) {
    plan_.options.resize(options.tables());
    plan_.places.resize(options.tables());
    prepare();
  }

  std::optional<ExactPlan> run() {
    next(0);
    return best_;
  }

 private:
  struct Rest {  // at least what the tables that are not yet placed take
    double ms = 0;
    double card = 0;
    double longest = 0;  // of their shortest shards
  };

  void prepare() {
    const std::size_t tables = options_.tables();
    std::vector<Rest> least(tables,
                            {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::infinity()});
    for (std::size_t table = 0; table < tables; ++table) {
      for (const Option& option : options_.of(table)) {
        least[table].ms = std::min(least[table].ms, option.total_ms);
        least[table].card = std::min(least[table].card, option.total_bytes);
        least[table].longest = std::min(least[table].longest, option.ms);
      }
    }
    order_.resize(tables);
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::stable_sort(order_.begin(), order_.end(),
                     [&](std::size_t a, std::size_t b) { return least[a].ms > least[b].ms; });
    rest_.resize(tables + 1);
    candidates_.resize(tables);
    for (std::size_t depth = tables; depth-- > 0;) {
      const std::size_t table = order_[depth];
      rest_[depth] = {rest_[depth + 1].ms + least[table].ms, rest_[depth + 1].card + least[table].card,
                      std::max(rest_[depth + 1].longest, least[table].longest)};
      for (const Option& option : options_.of(table)) {
        candidates_[depth].push_back(&option);
      }
      std::stable_sort(candidates_[depth].begin(), candidates_[depth].end(),
                       [](const Option* a, const Option* b) { return a->total_ms < b->total_ms; });
    }
  }

  double highest() const {
    double exchange = 0;
    double compute = 0;
    for (const Load& load : loads_) {
      exchange = std::max(exchange, load.exchange);
      compute = std::max(compute, load.compute);
    }
    return exchange + compute;
  }

  // True when no way to place the rest is fast enough, or fits.
  bool hopeless(std::size_t depth) const {
    double total_ms = rest_[depth].ms;
    double total_card = rest_[depth].card;
    for (const Load& load : loads_) {
      total_ms += load.exchange + load.compute;
      total_card += load.card;
    }
    const double bound =
        std::max({highest(), total_ms / static_cast<double>(model_.trainers), rest_[depth].longest});
    return bound >= limit_ || total_card > limits_.all_gpus;
  }

  void next(std::size_t depth) {
    if (depth == candidates_.size()) {
      limit_ = highest() * kWorthwhile;
      best_ = plan_;
      return;
    }
    for (const Option* option : candidates_[depth]) {
      if (hopeless(depth) || steps_ > kMaxSteps) {
        return;
      }
      plan_.options[order_[depth]] = option;
      plan_.places[order_[depth]].clear();
      place_block(depth, *option, 0, 0);
    }
  }

  // Column blocks are equal, so each goes no lower than the one before it.
  void place_block(std::size_t depth, const Option& option, std::int64_t block, std::int64_t from) {
    if (block == option.cuts) {
      next(depth + 1);
      return;
    }
    const std::int64_t width = option.ranks_per_block(model_);
    std::vector<std::int64_t>& places = plan_.places[order_[depth]];
    for (std::int64_t place = from; place < model_.trainers / width && steps_ <= kMaxSteps; ++place) {
      if (seen_before(place, width)) {
        continue;
      }
      const std::vector<Load> before = loads_;
      if (put(place * width, width, option)) {
        places.push_back(place);
        place_block(depth, option, block + 1, place);
        places.pop_back();
      }
      loads_ = before;
    }
  }

  // Adds one column block to `count` ranks from `first` on; false when that is too slow or does not fit.
  bool put(std::int64_t first, std::int64_t count, const Option& option) {
    ++steps_;
    charge(request_.work_budget, 1);
    const double compute = model_.method == CostMethod::kStages ? option.compute_ms : 0;
    const std::size_t table = static_cast<std::size_t>(
        std::find(plan_.options.begin(), plan_.options.end(), &option) - plan_.options.begin());
    const TableCost cost(model_, request_.tables[table]);
    const std::int64_t columns = request_.tables[table].dim / option.cuts;
    bool fits = true;
    for (std::int64_t shard = 0; shard < count; ++shard) {
      Load& load = loads_[static_cast<std::size_t>(first + shard)];
      load.exchange += option.ms - compute;
      load.compute += compute;
      const Held held = cost.held(option.type, option.kernel, cost.rows_of(option.type, shard), columns);
      load.card += static_cast<double>(held.card.count);
      load.host += static_cast<double>(held.host.count);
      fits = fits && load.card <= limits_.gpu && load.host <= limits_.host;
    }
    return fits && highest() < limit_;
  }

  // True when a rank or node of equal load was tried already: the result would be the same.
  bool seen_before(std::int64_t place, std::int64_t width) const {
    const auto node_of = [&](std::int64_t node) { return loads_.begin() + node * model_.local; };
    const std::int64_t node = place * width / model_.local;
    for (std::int64_t earlier = 0; earlier < node; ++earlier) {
      if (std::equal(node_of(earlier), node_of(earlier) + model_.local, node_of(node))) {
        return true;
      }
    }
    if (width > 1) {
      return false;
    }
    const auto rank = loads_.begin() + place;
    return std::find(node_of(node), rank, *rank) != rank;
  }

  const ShardRequest& request_;
  const Options& options_;
  const MemoryLimits& limits_;
  CostModel model_;
  double limit_;
  std::int64_t steps_ = 0;
  std::vector<std::size_t> order_;                      // of the tables
  std::vector<std::vector<const Option*>> candidates_;  // by depth
  std::vector<Rest> rest_;                              // from a depth on
  std::vector<Load> loads_;
  ExactPlan plan_;
  std::optional<ExactPlan> best_;
};

}  // namespace

bool is_small(const ShardRequest& request) {
  return request.tables.size() <= kMaxTables && request.topology.trainers <= kMaxTrainers &&
         request.constraints.empty() && request.budgets.empty();
}

std::optional<ExactPlan> search_all(const ShardRequest& request, const Options& options,
                                    const MemoryLimits& limits, double milliseconds) {
  return Enumeration(request, options, limits, milliseconds).run();
}

}  // namespace plimsoll::estimator::sharder
