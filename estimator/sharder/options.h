// The ways to shard each table, and what each way costs: the input of the search.
//
//   Options options(request);
//   for (const Option& option : options.of(table)) ...
//
// One entry for each way, not for each shard: equal shards cost the same, so thousands of tables on thousands
// of trainers make only tens of thousands of entries. Plain values; any thread; does not refer to the request.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "estimator/sharder/cost.h"
#include "estimator/sharder/plan.h"

namespace plimsoll::estimator::inline sharder {

// Bytes are doubles here, exact below 2^53. Budgets are cut off at 2^52 (4 PiB), which no GPU has.
inline constexpr double kLargestBudget = 4503599627370496.0;

struct Option {
  ShardingType type = ShardingType::kTableWise;
  Kernel kernel = Kernel::kFused;
  std::int32_t cuts = 1;   // equal column blocks; 1 unless columns are cut
  double ms = 0;           // of one shard, on each rank that holds one
  double bytes = 0;        // of the largest shard, in GPU memory
  double total_ms = 0;     // over all ranks
  double total_bytes = 0;  // over all ranks
  double compute_ms = 0;   // part of `ms`
  double host_bytes = 0;   // of the largest shard, in host memory
  double total_host = 0;   // over all ranks

  // The work is the same on every trainer.
  bool everywhere() const { return type == ShardingType::kDataParallel || type == ShardingType::kRowWise; }
  // Each column block takes a whole node.
  bool on_nodes() const { return type == ShardingType::kTableRowWise || type == ShardingType::kGrid; }
  // The ranks that hold one column block between them, or a copy each.
  std::int64_t ranks_per_block(const CostModel& model) const {
    return everywhere() ? model.trainers : on_nodes() ? model.local : 1;
  }
};

// The trainers' budgets in bytes.
struct MemoryLimits {
  explicit MemoryLimits(const ShardRequest& request);

  double gpu = 0;  // of one GPU, the largest
  double all_gpus = 0;
  double host = 0;                // host memory of one trainer
  std::vector<double> shortfall;  // by trainer: how much less than `gpu` it has; empty when all are equal
};

class Options {
 public:
  // Only options whose largest shard fits a trainer. The request must be valid. Their memory is taken from the
  // request's work budget.
  explicit Options(const ShardRequest& request);

  std::span<const Option> of(std::size_t table) const {
    return {all_.data() + first_[table], all_.data() + first_[table + 1]};
  }
  std::size_t tables() const { return first_.size() - 1; }

  // The longest time, and the longest compute time, of the shards that only some ranks have: a cap above these
  // excludes none.
  double longest_ms() const { return longest_ms_; }
  double longest_compute() const { return longest_compute_; }

  // The option with the smallest shard, whether it fits or not; it explains a failure.
  const Option& smallest(std::size_t table) const { return smallest_[table]; }

  // The fewest bytes in GPU memory that any option of the table takes on all trainers together, whether it fits or not.
  double lightest(std::size_t table) const { return lightest_[table]; }

  // False when the table's constraint allows no option on so many trainers, whatever the memory.
  bool possible(std::size_t table) const { return smallest_[table].cuts > 0; }

  // To be called before a scan of all options.
  void charge_scan() const { charge(memory_.budget(), all_.size() / kScannedPerUnit + 1); }
  Budget* budget() const { return memory_.budget(); }

 private:
  // Options that are scanned in the time of one unit of work.
  static constexpr std::size_t kScannedPerUnit = 64;

  BudgetBytes memory_;
  std::vector<Option> all_;
  std::vector<std::size_t> first_;
  std::vector<Option> smallest_;
  std::vector<double> lightest_;
  double longest_ms_ = 0;
  double longest_compute_ = 0;
};

}  // namespace plimsoll::estimator::sharder
