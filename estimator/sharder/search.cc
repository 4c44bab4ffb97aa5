#include "estimator/sharder/search.h"

#include <algorithm>
#include <utility>

namespace plimsoll::estimator {

namespace {

// Within half a percent of the bound a plan counts as optimal: what the cost model knows is coarser.
constexpr double kNearOptimal = 1.005;
constexpr double kNearLevel = 1.05;  // of the mean: a memory level nobody needs to improve on
// A tenth of the mean more in the fullest trainer is worth 0.03% of time: time first, memory second.
constexpr double kMemoryWeight = 0.003;
constexpr double kUnfit = 1e6;  // above any score of a plan that fits

// Levelling stops a little above the mean: the rest is not worth the steps.
constexpr double kTimeLevel = 1.0005;
constexpr double kMemoryLevel = 1.01;
// By how much the memory limit is relaxed while time does not level, and how fast that grows.
constexpr double kFirstAllowance = 0.03;
constexpr double kMoreAllowance = 1.5;
constexpr std::int64_t kStepsARank = 24;  // levelling takes fewer than 3 on the models of docs/sharding.md

constexpr double kFinest = 0.2;                       // of the mean: smaller shards level no better
constexpr int kPatience = 2;                          // selections in a row that bring nothing
constexpr std::int64_t kMostEffort = 2'000'000;       // comparisons: some 10 ms
constexpr std::int64_t kMostEffortToFit = 5'000'000;  // while no plan fits
constexpr std::size_t kHeaviest = 4;                  // tables of the worst rank that are given other options
constexpr std::int64_t kRefineEffort = 600'000;       // a search that took more goes without
constexpr std::int64_t kSmallEffort = 100'000;        // so little that every table may be given other options

}  // namespace

Search::Search(const ShardRequest& request, const Options& options)
    : request_(request),
      options_(options),
      model_(request),
      ranks_(static_cast<double>(request.topology.trainers)),
      budget_(std::min(static_cast<double>(request.budget.count), kLargestBudget)),
      bound_(bound_time(options, request.topology.trainers, budget_)) {}

Candidate Search::place(Selection selection) {
  Placement nodes(model_.nodes);
  Placement ranks(model_.trainers);
  std::vector<Piece> node_pieces;
  std::vector<Piece> rank_pieces;
  for (std::size_t i = 0; i < selection.options.size(); ++i) {
    const Option& option = *selection.options[i];
    const std::int32_t table = static_cast<std::int32_t>(i);
    const Amount amount = {option.ms, option.bytes};
    switch (option.type) {
      case ShardingType::kDataParallel:
        nodes.add_everywhere(amount);
        ranks.add_everywhere(amount);
        break;
      case ShardingType::kRowWise:
        nodes.add_everywhere(amount);
        add_rows(&ranks, i, option, 0, model_.trainers);
        break;
      case ShardingType::kTableRowWise:
      case ShardingType::kGrid: node_pieces.push_back({.amount = amount, .table = table, .part = 0}); break;
      case ShardingType::kTableWise:
      case ShardingType::kColumnWise:
      case ShardingType::kTableColumnWise:
        for (std::int32_t part = 0; part < option.cuts; ++part) {
          rank_pieces.push_back({.amount = amount, .table = table, .part = part});
        }
        break;
    }
  }
  // What each rank has when all is level; never zero, so that it can divide.
  const Amount unit = {std::max(selection.total_ms / ranks_, 1e-300),
                       std::max(selection.total_bytes / ranks_, 1.0)};
  Candidate candidate{.selection = std::move(selection),
                      .places = std::vector<std::vector<std::int64_t>>(request_.tables.size())};

  nodes.place(std::move(node_pieces), unit);
  level(&nodes, unit);
  for (std::size_t node = 0; node < nodes.pieces().size(); ++node) {
    for (const Piece& piece : nodes.pieces()[node]) {
      const std::size_t table = static_cast<std::size_t>(piece.table);
      candidate.places[table] = {static_cast<std::int64_t>(node)};
      add_rows(&ranks, table, *candidate.selection.options[table],
               static_cast<std::int64_t>(node) * model_.local, model_.local);
    }
  }

  ranks.place(std::move(rank_pieces), unit);
  level(&ranks, unit);
  for (std::size_t rank = 0; rank < ranks.pieces().size(); ++rank) {
    for (const Piece& piece : ranks.pieces()[rank]) {
      const std::size_t table = static_cast<std::size_t>(piece.table);
      candidate.places[table].resize(static_cast<std::size_t>(candidate.selection.options[table]->cuts));
      candidate.places[table][static_cast<std::size_t>(piece.part)] = static_cast<std::int64_t>(rank);
    }
  }
  candidate.slowest = ranks.fullest(Measure::kTime);
  candidate.fullest = ranks.fullest(Measure::kMemory);
  candidate.highest_ms = ranks.highest(Measure::kTime);
  candidate.highest_bytes = ranks.highest(Measure::kMemory);
  effort_ += nodes.effort() + ranks.effort();
  return candidate;
}

// The shards of a table cut by rows, one a rank from `first` on.
void Search::add_rows(Placement* ranks, std::size_t table, const Option& option, std::int64_t first,
                      std::int64_t count) const {
  const TableCost cost(model_, request_.tables[table]);
  for (std::int64_t shard = 0; shard < count; ++shard) {
    const Bytes held =
        cost.held(option.type, option.kernel, cost.rows_of(option.type, shard), request_.tables[table].dim)
            .card;
    ranks->add(first + shard, {option.ms, static_cast<double>(held.count)});
  }
}

// Memory below the budget first, then time as far as it goes in ever more memory, then memory again as far
// as time permits.
void Search::level(Placement* ranks, Amount unit) const {
  const std::int64_t steps = kStepsARank * model_.trainers;
  if (ranks->highest(Measure::kMemory) > budget_) {
    ranks->level(Measure::kMemory, budget_, std::numeric_limits<double>::infinity(), steps);
    if (ranks->highest(Measure::kMemory) > budget_) {
      return;
    }
  }
  double room = std::max(std::min(unit[1] * kNearLevel, budget_), ranks->highest(Measure::kMemory));
  double allowance = kFirstAllowance;
  ranks->level(Measure::kTime, unit[0] * kTimeLevel, room, steps);
  while (room < budget_ && ranks->highest(Measure::kTime) > bound_.milliseconds * kNearOptimal) {
    room = std::min(budget_, room * (1 + allowance));
    allowance *= kMoreAllowance;
    ranks->level(Measure::kTime, unit[0] * kTimeLevel, room, steps);
  }
  const double slowest = std::max(ranks->highest(Measure::kTime), bound_.milliseconds * kNearOptimal);
  ranks->level(Measure::kMemory, std::min(unit[1] * kMemoryLevel, budget_), slowest, steps);
}

// Time over the bound counts in full once it is above what is called optimal; memory over the mean counts
// kMemoryWeight of that. What does not fit loses to whatever does.
double Search::score_of(const Candidate& candidate) const {
  if (candidate.highest_bytes > budget_) {
    return kUnfit * (candidate.highest_bytes / budget_);
  }
  const double time = bound_.milliseconds > 0 ? candidate.highest_ms / bound_.milliseconds : 1;
  return std::max(time, kNearOptimal) + kMemoryWeight * candidate.highest_bytes / mean_bytes_;
}

bool Search::good_enough() const {
  return best_.highest_bytes <= std::min(budget_, mean_bytes_ * kNearLevel) &&
         best_.highest_ms <= bound_.milliseconds * kNearOptimal;
}

// Places a selection and keeps it when it is the best so far.
bool Search::offer(Selection selection) {
  Candidate candidate = place(std::move(selection));
  candidate.score = score_of(candidate);
  if (candidate.score >= best_.score) {
    return false;
  }
  best_ = std::move(candidate);
  return true;
}

// Selections of ever finer shards, which cost more in total and level better.
void Search::sweep() {
  struct Try {
    double slack;     // share of the fastest selection's time that may be paid for smaller shards
    double ms_share;  // longest shard, as a share of the bound
    double price;     // factor on the price of memory
  };
  static constexpr Try kTries[] = {{0.004, 1, 1},   {0.002, 1, 1},  {0.004, 0.7, 1}, {0.01, 0.5, 1},
                                   {0.02, 0.35, 2}, {0.001, 1, 1},  {0.02, 1, 1.1},  {0.05, 1, 4},
                                   {0.03, 0.7, 1},  {0.06, 0.25, 1}};
  const Selection fastest =
      select(options_, {.ms = bound_.milliseconds, .bytes = budget_, .price = bound_.price});
  mean_bytes_ = std::max(fastest.total_bytes / ranks_, 1.0);
  double base = 0;
  for (const Option* option : fastest.options) {
    if (option->type == ShardingType::kDataParallel || option->type == ShardingType::kRowWise) {
      base += option->ms;
    }
  }
  // What is left of the bound for shards that only some ranks have.
  const double longest = std::max({bound_.milliseconds - base, bound_.milliseconds * 0.05, 1e-300});
  std::vector<std::vector<const Option*>> tried;
  int fruitless = 0;
  for (const Try& a_try : kTries) {
    const bool fits = best_.highest_bytes <= budget_;
    if (!tried.empty() &&
        (effort_ > (fits ? kMostEffort : kMostEffortToFit) || (fits && fruitless >= kPatience))) {
      return;
    }
    Caps caps{.ms = longest * a_try.ms_share, .bytes = budget_, .price = bound_.price * a_try.price};
    const double least = select(options_, caps).total_ms;
    caps.bytes = smallest_cap(options_, caps, mean_bytes_ * kFinest, budget_,
                              std::max(bound_.milliseconds * ranks_, least) * (1 + a_try.slack));
    Selection selection = select(options_, caps);
    if (std::find(tried.begin(), tried.end(), selection.options) != tried.end()) {
      continue;
    }
    tried.push_back(selection.options);
    fruitless = offer(std::move(selection)) ? 0 : fruitless + 1;
    if (good_enough()) {
      return;
    }
  }
}

// Tables with a shard on this rank, the one with the most of the measure first.
std::vector<std::size_t> Search::heaviest(std::int64_t rank, bool by_time) const {
  std::vector<std::size_t> tables;
  for (std::size_t table = 0; table < best_.places.size(); ++table) {
    const Option& option = *best_.selection.options[table];
    const std::int64_t place = option.type == ShardingType::kTableRowWise ? rank / model_.local : rank;
    const bool everywhere =
        option.type == ShardingType::kRowWise || option.type == ShardingType::kDataParallel;
    if (everywhere || std::find(best_.places[table].begin(), best_.places[table].end(), place) !=
                          best_.places[table].end()) {
      tables.push_back(table);
    }
  }
  const auto amount = [&](std::size_t table) {
    const Option& option = *best_.selection.options[table];
    return by_time ? option.ms : option.bytes;
  };
  std::stable_sort(tables.begin(), tables.end(),
                   [&](std::size_t a, std::size_t b) { return amount(a) > amount(b); });
  return tables;
}

// Another option for one of the heaviest tables of the rank that is worst off, as long as that helps: first
// until a plan fits, then until its time is near the bound.
void Search::refine() {
  bool improved = true;
  while (improved) {
    const bool by_time = best_.highest_bytes <= budget_;
    if (by_time && best_.highest_ms <= bound_.milliseconds * kNearOptimal) {
      return;
    }
    const std::vector<std::size_t> tables = heaviest(by_time ? best_.slowest : best_.fullest, by_time);
    improved = false;
    for (std::size_t i = 0; i < std::min(tables.size(), kHeaviest) && !improved; ++i) {
      improved = improve(tables[i], by_time ? kRefineEffort : kMostEffortToFit);
    }
    for (std::size_t table = 0; table < options_.tables() && !improved && effort_ < kSmallEffort; ++table) {
      improved = improve(table, kSmallEffort);
    }
  }
}

// Tries each other option of the table, and keeps the first that makes a better plan.
bool Search::improve(std::size_t table, std::int64_t most_effort) {
  const Option& current = *best_.selection.options[table];
  for (const Option& option : options_.of(table)) {
    if (effort_ >= most_effort) {
      return false;
    }
    if (&option == &current) {
      continue;
    }
    Selection selection = best_.selection;
    selection.options[table] = &option;
    selection.total_ms += option.total_ms - current.total_ms;
    selection.total_bytes += option.total_bytes - current.total_bytes;
    if (offer(std::move(selection))) {
      return true;
    }
  }
  return false;
}

Candidate Search::run() {
  sweep();
  refine();
  return std::move(best_);
}

}  // namespace plimsoll::estimator
