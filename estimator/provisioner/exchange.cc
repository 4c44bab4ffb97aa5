#include "estimator/provisioner/exchange.h"

#include <algorithm>
#include <array>

#include "estimator/sharder/cost.h"

namespace plimsoll::estimator::inline provisioner {
namespace {

constexpr double kIndexBytes = 8;  // of an index, a length and an offset: int64
constexpr std::size_t kTypes = 7;

// The tables of one sharding type, which torchrec's collections look up and exchange together. Counts of elements.
struct Group {
  std::int64_t first = -1;  // of its tables; torchrec makes the groups in their order. -1: no tables
  double columns = 0;       // of the results: all tables and features
  double lookups = 0;       // a sample, of all features
  double features = 0;
  double table_bytes = 0;     // of tables that every rank copies
  double block_lookups = 0;   // of the tables' column blocks, each of which gets all of its table's
  double block_features = 0;  // likewise
};

// What one rank looks up of a group for all trainers, for each sample of theirs.
struct Share {
  double columns = 0;
  double lookups = 0;
  double features = 0;
  double values = 0;  // of the rows that are looked up: of each, the columns of this share
};

// One kind of collection, pooled or sequences, by sharding type.
using Groups = std::array<Group, kTypes>;
using Shares = std::array<Share, kTypes>;

// Memory in use, and the most so far.
class Level {
 public:
  void add(double bytes) {
    live_ += bytes;
    peak_ = std::max(peak_, live_);
  }
  void remove(double bytes) { live_ -= bytes; }
  void touch(double bytes) {
    add(bytes);
    remove(bytes);
  }
  Bytes peak() const { return Bytes::ceil(std::max(0.0, peak_)); }

 private:
  double live_ = 0;
  double peak_ = 0;
};

bool by_columns(ShardingType type) {
  return type == ShardingType::kTableWise || type == ShardingType::kColumnWise ||
         type == ShardingType::kTableColumnWise;
}

bool in_column_blocks(ShardingType type) {
  return type == ShardingType::kColumnWise || type == ShardingType::kTableColumnWise ||
         type == ShardingType::kGrid;
}

// Replays the lookups of one kind of collection on one rank.
class Collection {
 public:
  Collection(const CostModel& model, const ExchangeOptions& options, bool pooled, const Groups& groups,
             const Shares& shares)
      : options_(options),
        pooled_(pooled),
        batch_(model.batch),
        trainers_(static_cast<double>(model.trainers)),
        local_(static_cast<double>(model.local)),
        groups_(groups),
        shares_(shares) {}

  // Indices and offsets that arrive here, and gradients of copied tables in DDP's buckets.
  double kept() const {
    double bytes = 0;
    for (const ShardingType type : used()) {
      if (type == ShardingType::kDataParallel) {
        bytes += trainers_ > 1 ? group(type).table_bytes : 0;
        continue;
      }
      bytes += indices(type) + lengths(type);
      if (!pooled_ && !by_columns(type)) {
        bytes += kIndexBytes * batch_ *
                 group(type).lookups;  // where each row was before they were cut into blocks
      }
      // torchrec distributed/embedding.py, input_dist: features are repeated for each column block of their table, and the
      // context of sequences keeps them (features_before_input_dist).
      if (!pooled_ && group(type).block_features > group(type).features) {
        bytes += kIndexBytes * batch_ * (group(type).block_lookups + group(type).block_features);
      }
    }
    return bytes;
  }

  ExchangePeaks peaks() const { return {.forward = forward(), .backward = backward(), .unmade = unmade()}; }

 private:
  std::vector<ShardingType> used() const {
    std::vector<ShardingType> types;
    for (std::size_t i = 0; i < kTypes; ++i) {
      if (groups_[i].first >= 0) {
        types.push_back(static_cast<ShardingType>(i));
      }
    }
    std::sort(types.begin(), types.end(),
              [&](ShardingType a, ShardingType b) { return group(a).first < group(b).first; });
    return types;
  }
  const Group& group(ShardingType type) const { return groups_[static_cast<std::size_t>(type)]; }
  const Share& share(ShardingType type) const { return shares_[static_cast<std::size_t>(type)]; }

  double results(ShardingType type) const {
    return batch_ * (pooled_ ? group(type).columns : group(type).lookups * width(type)) *
           static_cast<double>(options_.result_bytes);
  }
  // Columns of one row of a sequence: those of all tables of a collection are equal.
  double width(ShardingType type) const {
    return group(type).features > 0 ? group(type).columns / group(type).features : 0;
  }
  // What this rank looks up for all.
  double looked_up(ShardingType type) const {
    if (type == ShardingType::kDataParallel) {
      return results(type);
    }
    const double values = pooled_ ? share(type).columns : share(type).values;
    return batch_ * trainers_ * values * static_cast<double>(options_.result_bytes);
  }
  double indices(ShardingType type) const { return kIndexBytes * batch_ * trainers_ * share(type).lookups; }
  double lengths(ShardingType type) const { return kIndexBytes * batch_ * trainers_ * share(type).features; }
  bool reduces(ShardingType type) const { return pooled_ && type == ShardingType::kRowWise; }
  bool reduces_in_node(ShardingType type) const {
    return pooled_ && (type == ShardingType::kTableRowWise || type == ShardingType::kGrid);
  }
  double copied(double bytes) const { return options_.collectives_copy ? bytes : 0; }

  // KJTAllToAll: features in the order of their ranks (or by blocks of rows), what arrives, and that in the order
  // of the tables, which lookups read.
  void distribute_input(Level& level) const {
    double sent = 0;
    double arrived = 0;
    for (const ShardingType type : used()) {
      if (type == ShardingType::kDataParallel) {
        continue;
      }
      const double blocks = by_columns(type) ? 1 : trainers_;  // lengths for each block of rows
      sent += kIndexBytes * batch_ * (group(type).lookups + group(type).features * blocks);
      arrived += indices(type) + lengths(type);
    }
    level.add(sent);
    level.add(arrived);
    level.touch(arrived);
    level.remove(sent + arrived);
  }

  Bytes forward() const {
    Level level;
    double all = 0;
    distribute_input(level);
    const std::vector<ShardingType> types = used();
    for (const ShardingType type : types) {
      all += results(type);
      send(level, type);
    }
    for (const ShardingType type : types) {
      receive(level, type);
    }
    if (types.size() > 1 && pooled_) {
      level.add(all);  // construct_output_kt: torch.cat
    }
    return level.peak();
  }

  // Until the exchange has begun.
  void send(Level& level, ShardingType type) const {
    const double out = looked_up(type);
    level.add(out);
    if (type == ShardingType::kDataParallel) {
      return;
    }
    const double lists =
        lengths(type) * (pooled_ ? 1 : 3);  // that arrived; of sequences also by rank, and in bytes
    level.add(lists);
    exchange(level, type, out);
    level.remove(lists);
  }

  void exchange(Level& level, ShardingType type, double out) const {
    if (reduces_in_node(type)) {
      const double reduced = out / local_;
      level.add(reduced);
      level.touch(copied(out));
      level.add(results(type));
      level.touch(reduced);  // a copy to be sent, as below
      level.remove(out);
      return;
    }
    if (reduces(type)) {
      level.add(results(type));
      level.touch(copied(out));
      return;
    }
    level.add(out);  // All2All_Pooled_Req's registered copy; All2All_Seq_Req's rows by rank
    level.add(results(type));
    level.remove(out);
  }

  // After it only the results are left.
  void receive(Level& level, ShardingType type) const {
    const double result = results(type);
    if (type == ShardingType::kDataParallel) {
      return;
    }
    level.remove(reduces_in_node(type) ? looked_up(type) / local_ : looked_up(type));
    if (reduces(type)) {
      return;
    }
    const bool reorders = pooled_ || !by_columns(type);  // torch.cat by rank; index_select of bucketed rows
    if (reorders) {
      level.touch(result);
    }
    if (in_column_blocks(type)) {
      level.touch(result);  // fbgemm.permute_pooled_embs: the blocks of a table side by side
    }
  }

  // Autograd runs the youngest nodes first: all gradients are sent before one that has arrived is used.
  Bytes backward() const {
    Level level;
    const std::vector<ShardingType> types = used();
    for (auto type = types.rbegin(); type != types.rend(); ++type) {
      return_gradient(level, *type, types.size() > 1);
    }
    for (auto type = types.rbegin(); type != types.rend(); ++type) {
      take_gradient(level, *type);
    }
    return level.peak();
  }

  Bytes unmade() const {
    const std::vector<ShardingType> types = used();
    const bool one_exchange = types.size() == 1 && types.front() != ShardingType::kDataParallel;
    double bytes = 0;
    for (const ShardingType type : types) {
      bytes += pooled_ && !one_exchange ? results(type) : 0;
    }
    return Bytes::ceil(bytes);
  }

  // Of the results, which several sharding types get as columns of one tensor (`split`).
  void return_gradient(Level& level, ShardingType type, bool split) const {
    const double gradient = results(type);
    if (type == ShardingType::kDataParallel) {
      return;
    }
    if (in_column_blocks(type) || (pooled_ && split)) {
      level.add(gradient);  // the permutation's gradient; contiguous() of some columns
      level.remove(split ? 0 : gradient);
    }
    if (reduces(type)) {
      level.add(looked_up(type));
      level.touch(copied(looked_up(type)));
      return;
    }
    if (!pooled_) {
      if (!by_columns(type)) {
        level.touch(gradient);  // index_select's
      }
      level.add(looked_up(type));
      return;
    }
    level.add(gradient);    // _recat_pooled_embedding_grad_out: a copy of each rank's columns,
    level.touch(gradient);  // and all of them as one, which is sent
    level.add(reduces_in_node(type) ? looked_up(type) / local_ : looked_up(type));
    level.remove(gradient);
  }

  // Until the tables are updated.
  void take_gradient(Level& level, ShardingType type) const {
    const double out = looked_up(type);
    if (type == ShardingType::kDataParallel) {
      level.add(group(type).table_bytes);  // dense; in DDP's bucket afterwards
      level.remove(trainers_ > 1 ? group(type).table_bytes : 0);
      return;
    }
    level.remove(results(type));  // sent
    if (!pooled_) {
      level.touch(out);  // rows by table again
    }
    if (reduces_in_node(type)) {
      level.add(out);
      level.touch(copied(out));
      level.remove(out / local_);
    }
    level.remove(out);
  }

  const ExchangeOptions& options_;
  bool pooled_;
  double batch_;
  double trainers_;
  double local_;
  const Groups& groups_;
  const Shares& shares_;
};

// The tables of one kind: what is the same on all ranks, and each rank's share.
struct Kind {
  Groups groups;
  Shares everywhere;  // of every rank: tables cut by rows
  std::vector<Shares> ranks;
};

void add(const CostModel& model, const ShardRequest& request, const TablePlacement& placement, Kind& kind) {
  const Table& table = request.tables[static_cast<std::size_t>(placement.table)];
  const auto type = static_cast<std::size_t>(placement.type);
  const double features = static_cast<double>(table.features);
  Group& group = kind.groups[type];
  group.first = group.first < 0 ? placement.table : std::min(group.first, placement.table);
  group.columns += features * static_cast<double>(table.dim);
  group.lookups += table.lookups_per_sample;
  group.features += features;
  if (placement.type == ShardingType::kDataParallel) {
    group.table_bytes += static_cast<double>(table.rows) * static_cast<double>(table.dim) *
                         static_cast<double>(table.element_bytes);
    return;
  }
  if (placement.type == ShardingType::kRowWise) {
    Share& share = kind.everywhere[type];
    share.columns += features * static_cast<double>(table.dim);
    share.lookups += table.lookups_per_sample / static_cast<double>(model.trainers);
    share.values +=
        table.lookups_per_sample / static_cast<double>(model.trainers) * static_cast<double>(table.dim);
    share.features += features;
    return;
  }
  const double ranks = by_columns(placement.type) ? 1 : static_cast<double>(model.local);
  for (const Shard& shard : placement.shards) {
    charge(request.work_budget, 1);
    Share& share = kind.ranks[static_cast<std::size_t>(shard.rank)][type];
    const auto columns = static_cast<double>(shard.column_end - shard.column_begin);
    share.columns += features * columns;
    share.lookups += table.lookups_per_sample / ranks;
    share.values += table.lookups_per_sample / ranks * columns;
    group.block_lookups += table.lookups_per_sample / ranks;
    group.block_features += features / ranks;
    share.features += features;
  }
}

}  // namespace

std::vector<RankExchange> exchanges_of(const ShardRequest& request, const Plan& plan,
                                       const ExchangeOptions& options) {
  const CostModel model(request);
  const std::size_t count = plan.ranks.size();
  const BudgetBytes memory(request.work_budget, Bytes{2 * sizeof(Shares)} * static_cast<std::int64_t>(count));
  Kind pooled{.groups = {}, .everywhere = {}, .ranks = std::vector<Shares>(count)};
  Kind sequences = pooled;
  for (const TablePlacement& placement : plan.placements) {
    charge(request.work_budget, 1);
    const Table& table = request.tables[static_cast<std::size_t>(placement.table)];
    add(model, request, placement, table.pooled ? pooled : sequences);
  }
  constexpr auto kRowWise = static_cast<std::size_t>(ShardingType::kRowWise);
  std::vector<RankExchange> ranks;
  ranks.reserve(count);
  for (std::size_t rank = 0; rank < count; ++rank) {
    charge(request.work_budget, kTypes);
    for (Kind* kind : {&pooled, &sequences}) {
      kind->ranks[rank][kRowWise] = kind->everywhere[kRowWise];
    }
    const Collection bags(model, options, true, pooled.groups, pooled.ranks[rank]);
    const Collection lists(model, options, false, sequences.groups, sequences.ranks[rank]);
    ranks.push_back({.kept = Bytes::ceil(bags.kept() + lists.kept()),
                     .pooled = bags.peaks(),
                     .sequences = lists.peaks()});
  }
  return ranks;
}

}  // namespace plimsoll::estimator::provisioner
