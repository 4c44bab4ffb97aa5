#include "estimator/sharder/search.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "estimator/sharder/exact_search.h"
#include "estimator/sharder/request.h"

namespace plimsoll::estimator::inline sharder {

namespace {

constexpr double kNearLevel = 1.05;  // of the mean: a memory level nobody needs to improve on
// A tenth of the mean more in the fullest trainer is worth 0.03% of time: time first, memory second.
constexpr double kMemoryWeight = 0.003;
constexpr double kUnfit = 1e6;  // above any score of a plan that fits

// Levelling stops a little above the mean, and where most of the slack is used: the rest is not worth the
// steps.
constexpr double kTimeLevel = 1.0005;
constexpr double kMaxOfSlack = 0.9;
constexpr double kMemoryLevel = 1.01;

// By how much the memory limit is relaxed while time does not level, and how fast that grows.
constexpr double kFirstAllowance = 0.03;
constexpr double kMoreAllowance = 1.5;
constexpr std::int64_t kStepsARank = 24;  // levelling takes fewer than 3 on the models of docs/sharding.md

// Ranks, or options, that a plain scan passes in the time of a unit of work.
constexpr std::size_t kScannedPerUnit = 128;

constexpr double kFinest = 0.2;  // of the mean: smaller shards level no better
// In the slack: what is near enough where memory is scarce, and there is much to place.
constexpr double kScarceSlack = 2;
constexpr double kEase = 0.0003;                  // share of all memory that shards need free to be moved
constexpr std::size_t kMinTries = 3;              // however much they take
constexpr std::int64_t kMaxEffort = 500'000;      // comparisons: some 3 ms
constexpr std::int64_t kSettledEffort = 200'000;  // after it, what brings nothing is the last
constexpr std::size_t kHeaviest = 4;              // tables of the worst rank that are given other options
constexpr double kMinGain = 0.001;                // of time, for which all plans of a small request are tried
constexpr std::int64_t kRefineEffort = 250'000;   // a search that took more goes without
constexpr std::int64_t kSmallEffort = 100'000;    // so little that every table may be given other options

}  // namespace

// The two halves of a placement, and the pieces that wait for a place in either.
struct Search::Work {
  Placement nodes;
  Placement ranks;
  Amount unit{};
  std::vector<Piece> node_pieces = {};
  std::vector<Piece> rank_pieces = {};
};

Places::Places(const Selection& selection) {
  first_.reserve(selection.options.size() + 1);
  first_.push_back(0);
  for (const Option* option : selection.options) {
    first_.push_back(first_.back() + (option->everywhere() ? 0 : static_cast<std::size_t>(option->cuts)));
  }
  all_.resize(first_.back());
}

Search::Search(const ShardRequest& request, const Options& options)
    : request_(request),
      options_(options),
      model_(request),
      room_(request),
      constraints_(constraints_by_table(request)),
      lockstep_(request.cost == CostMethod::kStages),
      measures_(room_.host > 0 ? 4
                : lockstep_    ? 3
                               : 2),
      ranks_(static_cast<double>(request.topology.trainers)),
      near_optimal_(1 + request.time_slack),
      bound_(bound_time(options, request.topology.trainers, room_)) {}

// What one shard puts on a rank. Where stages run in lockstep, time is that of the exchanges alone.
Amount Search::amount_of(const Option& option) const {
  const double apart = lockstep_ ? option.compute_ms : 0;
  return {option.ms - apart, option.bytes, apart, option.host_bytes};
}

// What each rank has when all is level; never zero, so that it can divide.
Amount Search::unit_of(const Selection& selection) const {
  double shortfall = 0;
  for (const double missing : room_.shortfall) {
    shortfall += missing;
  }
  const double apart = lockstep_ ? selection.total_compute : 0;
  return {std::max((selection.total_ms - apart) / ranks_, 1e-300),
          std::max((selection.total_bytes + shortfall) / ranks_, 1.0), std::max(apart / ranks_, 1e-300),
          std::max(selection.total_host / ranks_, 1.0)};
}

std::vector<std::int64_t> Search::allowed_ranks(std::size_t table, std::int64_t first,
                                                std::int64_t count) const {
  const Constraint* constraint = constraints_.empty() ? nullptr : constraints_[table];
  charge(request_.work_budget, static_cast<std::size_t>(model_.trainers) / kScannedPerUnit + 1);
  const RankSet set(constraint == nullptr ? std::vector<std::int64_t>{} : constraint->ranks, model_.trainers);
  std::vector<std::int64_t> ranks;
  for (std::int64_t rank = first; rank < first + count; ++rank) {
    if (set.holds(rank)) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

std::vector<std::int64_t> Search::allowed_nodes(std::size_t table) const {
  charge(request_.work_budget, static_cast<std::size_t>(model_.trainers) / kScannedPerUnit + 1);
  const RankSet set(constraints_[table]->ranks, model_.trainers);
  std::vector<std::int64_t> nodes;
  for (std::int64_t node = 0; node < model_.nodes; ++node) {
    if (set.holds_all(node * model_.local, model_.local)) {
      nodes.push_back(node);
    }
  }
  return nodes;
}

Search::Work Search::empty_work(const Amount& unit) const {
  Work work{.nodes = Placement(model_.nodes, measures_, request_.work_budget),
            .ranks = Placement(model_.trainers, measures_, request_.work_budget),
            .unit = unit};
  // A trainer with less memory than the largest counts as filled by the difference.
  for (std::size_t rank = 0; rank < room_.shortfall.size(); ++rank) {
    work.ranks.add(static_cast<std::int64_t>(rank), {0, room_.shortfall[rank], 0, 0});
  }
  for (std::int64_t node = 0; node < model_.nodes && !room_.shortfall.empty(); ++node) {
    const auto first = room_.shortfall.begin() + node * model_.local;
    work.nodes.add(node, {0, *std::max_element(first, first + model_.local), 0, 0});
  }
  return work;
}

PlacedSelection Search::place(Selection selection) {
  const BudgetBytes memory = take_pieces(selection);
  Work work = empty_work(unit_of(selection));
  gather(selection, &work);
  PlacedSelection candidate{.selection = std::move(selection), .places = {}};
  candidate.places = Places(candidate.selection);
  place_on_nodes(&candidate, &work);
  place_on_ranks(&candidate, &work);
  measure(work.ranks, &candidate);
  effort_ += work.nodes.effort() + work.ranks.effort();
  return candidate;
}

// Each column block is a piece, which lies in two lists on its way, and has a place.
BudgetBytes Search::take_pieces(const Selection& selection) const {
  std::int64_t pieces = 0;
  for (const Option* option : selection.options) {
    pieces += option->everywhere() ? 1 : option->cuts;
  }
  charge(request_.work_budget, selection.options.size() + static_cast<std::size_t>(pieces));
  return BudgetBytes(request_.work_budget, Bytes{2 * sizeof(Piece) + sizeof(std::int64_t)} * pieces);
}

// A placement that is given, not searched for.
PlacedSelection Search::fixed(Selection selection,
                              const std::vector<std::vector<std::int64_t>>& places) const {
  Work work = empty_work(unit_of(selection));
  PlacedSelection candidate{.selection = std::move(selection), .places = {}};
  candidate.places = Places(candidate.selection);
  for (std::size_t table = 0; table < places.size(); ++table) {
    const Option& option = *candidate.selection.options[table];
    if (option.everywhere()) {
      add_rows(&work.ranks, table, option, 0, model_.trainers);
    }
    std::copy(places[table].begin(), places[table].end(), candidate.places.of(table).begin());
    for (const std::int64_t place : places[table]) {
      const std::int64_t width = option.on_nodes() ? model_.local : 1;
      add_rows(&work.ranks, table, option, place * width, width);
    }
  }
  measure(work.ranks, &candidate);
  return candidate;
}

double Search::slowest(const Placement& ranks) const {
  return ranks.highest(Measure::kTime) + (lockstep_ ? ranks.highest(Measure::kCompute) : 0);
}

void Search::measure(const Placement& ranks, PlacedSelection* candidate) const {
  for (std::int64_t rank = 0; rank < model_.trainers; ++rank) {
    const auto total = [&](std::int64_t of) {
      return ranks.load(of, Measure::kTime) + (lockstep_ ? ranks.load(of, Measure::kCompute) : 0);
    };
    candidate->slowest = total(rank) > total(candidate->slowest) ? rank : candidate->slowest;
  }
  candidate->fullest = ranks.fullest(Measure::kMemory);
  candidate->highest_ms = slowest(ranks);
  candidate->highest_bytes = ranks.highest(Measure::kMemory);
  candidate->highest_host = ranks.highest(Measure::kHost);
}

// Sorts the shards: what is everywhere is placed at once, the others wait as pieces.
void Search::gather(const Selection& selection, Work* work) const {
  for (std::size_t table = 0; table < selection.options.size(); ++table) {
    const Option& option = *selection.options[table];
    const Amount amount = amount_of(option);
    const bool pinned =
        !constraints_.empty() && constraints_[table] != nullptr && !constraints_[table]->ranks.empty();
    Piece piece{.amount = amount, .table = static_cast<std::int32_t>(table)};
    if (option.type == ShardingType::kDataParallel) {
      work->nodes.add_everywhere(amount);
      work->ranks.add_everywhere(amount);
    } else if (option.type == ShardingType::kRowWise) {
      work->nodes.add_everywhere(amount);
      add_rows(&work->ranks, table, option, 0, model_.trainers);
    } else if (option.type == ShardingType::kTableColumnWise) {
      // Its blocks will be spread over one node, which has an equal part of them on each rank till then.
      for (double& measure : piece.amount) {
        measure *= static_cast<double>(option.cuts) / static_cast<double>(model_.local);
      }
      if (pinned) {
        std::vector<std::int64_t> nodes;
        for (std::int64_t node = 0; node < model_.nodes; ++node) {
          if (!allowed_ranks(table, node * model_.local, model_.local).empty()) {
            nodes.push_back(node);
          }
        }
        piece.zone = work->nodes.add_zone(std::move(nodes));
      }
      work->node_pieces.push_back(piece);
    } else {
      Placement& placement = option.on_nodes() ? work->nodes : work->ranks;
      if (pinned) {
        piece.zone = placement.add_zone(option.on_nodes() ? allowed_nodes(table)
                                                          : allowed_ranks(table, 0, model_.trainers));
      }
      std::vector<Piece>& pieces = option.on_nodes() ? work->node_pieces : work->rank_pieces;
      for (; piece.part < option.cuts; ++piece.part) {
        pieces.push_back(piece);
      }
    }
  }
}

void Search::place_on_nodes(PlacedSelection* candidate, Work* work) {
  work->nodes.place(std::move(work->node_pieces), work->unit);
  level(&work->nodes, work->unit);
  for (std::size_t node = 0; node < work->nodes.pieces().size(); ++node) {
    const std::int64_t first = static_cast<std::int64_t>(node) * model_.local;
    for (const Piece& placed : work->nodes.pieces()[node]) {
      const std::size_t table = static_cast<std::size_t>(placed.table);
      const Option& option = *candidate->selection.options[table];
      if (option.type == ShardingType::kTableColumnWise) {
        Piece piece{.amount = amount_of(option), .table = placed.table};
        piece.zone = work->ranks.add_zone(allowed_ranks(table, first, model_.local));
        for (; piece.part < option.cuts; ++piece.part) {
          work->rank_pieces.push_back(piece);
        }
        continue;
      }
      candidate->places.of(table)[static_cast<std::size_t>(placed.part)] = static_cast<std::int64_t>(node);
      add_rows(&work->ranks, table, option, first, model_.local);
    }
  }
}

void Search::place_on_ranks(PlacedSelection* candidate, Work* work) {
  work->ranks.place(std::move(work->rank_pieces), work->unit);
  level(&work->ranks, work->unit);
  for (std::size_t rank = 0; rank < work->ranks.pieces().size(); ++rank) {
    for (const Piece& piece : work->ranks.pieces()[rank]) {
      candidate->places.of(static_cast<std::size_t>(piece.table))[static_cast<std::size_t>(piece.part)] =
          static_cast<std::int64_t>(rank);
    }
  }
}

// The shards of a table cut by rows, one a rank from `first` on: equal ones, a shorter one, empty ones.
void Search::add_rows(Placement* ranks, std::size_t table, const Option& option, std::int64_t first,
                      std::int64_t count) const {
  const Table& of = request_.tables[table];
  const TableCost cost(model_, of);
  const std::int64_t block = cost.row_block(option.type);
  Amount amount = amount_of(option);
  for (std::int64_t shard = 0; shard < count; ++shard) {
    const std::int64_t rows = cost.rows_of(option.type, shard);
    if (rows < block) {
      const Held held = cost.held(option.type, option.kernel, rows, of.dim / option.cuts);
      amount[static_cast<std::size_t>(Measure::kMemory)] = static_cast<double>(held.card.count);
      amount[static_cast<std::size_t>(Measure::kHost)] = static_cast<double>(held.host.count);
    }
    ranks->add(first + shard, amount);
  }
}

// Memory below the budgets first, then time as far as it goes in ever more memory, then memory again as far
// as time permits.
void Search::level(Placement* ranks, const Amount& unit) const {
  constexpr double kNoLimit = std::numeric_limits<double>::infinity();
  constexpr std::size_t kTime = static_cast<std::size_t>(Measure::kTime);
  constexpr std::size_t kMemory = static_cast<std::size_t>(Measure::kMemory);
  constexpr std::size_t kCompute = static_cast<std::size_t>(Measure::kCompute);
  const std::int64_t steps = kStepsARank * model_.trainers;
  Amount limits{kNoLimit, kNoLimit, kNoLimit, room_.host};
  if (ranks->highest(Measure::kHost) > room_.host) {
    ranks->level(Measure::kHost, room_.host, {kNoLimit, kNoLimit, kNoLimit, kNoLimit}, steps);
  }
  if (ranks->highest(Measure::kMemory) > room_.largest) {
    ranks->level(Measure::kMemory, room_.largest, limits, steps);
    if (ranks->highest(Measure::kMemory) > room_.largest) {
      return;
    }
  }
  // What a stage takes when all takes the bound's time.
  const double stretch = bound_.milliseconds / (unit[kTime] + (lockstep_ ? unit[kCompute] : 0));

  const double level = std::max(kTimeLevel, stretch * (1 + request_.time_slack * kMaxOfSlack));
  const auto level_time = [&](double memory) {
    limits[kMemory] = memory;
    limits[kCompute] = kNoLimit;
    ranks->level(Measure::kTime, unit[kTime] * level, limits, steps);
    if (lockstep_) {  // ranks whose sums are equal still wait for each other at every exchange
      limits[kTime] = std::max(ranks->highest(Measure::kTime), unit[kTime] * level);
      ranks->level(Measure::kCompute, unit[kCompute] * level, limits, steps);
      limits[kTime] = kNoLimit;
    }
  };
  double room =
      std::max(std::min(unit[kMemory] * kNearLevel, room_.largest), ranks->highest(Measure::kMemory));
  double allowance = kFirstAllowance;
  level_time(room);
  while (room < room_.largest && slowest(*ranks) > bound_.milliseconds * near_optimal_) {
    room = std::min(room_.largest, room * (1 + allowance));
    allowance *= kMoreAllowance;
    level_time(room);
  }

  limits[kTime] = std::max(ranks->highest(Measure::kTime), unit[kTime] * stretch * near_optimal_);
  limits[kCompute] = std::max(ranks->highest(Measure::kCompute), unit[kCompute] * stretch * near_optimal_);
  ranks->level(Measure::kMemory, std::min(unit[kMemory] * kMemoryLevel, room_.largest), limits, steps);
}

// Time over the bound counts in full once it is above what is called optimal; memory over the mean counts
// kMemoryWeight of that. What does not fit loses to whatever does.
double Search::score_of(const PlacedSelection& candidate) const {
  if (!fits(candidate)) {
    return kUnfit * (std::max(candidate.highest_bytes - room_.largest, 0.0) / std::max(room_.largest, 1.0) +
                     std::max(candidate.highest_host - room_.host, 0.0) / std::max(room_.host, 1.0) + 1);
  }
  const double time = bound_.milliseconds > 0 ? candidate.highest_ms / bound_.milliseconds : 1;
  return std::max(time, near_optimal_) + kMemoryWeight * candidate.highest_bytes / mean_bytes_;
}

bool Search::good_enough() const {
  return fits(best_) && best_.highest_bytes <= mean_bytes_ * kNearLevel &&
         best_.highest_ms <= bound_.milliseconds * near_optimal_;
}

// Places a selection and keeps it when it is the best so far.
bool Search::offer(Selection selection) {
  if (selection.total_bytes > room_.total && !best_.selection.options.empty()) {
    return false;  // wherever its shards are put
  }
  PlacedSelection candidate = place(std::move(selection));
  candidate.score = score_of(candidate);
  if (candidate.score >= best_.score) {
    return false;
  }
  best_ = std::move(candidate);
  return true;
}

// What selections are made of: shards that leave the other ranks something to do.
Caps Search::caps(const Selection& fastest) const {
  double base = 0;
  for (const Option* option : fastest.options) {
    base += option->everywhere() ? option->ms : 0;
  }
  // What is left of the bound for shards that only some ranks have.
  return {.ms = std::max({bound_.milliseconds - base, bound_.milliseconds * 0.05, 1e-300}),
          .compute_ms = lockstep_ ? unit_of(fastest)[static_cast<std::size_t>(Measure::kCompute)]
                                  : std::numeric_limits<double>::infinity(),
          .prices = bound_.prices};
}

void Search::sweep() {
  const Selection fastest =
      select(options_, {.ms = bound_.milliseconds, .bytes = room_.largest, .prices = bound_.prices});
  mean_bytes_ = unit_of(fastest)[static_cast<std::size_t>(Measure::kMemory)];
  scarce_ = bound_.prices.card > 0 || fastest.total_bytes > room_.total * (1 - kEase);
  scarce_ ? squeeze(caps(fastest)) : spread(caps(fastest));
}

bool Search::is_new(const Selection& selection) {
  charge(request_.work_budget, (tried_.size() + 1) * selection.options.size() / kScannedPerUnit + 1);
  const bool known = std::find(tried_.begin(), tried_.end(), selection.options) != tried_.end();
  if (!known) {
    tried_.push_back(selection.options);
  }
  return !known;
}

// True when another selection is not worth a try.
bool Search::enough(bool better) {
  const bool fruitless = !better && fits(best_) && effort_ > kSettledEffort;
  const bool near_enough = scarce_ && fits(best_) && effort_ > kSmallEffort &&
                           best_.highest_ms <= bound_.milliseconds * (1 + kScarceSlack * request_.time_slack);
  return good_enough() || near_enough || fruitless || (tried_.size() >= kMinTries && effort_ > kMaxEffort);
}

// Where memory is nearly full, shards need room to be moved in: fine ones, at what it costs to leave a little
// of all memory free.
void Search::squeeze(const Caps& caps) {
  struct Try {
    double bytes;  // largest shard, as a share of the mean of memory
    double free;   // in kEase
    double ms;     // longest shard, of the longest that is sensible
    double price;  // factor on the price of the host's memory
  };
  static constexpr Try kTries[] = {{0.35, 1, 1, 1}, {0.35, 16, 1, 1}, {0.2, 1, 1, 1}, {0.35, 64, 1, 1},
                                   {0.5, 1, 1, 1},  {0.2, 4, 1, 1},   {1, 16, 1, 1},  {0.1, 16, 0.5, 1},
                                   {0.7, 4, 1, 2},  {1, 1, 1, 4},     {1, 64, 1, 1},  {0.2, 64, 1, 1},
                                   {1, 0, 1, 1}};
  std::map<std::array<double, 3>, Savings> known;
  for (const Try& a_try : kTries) {
    const std::array<double, 3> key{a_try.bytes, a_try.ms, a_try.price};
    auto savings = known.find(key);
    if (savings == known.end()) {
      const Caps finer{.ms = caps.ms * a_try.ms,
                       .bytes = mean_bytes_ * a_try.bytes,
                       .compute_ms = caps.compute_ms * a_try.ms,
                       .prices = {.card = 0, .host = caps.prices.host * a_try.price}};
      savings = known.emplace(key, Savings(options_, finer)).first;
    }
    std::optional<Selection> found = savings->second.within(room_.total * (1 - kEase * a_try.free));
    if (found && is_new(*found) && enough(offer(*std::move(found)))) {
      return;
    }
  }
  if (best_.selection.options.empty()) {  // the bounds say that all of memory holds it, if only just
    offer(select(options_, {.ms = bound_.milliseconds, .bytes = room_.largest, .prices = bound_.prices}));
  }
}

// Selections of ever finer shards, which cost more in total and level better.
void Search::spread(const Caps& caps) {
  struct Try {
    double slack;  // share of the fastest selection's time that may be paid for smaller shards
    double ms;     // longest shard, of the longest that is sensible
    double price;  // factor on the price of the host's memory
  };
  static constexpr Try kTries[] = {{0.004, 1, 1},  {0.004, 0.7, 1}, {0.03, 0.7, 1}, {0.002, 1, 1},
                                   {0.01, 0.5, 1}, {0.02, 0.35, 2}, {0.001, 1, 1},  {0.02, 1, 1.1},
                                   {0.05, 1, 4},   {0.06, 0.25, 1}};
  std::map<std::array<double, 3>, std::pair<Choices, double>> known;  // by what can make a difference
  for (const Try& a_try : kTries) {
    const Caps finer{.ms = std::min(caps.ms * a_try.ms, options_.longest_ms()),
                     .compute_ms = std::min(caps.compute_ms * a_try.ms, options_.longest_compute()),
                     .prices = {.card = 0, .host = caps.prices.host * a_try.price}};
    const std::array<double, 3> key{finer.ms, finer.compute_ms, finer.prices.host};
    auto found = known.find(key);
    if (found == known.end()) {
      Choices choices(options_, finer);
      const double whole_ms = choices.select(room_.largest).total_ms;
      found = known.emplace(key, std::pair(std::move(choices), whole_ms)).first;
    }
    auto& [choices, whole_ms] = found->second;
    const double cap = choices.smallest_cap(
        mean_bytes_ * kFinest, room_.largest,
        {.ms = std::max(bound_.milliseconds * ranks_, whole_ms) * (1 + a_try.slack), .bytes = room_.total});
    Selection selection = choices.select(cap);
    if (is_new(selection) && enough(offer(std::move(selection)))) {
      return;
    }
  }
}

// Tables with a shard on this rank, the one with the most of the measure first.
std::vector<std::size_t> Search::heaviest(std::int64_t rank, bool by_time) const {
  std::vector<std::size_t> tables;
  charge(request_.work_budget, best_.places.tables());
  for (std::size_t table = 0; table < best_.places.tables(); ++table) {
    const Option& option = *best_.selection.options[table];
    const std::int64_t place = option.on_nodes() ? rank / model_.local : rank;
    const std::span<const std::int64_t> places = std::as_const(best_.places).of(table);
    if (option.everywhere() || std::find(places.begin(), places.end(), place) != places.end()) {
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
    const bool by_time = fits(best_);
    if (!by_time && best_.selection.total_bytes > room_.total) {
      return;  // the cards together cannot hold it, and one table more or less cut does not change that
    }
    if (by_time && best_.highest_ms <= bound_.milliseconds * near_optimal_) {
      return;
    }
    const std::vector<std::size_t> tables = heaviest(by_time ? best_.slowest : best_.fullest, by_time);
    improved = false;
    for (std::size_t i = 0; i < std::min(tables.size(), kHeaviest) && !improved; ++i) {
      improved = improve(tables[i], kRefineEffort);
    }
    improved = improved || (effort_ < kSmallEffort && improve_alike(kSmallEffort));
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
    charge(request_.work_budget, best_.selection.options.size() / kScannedPerUnit + 1);
    Selection selection = best_.selection;
    selection.options[table] = &option;
    selection.add(current, -1);
    selection.add(option);
    if (offer(std::move(selection))) {
      return true;
    }
  }
  return false;
}

// Another option for several tables that are alike: all of them, or one for every trainer. Where one table
// turned alone makes its trainer the slowest, one turned on every trainer may leave all of them faster.
bool Search::improve_alike(std::int64_t most_effort) {
  const auto choice = [&](std::size_t table) {
    return best_.selection.options[table] - options_.of(table).data();
  };
  const auto kind = [&](std::size_t table) {
    const Table& of = request_.tables[table];
    return std::tuple(of.rows, of.dim, of.lookups_per_sample, of.element_bytes, of.weighted, of.pooled,
                      choice(table));
  };
  charge(request_.work_budget, options_.tables());
  std::vector<std::size_t> tables;  // those of a kind one after the other
  for (std::size_t table = 0; table < options_.tables(); ++table) {
    if (constraints_.empty() || constraints_[table] == nullptr) {
      tables.push_back(table);
    }
  }
  std::sort(tables.begin(), tables.end(),
            [&](std::size_t a, std::size_t b) { return std::pair(kind(a), a) < std::pair(kind(b), b); });
  const auto ranks = static_cast<std::size_t>(model_.trainers);
  for (auto first = tables.begin(), last = first; first != tables.end(); first = last) {
    last = std::find_if(first, tables.end(), [&](std::size_t table) { return kind(table) != kind(*first); });
    const auto all = static_cast<std::size_t>(last - first);
    const std::size_t whole = all / ranks * ranks;
    for (const std::size_t count : {whole == all ? 0 : whole, all}) {
      for (std::size_t option = 0; count > 1 && option < options_.of(*first).size(); ++option) {
        if (effort_ >= most_effort) {
          return false;
        }
        if (static_cast<std::ptrdiff_t>(option) == choice(*first)) {
          continue;
        }
        charge(request_.work_budget, best_.selection.options.size());
        Selection selection = best_.selection;
        for (auto table = first; table < first + static_cast<std::ptrdiff_t>(count); ++table) {
          const Option*& chosen = selection.options[*table];
          selection.add(*chosen, -1);
          chosen = &options_.of(*table)[option];
          selection.add(*chosen);
        }
        if (offer(std::move(selection))) {
          return true;
        }
      }
    }
  }
  return false;
}

// A small request's plans are few enough to try them all.
void Search::try_all() {
  const bool fit = fits(best_);
  if (!is_small(request_) || (fit && best_.highest_ms <= bound_.milliseconds * near_optimal_)) {
    return;
  }
  const double limit = fit ? best_.highest_ms : std::numeric_limits<double>::infinity();
  std::optional<ExactPlan> found = search_all(request_, options_, room_, limit * (1 - kMinGain));
  if (!found) {
    return;
  }
  Selection selection;
  for (const Option* option : found->options) {
    selection.options.push_back(option);
    selection.add(*option);
  }
  best_ = fixed(std::move(selection), found->places);
}

PlacedSelection Search::run() {
  sweep();
  refine();
  try_all();
  return std::move(best_);
}

}  // namespace plimsoll::estimator::sharder
