// Random sharding requests for the sharder's tests, made from a seed; and the best plan there is, by trying
// all.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "estimator/sharder/cost.h"
#include "estimator/sharder/options.h"
#include "estimator/sharder/sharder.h"

namespace plimsoll::estimator {

struct Shape {
  std::int64_t most_tables = 60;
  std::vector<std::int64_t> trainers = {1, 2, 3, 4, 7, 8, 16, 24, 40};
  bool all_features = false;  // host memory, unequal trainers, constraints, pipelines, stages
};

template <class T>
const T& one_of(std::mt19937_64& random, const std::vector<T>& choices) {
  return choices[random() % choices.size()];
}

inline double between(std::mt19937_64& random, double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(random);
}

// 9.7 GiB of weights and state, without buffers.
inline ShardRequest hundred_tables() {
  ShardRequest request{.topology = {.trainers = 8}, .budget = 1_GiB};
  for (int i = 0; i < 100; ++i) {
    request.tables.push_back({.name = "t" + std::to_string(i), .rows = 400'000, .dim = 64});
  }
  return request;
}

// 24 tables of 32 MiB to 768 MiB, 9.4 GiB in all.
inline ShardRequest some_tables(std::int64_t trainers) {
  ShardRequest request{.topology = {.trainers = trainers, .per_node = 4}, .budget = 8_GiB};
  for (int i = 1; i <= 24; ++i) {
    request.tables.push_back(
        {.name = "t" + std::to_string(i), .rows = 65'536 * i, .dim = 128, .lookups_per_sample = 1.0 + i % 5});
  }
  return request;
}

class Exhaustive {
 public:
  Exhaustive(const ShardRequest& request, const Options& options)
      : options_(options), budget_(static_cast<double>(request.budget.count)), request_(request) {
    const std::size_t ranks = static_cast<std::size_t>(request.topology.trainers);
    ms_.assign(ranks, 0);
    bytes_.assign(ranks, 0);
  }

  std::optional<double> run() {
    table(0);
    return best_;
  }

 private:
  void table(std::size_t index) {
    if (best_ && *std::max_element(ms_.begin(), ms_.end()) >= *best_) {
      return;
    }
    if (index == options_.tables()) {
      best_ = *std::max_element(ms_.begin(), ms_.end());
      return;
    }
    for (const Option& option : options_.of(index)) {
      if (option.everywhere()) {
        everywhere(index, option, 0);
      } else {
        part(index, option, 0, 0);
      }
    }
  }

  void everywhere(std::size_t index, const Option& option, std::size_t rank) {
    if (rank == ms_.size()) {
      table(index + 1);
      return;
    }
    const CostModel model(request_);
    const Table& of = request_.tables[index];
    const TableCost cost(model, of);
    const std::int64_t rows = cost.rows_of(option.type, static_cast<std::int64_t>(rank));
    put(rank, option.ms, static_cast<double>(cost.held(option.type, option.kernel, rows, of.dim).card.count),
        [&] { everywhere(index, option, rank + 1); });
  }

  // Equal parts: each goes no lower than the one before it.
  void part(std::size_t index, const Option& option, std::int32_t placed, std::size_t from) {
    if (placed == option.cuts) {
      table(index + 1);
      return;
    }
    const std::size_t local = static_cast<std::size_t>(CostModel(request_).local);
    if (option.on_nodes()) {
      for (std::size_t node = from; node < ms_.size() / local; ++node) {
        node_rows(index, option, placed, node, 0);
      }
      return;
    }
    for (std::size_t rank = from; rank < ms_.size(); ++rank) {
      put(rank, option.ms, option.bytes, [&] { part(index, option, placed + 1, rank); });
    }
  }

  // The rows of one part, over the ranks of a node.
  void node_rows(std::size_t index, const Option& option, std::int32_t placed, std::size_t node,
                 std::size_t shard) {
    const CostModel model(request_);
    if (shard == static_cast<std::size_t>(model.local)) {
      part(index, option, placed + 1, node);
      return;
    }
    const Table& of = request_.tables[index];
    const TableCost cost(model, of);
    const std::int64_t rows = cost.rows_of(option.type, static_cast<std::int64_t>(shard));
    const Bytes held = cost.held(option.type, option.kernel, rows, of.dim / option.cuts).card;
    put(node * static_cast<std::size_t>(model.local) + shard, option.ms, static_cast<double>(held.count),
        [&] { node_rows(index, option, placed, node, shard + 1); });
  }

  template <class Next>
  void put(std::size_t rank, double ms, double bytes, const Next& next) {
    if (bytes_[rank] + bytes > budget_) {
      return;
    }
    const double ms_before = ms_[rank];
    ms_[rank] += ms;
    bytes_[rank] += bytes;
    next();
    ms_[rank] = ms_before;
    bytes_[rank] -= bytes;
  }

  const Options& options_;
  double budget_;
  const ShardRequest& request_;
  std::vector<double> ms_;
  std::vector<double> bytes_;
  std::optional<double> best_;
};

// Turns on some of what a request may ask beside the usual.
inline void add_features(std::mt19937_64& random, ShardRequest* request) {
  using enum ShardingType;
  const std::int64_t trainers = request->topology.trainers;
  const auto sometimes = [&] { return random() % 3 == 0; };
  request->topology.per_node = trainers % 4 == 0 && sometimes() ? 4 : request->topology.per_node;
  request->cost = sometimes() ? CostMethod::kStages : CostMethod::kTorchrec;
  request->allocated_bytes = sometimes();
  request->pipeline = one_of<Pipeline>(
      random, {Pipeline::kNone, Pipeline::kNone, Pipeline::kSparseDist, Pipeline::kPrefetchSparseDist});
  request->embeddings_at_peak = sometimes();
  request->time_slack = one_of<double>(random, {0, 0.005, 0.005, 0.2});
  if (sometimes()) {
    request->host_budget = request->budget * one_of<std::int64_t>(random, {1, 4});
    request->cache_ratio = between(random, 0.01, 1);
  }
  for (std::int64_t rank = 0; rank < trainers && sometimes(); rank = trainers) {
    for (; rank < trainers; ++rank) {
      request->budgets.push_back(
          Bytes::ceil(static_cast<double>(request->budget.count) * between(random, 0.7, 1.3)));
    }
  }
  for (std::size_t i = 0; i < request->tables.size(); ++i) {
    request->tables[i].weighted = random() % 5 == 0;
    if (random() % 8 != 0) {
      continue;
    }
    Constraint constraint{.table = static_cast<std::int64_t>(i)};
    if (sometimes()) {
      constraint.types = one_of<std::vector<ShardingType>>(random, {{kTableWise},
                                                                    {kColumnWise, kTableColumnWise},
                                                                    {kTableColumnWise},
                                                                    {kRowWise, kGrid},
                                                                    {kTableRowWise},
                                                                    {kGrid},
                                                                    {kDataParallel, kTableWise}});
    }
    for (std::int64_t rank = 0; rank < trainers && sometimes(); ++rank) {
      constraint.ranks.push_back(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(trainers)));
    }
    request->constraints.push_back(std::move(constraint));
  }
}

// Tables of very different sizes and heat; a budget from hopeless to ample.
inline ShardRequest random_request(std::mt19937_64& random, const Shape& shape) {
  ShardRequest request;
  request.topology.trainers = one_of(random, shape.trainers);
  request.batch_size = one_of<std::int64_t>(random, {1, 64, 512, 1024, 8192});
  request.optimizer =
      one_of<crds::Optimizer>(random, {crds::Optimizer::kRowWiseAdagrad, crds::Optimizer::kAdam,
                                       crds::Optimizer::kSGD, crds::Optimizer::kAdagrad});
  const std::int64_t tables =
      1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(shape.most_tables));
  double total = 0;
  for (std::int64_t i = 0; i < tables; ++i) {
    Table table{.name = "t" + std::to_string(i),
                .rows = static_cast<std::int64_t>(std::pow(10, between(random, 0, 8.5))),
                .dim = one_of<std::int64_t>(random, {1, 4, 8, 16, 20, 32, 64, 96, 100, 128, 192, 256, 768}),
                .lookups_per_sample = random() % 10 == 0 ? 0 : std::pow(10, between(random, -3, 2.3)),
                .element_bytes = one_of<std::int64_t>(random, {1, 2, 4, 4, 4})};
    total += static_cast<double>(table.rows * table.dim * table.element_bytes);
    request.tables.push_back(std::move(table));
  }
  const double share = total / static_cast<double>(request.topology.trainers);
  request.budget = Bytes::ceil(share * std::pow(10, between(random, -0.1, 1.2)) + between(random, 0, 1e9));
  if (shape.all_features) {
    add_features(random, &request);
  }
  return request;
}

// The least time of the slowest rank over all plans of the sharder's options that keep the budget; nothing
// when there is none. For a few tables on at most four trainers.
inline std::optional<double> exhaustive_time(const ShardRequest& request) {
  const Options options(request);
  return Exhaustive(request, options).run();
}

}  // namespace plimsoll::estimator
