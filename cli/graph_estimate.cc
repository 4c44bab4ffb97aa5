#include "cli/graph_estimate.h"

#include <algorithm>
#include <chrono>

#include "base/json/edit.h"
#include "cli/answer_budget.h"
#include "cli/command.h"
#include "cli/estimate_options.h"
#include "cli/explanation.h"
#include "cli/input.h"
#include "cli/jobs.h"
#include "cli/placed_tables.h"
#include "cli/shard_command_input.h"
#include "cli/text_table.h"
#include "cli/throughput_report.h"
#include "crds/embedding_tables_csv.h"
#include "estimator/estimate/estimate.h"
#include "estimator/estimate/explain.h"
#include "estimator/estimate/largest_batch.h"
#include "estimator/provisioner/trainer_loads.h"
#include "estimator/sharder/plan_json.h"
#include "estimator/trace/import_graph.h"

namespace plimsoll::cli {
namespace {

// What is estimated; `request` points into the rest.
struct GraphInput {
  GraphInput() {
    model.graph = crds::GraphReference{};  // says no more than that it is a graph
    request.model = &model;
    request.training = &training;
  }
  GraphInput(const GraphInput&) = delete;
  GraphInput& operator=(const GraphInput&) = delete;

  crds::ModelSpec model;
  crds::TrainingSpec training;
  estimator::GpuCatalog catalog = estimator::GpuCatalog::built_in();
  std::vector<estimator::Constraint> constraints;  // of the tables
  const estimator::GpuModel* gpu = nullptr;        // also on the CPU, for the room and the links of tables
  estimator::EstimateRequest request;
  bool explain = false;
  std::chrono::milliseconds timeout = kDefaultTimeout;
};

struct GraphAnswer {
  estimator::Estimate estimate;
  std::vector<estimator::PartExplanation> explanation{};  // if it was asked for
  std::optional<estimator::Throughput> throughput{};
  std::optional<std::int64_t> largest_batch;       // absent without a GPU to fit, and with tables
  Json sharding;                                   // the tables' plan
  std::vector<estimator::TrainerLoad> trainers{};  // by rank, where tables are spread over them
  bool fits = true;
};

// How many trainers share what the option splits: all of them where --parallelism names the split.
std::int64_t shared_by(OptionReader& options, const std::string& option, bool by_all, std::int64_t trainers) {
  if (!by_all) {
    return options.count(option, 1, trainers);
  }
  options.require(!options.given(option),
                  "--parallelism says that all trainers share it; --" + option + " N says that N of them do");
  return trainers;
}

// --parallelism Tensor and Pipeline say what all trainers do together; a strategy says how the replicas of the model
// share it.
void read_parallelism(OptionReader& options, std::int64_t trainers, crds::Parallelism& parallelism) {
  const std::string name = options.text("parallelism", "Auto");
  parallelism.tensor = shared_by(options, "tensor", name == "Tensor", trainers);
  parallelism.pipeline = shared_by(options, "pipeline", name == "Pipeline", trainers);
  if (name != "Tensor" && name != "Pipeline") {
    parallelism.strategy =
        options.take("parallelism (or Tensor, Pipeline)", crds::parse_enum<crds::ParallelStrategy>(name));
  }
  parallelism.split_columns = options.texts("split-columns");
  parallelism.split_rows = options.texts("split-rows");
  parallelism.stage_blocks = options.texts("stage-blocks");
  options.require(
      parallelism.tensor > 1 || (parallelism.split_columns.empty() && parallelism.split_rows.empty()),
      "--split-columns and --split-rows go with --parallelism Tensor or --tensor, and trainers");
  options.require(
      parallelism.pipeline > 1 || !(options.given("pipeline-chunks") || options.given("microbatches") ||
                                    options.given("stage-blocks")),
      "--pipeline-chunks, --microbatches and --stage-blocks go with --parallelism Pipeline or "
      "--pipeline, and trainers");
  parallelism.pipeline_chunks = options.count("pipeline-chunks", 1, kMaxTrainers);
  read_fsdp(options, parallelism);
  read_offload(options, parallelism);
}

std::optional<Error> read_graph_input(const po::variables_map& values, GraphInput& input) {
  OptionReader options(values);
  estimator::EstimateRequest& request = input.request;
  options.require(!options.given("filename"), "--graph and -f exclude each other");
  for (const std::string name : {"checkpoint-loading", "data-loader-workers"}) {
    options.require(!options.given(name), "--" + name + " is for --config");
  }
  input.training = read_training(options);
  read_request(options, request);
  input.gpu = read_gpu(options, input.catalog, kDefaultGpu);
  if (options.given("gpu") || request.device == estimator::Device::kCuda) {
    request.gpu = input.gpu;
  }
  request.per_node = std::min(options.count("per-node", 1, kMaxPerNode, request.per_node), request.trainers);
  options.require(!options.given("per-node") || request.trainers % request.per_node == 0,
                  "--trainers must be at most --per-node, or a multiple of it");
  const crds::Optimizer of_tables = options.choice("embedding-optimizer", crds::Optimizer::kRowWiseAdagrad);
  options.require(crds::is_for_tables(of_tables), std::string("--embedding-optimizer: no framework offers ") +
                                                      crds::name_of(of_tables) + " for sharded tables");
  input.training.embedding_optimizer = of_tables;
  read_parallelism(options, request.trainers, input.training.parallelism);
  read_initialisation(options, input.training);
  request.lenient = options.given("lenient");
  request.zero_grad_before_backward =
      options.choice<bool>("zero-grad", {{"before-forward", false}, {"before-backward", true}}, false);
  request.next_batch_early = options.given("next-batch-early");
  request.reentrant_checkpointing = options.given("reentrant");
  options.require(
      !request.reentrant_checkpointing || options.given("checkpoint") || options.given("checkpoint-module"),
      "--reentrant goes with --checkpoint or --checkpoint-module");
  input.explain = options.given("explain");
  input.timeout = read_timeout(options);
  return options.error();
}

// Adds the tables to the estimate of a model without them.
Result<void> add_tables_to(GraphAnswer& answer, const GraphInput& input, estimator::EstimateRequest request,
                           AnswerBudget& budget) {
  const Bytes left = std::max(Bytes{}, input.gpu->memory - answer.estimate.peak.upper_bound);
  const Result<PlacedTables> placed = place_tables(request, *input.gpu, left, budget, input.constraints);
  if (!placed) {
    return placed.error();
  }
  answer.trainers = estimator::trainer_loads(answer.estimate, placed->plan, placed->exchanges);
  request.embedding_bytes = placed->embeddings;
  if (request.device == estimator::Device::kCpu && !answer.trainers.empty()) {
    // Nothing is reserved there, so what counts is what tables and exchanges add to the highest peak.
    const auto fullest =
        std::max_element(answer.trainers.begin(), answer.trainers.end(),
                         [](const auto& a, const auto& b) { return a.allocated < b.allocated; });
    request.embedding_bytes = fullest->allocated - answer.estimate.peak.allocated;
  }
  Result<estimator::Estimate> whole = budget.run([&] { return estimator::estimate_memory(request); });
  if (!whole) {
    return whole.error();
  }
  answer.estimate = *std::move(whole);
  answer.sharding = estimator::to_json(placed->request, placed->plan);
  answer.throughput = throughput_of(input.request, *placed, budget);
  answer.fits = placed->why.constraint.empty();
  return {};
}

Result<GraphAnswer> answer_for(const GraphInput& input) {
  estimator::EstimateRequest request = input.request;
  AnswerBudget budget(input.timeout);
  request.budget = budget.get();
  Result<estimator::Estimate> estimate = budget.run([&] { return estimator::estimate_memory(request); });
  if (!estimate) {
    return estimate.error();
  }
  GraphAnswer answer;
  answer.estimate = *std::move(estimate);
  const bool has_tables = !request.model->tables().empty();
  if (has_tables) {
    if (Result<void> added = add_tables_to(answer, input, request, budget); !added) {
      return added.error();
    }
  } else {
    answer.throughput = throughput_of(input.request, {}, budget);
  }
  if (request.gpu != nullptr) {
    answer.fits = answer.fits && answer.estimate.peak.upper_bound <= request.gpu->memory;
    if (!has_tables && request.graph->traces.front().batch_sizes.size() > 1) {
      const Result<std::int64_t> largest =
          budget.run([&] { return estimator::largest_batch(request, request.gpu->memory); });
      if (!largest) {
        return largest.error();
      }
      answer.largest_batch = *largest;
    }
  }
  return answer;
}

std::string does_not_fit(const estimator::GpuModel& gpu, const GraphAnswer& answer) {
  return "does not fit on " + gpu.name + ": a trainer takes up to " +
         to_string(answer.estimate.peak.upper_bound) + " of " + to_string(gpu.memory) +
         (answer.largest_batch ? "; the largest batch that fits is " + std::to_string(*answer.largest_batch)
                               : "");
}

Json to_json(const std::string& name, const estimator::EstimateRequest& request, const GraphAnswer& answer,
             double seconds) {
  const estimator::Estimate& estimate = answer.estimate;
  JsonObject json;
  json["graph"] = name;
  json["model"] = request.graph->name;
  json["torch"] = request.graph->producer.torch;
  json["device"] = request.device == estimator::Device::kCpu ? "cpu" : "cuda";
  json["precision"] = crds::name_of(request.training->precision);
  json["optimizer"] = crds::name_of(request.training->optimizer);
  json["batchSize"] = request.training->batch_size_per_trainer;
  json["gpuModel"] = request.gpu == nullptr ? Json() : Json(request.gpu->name);
  json["trainers"] = request.trainers;
  json["method"] = name_of(request.method);
  json["peak"] = estimator::to_json(estimate.peak);
  json["breakdown"] = estimator::to_json(estimate.breakdown);
  json["margins"] = estimator::to_json(estimate.margins);
  json["hostBytes"] = estimator::to_json(estimate.host);
  if (!answer.explanation.empty()) {
    json["explanation"] = estimator::to_json(answer.explanation);
  }
  json["peakPhase"] = estimate.peak_phase;
  if (estimate.initial) {
    json["initialisation"] = estimator::to_json(*estimate.initial);
  }
  json["denseParameterBytes"] = estimate.dense_parameters.count;
  if (answer.throughput) {
    json["throughput"] = throughput_json(*answer.throughput);
  }
  if (!answer.trainers.empty()) {
    json["ranks"] = estimator::to_json(answer.trainers);
    json["sharding"] = answer.sharding;
  } else if (!estimate.allocated_by_rank.empty()) {
    json["ranks"] = estimator::to_json(estimate.allocated_by_rank);
  }
  json["largestLive"] = estimator::to_json(estimate.largest_live);
  json["largestBatch"] = answer.largest_batch ? Json(*answer.largest_batch) : Json();
  json["warnings"] = json_list(estimate.warnings);
  if (request.gpu != nullptr) {
    json["capacityBytes"] = request.gpu->memory.count;
    json["fits"] = answer.fits;
    if (!answer.fits) {
      json["reason"] = does_not_fit(*request.gpu, answer);
      json["missingBytes"] = (estimate.peak.upper_bound - request.gpu->memory).count;
    }
  }
  json["elapsedSeconds"] = seconds;
  return json;
}

void print_table(Console& console, const std::string& name, const estimator::EstimateRequest& request,
                 const GraphAnswer& answer) {
  const estimator::Estimate& estimate = answer.estimate;
  console.out << name << ", batch " << request.training->batch_size_per_trainer << ", "
              << crds::name_of(request.training->optimizer) << ", "
              << (request.gpu == nullptr ? "cpu" : request.gpu->name) << '\n'
              << "  tensors " << to_string(estimate.peak.allocated) << ", allocator "
              << to_string(estimate.peak.reserved) << ", at most " << to_string(estimate.peak.upper_bound)
              << ", peak in " << estimate.peak_phase << '\n'
              << initial_line(estimate, request.training->parallelism.strategy)
              << host_memory_line(estimate.host);
  if (answer.throughput) {
    console.out << throughput_text(*answer.throughput, !answer.explanation.empty());
  }
  if (answer.largest_batch) {
    console.out << "  largest batch that fits: " << *answer.largest_batch << '\n';
  }
  const Bytes capacity = request.gpu == nullptr ? estimate.peak.upper_bound : request.gpu->memory;
  console.out << '\n' << breakdown_bars(estimate.breakdown, capacity, console.unicode) << '\n';
  if (!estimate.largest_live.empty()) {
    TextTable table({"alive at the peak", "kind", "bytes"});
    for (const estimator::LiveTensor& tensor : estimate.largest_live) {
      table.add({tensor.name, tensor.kind, to_string(tensor.bytes)});
    }
    console.out << table.to_string("  ") << '\n';
  }
  if (!answer.explanation.empty()) {
    console.out << explanation_text(answer.explanation) << '\n';
  }
}

int refuse(const std::string& name, const Error& error, OutputFormat format, Console& console) {
  if (format != OutputFormat::kTable) {
    JsonObject json;
    json["graph"] = name;
    json["code"] = name_of(error.code);
    json["reason"] = error.message;
    print_answers(console, format, {json});
  }
  return complain(console, kExitRefused, error.within(name));
}

// The tables of --tables, or those that the graph describes.
std::optional<Error> read_tables(const po::variables_map& values, const estimator::TraceFile& graph,
                                 Console& console, GraphInput& input) {
  std::vector<crds::EmbeddingTable> tables = graph.embeddings;
  if (values.count("tables") > 0) {
    const std::string path = values["tables"].as<std::string>();
    const Result<std::string> content = read_input(path, console);
    if (!content) {
      return content.error();
    }
    Result<std::vector<crds::EmbeddingTable>> read = crds::parse_embedding_tables_csv(*content);
    if (!read) {
      return read.error().within(path);
    }
    tables = *std::move(read);
  }
  OptionReader options(values);
  options.require(!tables.empty() || !options.given("embedding-optimizer"),
                  "--embedding-optimizer is for tables, and the graph describes none; --tables gives them");
  estimator::ShardRequest request;
  add_tables(options, tables, request);
  input.constraints = std::move(request.constraints);
  if (!tables.empty()) {
    input.model.embeddings = crds::EmbeddingsModel{.tables = std::move(tables), .tables_from = {}};
  }
  return options.error();
}

}  // namespace

int run_graph_estimate(const po::variables_map& values, OutputFormat format, Console& console) {
  GraphInput input;
  estimator::EstimateRequest& request = input.request;
  if (const std::optional<Error> wrong = read_graph_input(values, input)) {
    return complain(console, kExitUsage, *wrong);
  }
  const std::string path = values["graph"].as<std::string>();
  const std::string name = path == "-" ? "standard input" : path;
  const Result<std::string> content = read_input(path, console);
  if (!content) {
    return complain(console, kExitUsage, content.error());
  }
  const auto start = std::chrono::steady_clock::now();
  const Result<estimator::TraceFile> graph = estimator::import_traces(*content);
  if (!graph) {
    return complain(console, kExitUsage, graph.error().within(name));
  }
  request.graph = &*graph;
  if (std::optional<Error> wrong = read_tables(values, *graph, console, input)) {
    return complain(console, kExitUsage, *wrong);
  }
  Result<GraphAnswer> answer = answer_for(input);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  if (!answer) {
    return refuse(name, answer.error(), format, console);
  }
  if (input.explain) {
    answer->explanation = estimator::explain(request, answer->estimate);
  }
  for (const std::string& warning : answer->estimate.warnings) {
    console.err << "warning: " << warning << '\n';
  }
  if (format == OutputFormat::kTable) {
    print_table(console, name, request, *answer);
  } else {
    print_answers(console, format, {to_json(name, request, *answer, elapsed.count())});
  }
  return answer->fits ? kExitDone
                      : complain(console, kExitRefused, name + " " + does_not_fit(*request.gpu, *answer));
}

}  // namespace plimsoll::cli
