#include "estimator/sharder/search.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "estimator/sharder/cost.h"
#include "estimator/sharder/exact_search.h"
#include "estimator/sharder/placement.h"
#include "estimator/sharder/request.h"

namespace plimsoll::estimator::inline sharder {

namespace {

constexpr double kNearLevel = 1.05;  // of the mean: memory that is level enough
// A tenth of the mean more in the fullest trainer is worth 0.03% of time: time first, memory second.
constexpr double kMemoryWeight = 0.003;
constexpr double kUnfit = 1e6;  // above any score of a plan that fits

// Levelling stops a little above the mean, or when most of the slack is used: the rest is not worth the steps.
constexpr double kTimeLevel = 1.0005;
constexpr double kMaxOfSlack = 0.9;
constexpr double kMemoryLevel = 1.01;

// By how much the memory limit is relaxed while time does not level, and how fast that grows.
constexpr double kFirstAllowance = 0.03;
constexpr double kMoreAllowance = 1.5;
constexpr std::int64_t kStepsARank = 24;  // levelling takes fewer than 3 on the models of docs/sharding.md

// Ranks or options that are scanned in the time of one unit of work.
constexpr std::size_t kScannedPerUnit = 128;

constexpr double kFinest = 0.2;  // of the mean: smaller shards level no better
// Times the slack: near enough to the bound where memory is scarce and there are many shards.
constexpr double kScarceSlack = 2;
constexpr double kEase = 0.0003;                  // share of all memory that must stay free to move shards
constexpr std::size_t kMinTries = 3;              // whatever effort they take
constexpr std::int64_t kMaxEffort = 500'000;      // comparisons: some 3 ms
constexpr std::int64_t kSettledEffort = 200'000;  // after it, a try without improvement is the last
constexpr std::size_t kHeaviest = 4;              // tables of the worst rank that are given other options
constexpr double kMinGain = 0.001;  // of time, that the exact search of a small request must gain
constexpr std::int64_t kRefineEffort = 250'000;  // a search that took more is not refined
constexpr std::int64_t kSmallEffort = 100'000;   // up to it, every table may be given other options

// The two halves of a placement, and the pieces that wait for a place in either.
struct Work {
  Placement nodes;
  Placement ranks;
  Amount unit{};
  std::vector<Piece> node_pieces = {};
  std::vector<Piece> rank_pieces = {};
};

class Search {
 public:
  Search(const ShardRequest& request, const Options& options, const MemoryLimits& limits,
         const TimeBound& bound)
      : request_(request),
        options_(options),
        limits_(limits),
        bound_(bound),
        model_(request),
        constraints_(constraints_by_table(request)),
        lockstep_(request.cost == CostMethod::kStages),
        measures_(limits.host > 0 ? 4
                  : lockstep_     ? 3
                                  : 2),
        ranks_(static_cast<double>(request.topology.trainers)),
        near_optimal_(1 + request.time_slack) {}

  PlacedSelection run() {
    sweep();
    refine();
    try_all();
    return std::move(best_);
  }

 private:
  // What one shard adds to a rank. Where stages run in lockstep, the time is that of the exchanges alone.
  Amount amount_of(const Option& option) const {
    const double apart = lockstep_ ? option.compute_ms : 0;
    return {option.ms - apart, option.bytes, apart, option.host_bytes};
  }

  // What each rank has when all are level; never zero, because it divides.
  Amount unit_of(const Selection& selection) const {
    double shortfall = 0;
    for (const double missing : limits_.shortfall) {
      shortfall += missing;
    }
    const double apart = lockstep_ ? selection.total_compute : 0;
    return {std::max((selection.total_ms - apart) / ranks_, 1e-300),
            std::max((selection.total_bytes + shortfall) / ranks_, 1.0), std::max(apart / ranks_, 1e-300),
            std::max(selection.total_host / ranks_, 1.0)};
  }

  RankSet allowed_ranks(std::size_t table) const {
    charge(request_.work_budget, static_cast<std::size_t>(model_.trainers) / kScannedPerUnit + 1);
    const Constraint* constraint = constraints_.empty() ? nullptr : constraints_[table];
    return RankSet(constraint == nullptr ? std::vector<std::int64_t>{} : constraint->ranks, model_.trainers);
  }

  Work empty_work(const Amount& unit) const {
    Work work{.nodes = Placement(model_.nodes, measures_, request_.work_budget),
              .ranks = Placement(model_.trainers, measures_, request_.work_budget),
              .unit = unit};
    // A trainer with less memory than the largest counts as filled by the difference.
    for (std::size_t rank = 0; rank < limits_.shortfall.size(); ++rank) {
      work.ranks.add(static_cast<std::int64_t>(rank), {0, limits_.shortfall[rank], 0, 0});
    }
    for (std::int64_t node = 0; node < model_.nodes && !limits_.shortfall.empty(); ++node) {
      const auto first = limits_.shortfall.begin() + node * model_.local;
      work.nodes.add(node, {0, *std::max_element(first, first + model_.local), 0, 0});
    }
    return work;
  }

  // Finds a place for every shard.
  PlacedSelection place(Selection selection) {
    std::int64_t pieces = 0;
    for (const Option* option : selection.options) {
      pieces += option->everywhere() ? 1 : option->cuts;
    }
    charge(request_.work_budget, selection.options.size() + static_cast<std::size_t>(pieces));
    // Each column block is a piece, which is in two lists on its way, and has a place.
    const BudgetBytes memory(request_.work_budget, Bytes{2 * sizeof(Piece) + sizeof(std::int64_t)} * pieces);
    Work work = empty_work(unit_of(selection));
    gather(selection, &work);
    PlacedSelection candidate{.selection = std::move(selection), .places = {}};
    candidate.places = Places(candidate.selection);
    place_on_nodes(&candidate, &work);
    work.ranks.place(std::move(work.rank_pieces), work.unit);
    level(&work.ranks, work.unit);
    double longest = -1;
    for (std::int64_t rank = 0; rank < model_.trainers; ++rank) {
      for (const Piece& piece : work.ranks.pieces()[static_cast<std::size_t>(rank)]) {
        candidate.places.of(static_cast<std::size_t>(piece.table))[static_cast<std::size_t>(piece.part)] =
            rank;
      }
      const double ms = work.ranks.load(rank, Measure::kTime) + work.ranks.load(rank, Measure::kCompute);
      if (ms > longest) {
        longest = ms;
        candidate.slowest = rank;
      }
    }
    candidate.fullest = work.ranks.fullest(Measure::kMemory);
    candidate.highest_ms = slowest(work.ranks);
    candidate.highest_bytes = work.ranks.highest(Measure::kMemory);
    candidate.highest_host = work.ranks.highest(Measure::kHost);
    effort_ += work.nodes.effort() + work.ranks.effort();
    return candidate;
  }

  // The critical path: without lockstep, kCompute is 0.
  static double slowest(const Placement& ranks) {
    return ranks.highest(Measure::kTime) + ranks.highest(Measure::kCompute);
  }

  // Places the shards that are on every rank; the others become pieces that wait for a place.
  void gather(const Selection& selection, Work* work) const {
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
        // Its blocks go to the ranks of one node; until then each of these counts as having an equal part.
        for (double& measure : piece.amount) {
          measure *= static_cast<double>(option.cuts) / static_cast<double>(model_.local);
        }
        if (pinned) {
          const RankSet allowed = allowed_ranks(table);
          std::vector<std::int64_t> nodes;
          for (std::int64_t node = 0; node < model_.nodes; ++node) {
            if (!allowed.in(node * model_.local, model_.local).empty()) {
              nodes.push_back(node);
            }
          }
          piece.zone = work->nodes.add_zone(std::move(nodes));
        }
        work->node_pieces.push_back(piece);
      } else {
        Placement& placement = option.on_nodes() ? work->nodes : work->ranks;
        if (pinned) {
          const RankSet allowed = allowed_ranks(table);
          piece.zone = placement.add_zone(option.on_nodes() ? allowed.whole_nodes(model_.local)
                                                            : allowed.in(0, model_.trainers));
        }
        std::vector<Piece>& pieces = option.on_nodes() ? work->node_pieces : work->rank_pieces;
        for (; piece.part < option.cuts; ++piece.part) {
          pieces.push_back(piece);
        }
      }
    }
  }

  void place_on_nodes(PlacedSelection* candidate, Work* work) {
    work->nodes.place(std::move(work->node_pieces), work->unit);
    level(&work->nodes, work->unit);
    for (std::size_t node = 0; node < work->nodes.pieces().size(); ++node) {
      const std::int64_t first = static_cast<std::int64_t>(node) * model_.local;
      for (const Piece& placed : work->nodes.pieces()[node]) {
        const std::size_t table = static_cast<std::size_t>(placed.table);
        const Option& option = *candidate->selection.options[table];
        if (option.type == ShardingType::kTableColumnWise) {
          Piece piece{.amount = amount_of(option), .table = placed.table};
          piece.zone = work->ranks.add_zone(allowed_ranks(table).in(first, model_.local));
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

  // Adds the shards of a table that is cut by rows, one for each rank from `first` on: equal ones, then a
  // shorter one, then empty ones.
  void add_rows(Placement* ranks, std::size_t table, const Option& option, std::int64_t first,
                std::int64_t count) const {
    const Table& of = request_.tables[table];
    const TableCost cost(model_, of);
    const std::int64_t block = cost.row_block(option.type);
    Amount amount = amount_of(option);
    for (std::int64_t shard = 0; shard < count; ++shard) {
      const std::int64_t rows = cost.rows_of(option.type, shard);
      if (rows < block) {
        const Held held = cost.held(option.type, option.kernel, rows, of.dim / option.cuts);
        amount[Measure::kMemory] = static_cast<double>(held.card.count);
        amount[Measure::kHost] = static_cast<double>(held.host.count);
      }
      ranks->add(first + shard, amount);
    }
  }

  // First memory until it is within the budgets; then time, with ever more memory; then memory again, as far as
  // the slack in time permits.
  void level(Placement* ranks, const Amount& unit) const {
    constexpr double kNoLimit = std::numeric_limits<double>::infinity();
    using enum Measure::Index;
    const std::int64_t steps = kStepsARank * model_.trainers;
    Amount limits{kNoLimit, kNoLimit, kNoLimit, limits_.host};
    if (ranks->highest(kHost) > limits_.host) {
      ranks->level(kHost, limits_.host, {kNoLimit, kNoLimit, kNoLimit, kNoLimit}, steps);
    }
    if (ranks->highest(kMemory) > limits_.gpu) {
      ranks->level(kMemory, limits_.gpu, limits, steps);
      if (ranks->highest(kMemory) > limits_.gpu) {
        return;
      }
    }
    // Scales a stage of the mean rank to the bound's time.
    const double stretch = bound_.milliseconds / (unit[kTime] + (lockstep_ ? unit[kCompute] : 0));

    const double level = std::max(kTimeLevel, stretch * (1 + request_.time_slack * kMaxOfSlack));
    const auto level_time = [&](double most_memory) {
      limits[kMemory] = most_memory;
      limits[kCompute] = kNoLimit;
      ranks->level(kTime, unit[kTime] * level, limits, steps);
      if (lockstep_) {  // ranks of equal total time still wait for each other at every exchange
        limits[kTime] = std::max(ranks->highest(kTime), unit[kTime] * level);
        ranks->level(kCompute, unit[kCompute] * level, limits, steps);
        limits[kTime] = kNoLimit;
      }
    };
    double memory = std::max(std::min(unit[kMemory] * kNearLevel, limits_.gpu), ranks->highest(kMemory));
    double allowance = kFirstAllowance;
    level_time(memory);
    while (memory < limits_.gpu && slowest(*ranks) > bound_.milliseconds * near_optimal_) {
      memory = std::min(limits_.gpu, memory * (1 + allowance));
      allowance *= kMoreAllowance;
      level_time(memory);
    }

    limits[kTime] = std::max(ranks->highest(kTime), unit[kTime] * stretch * near_optimal_);
    limits[kCompute] = std::max(ranks->highest(kCompute), unit[kCompute] * stretch * near_optimal_);
    ranks->level(kMemory, std::min(unit[kMemory] * kMemoryLevel, limits_.gpu), limits, steps);
  }

  // Time over the bound counts in full beyond the slack; memory over the mean counts kMemoryWeight of that. A
  // placement that fits always beats one that does not.
  double score_of(const PlacedSelection& candidate) const {
    if (!candidate.fits(limits_)) {
      return kUnfit *
             (std::max(candidate.highest_bytes - limits_.gpu, 0.0) / std::max(limits_.gpu, 1.0) +
              std::max(candidate.highest_host - limits_.host, 0.0) / std::max(limits_.host, 1.0) + 1);
    }
    const double time = bound_.milliseconds > 0 ? candidate.highest_ms / bound_.milliseconds : 1;
    return std::max(time, near_optimal_) + kMemoryWeight * candidate.highest_bytes / mean_bytes_;
  }

  // Places a selection and keeps it when it is the best so far.
  bool offer(Selection selection) {
    if (selection.total_bytes > limits_.all_gpus && !best_.selection.options.empty()) {
      return false;  // it fits nowhere
    }
    PlacedSelection candidate = place(std::move(selection));
    candidate.score = score_of(candidate);
    if (candidate.score >= best_.score) {
      return false;
    }
    best_ = std::move(candidate);
    return true;
  }

  void sweep() {
    const Selection fastest =
        select(options_, {.ms = bound_.milliseconds, .bytes = limits_.gpu, .prices = bound_.prices});
    const Amount unit = unit_of(fastest);
    mean_bytes_ = unit[Measure::kMemory];
    scarce_ = bound_.prices.card > 0 || fastest.total_bytes > limits_.all_gpus * (1 - kEase);
    double everywhere = 0;
    for (const Option* option : fastest.options) {
      everywhere += option->everywhere() ? option->ms : 0;
    }
    // Limits single shards to the part of the bound that is left for shards that only some ranks have.
    const Caps caps{
        .ms = std::max({bound_.milliseconds - everywhere, bound_.milliseconds * 0.05, 1e-300}),
        .compute_ms = lockstep_ ? unit[Measure::kCompute] : std::numeric_limits<double>::infinity(),
        .prices = bound_.prices};
    scarce_ ? squeeze(caps) : spread(caps);
  }

  bool is_new(const Selection& selection) {
    charge(request_.work_budget, (tried_.size() + 1) * selection.options.size() / kScannedPerUnit + 1);
    const bool known = std::find(tried_.begin(), tried_.end(), selection.options) != tried_.end();
    if (!known) {
      tried_.push_back(selection.options);
    }
    return !known;
  }

  // True when no other selection is worth a try.
  bool enough(bool better) {
    const bool good = best_.highest_bytes <= mean_bytes_ * kNearLevel &&
                      best_.highest_ms <= bound_.milliseconds * near_optimal_;
    const bool near_enough =
        scarce_ && effort_ > kSmallEffort &&
        best_.highest_ms <= bound_.milliseconds * (1 + kScarceSlack * request_.time_slack);
    const bool fruitless = !better && effort_ > kSettledEffort;
    return (best_.fits(limits_) && (good || near_enough || fruitless)) ||
           (tried_.size() >= kMinTries && effort_ > kMaxEffort);
  }

  // Where memory is nearly full, moving shards needs free memory: tries fine shards and leaves a little of all
  // memory free, at the least cost in time.
  void squeeze(const Caps& caps) {
    struct Try {
      double bytes;  // largest shard, as a share of the mean of memory
      double free;   // in kEase
      double ms;     // longest shard, as a share of the cap
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
      std::optional<Selection> found = savings->second.within(limits_.all_gpus * (1 - kEase * a_try.free));
      if (found && is_new(*found) && enough(offer(*std::move(found)))) {
        return;
      }
    }
    if (best_.selection.options.empty()) {  // by the bounds the total fits, but barely
      offer(select(options_, {.ms = bound_.milliseconds, .bytes = limits_.gpu, .prices = bound_.prices}));
    }
  }

  // Tries selections of ever finer shards, which cost more in total and level better.
  void spread(const Caps& caps) {
    struct Try {
      double slack;  // share of the fastest selection's time that may be paid for smaller shards
      double ms;     // longest shard, as a share of the cap
      double price;  // factor on the price of the host's memory
    };
    static constexpr Try kTries[] = {{0.004, 1, 1},  {0.004, 0.7, 1}, {0.03, 0.7, 1}, {0.002, 1, 1},
                                     {0.01, 0.5, 1}, {0.02, 0.35, 2}, {0.001, 1, 1},  {0.02, 1, 1.1},
                                     {0.05, 1, 4},   {0.06, 0.25, 1}};
    std::map<std::array<double, 3>, std::pair<Choices, double>> known;  // by what the choices depend on
    for (const Try& a_try : kTries) {
      const Caps finer{.ms = std::min(caps.ms * a_try.ms, options_.longest_ms()),
                       .compute_ms = std::min(caps.compute_ms * a_try.ms, options_.longest_compute()),
                       .prices = {.card = 0, .host = caps.prices.host * a_try.price}};
      const std::array<double, 3> key{finer.ms, finer.compute_ms, finer.prices.host};
      auto found = known.find(key);
      if (found == known.end()) {
        Choices choices(options_, finer);
        const double whole_ms = choices.select(limits_.gpu).total_ms;
        found = known.emplace(key, std::pair(std::move(choices), whole_ms)).first;
      }
      auto& [choices, whole_ms] = found->second;
      const double cap =
          choices.smallest_cap(mean_bytes_ * kFinest, limits_.gpu,
                               {.ms = std::max(bound_.milliseconds * ranks_, whole_ms) * (1 + a_try.slack),
                                .bytes = limits_.all_gpus});
      Selection selection = choices.select(cap);
      if (is_new(selection) && enough(offer(std::move(selection)))) {
        return;
      }
    }
  }

  // The tables with a shard on this rank, largest first.
  std::vector<std::size_t> heaviest(std::int64_t rank, bool by_time) const {
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

  // Gives another option to one of the largest tables of the fullest rank until a plan fits, then of the slowest
  // rank until its time is near the bound; ends when no change helps.
  void refine() {
    bool improved = true;
    while (improved) {
      const bool by_time = best_.fits(limits_);
      if (!by_time && best_.selection.total_bytes > limits_.all_gpus) {
        return;  // the GPUs together cannot hold it, and another option for one table does not change that
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
  bool improve(std::size_t table, std::int64_t most_effort) {
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

  // Gives another option to several equal tables: to all of them, or to as many on every trainer. To change one
  // table alone may make its trainer the slowest, where changing one on every trainer makes all faster.
  bool improve_alike(std::int64_t most_effort) {
    const auto choice = [&](std::size_t table) {
      return best_.selection.options[table] - options_.of(table).data();
    };
    const auto kind = [&](std::size_t table) {
      const Table& of = request_.tables[table];
      return std::tuple(of.rows, of.dim, of.lookups_per_sample, of.element_bytes, of.weighted, of.pooled,
                        of.features, choice(table));
    };
    charge(request_.work_budget, options_.tables());
    std::vector<std::size_t> tables;  // equal ones are adjacent
    for (std::size_t table = 0; table < options_.tables(); ++table) {
      if (constraints_.empty() || constraints_[table] == nullptr) {
        tables.push_back(table);
      }
    }
    std::sort(tables.begin(), tables.end(),
              [&](std::size_t a, std::size_t b) { return std::pair(kind(a), a) < std::pair(kind(b), b); });
    const auto ranks = static_cast<std::size_t>(model_.trainers);
    for (auto first = tables.begin(), last = first; first != tables.end(); first = last) {
      last =
          std::find_if(first, tables.end(), [&](std::size_t table) { return kind(table) != kind(*first); });
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

  // A small request has so few plans that all can be tried.
  void try_all() {
    const bool fit = best_.fits(limits_);
    if (!is_small(request_) || (fit && best_.highest_ms <= bound_.milliseconds * near_optimal_)) {
      return;
    }
    const double limit = fit ? best_.highest_ms : std::numeric_limits<double>::infinity();
    const std::optional<ExactPlan> found = search_all(request_, options_, limits_, limit * (1 - kMinGain));
    if (!found) {
      return;
    }
    best_ = {};  // without figures of its load: what it found fits
    for (const Option* option : found->options) {
      best_.selection.options.push_back(option);
      best_.selection.add(*option);
    }
    best_.places = Places(best_.selection);
    for (std::size_t table = 0; table < found->places.size(); ++table) {
      const std::span<std::int64_t> places = best_.places.of(table);
      std::copy_n(found->places[table].begin(), places.size(), places.begin());
    }
  }

  const ShardRequest& request_;
  const Options& options_;
  const MemoryLimits& limits_;
  const TimeBound& bound_;
  const CostModel model_;
  const std::vector<const Constraint*> constraints_;
  const bool lockstep_;  // time is the critical path of the stages
  const std::size_t measures_;
  const double ranks_;
  const double near_optimal_;
  double mean_bytes_ = 1;  // of the fastest selection
  bool scarce_ = false;    // GPU memory
  std::int64_t effort_ = 0;
  std::vector<std::vector<const Option*>> tried_;
  PlacedSelection best_;
};

}  // namespace

Places::Places(const Selection& selection) {
  first_.reserve(selection.options.size() + 1);
  first_.push_back(0);
  for (const Option* option : selection.options) {
    first_.push_back(first_.back() + (option->everywhere() ? 0 : static_cast<std::size_t>(option->cuts)));
  }
  all_.resize(first_.back());
}

PlacedSelection search(const ShardRequest& request, const Options& options, const MemoryLimits& limits,
                       const TimeBound& bound) {
  return Search(request, options, limits, bound).run();
}

}  // namespace plimsoll::estimator::sharder
