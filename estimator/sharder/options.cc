#include "estimator/sharder/options.h"

#include <algorithm>

namespace plimsoll::estimator {

namespace {

// Finer cuts than this cost more in indices than they gain in balance.
constexpr std::int64_t kMostCuts = 64;
constexpr std::int64_t kLeastColumns = 32;
// FBGEMM's kernels read rows in vectors of four elements.
constexpr std::int64_t kColumnStep = 4;

Option whole_columns(const CostModel& model, const TableCost& cost, const Table& table, ShardingType type) {
  Option option{.type = type,
                .kernel = type == ShardingType::kDataParallel ? Kernel::kDense : Kernel::kFused};
  option.ms = cost.times(type, option.kernel, table.dim).total();
  const double trainers = static_cast<double>(model.trainers);
  const std::int64_t block = cost.row_block(type);
  option.bytes = static_cast<double>(cost.held(type, option.kernel, block, table.dim).card.count);
  if (type == ShardingType::kDataParallel) {
    option.total_ms = option.ms * trainers;
    option.total_bytes = option.bytes * trainers;
    return option;
  }
  const std::int64_t ranks = type == ShardingType::kRowWise        ? model.trainers
                             : type == ShardingType::kTableRowWise ? model.local
                                                                   : 1;
  option.total_ms = option.ms * static_cast<double>(ranks);
  option.total_bytes =
      option.bytes * static_cast<double>(table.rows / block) +
      static_cast<double>(cost.held(type, option.kernel, table.rows % block, table.dim).card.count);
  return option;
}

Option column_blocks(const TableCost& cost, const Table& table, std::int64_t cuts) {
  Option option{.type = ShardingType::kColumnWise, .cuts = static_cast<std::int32_t>(cuts)};
  const std::int64_t columns = table.dim / cuts;
  option.ms = cost.times(option.type, option.kernel, columns).total();
  option.bytes = static_cast<double>(cost.held(option.type, option.kernel, table.rows, columns).card.count);
  option.total_ms = option.ms * static_cast<double>(cuts);
  option.total_bytes = option.bytes * static_cast<double>(cuts);
  return option;
}

}  // namespace

Options::Options(const ShardRequest& request) {
  const CostModel model(request);
  const double budget = std::min(static_cast<double>(request.budget.count), kLargestBudget);
  all_.reserve(request.tables.size() * 8);
  first_.reserve(request.tables.size() + 1);
  smallest_.reserve(request.tables.size());
  first_.push_back(0);
  for (const Table& table : request.tables) {
    const TableCost cost(model, table);
    Option smallest = whole_columns(model, cost, table, ShardingType::kTableWise);
    const auto offer = [&](const Option& option) {
      if (option.bytes <= budget) {
        all_.push_back(option);
      }
      if (option.bytes < smallest.bytes) {
        smallest = option;
      }
    };
    offer(smallest);
    if (model.trainers > 1) {
      offer(whole_columns(model, cost, table, ShardingType::kDataParallel));
      offer(whole_columns(model, cost, table, ShardingType::kRowWise));
      if (model.nodes > 1) {
        offer(whole_columns(model, cost, table, ShardingType::kTableRowWise));
      }
      const std::int64_t most = std::min({table.dim / kLeastColumns, model.trainers, kMostCuts});
      for (std::int64_t cuts = 2; cuts <= most; ++cuts) {
        if (table.dim % (cuts * kColumnStep) == 0) {
          offer(column_blocks(cost, table, cuts));
        }
      }
    }
    smallest_.push_back(smallest);
    first_.push_back(all_.size());
  }
}

}  // namespace plimsoll::estimator
