// The ways each table may be sharded, with what each costs: the search's raw material.
//
//   Options options(request);
//   for (const Option& option : options.of(table)) ...
//
// One entry per way, not per shard: equal shards cost the same, so thousands of tables on thousands of
// trainers stay a few tens of thousands of entries. Plain values; any thread; does not refer to the request.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "estimator/sharder/cost.h"
#include "estimator/sharder/plan.h"

namespace plimsoll::estimator::inline sharder {

// Bytes are doubles here: exact below 2^53, and no card holds 2^52 (4 PiB), where budgets are cut off.
inline constexpr double kLargestBudget = 4503599627370496.0;

struct Option {
  ShardingType type = ShardingType::kTableWise;
  Kernel kernel = Kernel::kFused;
  std::int32_t cuts = 1;   // equal column blocks; 1 unless columns are cut
  double ms = 0;           // of one shard, on each rank that holds one
  double bytes = 0;        // of the largest shard, on its card
  double total_ms = 0;     // over all ranks
  double total_bytes = 0;  // over all ranks
  double compute_ms = 0;   // part of `ms`
  double host_bytes = 0;   // of the largest shard, on its host
  double total_host = 0;   // over all ranks

  // Work that is the same on every trainer.
  bool everywhere() const { return type == ShardingType::kDataParallel || type == ShardingType::kRowWise; }
  // Each part takes a whole node.
  bool on_nodes() const { return type == ShardingType::kTableRowWise || type == ShardingType::kGrid; }
};

// Budgets of the trainers, as the search sees them.
struct Room {
  explicit Room(const ShardRequest& request);

  double largest = 0;             // budget of one card
  double total = 0;               // of all cards
  double host = 0;                // budget of each trainer's share of its host's memory
  std::vector<double> shortfall;  // of each trainer to the largest; empty: none has any
};

class Options {
 public:
  // Only those whose largest shard a trainer can hold. The request must be valid. Their memory is taken from
  // the request's budget.
  explicit Options(const ShardRequest& request);

  std::span<const Option> of(std::size_t table) const {
    return {all_.data() + first_[table], all_.data() + first_[table + 1]};
  }
  std::size_t tables() const { return first_.size() - 1; }

  // The longest of all shards that only some ranks have, and the longest in compute: no cap above these
  // excludes any.
  double longest_ms() const { return longest_ms_; }
  double longest_compute() const { return longest_compute_; }

  // The option with the smallest shard among all there are, fitting or not; what a failure is explained with.
  const Option& smallest(std::size_t table) const { return smallest_[table]; }

  // False when the table's constraint leaves no way to shard it on so many trainers, whatever the memory.
  bool possible(std::size_t table) const { return smallest_[table].cuts > 0; }

  // For who looks at all options once more.
  void charge_scan() const { charge(memory_.budget(), all_.size() / kScannedPerUnit + 1); }
  Budget* budget() const { return memory_.budget(); }

 private:
  // Options that a plain scan passes in the time of a unit of work.
  static constexpr std::size_t kScannedPerUnit = 64;

  BudgetBytes memory_;
  std::vector<Option> all_;
  std::vector<std::size_t> first_;
  std::vector<Option> smallest_;
  double longest_ms_ = 0;
  double longest_compute_ = 0;
};

}  // namespace plimsoll::estimator::sharder
