#include "cli/shard_command_input.h"

#include <algorithm>
#include <array>
#include <boost/algorithm/string/split.hpp>
#include <functional>
#include <map>

#include "base/number.h"
#include "base/quantity.h"

namespace plimsoll::cli {
namespace {

constexpr std::int64_t kMaxTrainers = 65'536;
constexpr std::int64_t kMaxBatch = 16'777'216;  // as the API's own limit

// "intra=600Gi,inter=12.5Gi,hbm=897Gi,host=32Gi": bytes a second, in any order, each at most once.
void read_topology(OptionReader& options, estimator::Topology& topology) {
  options.bandwidths("topology", {{"intra", &topology.intra_node_bandwidth},
                                  {"inter", &topology.inter_node_bandwidth},
                                  {"hbm", &topology.hbm_bandwidth},
                                  {"host", &topology.host_bandwidth}});
}

// "a,b,c" in its parts.
std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  boost::split(parts, text, [](char c) { return c == ','; });
  return parts;
}

// "80Gi", or of trainers with different memory "80Gi*8,40Gi*8".
void read_memory(OptionReader& options, ShardInput& input) {
  estimator::ShardRequest& request = input.request;
  input.reserve = options.bytes("reserve");
  std::vector<Bytes> budgets;
  for (const std::string& part : split(options.text("hbm"))) {
    const std::size_t star = part.find('*');
    const Bytes bytes = options.take("hbm", parse_bytes(part.substr(0, star)));
    options.require(bytes > input.reserve, "--reserve leaves nothing of --hbm");
    const auto times = parse_number<std::int64_t>(star == part.npos ? "1" : part.substr(star + 1));
    options.require(
        times && *times >= 1 && *times <= kMaxTrainers,
        "--hbm: a count of trainers, as in 80Gi*8, must be from 1 to " + std::to_string(kMaxTrainers), part);
    if (options.error()) {
      return;
    }
    budgets.insert(budgets.end(), static_cast<std::size_t>(*times), bytes - input.reserve);
  }
  request.budget = *std::max_element(budgets.begin(), budgets.end());
  if (budgets.size() > 1) {
    options.require(!input.fewest, "--trainers auto takes one --hbm for all");
    options.require(budgets.size() == static_cast<std::size_t>(request.topology.trainers),
                    "--hbm lists the memory of " + std::to_string(budgets.size()) +
                        " trainers, --trainers says " + std::to_string(request.topology.trainers));
    request.budgets = std::move(budgets);
  }
}

// "0.5%" or "0.005".
double read_share(OptionReader& options, const std::string& name, double min, double max) {
  std::string text = options.text(name);
  const bool percent = text.ends_with('%');
  if (percent) {
    text.pop_back();
  }
  const double value = parse_number<double>(text).value_or(-1) / (percent ? 100 : 1);
  options.require(value >= min && value <= max, "--" + name + " must be a share like 20% or 0.2",
                  options.text(name));
  return value;
}

void read_cost(OptionReader& options, estimator::ShardRequest& request) {
  using estimator::CostMethod;
  using estimator::Pipeline;
  request.optimizer = options.choice("optimizer", request.optimizer);
  options.require(crds::is_for_tables(request.optimizer),
                  "--optimizer must be one that torchrec has for tables", options.text("optimizer"));
  request.cost = options.choice<CostMethod>(
      "cost", {{"torchrec", CostMethod::kTorchrec}, {"stages", CostMethod::kStages}}, request.cost);
  request.allocated_bytes = options.choice<bool>("bytes", {{"planner", false}, {"allocated", true}}, false);
  request.pipeline = options.choice<Pipeline>("pipeline",
                                              {{"none", Pipeline::kNone},
                                               {"sparse-dist", Pipeline::kSparseDist},
                                               {"prefetch", Pipeline::kPrefetchSparseDist}},
                                              request.pipeline);
  request.host_budget = options.bytes("host-memory");
  constexpr double kMinCache = 1e-6;
  request.cache_ratio = read_share(options, "cache-ratio", kMinCache, 1);
  request.time_slack = read_share(options, "time-slack", 0, 10);
}

// "0,1,8-15"
std::vector<std::int64_t> read_ranks(OptionReader& options, const std::string& text) {
  std::vector<std::int64_t> ranks;
  for (const std::string& part : split(text)) {
    const std::size_t dash = part.find('-');
    const auto first = parse_number<std::int64_t>(part.substr(0, dash));
    const auto last = dash == part.npos ? first : parse_number<std::int64_t>(part.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= kMaxTrainers) {
      options.require(false, "--pin: not ranks, like 0,1,8-15", part);
      return {};
    }
    for (std::int64_t rank = *first; rank <= *last; ++rank) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

std::vector<estimator::ShardingType> read_types(OptionReader& options, const std::string& text) {
  using enum estimator::ShardingType;
  constexpr std::array kTypes = {kDataParallel, kTableWise,    kColumnWise, kTableColumnWise,
                                 kRowWise,      kTableRowWise, kGrid};
  std::vector<estimator::ShardingType> types;
  for (const std::string& part : split(text)) {
    const auto* const type = std::find_if(kTypes.begin(), kTypes.end(), [&](estimator::ShardingType each) {
      return part == estimator::name_of(each);
    });
    if (type != kTypes.end()) {
      types.push_back(*type);
    } else {
      options.require(
          false,
          "--allow: sharding types are data_parallel, table_wise, column_wise, table_column_wise, "
          "row_wise, table_row_wise, grid_shard",
          part);
    }
  }
  return types;
}

}  // namespace

ShardInput read_shard_input(OptionReader& options) {
  ShardInput input;
  for (const std::string name : {"tables", "trainers", "hbm", "batch-size"}) {
    options.require(options.given(name), "--" + name + " is required");
  }
  if (options.error()) {
    return input;
  }
  estimator::ShardRequest& request = input.request;
  input.fewest = options.text("trainers") == "auto";
  const std::int64_t per_node = options.count("per-node", 1, kMaxPerNode);
  const std::int64_t trainers = input.fewest ? 1 : options.count("trainers", 1, kMaxTrainers);
  request.batch_size = options.count("batch-size", 1, kMaxBatch);
  options.require(trainers <= per_node || trainers % per_node == 0,
                  "--trainers must be at most --per-node, or a multiple of it");
  request.topology.trainers = trainers;
  request.topology.per_node = input.fewest ? per_node : std::min(per_node, trainers);
  read_cost(options, request);
  read_memory(options, input);
  read_topology(options, request.topology);
  return input;
}

void add_tables(OptionReader& options, const std::vector<crds::EmbeddingTable>& tables,
                estimator::ShardRequest& request) {
  request.tables = estimator::expand_tables(tables);
  std::map<std::string, std::int64_t> by_name;
  for (std::size_t i = 0; i < request.tables.size(); ++i) {
    by_name.emplace(request.tables[i].name, static_cast<std::int64_t>(i));
  }
  std::map<std::int64_t, estimator::Constraint> constraints;
  for (const std::string option : {"allow", "pin"}) {
    for (const std::string& entry : options.texts(option)) {
      const std::size_t equals = entry.find('=');
      const auto table = by_name.find(entry.substr(0, equals));
      options.require(equals != entry.npos, "--" + option + " takes TABLE=LIST", entry);
      options.require(table != by_name.end(),
                      "--" + option + ": --tables has no such table (t.0, t.1, ... of a group t)",
                      entry.substr(0, equals));
      if (options.error()) {
        return;
      }
      estimator::Constraint& constraint = constraints[table->second];
      constraint.table = table->second;
      if (option == "allow") {
        constraint.types = read_types(options, entry.substr(equals + 1));
      } else {
        constraint.ranks = read_ranks(options, entry.substr(equals + 1));
      }
    }
  }
  for (auto& [table, constraint] : constraints) {
    request.constraints.push_back(std::move(constraint));
  }
}

}  // namespace plimsoll::cli
