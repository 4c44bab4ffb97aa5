// `plimsoll shard`: a placement of embedding tables, without a job or a cluster.
#include <chrono>

#include "base/json/edit.h"
#include "cli/answer_budget.h"
#include "cli/input.h"
#include "cli/options.h"
#include "cli/shard_command_input.h"
#include "cli/shard_command_report.h"
#include "cli/subcommands.h"
#include "crds/embedding_tables_csv.h"
#include "estimator/sharder/sharder.h"

namespace plimsoll::cli {
namespace {

constexpr Help kHelp = {
    "plimsoll shard --tables FILE.csv --trainers N|auto --hbm 80Gi --batch-size B [options]",
    "Places embedding tables on trainers so that the slowest is as fast as can be within each one's memory, and says\n"
    "how far that is from a proven bound. The tables are CSV: "
    "name,rows,dim,pooling_factor[,lookup_frequency]; # begins\n"
    "a comment, gzip is understood.",
    "  plimsoll shard --tables tables.csv --trainers 64 --hbm 80Gi --batch-size 1024 --verify\n"
    "  plimsoll shard --tables tables.csv --trainers auto --hbm 40Gi --reserve 6Gi --batch-size 1024 -o json\n"
    "  plimsoll shard --tables - --trainers 8 --hbm 32Gi --batch-size 2048 --topology "
    "intra=300Gi,inter=6.25Gi,hbm=1555Gi",
};

constexpr std::int64_t kMaxTrainers = 8192;  // "auto" stops here, and so does the search for what would fit

Result<estimator::Plan> plan_for(ShardInput& input, estimator::Infeasibility& why) {
  if (!input.fewest) {
    return estimator::shard(input.request, &why);
  }
  Result<estimator::FewestTrainersPlan> fewest =
      estimator::shard_on_fewest_trainers(input.request, 1, kMaxTrainers, {}, &why);
  if (!fewest) {
    return fewest.error();
  }
  input.request.topology.trainers = fewest->trainers;
  return std::move(fewest->plan);
}

// Says what fails, by how much, and what would fit.
int refuse(Console& console, OutputFormat format, const ShardInput& input, const Error& error,
           const estimator::Infeasibility& why, double seconds) {
  if (error.code != ErrorCode::kUnfittable) {
    return complain(console, exit_code_of(error), error);
  }
  estimator::ShardRequest request = input.request;
  if (input.fewest) {
    request.topology.trainers = kMaxTrainers / request.topology.per_node * request.topology.per_node;
  }
  estimator::Suggestion suggestion = estimator::find_suggestion(request, kMaxTrainers);
  Bytes missing = why.missing;
  std::string more;
  if (suggestion.budget) {
    if (!input.fewest) {
      missing = (*suggestion.budget - request.budget) * request.topology.trainers;
      more = ", " + to_string(missing) + " more in all";
    }
    *suggestion.budget += input.reserve;  // as --hbm has it
  }
  const std::string reason =
      error.message + "; " + estimator::to_string(suggestion, request.topology.trainers) + more;
  if (format != OutputFormat::kTable) {
    JsonObject json;
    json["feasible"] = false;
    json["reason"] = reason;
    json["constraint"] = why.constraint;
    json["missingBytes"] = missing.count;
    json["table"] = why.table.empty() ? Json() : Json(why.table);
    json["remedy"]["trainers"] = suggestion.trainers ? Json(*suggestion.trainers) : Json();
    json["remedy"]["bytesPerTrainer"] = suggestion.budget ? Json(suggestion.budget->count) : Json();
    json["elapsedSeconds"] = seconds;
    print_answers(console, format, {json});
  }
  return complain(console, kExitRefused, reason);
}

}  // namespace

po::options_description shard_options() {
  po::options_description options;
  options.add_options()("tables", po::value<std::string>()->value_name("FILE"),
                        "CSV of the tables; - is standard input")(
      "trainers", po::value<std::string>()->value_name("N"),
      "number of trainers, or auto for the fewest that fit")(
      "per-node", po::value<std::string>()->default_value("8")->value_name("N"), "trainers of each host")(
      "hbm", po::value<std::string>()->value_name("BYTES"),
      "memory of each trainer, like 80Gi; where they differ, 80Gi*8,40Gi*8 in the order of ranks")(
      "reserve", po::value<std::string>()->default_value("0")->value_name("BYTES"),
      "what of it is not for embeddings")("batch-size", po::value<std::string>()->value_name("B"),
                                          "samples of one iteration on each trainer")(
      "optimizer", po::value<std::string>()->default_value("RowWiseAdagrad")->value_name("NAME"),
      "optimizer of the embeddings; its state counts")(
      "topology", po::value<std::string>()->value_name("LIST"),
      "bandwidths in bytes a second: intra=600Gi,inter=12.5Gi,hbm=897Gi,host=32Gi")(
      "cost", po::value<std::string>()->default_value("torchrec")->value_name("MODEL"),
      "torchrec: times of torchrec's planner; stages: forward, backward and their exchanges in lockstep")(
      "bytes", po::value<std::string>()->default_value("planner")->value_name("COUNT"),
      "planner: bytes as torchrec's planner counts them; allocated: as the kernels allocate them, which "
      "--cost stages does anyway")(
      "pipeline", po::value<std::string>()->default_value("none")->value_name("NAME"),
      "none, sparse-dist or prefetch: torchrec's input pipelines, which hold further batches")(
      "host-memory", po::value<std::string>()->default_value("0")->value_name("BYTES"),
      "of each trainer's host, for tables that are seldom looked up; 0 keeps all on the cards")(
      "cache-ratio", po::value<std::string>()->default_value("20%")->value_name("SHARE"),
      "of a table on the host that its card caches")(
      "time-slack", po::value<std::string>()->default_value("0.5%")->value_name("SHARE"),
      "how much slower than the bound a plan may be for the sake of level memory")(
      "allow", po::value<std::vector<std::string>>()->value_name("TABLE=TYPES"),
      "sharding types a table may have, like t1=table_wise,row_wise; may be repeated")(
      "pin", po::value<std::vector<std::string>>()->value_name("TABLE=RANKS"),
      "ranks a table may lie on, like t1=0,8-15; may be repeated")(
      "module",
      po::value<std::string>()->default_value("sparse_arch.embedding_bag_collection")->value_name("PATH"),
      "for -o torchrec: the embedding collection within the model")(
      "device", po::value<std::string>()->default_value("cuda")->value_name("NAME"),
      "for -o torchrec: cuda or cpu")("verify", po::bool_switch(),
                                      "check the plan by an independent recount")(
      "output,o", po::value<std::string>()->default_value("table")->value_name("FORMAT"),
      "table for people, json or yaml for programs, torchrec for its ShardingPlan as JSON");
  add_timeout_option(options);
  options.add_options()("help,h", "print this help");
  return options;
}

int run_shard(const std::vector<std::string>& arguments, Console& console) {
  po::variables_map values;
  if (const std::optional<int> code = read_options(arguments, shard_options(), kHelp, console, values)) {
    return *code;
  }
  const bool for_torchrec = values["output"].as<std::string>() == "torchrec";
  const Result<OutputFormat> format = for_torchrec ? OutputFormat::kJson : output_format(values);
  if (!format) {
    return complain(console, kExitUsage, format.error());
  }
  OptionReader options(values);
  ShardInput input = read_shard_input(options);
  if (options.error()) {
    return complain(console, kExitUsage, *options.error());
  }
  const std::string path = options.text("tables");
  const Result<std::string> content = read_input(path, console);
  if (!content) {
    return complain(console, kExitUsage, content.error());
  }
  const Result<std::vector<crds::EmbeddingTable>> tables = crds::parse_embedding_tables_csv(*content);
  if (!tables) {
    return complain(console, kExitUsage, tables.error().within(path));
  }
  add_tables(options, *tables, input.request);
  if (options.error()) {
    return complain(console, kExitUsage, *options.error());
  }
  estimator::Infeasibility why;
  const auto start = std::chrono::steady_clock::now();
  AnswerBudget budget(read_timeout(options));
  if (options.error()) {
    return complain(console, kExitUsage, *options.error());
  }
  input.request.work_budget = budget.get();
  const Result<estimator::Plan> plan = budget.run([&] { return plan_for(input, why); });
  input.request.work_budget = nullptr;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  if (!plan) {
    return refuse(console, *format, input, plan.error(), why, elapsed.count());
  }
  const bool verify = values["verify"].as<bool>();
  const std::vector<std::string> faults =
      verify ? estimator::verify(input.request, *plan) : std::vector<std::string>();
  if (*format == OutputFormat::kTable) {
    print_shard_report(console, input.request, *plan, elapsed.count());
    if (verify && faults.empty()) {
      console.out << "  verified: every row and column is placed once, and all figures hold\n";
    }
  } else if (for_torchrec) {
    print_answers(
        console, *format,
        {estimator::to_torchrec_json(input.request, *plan, options.text("module"), options.text("device"))});
  } else {
    JsonEdit json(estimator::to_json(input.request, *plan));
    json["trainers"] = input.request.topology.trainers;
    json["elapsedSeconds"] = elapsed.count();
    if (verify) {
      json["verified"] = faults.empty();
      json["faults"] = json_list(faults);
    }
    print_answers(console, *format, {json.root().value()});
  }
  for (const std::string& fault : faults) {
    complain(console, kExitRefused, "the plan does not hold: " + fault);
  }
  return faults.empty() ? kExitDone : kExitRefused;
}

}  // namespace plimsoll::cli
