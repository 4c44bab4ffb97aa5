#include "cli/shard_command_report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "base/words.h"
#include "cli/text_table.h"

namespace plimsoll::cli {
namespace {

constexpr int kBarWidth = 24;
constexpr std::size_t kMaxLines = 32;  // of ranks, or of nodes where there are more ranks
constexpr std::size_t kLargestTables = 8;
constexpr std::size_t kLargestOfRank = 3;

std::string number_text(double value) {
  return decimal_text(value, 3);
}

double ratio(double most, double mean) {
  return mean > 0 ? most / mean : 1;
}

double as_double(Bytes bytes) {
  return static_cast<double>(bytes.count);
}

void print_summary(Console& console, const estimator::ShardRequest& request, const estimator::Plan& plan) {
  const estimator::Topology& topology = request.topology;
  console.out << plan.placements.size() << " tables on " << counted(topology.trainers, "trainer") << ", "
              << std::min(topology.per_node, topology.trainers) << " a node, " << to_string(request.budget)
              << (request.budgets.empty() ? " each" : " at most") << "\n\n";
  TextTable table({"", "most", "mean", "bound"});
  table.add({"time of an iteration's lookups", milliseconds_text(plan.max_milliseconds),
             milliseconds_text(plan.mean_milliseconds), milliseconds_text(plan.lower_bound_milliseconds)});
  table.add({"memory of a trainer", to_string(plan.max_memory), to_string(plan.mean_memory),
             to_string(request.budget)});
  table.add({"memory of a node", to_string(plan.node_max_memory), to_string(plan.node_mean_memory), ""});
  console.out << table.to_string("  ") << "\n  "
              << number_text(ratio(plan.max_milliseconds, plan.lower_bound_milliseconds))
              << " times the lower bound on the time\n\n";
}

void print_critical_path(Console& console, const estimator::Plan& plan) {
  const double ranks = static_cast<double>(plan.ranks.size());
  TextTable table({"critical path", "slowest", "mean"});
  double total = 0;
  for (const auto& [name, stage] :
       {std::pair{"lookups forward", &estimator::StageTimes::forward_compute},
        std::pair{"exchange forward", &estimator::StageTimes::forward_exchange},
        std::pair{"lookups backward", &estimator::StageTimes::backward_compute},
        std::pair{"exchange backward", &estimator::StageTimes::backward_exchange}}) {
    double mean = 0;
    for (const estimator::RankLoad& load : plan.ranks) {
      mean += load.stages.*stage / ranks;
    }
    table.add({name, milliseconds_text(plan.critical_path.*stage), milliseconds_text(mean)});
    total += mean;
  }
  table.add({"all, in lockstep", milliseconds_text(plan.critical_path.total()), milliseconds_text(total)});
  console.out << table.to_string("  ") << '\n';
}

// How far from equal shares: the measures that torchrec's planner prints, each 0 when level and 1 when one
// rank has all.
void print_imbalance(Console& console, const estimator::Plan& plan) {
  const auto row = [&](const char* name, const std::vector<double>& loads) {
    const double total = std::accumulate(loads.begin(), loads.end(), 0.0);
    const double count = static_cast<double>(loads.size());
    double variation = 0;
    double distance = 0;
    double squares = 0;
    double divergence = 0;
    for (const double load : loads) {
      const double share = total > 0 ? load / total : 1 / count;
      variation = std::max(variation, std::abs(share - 1 / count));
      distance += std::abs(share - 1 / count);
      squares += (share - 1 / count) * (share - 1 / count) * count;
      divergence += share > 0 ? share * std::log(share * count) : 0;
    }
    const double rest = std::max(1 - 1 / count, 1e-12);
    return std::vector<std::string>{
        name,
        number_text(ratio(*std::max_element(loads.begin(), loads.end()), total / count)),
        number_text(variation / rest),
        number_text(distance / (2 * rest)),
        number_text(squares / std::max(count - 1, 1e-12)),
        number_text(count > 1 ? divergence / std::log(count) : 0)};
  };
  std::vector<double> times;
  std::vector<double> memory;
  for (const estimator::RankLoad& load : plan.ranks) {
    times.push_back(load.milliseconds);
    memory.push_back(as_double(load.memory));
  }
  TextTable table({"imbalance", "max/mean", "variation", "distance", "chi-square", "divergence"});
  table.add(row("time", times));
  table.add(row("memory", memory));
  console.out << table.to_string("  ") << '\n';
}

// One line a rank; where they are many, one a node with its worst rank; where those are many, the worst of
// them.
void print_ranks(Console& console, const estimator::ShardRequest& request, const estimator::Plan& plan) {
  const std::size_t local =
      static_cast<std::size_t>(std::min(request.topology.per_node, request.topology.trainers));
  const std::size_t width = plan.ranks.size() > kMaxLines ? local : 1;
  struct Line {
    std::size_t first = 0;
    double milliseconds = 0;
    Bytes memory;
  };
  std::vector<Line> lines;
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    if (rank % width == 0) {
      lines.push_back({.first = rank, .milliseconds = 0, .memory = {}});
    }
    lines.back().milliseconds = std::max(lines.back().milliseconds, plan.ranks[rank].milliseconds);
    lines.back().memory = std::max(lines.back().memory, plan.ranks[rank].memory);
  }
  const std::size_t all = lines.size();
  if (all > kMaxLines) {
    std::stable_sort(lines.begin(), lines.end(),
                     [](const Line& a, const Line& b) { return a.memory > b.memory; });
    lines.resize(kMaxLines);
  }
  double slowest = 0;
  for (const estimator::RankLoad& load : plan.ranks) {
    slowest = std::max(slowest, load.milliseconds);
  }
  TextTable table(
      {width > 1 ? "node, its worst rank" : "rank", "memory", "of its budget", "time", "of the slowest"});
  for (const Line& line : lines) {
    const Bytes budget = request.budgets.empty() ? request.budget : request.budgets[line.first];
    table.add({std::to_string(line.first / width), to_string(line.memory),
               bar(ratio(as_double(line.memory), as_double(budget)), kBarWidth, console.unicode),
               milliseconds_text(line.milliseconds),
               bar(ratio(line.milliseconds, slowest), kBarWidth, console.unicode)});
  }
  console.out << table.to_string("  ");
  if (all > lines.size()) {
    console.out << "  the fullest " << lines.size() << " of " << all << " nodes\n";
  }
  console.out << '\n';
}

std::string places_text(const estimator::TablePlacement& placement) {
  if (placement.type == estimator::ShardingType::kDataParallel) {
    return "a copy on each rank";
  }
  const std::size_t shards = placement.shards.size();
  return std::to_string(shards) + (shards == 1 ? " shard, on rank " : " shards, from rank ") +
         std::to_string(placement.shards.empty() ? 0 : placement.shards.front().rank);
}

const estimator::Table& table_of(const estimator::ShardRequest& request,
                                 const estimator::TablePlacement& placement) {
  return request.tables[static_cast<std::size_t>(placement.table)];
}

Bytes size_of(const estimator::Table& table) {
  return Bytes{table.rows} * table.dim * table.element_bytes;
}

void print_tables(Console& console, const estimator::ShardRequest& request, const estimator::Plan& plan) {
  std::map<std::string, std::pair<std::size_t, std::size_t>> types;  // tables and shards of each
  std::vector<const estimator::TablePlacement*> largest;
  for (const estimator::TablePlacement& placement : plan.placements) {
    std::string name = estimator::name_of(placement.type);
    if (placement.kernel == estimator::Kernel::kHost || placement.kernel == estimator::Kernel::kHostCached) {
      name += std::string(", ") + estimator::name_of(placement.kernel);
    }
    auto& [tables, shards] = types[name];
    ++tables;
    shards += placement.type == estimator::ShardingType::kDataParallel ? plan.ranks.size()
                                                                       : placement.shards.size();
    largest.push_back(&placement);
  }
  TextTable by_type({"sharding", "tables", "shards"});
  for (const auto& [type, counts] : types) {
    by_type.add({type, std::to_string(counts.first), std::to_string(counts.second)});
  }
  console.out << by_type.to_string("  ") << '\n';
  const std::size_t shown = std::min(kLargestTables, largest.size());
  std::partial_sort(largest.begin(), largest.begin() + static_cast<std::ptrdiff_t>(shown), largest.end(),
                    [&](const auto* a, const auto* b) {
                      return size_of(table_of(request, *a)) > size_of(table_of(request, *b));
                    });
  TextTable sizes({"largest tables", "size", "sharding", "placed"});
  for (std::size_t i = 0; i < shown; ++i) {
    const estimator::Table& table = table_of(request, *largest[i]);
    sizes.add({table.name, to_string(size_of(table)), estimator::name_of(largest[i]->type),
               places_text(*largest[i])});
  }
  console.out << sizes.to_string("  ") << '\n';
}

// What keeps the plan from the bound, or what the bound is made of.
void print_why(Console& console, const estimator::ShardRequest& request, const estimator::Plan& plan) {
  const auto rank_with_most = [&](auto estimator::RankLoad::*load) {
    const auto most = std::max_element(plan.ranks.begin(), plan.ranks.end(),
                                       [&](const auto& a, const auto& b) { return a.*load < b.*load; });
    return static_cast<std::size_t>(most - plan.ranks.begin());
  };
  const std::size_t slowest = rank_with_most(&estimator::RankLoad::milliseconds);
  const std::size_t fullest = rank_with_most(&estimator::RankLoad::memory);
  const auto largest_on = [&](std::size_t rank) {
    std::vector<std::pair<double, std::string>> loads;  // bytes, and the table's name
    for (const estimator::TablePlacement& placement : plan.placements) {
      const estimator::Table& table = table_of(request, placement);
      double elements = 0;
      for (const estimator::Shard& shard : placement.shards) {
        if (static_cast<std::size_t>(shard.rank) == rank) {
          elements += static_cast<double>(shard.row_end - shard.row_begin) *
                      static_cast<double>(shard.column_end - shard.column_begin);
        }
      }
      if (elements > 0) {
        loads.emplace_back(elements * static_cast<double>(table.element_bytes), table.name);
      }
    }
    std::stable_sort(loads.begin(), loads.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    loads.resize(std::min(kLargestOfRank, loads.size()));
    std::string text;
    for (const auto& [bytes, name] : loads) {
      text += (text.empty() ? "" : ", ") + name + " (" + to_string(Bytes::ceil(bytes)) + ")";
    }
    return text.empty() ? "copies alone" : text;
  };
  const double over = ratio(plan.max_milliseconds, plan.lower_bound_milliseconds);
  if (over > 1 + request.time_slack * 1.001) {
    console.out << "  slowest is rank " << slowest << ", whose largest shards are " << largest_on(slowest)
                << ";\n"
                << "  fewer trainers or narrower cuts would level it: shards are few for so many ranks\n";
  } else {
    console.out << "  within the " << percent_text(request.time_slack)
                << " of the bound that --time-slack allows; memory was levelled with what was left\n";
  }
  if (ratio(as_double(plan.max_memory), as_double(plan.mean_memory)) > 1.05) {
    console.out << "  fullest is rank " << fullest << ", whose largest shards are " << largest_on(fullest)
                << ";\n  cutting or moving these costs more time than --time-slack gives\n";
  }
}

}  // namespace

void print_shard_report(Console& console, const estimator::ShardRequest& request, const estimator::Plan& plan,
                        double seconds) {
  print_summary(console, request, plan);
  print_critical_path(console, plan);
  print_imbalance(console, plan);
  print_ranks(console, request, plan);
  print_tables(console, request, plan);
  print_why(console, request, plan);
  console.out << "\n  placed in " << decimal_text(seconds * 1e3, 1) << " ms\n";
}

}  // namespace plimsoll::cli
