// `plimsoll shard`: a placement of embedding tables, without a job or a cluster.
#include <chrono>
#include <map>

#include "base/quantity.h"
#include "cli/input.h"
#include "cli/options.h"
#include "cli/subcommands.h"
#include "cli/text_table.h"
#include "crds/embedding_tables_csv.h"
#include "estimator/sharder/sharder.h"

namespace plimsoll::cli {
namespace {

constexpr Help kHelp = {
    "plimsoll shard --tables FILE.csv --trainers N|auto --hbm 80Gi --batch-size B [options]",
    "Places embedding tables on trainers so that the slowest is as fast as can be within each one's memory, "
    "and "
    "says\nhow far that is from a proven bound. The tables are CSV: "
    "name,rows,dim,pooling_factor[,lookup_frequency]; "
    "# begins\na comment, gzip is understood.",
    "  plimsoll shard --tables tables.csv --trainers 64 --hbm 80Gi --batch-size 1024 --verify\n"
    "  plimsoll shard --tables tables.csv --trainers auto --hbm 40Gi --reserve 6Gi --batch-size 1024 -o "
    "json\n"
    "  plimsoll shard --tables - --trainers 8 --hbm 32Gi --batch-size 2048 --topology "
    "intra=300Gi,inter=6.25Gi,hbm=1555Gi",
};

constexpr std::int64_t kMostTrainers = 8192;  // "auto" stops here
constexpr std::int64_t kMostPerNode = 1024;
constexpr std::int64_t kMostBatch = 16'777'216;  // as the API's own limit

struct Question {
  estimator::ShardRequest request;
  bool smallest = false;  // --trainers auto
};

Json integer(std::int64_t value) {
  return Json(static_cast<::Json::Int64>(value));
}

Result<Bytes> bytes_option(const po::variables_map& values, const std::string& name) {
  const Result<Bytes> bytes = parse_bytes(values[name].as<std::string>());
  return bytes ? bytes : bytes.error().within("--" + name);
}

// "intra=600Gi,inter=12.5Gi,hbm=897Gi": bytes a second, in any order, each at most once.
Result<void> read_topology(std::string_view text, estimator::Topology& topology) {
  std::map<std::string, Bytes*, std::less<>> known = {{"intra", &topology.intra_node_bandwidth},
                                                      {"inter", &topology.inter_node_bandwidth},
                                                      {"hbm", &topology.hbm_bandwidth}};
  while (!text.empty()) {
    const std::string_view entry = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), entry.size() + 1));
    const std::size_t equals = entry.find('=');
    const auto field = known.find(entry.substr(0, equals));
    if (equals == std::string_view::npos || field == known.end()) {
      return invalid("--topology takes intra=, inter= and hbm= with bytes a second, each at most once",
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

Result<Question> question_of(const po::variables_map& values) {
  for (const char* name : {"tables", "trainers", "hbm", "batch-size"}) {
    if (!values.contains(name)) {
      return invalid(std::string("--") + name + " is required");
    }
  }
  Question question;
  estimator::ShardRequest& request = question.request;
  question.smallest = values["trainers"].as<std::string>() == "auto";
  const Result<std::int64_t> per_node = count_option(values, "per-node", 1, kMostPerNode);
  const Result<std::int64_t> trainers =
      question.smallest ? Result<std::int64_t>(1) : count_option(values, "trainers", 1, kMostTrainers);
  const Result<std::int64_t> batch = count_option(values, "batch-size", 1, kMostBatch);
  for (const auto* count : {&per_node, &trainers, &batch}) {
    if (!*count) {
      return count->error();
    }
  }
  const Result<Bytes> hbm = bytes_option(values, "hbm");
  const Result<Bytes> reserve = bytes_option(values, "reserve");
  for (const auto* bytes : {&hbm, &reserve}) {
    if (!*bytes) {
      return bytes->error();
    }
  }
  const Result<crds::Optimizer> optimizer = crds::parse_optimizer(values["optimizer"].as<std::string>());
  if (!optimizer) {
    return optimizer.error().within("--optimizer");
  }
  if (*trainers > *per_node && *trainers % *per_node != 0) {
    return invalid("--trainers must be at most --per-node, or a multiple of it");
  }
  request.topology.trainers = *trainers;
  request.topology.per_node = question.smallest ? *per_node : std::min(*per_node, *trainers);
  request.batch_size = *batch;
  request.budget = *hbm - *reserve;
  request.optimizer = *optimizer;
  if (request.budget <= Bytes{}) {
    return invalid("--reserve leaves nothing of --hbm");
  }
  if (values.contains("topology")) {
    if (Result<void> read = read_topology(values["topology"].as<std::string>(), request.topology); !read) {
      return read.error();
    }
  }
  return question;
}

Result<estimator::Plan> answer_for(Question& question, estimator::Infeasibility& why) {
  if (!question.smallest) {
    return estimator::shard(question.request, &why);
  }
  Result<estimator::SmallestPlan> smallest =
      estimator::shard_smallest(question.request, 1, kMostTrainers, {}, &why);
  if (!smallest) {
    return smallest.error();
  }
  question.request.topology.trainers = smallest->trainers;
  return std::move(smallest->plan);
}

int refuse(Console& console, OutputFormat format, const Error& error, const estimator::Infeasibility& why,
           double seconds) {
  if (error.code != ErrorCode::kUnfittable) {
    return complain(console, kExitUsage, error);
  }
  if (format != OutputFormat::kTable) {
    Json json(::Json::objectValue);
    json["feasible"] = false;
    json["reason"] = error.message;
    json["constraint"] = why.constraint;
    json["missingBytes"] = integer(why.missing.count);
    json["elapsedSeconds"] = seconds;
    print_answers(console, format, {json});
  }
  return complain(console, kExitRefused, error.message);
}

void print_table(Console& console, const estimator::ShardRequest& request, const estimator::Plan& plan,
                 double seconds) {
  const estimator::Topology& topology = request.topology;
  console.out << plan.placements.size() << " tables on " << topology.trainers << " trainers, "
              << std::min(topology.per_node, topology.trainers) << " a node, " << to_string(request.budget)
              << " each\n\n";
  const double ratio =
      plan.lower_bound_milliseconds > 0 ? plan.max_milliseconds / plan.lower_bound_milliseconds : 1;
  char distance[32];
  std::snprintf(distance, sizeof distance, "%.3f", ratio);
  TextTable table({"", "most", "mean", "bound"});
  table.add({"time of an iteration's lookups", milliseconds_text(plan.max_milliseconds),
             milliseconds_text(plan.mean_milliseconds), milliseconds_text(plan.lower_bound_milliseconds)});
  table.add({"memory of a trainer", to_string(plan.max_memory), to_string(plan.mean_memory),
             to_string(request.budget)});
  table.add({"memory of a node", to_string(plan.node_max_memory), to_string(plan.node_mean_memory), ""});
  console.out << table.to_string("  ") << "\n  " << distance << " times the lower bound on the time\n\n";

  std::map<std::string, std::pair<std::size_t, std::size_t>> types;  // tables and shards of each
  for (const estimator::TablePlacement& placement : plan.placements) {
    auto& [tables, shards] = types[estimator::name_of(placement.type)];
    ++tables;
    shards += placement.shards.size();
  }
  TextTable by_type({"sharding", "tables", "shards"});
  for (const auto& [type, counts] : types) {
    by_type.add({type, std::to_string(counts.first), std::to_string(counts.second)});
  }
  console.out << by_type.to_string("  ");
  char elapsed[32];
  std::snprintf(elapsed, sizeof elapsed, "%.1f ms", seconds * 1e3);
  console.out << "\n  placed in " << elapsed << '\n';
}

}  // namespace

po::options_description shard_options() {
  po::options_description options;
  options.add_options()("tables", po::value<std::string>()->value_name("FILE"),
                        "CSV of the tables; - is standard input")(
      "trainers", po::value<std::string>()->value_name("N"),
      "number of trainers, or auto for the fewest that fit")(
      "per-node", po::value<std::string>()->default_value("8")->value_name("N"), "trainers of each host")(
      "hbm", po::value<std::string>()->value_name("BYTES"), "memory of each trainer, like 80Gi")(
      "reserve", po::value<std::string>()->default_value("0")->value_name("BYTES"),
      "what of it is not for embeddings")("batch-size", po::value<std::string>()->value_name("B"),
                                          "samples of one iteration on each trainer")(
      "optimizer", po::value<std::string>()->default_value("RowWiseAdagrad")->value_name("NAME"),
      "optimizer of the embeddings; its state counts")(
      "topology", po::value<std::string>()->value_name("LIST"),
      "bandwidths in bytes a second: intra=600Gi,inter=12.5Gi,hbm=897Gi")(
      "verify", po::bool_switch(), "check the plan by an independent recount");
  add_output_option(options);
  options.add_options()("help,h", "print this help");
  return options;
}

int run_shard(const std::vector<std::string>& arguments, Console& console) {
  po::variables_map values;
  if (const std::optional<int> code = read_options(arguments, shard_options(), kHelp, console, values)) {
    return *code;
  }
  const Result<OutputFormat> format = output_format(values);
  if (!format) {
    return complain(console, kExitUsage, format.error());
  }
  Result<Question> question = question_of(values);
  if (!question) {
    return complain(console, kExitUsage, question.error());
  }
  const std::string path = values["tables"].as<std::string>();
  const Result<std::string> content = read_input(path, console);
  if (!content) {
    return complain(console, kExitUsage, content.error());
  }
  const Result<std::vector<crds::EmbeddingTable>> tables = crds::parse_embedding_tables_csv(*content);
  if (!tables) {
    return complain(console, kExitUsage, tables.error().within(path));
  }
  if (tables->empty()) {
    return complain(console, kExitUsage, path + " holds no table");
  }
  question->request.tables = estimator::expand_tables(*tables);
  estimator::Infeasibility why;
  const auto start = std::chrono::steady_clock::now();
  const Result<estimator::Plan> plan = answer_for(*question, why);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  if (!plan) {
    return refuse(console, *format, plan.error(), why, elapsed.count());
  }
  std::vector<std::string> faults;
  if (values["verify"].as<bool>()) {
    faults = estimator::verify(question->request, *plan);
  }
  if (*format == OutputFormat::kTable) {
    print_table(console, question->request, *plan, elapsed.count());
    if (values["verify"].as<bool>() && faults.empty()) {
      console.out << "  verified: every row and column is placed once, and all figures hold\n";
    }
  } else {
    Json json = estimator::to_json(question->request, *plan);
    json["trainers"] = integer(question->request.topology.trainers);
    json["elapsedSeconds"] = elapsed.count();
    if (values["verify"].as<bool>()) {
      json["verified"] = faults.empty();
      json["faults"] = Json(::Json::arrayValue);
      for (const std::string& fault : faults) {
        json["faults"].append(fault);
      }
    }
    print_answers(console, *format, {json});
  }
  for (const std::string& fault : faults) {
    complain(console, kExitRefused, "the plan does not hold: " + fault);
  }
  return faults.empty() ? kExitDone : kExitRefused;
}

}  // namespace plimsoll::cli
