// The state of a search: the load of each rank, and the pieces that may still be moved. The "ranks" are nodes
// while the shards that take a whole node are placed, and trainers afterwards.
//
//   Placement placement(trainers, measures);
//   placement.add_everywhere(unsharded);
//   placement.place(pieces, unit);
//   placement.level(Measure::kTime, target, limits, steps);
//
// Owns copies of its inputs. Not thread-safe. Deterministic: ties go to the lower number.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "base/budget.h"

namespace plimsoll::estimator::inline sharder {

// kTime is a shard's whole time, or that of its exchanges where compute is measured separately.
struct Measure {
  enum Index : std::size_t { kTime, kMemory, kCompute, kHost };
};
inline constexpr std::size_t kMeasures = 4;
using Amount = std::array<double, kMeasures>;  // milliseconds, bytes, milliseconds, bytes

struct Piece {
  Amount amount{};
  std::int32_t table = 0;
  std::int32_t part = 0;   // number of the column block
  std::int32_t zone = -1;  // the ranks that may hold it; -1: all
};

class Placement {
 public:
  // `measures`: how many of the measures are in use. Pieces and ranks take memory and work from `budget`.
  Placement(std::int64_t ranks, std::size_t measures, Budget* budget = nullptr);

  // Adds a set of ranks for pieces that not all ranks may hold; returns its number.
  std::int32_t add_zone(std::vector<std::int64_t> ranks);

  void add_everywhere(const Amount& amount);
  void add(std::int64_t rank, const Amount& amount);

  // Places the largest first, those with a zone before the others, each on the rank where its highest measure
  // stays lowest. `unit`, an amount that fills a rank, makes the measures comparable.
  void place(std::vector<Piece> pieces, const Amount& unit);

  // Moves and swaps shards between the fullest rank and emptier ones until no rank has more than `target` of
  // `measure`, no exchange helps, or `steps` exchanges are made. No rank's other measures grow past `limits`.
  void level(std::size_t measure, double target, const Amount& limits, std::int64_t steps);

  double load(std::int64_t rank, std::size_t measure) const {
    return load_[measure][static_cast<std::size_t>(rank)];
  }
  double highest(std::size_t measure) const {
    return *std::max_element(load_[measure].begin(), load_[measure].end());
  }
  std::int64_t fullest(std::size_t measure) const {  // the rank that has the highest
    return std::max_element(load_[measure].begin(), load_[measure].end()) - load_[measure].begin();
  }
  // Comparisons made so far: a measure of time that does not depend on a clock.
  std::int64_t effort() const { return effort_; }
  const std::vector<std::vector<Piece>>& pieces() const { return pieces_; }

 private:
  struct Exchange {
    std::size_t partner = 0;
    std::size_t given = 0;
    std::int64_t taken = -1;  // none: a move
    double highest = 0;       // of the two ranks, afterwards
  };
  struct Goal {
    std::size_t measure = 0;
    double target = 0;
    Amount limits{};
  };
  std::size_t emptiest(const Piece& piece, const std::array<std::vector<double>, kMeasures>& shares,
                       const Amount& more) const;
  Amount full(std::size_t main, const Amount& limits) const;
  void consider(std::size_t from, std::size_t to, const Goal& goal, Exchange* best);
  void apply(std::size_t from, const Exchange& exchange, std::size_t measure);
  bool may_hold(std::size_t rank, const Piece& piece) const {
    return piece.zone < 0 || zone_holds_[static_cast<std::size_t>(piece.zone)][rank];
  }

  Budget* budget_;
  BudgetBytes memory_;
  std::size_t measures_;
  std::array<std::vector<double>, kMeasures> load_;  // by measure, then rank
  std::int64_t effort_ = 0;
  std::vector<std::vector<Piece>> pieces_;  // by rank; in ascending order of the measure being levelled
  std::vector<std::vector<std::int64_t>> zones_;
  std::vector<std::vector<bool>> zone_holds_;
};

}  // namespace plimsoll::estimator::sharder
