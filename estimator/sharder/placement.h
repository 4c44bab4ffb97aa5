// A plan in the making: what each rank has to do and to hold, and the pieces that may still be moved. The
// "ranks" are hosts while the shards that take a whole host are placed, and trainers afterwards.
//
//   Placement placement(trainers);
//   placement.add_everywhere(...); placement.place(pieces, unit);
//   placement.level(Measure::kTime, target, memory_limit, steps);
//
// Owns copies of all it is given. Not thread-safe. Deterministic: ties go to the lower number.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace plimsoll::estimator {

enum class Measure : std::size_t { kTime = 0, kMemory = 1 };
using Amount = std::array<double, 2>;  // milliseconds, bytes

struct Piece {
  Amount amount{};
  std::int32_t table = 0;
  std::int32_t part = 0;  // number of the column block
};

class Placement {
 public:
  explicit Placement(std::int64_t ranks);

  void add_everywhere(Amount amount);
  void add(std::int64_t rank, Amount amount);

  // Largest first, each to where the fuller of the two measures stays lowest; the measures are made
  // comparable by `unit`, an amount that fills a rank.
  void place(std::vector<Piece> pieces, Amount unit);

  // Moves and swaps shards between the fullest rank and emptier ones until no rank has more than `target` of
  // `measure`, no exchange helps, or `steps` exchanges are made. The other measure of no rank grows past
  // `other_limit`.
  void level(Measure measure, double target, double other_limit, std::int64_t steps);

  double highest(Measure measure) const;
  std::int64_t fullest(Measure measure) const;  // the rank that has the highest
  std::int64_t effort() const {
    return effort_;
  }  // comparisons made so far: time that no clock needs to tell
  const std::vector<std::vector<Piece>>& pieces() const { return pieces_; }

 private:
  struct Exchange {
    std::size_t partner = 0;
    std::size_t given = 0;
    std::int64_t taken = -1;  // none: a move
    double highest = 0;       // of the two ranks, afterwards
  };
  void consider(std::size_t from, std::size_t to, Measure measure, double other_limit, double target,
                Exchange* best);
  void apply(std::size_t from, const Exchange& exchange, Measure measure);

  std::array<std::vector<double>, 2> load_;  // by measure, then rank
  std::int64_t effort_ = 0;
  std::vector<std::vector<Piece>> pieces_;  // by rank; ascending in the measure that is being levelled
};

}  // namespace plimsoll::estimator
