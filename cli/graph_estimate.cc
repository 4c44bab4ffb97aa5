#include "cli/graph_estimate.h"

#include <chrono>

#include "base/json/edit.h"
#include "cli/command.h"
#include "cli/estimate_options.h"
#include "cli/input.h"
#include "cli/jobs.h"
#include "cli/text_table.h"
#include "estimator/estimate/estimate.h"
#include "estimator/estimate/largest_batch.h"
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
  estimator::EstimateRequest request;
};

struct GraphAnswer {
  estimator::Estimate estimate;
  std::optional<std::int64_t> largest_batch;  // absent without a GPU to fit
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
  parallelism.gradient_as_bucket_view = options.given("gradient-as-bucket-view");
  parallelism.reshard_after_forward = !options.given("no-reshard-after-forward");
}

std::optional<Error> read_graph_input(const po::variables_map& values, GraphInput& input) {
  OptionReader options(values);
  estimator::EstimateRequest& request = input.request;
  options.require(!options.given("filename"), "--graph and -f exclude each other");
  input.training = read_training(options);
  read_request(options, request);
  if (options.given("gpu") || request.device == estimator::Device::kCuda) {
    request.gpu = read_gpu(options, input.catalog, kDefaultGpu);
  }
  read_parallelism(options, request.trainers, input.training.parallelism);
  request.lenient = options.given("lenient");
  request.zero_grad_before_backward =
      options.choice<bool>("zero-grad", {{"before-forward", false}, {"before-backward", true}}, false);
  request.next_batch_early = options.given("next-batch-early");
  request.reentrant_checkpointing = options.given("reentrant");
  return options.error();
}

Result<GraphAnswer> answer_for(estimator::EstimateRequest request) {
  Budget budget(limits_of_answer());
  request.budget = &budget;
  Result<estimator::Estimate> estimate = budget.run([&] { return estimator::estimate_memory(request); });
  if (!estimate) {
    return estimate.error();
  }
  GraphAnswer answer;
  answer.estimate = *std::move(estimate);
  if (request.gpu != nullptr) {
    answer.fits = answer.estimate.peak.upper_bound <= request.gpu->memory;
    if (request.graph->traces.front().batch_sizes.size() > 1) {
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
  json["peakPhase"] = estimate.peak_phase;
  json["denseParameterBytes"] = estimate.dense_parameters.count;
  if (!estimate.allocated_by_rank.empty()) {
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
              << ", peak in " << estimate.peak_phase << '\n';
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
  const Result<GraphAnswer> answer = answer_for(request);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  if (!answer) {
    return refuse(name, answer.error(), format, console);
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
