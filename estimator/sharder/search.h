// The search behind shard(): which option each table takes, and where its shards go.
//
//   Search search(request, options);
//   const PlacedSelection found = search.run();  // may exceed the budget: the caller looks
//
// docs/sharding.md tells the method in prose. Deterministic: effort is counted in comparisons, not in time.
// Refers to the request and the options, which must outlive it. Not thread-safe.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "estimator/sharder/bound.h"
#include "estimator/sharder/cost.h"
#include "estimator/sharder/options.h"
#include "estimator/sharder/placement.h"
#include "estimator/sharder/plan.h"
#include "estimator/sharder/selection.h"

namespace plimsoll::estimator::inline sharder {

// By table: the ranks of its column blocks, or their nodes; none for work that is everywhere.
class Places {
 public:
  Places() = default;
  explicit Places(const Selection& selection);

  std::size_t tables() const { return first_.size() - 1; }
  std::span<std::int64_t> of(std::size_t table) {
    return {all_.data() + first_[table], all_.data() + first_[table + 1]};
  }
  std::span<const std::int64_t> of(std::size_t table) const {
    return {all_.data() + first_[table], all_.data() + first_[table + 1]};
  }

 private:
  std::vector<std::int64_t> all_;
  std::vector<std::size_t> first_;
};

// A selection with a place for every shard.
struct PlacedSelection {
  Selection selection;
  Places places;
  double highest_ms = 0;
  double highest_bytes = 0;                                // what a smaller budget lacks included
  double highest_host = 0;                                 //
  std::int64_t slowest = 0;                                // rank
  std::int64_t fullest = 0;                                // rank
  double score = std::numeric_limits<double>::infinity();  // lower is better
};

class Search {
 public:
  // Every table must have an option.
  Search(const ShardRequest& request, const Options& options);

  // The best placement found.
  PlacedSelection run();

  double bound() const { return bound_.milliseconds; }
  const Room& room() const { return room_; }
  bool fits(const PlacedSelection& candidate) const {
    return candidate.highest_bytes <= room_.largest && candidate.highest_host <= room_.host;
  }

 private:
  struct Work;

  void sweep();
  void squeeze(const Caps& caps);
  void spread(const Caps& caps);
  Caps caps(const Selection& fastest) const;
  bool is_new(const Selection& selection);
  bool enough(bool better);
  void refine();
  void try_all();
  bool offer(Selection selection);
  PlacedSelection place(Selection selection);
  BudgetBytes take_pieces(const Selection& selection) const;
  PlacedSelection fixed(Selection selection, const std::vector<std::vector<std::int64_t>>& places) const;
  Work empty_work(const Amount& unit) const;
  void measure(const Placement& ranks, PlacedSelection* candidate) const;
  double slowest(const Placement& ranks) const;
  void gather(const Selection& selection, Work* work) const;
  void place_on_nodes(PlacedSelection* candidate, Work* work);
  void place_on_ranks(PlacedSelection* candidate, Work* work);
  Amount amount_of(const Option& option) const;
  Amount unit_of(const Selection& selection) const;
  std::vector<std::int64_t> allowed_ranks(std::size_t table, std::int64_t first, std::int64_t count) const;
  std::vector<std::int64_t> allowed_nodes(std::size_t table) const;
  void add_rows(Placement* ranks, std::size_t table, const Option& option, std::int64_t first,
                std::int64_t count) const;
  void level(Placement* ranks, const Amount& unit) const;
  double score_of(const PlacedSelection& candidate) const;
  bool good_enough() const;
  std::vector<std::size_t> heaviest(std::int64_t rank, bool by_time) const;
  bool improve(std::size_t table, std::int64_t most_effort);
  bool improve_alike(std::int64_t most_effort);

  const ShardRequest& request_;
  const Options& options_;
  CostModel model_;
  Room room_;
  std::vector<const Constraint*> constraints_;
  bool lockstep_;  // time is the critical path of the stages
  std::size_t measures_;
  double ranks_;
  double near_optimal_;
  TimeBound bound_;
  double mean_bytes_ = 1;  // of the fastest selection
  bool scarce_ = false;    // memory of the cards
  std::int64_t effort_ = 0;
  std::vector<std::vector<const Option*>> tried_;
  PlacedSelection best_;
};

}  // namespace plimsoll::estimator::sharder
