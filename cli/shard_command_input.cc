#include "cli/shard_command_input.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "base/quantity.h"

namespace plimsoll::cli {
namespace {

constexpr std::int64_t kMaxTrainers = 65'536;
constexpr std::int64_t kMaxPerNode = 1024;
constexpr std::int64_t kMaxBatch = 16'777'216;  // as the API's own limit
constexpr std::size_t kFragment = 64;

Result<Bytes> bytes_option(const po::variables_map& values, const std::string& name) {
  const Result<Bytes> bytes = parse_bytes(values[name].as<std::string>());
  return bytes ? bytes : bytes.error().within("--" + name);
}

// "intra=600Gi,inter=12.5Gi,hbm=897Gi,host=32Gi": bytes a second, in any order, each at most once.
Result<void> read_topology(std::string_view text, estimator::Topology& topology) {
  std::map<std::string, Bytes*, std::less<>> known = {{"intra", &topology.intra_node_bandwidth},
                                                      {"inter", &topology.inter_node_bandwidth},
                                                      {"hbm", &topology.hbm_bandwidth},
                                                      {"host", &topology.host_bandwidth}};
  while (!text.empty()) {
    const std::string_view entry = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), entry.size() + 1));
    const std::size_t equals = entry.find('=');
    const auto field = known.find(entry.substr(0, equals));
    if (equals == std::string_view::npos || field == known.end()) {
      return invalid("--topology takes intra=, inter=, hbm= and host= with bytes a second, each at most once",
                     std::string(entry.substr(0, 64)));
    }
    const Result<Bytes> bytes = parse_bytes(entry.substr(equals + 1));
    if (!bytes || bytes->count == 0) {
      return invalid("--topology: not a bandwidth in bytes a second, like 12.5Gi",
                     std::string(entry.substr(0, 64)));
    }
    *field->second = *bytes;
    known.erase(field);
  }
  return {};
}

// "a,b,c" in its parts.
std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = text.find(at, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string::npos) {
      return parts;
    }
    begin = end + 1;
  }
}

Result<std::int64_t> whole_number(const std::string& what, const std::string& text) {
  std::int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size()) {
    return invalid(what, text.substr(0, kFragment));
  }
  return value;
}

// "80Gi", or of trainers that are not alike "80Gi*8,40Gi*8".
Result<void> read_memory(const po::variables_map& values, bool smallest, estimator::ShardRequest& request) {
  const Result<Bytes> reserve = bytes_option(values, "reserve");
  if (!reserve) {
    return reserve.error();
  }
  std::vector<Bytes> budgets;
  for (const std::string& part : split(values["hbm"].as<std::string>(), ',')) {
    const std::size_t star = part.find('*');
    const Result<Bytes> bytes = parse_bytes(part.substr(0, star));
    if (!bytes) {
      return bytes.error().within("--hbm");
    }
    if (*bytes <= *reserve) {
      return invalid("--reserve leaves nothing of --hbm");
    }
    const Result<std::int64_t> times =
        star == std::string::npos
            ? Result<std::int64_t>(1)
            : whole_number("--hbm: not a count of trainers, like 80Gi*8", part.substr(star + 1));
    if (!times) {
      return times.error();
    }
    if (*times < 1 || *times > kMaxTrainers) {
      return invalid("--hbm: a count of trainers must be from 1 to " + std::to_string(kMaxTrainers),
                     part.substr(0, kFragment));
    }
    budgets.insert(budgets.end(), static_cast<std::size_t>(*times), *bytes - *reserve);
  }
  request.budget = *std::max_element(budgets.begin(), budgets.end());
  if (budgets.size() > 1) {
    if (smallest) {
      return invalid("--trainers auto takes one --hbm for all");
    }
    if (budgets.size() != static_cast<std::size_t>(request.topology.trainers)) {
      return invalid("--hbm lists the memory of " + std::to_string(budgets.size()) +
                     " trainers, --trainers says " + std::to_string(request.topology.trainers));
    }
    request.budgets = std::move(budgets);
  }
  return {};
}

template <class Value>
Result<Value> choice(const po::variables_map& values, const std::string& option,
                     const std::map<std::string, Value>& known) {
  const std::string name = values[option].as<std::string>();
  const auto found = known.find(name);
  if (found == known.end()) {
    std::string names;
    for (const auto& [one, value] : known) {
      names += (names.empty() ? "" : ", ") + one;
    }
    return invalid("--" + option + " must be one of " + names, name.substr(0, kFragment));
  }
  return found->second;
}

// "0.5%" or "0.005".
Result<double> share_option(const po::variables_map& values, const std::string& name, double least,
                            double most) {
  std::string text = values[name].as<std::string>();
  const bool percent = text.ends_with('%');
  if (percent) {
    text.pop_back();
  }
  double value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  value = percent ? value / 100 : value;
  if (failure != std::errc() || end != text.data() + text.size() || !(value >= least && value <= most)) {
    return invalid("--" + name + " must be a share like 20% or 0.2",
                   values[name].as<std::string>().substr(0, kFragment));
  }
  return value;
}

Result<void> read_choices(const po::variables_map& values, estimator::ShardRequest& request) {
  using estimator::CostMethod;
  using estimator::Pipeline;
  const Result<crds::Optimizer> optimizer = crds::parse_optimizer(values["optimizer"].as<std::string>());
  if (!optimizer) {
    return optimizer.error().within("--optimizer");
  }
  const auto cost = choice<CostMethod>(
      values, "cost", {{"torchrec", CostMethod::kTorchrec}, {"stages", CostMethod::kStages}});
  const auto allocated = choice<bool>(values, "bytes", {{"planner", false}, {"allocated", true}});
  const auto pipeline = choice<Pipeline>(values, "pipeline",
                                         {{"none", Pipeline::kNone},
                                          {"sparse-dist", Pipeline::kSparseDist},
                                          {"prefetch", Pipeline::kPrefetchSparseDist}});
  const Result<Bytes> host = bytes_option(values, "host-memory");
  constexpr double kMinCache = 1e-6;
  const Result<double> cache = share_option(values, "cache-ratio", kMinCache, 1);
  const Result<double> slack = share_option(values, "time-slack", 0, 10);
  if (!cost) {
    return cost.error();
  }
  if (!allocated) {
    return allocated.error();
  }
  if (!pipeline) {
    return pipeline.error();
  }
  if (!host) {
    return host.error();
  }
  if (!cache) {
    return cache.error();
  }
  if (!slack) {
    return slack.error();
  }
  request.optimizer = *optimizer;
  request.cost = *cost;
  request.allocated_bytes = *allocated;
  request.pipeline = *pipeline;
  request.host_budget = *host;
  request.cache_ratio = *cache;
  request.time_slack = *slack;
  return {};
}

// "0,1,8-15"
Result<std::vector<std::int64_t>> ranks_of(const std::string& text) {
  const std::string what = "--pin: not ranks, like 0,1,8-15";
  std::vector<std::int64_t> ranks;
  for (const std::string& part : split(text, ',')) {
    const std::size_t dash = part.find('-');
    const Result<std::int64_t> first = whole_number(what, part.substr(0, dash));
    const Result<std::int64_t> last =
        dash == std::string::npos ? first : whole_number(what, part.substr(dash + 1));
    if (!first || !last) {
      return first ? last.error() : first.error();
    }
    if (*first < 0 || *last < *first || *last >= kMaxTrainers) {
      return invalid(what, part.substr(0, kFragment));
    }
    for (std::int64_t rank = *first; rank <= *last; ++rank) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

Result<std::vector<estimator::ShardingType>> types_of(const std::string& text) {
  using enum estimator::ShardingType;
  std::vector<estimator::ShardingType> types;
  for (const std::string& part : split(text, ',')) {
    const std::size_t before = types.size();
    for (const auto type :
         {kDataParallel, kTableWise, kColumnWise, kTableColumnWise, kRowWise, kTableRowWise, kGrid}) {
      if (part == estimator::name_of(type)) {
        types.push_back(type);
      }
    }
    if (types.size() == before) {
      return invalid(
          "--allow: sharding types are data_parallel, table_wise, column_wise, table_column_wise, "
          "row_wise, table_row_wise, grid_shard",
          part.substr(0, kFragment));
    }
  }
  return types;
}

}  // namespace

Result<ShardInput> read_shard_input(const po::variables_map& values) {
  for (const char* name : {"tables", "trainers", "hbm", "batch-size"}) {
    if (!values.contains(name)) {
      return invalid(std::string("--") + name + " is required");
    }
  }
  ShardInput question;
  estimator::ShardRequest& request = question.request;
  question.smallest = values["trainers"].as<std::string>() == "auto";
  const Result<std::int64_t> per_node = count_option(values, "per-node", 1, kMaxPerNode);
  const Result<std::int64_t> trainers =
      question.smallest ? Result<std::int64_t>(1) : count_option(values, "trainers", 1, kMaxTrainers);
  const Result<std::int64_t> batch = count_option(values, "batch-size", 1, kMaxBatch);
  for (const auto* count : {&per_node, &trainers, &batch}) {
    if (!*count) {
      return count->error();
    }
  }
  if (*trainers > *per_node && *trainers % *per_node != 0) {
    return invalid("--trainers must be at most --per-node, or a multiple of it");
  }
  request.topology.trainers = *trainers;
  request.topology.per_node = question.smallest ? *per_node : std::min(*per_node, *trainers);
  request.batch_size = *batch;
  if (Result<void> read = read_choices(values, request); !read) {
    return read.error();
  }
  if (Result<void> read = read_memory(values, question.smallest, request); !read) {
    return read.error();
  }
  if (values.contains("topology")) {
    if (Result<void> read = read_topology(values["topology"].as<std::string>(), request.topology); !read) {
      return read.error();
    }
  }
  return question;
}

Result<void> add_tables(const po::variables_map& values, const std::vector<crds::EmbeddingTable>& tables,
                        ShardInput& question) {
  estimator::ShardRequest& request = question.request;
  request.tables = estimator::expand_tables(tables);
  if (!values.contains("allow") && !values.contains("pin")) {
    return {};
  }
  std::map<std::string, std::int64_t> by_name;
  for (std::size_t i = 0; i < request.tables.size(); ++i) {
    by_name.emplace(request.tables[i].name, static_cast<std::int64_t>(i));
  }
  std::map<std::int64_t, estimator::Constraint> constraints;
  for (const char* option : {"allow", "pin"}) {
    if (!values.contains(option)) {
      continue;
    }
    for (const std::string& entry : values[option].as<std::vector<std::string>>()) {
      const std::size_t equals = entry.find('=');
      const auto table = by_name.find(entry.substr(0, equals));
      if (equals == std::string::npos) {
        return invalid(std::string("--") + option + " takes TABLE=LIST", entry.substr(0, kFragment));
      }
      if (table == by_name.end()) {
        return invalid(
            std::string("--") + option + ": --tables has no such table (t.0, t.1, ... of a group t)",
            entry.substr(0, std::min(equals, kFragment)));
      }
      estimator::Constraint& constraint = constraints[table->second];
      constraint.table = table->second;
      if (option == std::string("allow")) {
        auto types = types_of(entry.substr(equals + 1));
        if (!types) {
          return types.error();
        }
        constraint.types = *std::move(types);
      } else {
        auto ranks = ranks_of(entry.substr(equals + 1));
        if (!ranks) {
          return ranks.error();
        }
        constraint.ranks = *std::move(ranks);
      }
    }
  }
  for (auto& [table, constraint] : constraints) {
    request.constraints.push_back(std::move(constraint));
  }
  return {};
}

}  // namespace plimsoll::cli
