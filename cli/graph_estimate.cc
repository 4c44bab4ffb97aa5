#include "cli/graph_estimate.h"

#include <algorithm>
#include <chrono>

#include "base/json/edit.h"
#include "cli/command.h"
#include "cli/input.h"
#include "cli/jobs.h"
#include "cli/limits.h"
#include "cli/text_table.h"
#include "crds/training_job.h"
#include "estimator/estimate/estimate.h"
#include "estimator/estimate/largest_batch.h"
#include "estimator/trace/import_graph.h"

namespace plimsoll::cli {
namespace {

constexpr const char* kDefaultGpu = "A100-80GB";
constexpr std::int64_t kMaxSamples = std::int64_t{1} << 32;
constexpr std::int64_t kMaxTrainers = 65536;  // as the API's own limit

constexpr const char* kOnlyWithGraph[] = {"batch-size",
                                          "optimizer",
                                          "precision",
                                          "device",
                                          "single-tensor",
                                          "foreach",
                                          "fused",
                                          "checkpoint",
                                          "checkpoint-module",
                                          "accumulate",
                                          "lenient",
                                          "parallelism",
                                          "gradient-as-bucket-view",
                                          "tensor",
                                          "split-columns",
                                          "split-rows",
                                          "pipeline",
                                          "pipeline-chunks",
                                          "microbatches",
                                          "stage-blocks",
                                          "zero-grad",
                                          "next-batch-early",
                                          "reentrant"};

struct GraphQuestion {
  crds::ModelSpec model;  // says no more than that it is a graph
  crds::TrainingSpec training;
  estimator::GpuCatalog catalog = estimator::GpuCatalog::built_in();
  const estimator::GpuModel* gpu = nullptr;
  std::int64_t trainers = 1;
  estimator::Device device = estimator::Device::kCuda;
  estimator::Method method = estimator::Method::kPlimsoll;
  bool lenient = false;
  bool zero_grad_before_backward = false;
  bool next_batch_early = false;
  bool reentrant_checkpointing = false;
  estimator::RuntimeSettings runtime;
};

struct GraphAnswer {
  estimator::Estimate estimate;
  std::optional<std::int64_t> largest_batch;  // absent: there is no card to fit
  bool fits = true;
};

Json integer(std::int64_t value) {
  return Json(static_cast<::Json::Int64>(value));
}

std::optional<std::string> text_of(const po::variables_map& values, const char* name) {
  return values.contains(name) ? std::optional(values[name].as<std::string>()) : std::nullopt;
}

Result<crds::OptimizerImplementation> implementation_of(const po::variables_map& values) {
  crds::OptimizerImplementation found = crds::OptimizerImplementation::kDefault;
  int given = 0;
  const auto look = [&](const char* name, crds::OptimizerImplementation implementation) {
    if (values.contains(name)) {
      found = implementation;
      ++given;
    }
  };
  look("single-tensor", crds::OptimizerImplementation::kSingleTensor);
  look("foreach", crds::OptimizerImplementation::kForEach);
  look("fused", crds::OptimizerImplementation::kFused);
  if (given > 1) {
    return invalid("--single-tensor, --foreach and --fused exclude each other");
  }
  return found;
}

std::vector<std::string> texts_of(const po::variables_map& values, const char* name) {
  return values.contains(name) ? values[name].as<std::vector<std::string>>() : std::vector<std::string>();
}

// How many trainers share what one name stands for: all, where --parallelism says the name.
Result<std::int64_t> shared_by(const po::variables_map& values, const char* option, bool by_all,
                               std::int64_t trainers) {
  if (by_all) {
    return values.contains(option) ? Result<std::int64_t>(invalid(
                                         std::string("--parallelism says that all trainers share it; --") +
                                         option + " N says that N of them do"))
                                   : Result<std::int64_t>(trainers);
  }
  return values.contains(option) ? count_option(values, option, 1, trainers) : Result<std::int64_t>(1);
}

// --parallelism Tensor and Pipeline are what all trainers do together; a strategy is what the replicas of the
// model share.
Result<void> read_parallelism(const po::variables_map& values, std::int64_t trainers,
                              crds::Parallelism& parallelism) {
  const std::string name = text_of(values, "parallelism").value_or("Auto");
  const Result<std::int64_t> tensor = shared_by(values, "tensor", name == "Tensor", trainers);
  const Result<std::int64_t> pipeline = shared_by(values, "pipeline", name == "Pipeline", trainers);
  if (!tensor || !pipeline) {
    return tensor ? pipeline.error() : tensor.error();
  }
  parallelism.tensor = *tensor;
  parallelism.pipeline = *pipeline;
  if (name != "Tensor" && name != "Pipeline") {
    const Result<crds::ParallelStrategy> strategy = crds::parse_parallel_strategy(name);
    if (!strategy) {
      return strategy.error().within("--parallelism (or Tensor, Pipeline)");
    }
    parallelism.strategy = *strategy;
  }
  parallelism.split_columns = texts_of(values, "split-columns");
  parallelism.split_rows = texts_of(values, "split-rows");
  parallelism.stage_blocks = texts_of(values, "stage-blocks");
  if (parallelism.tensor == 1 && !(parallelism.split_columns.empty() && parallelism.split_rows.empty())) {
    return invalid("--split-columns and --split-rows go with --parallelism Tensor or --tensor, and trainers");
  }
  const bool staged = values.contains("pipeline-chunks") || values.contains("microbatches");
  if (parallelism.pipeline == 1 && (staged || !parallelism.stage_blocks.empty())) {
    return invalid(
        "--pipeline-chunks, --microbatches and --stage-blocks go with --parallelism Pipeline or --pipeline, "
        "and trainers");
  }
  if (values.contains("pipeline-chunks")) {
    const Result<std::int64_t> chunks = count_option(values, "pipeline-chunks", 1, kMaxTrainers);
    if (!chunks) {
      return chunks.error();
    }
    parallelism.pipeline_chunks = *chunks;
  }
  parallelism.gradient_as_bucket_view = values.contains("gradient-as-bucket-view");
  return {};
}

Result<void> read_question(const po::variables_map& values, GraphQuestion& question) {
  if (values.contains("filename")) {
    return invalid("--graph and -f exclude each other");
  }
  if (Result<void> read = read_training_options(values, question.training); !read) {
    return read.error();
  }
  const std::string device = text_of(values, "device").value_or("cuda");
  if (device != "cuda" && device != "cpu") {
    return invalid("--device must be cuda or cpu");
  }
  question.device = device == "cpu" ? estimator::Device::kCpu : estimator::Device::kCuda;
  const std::optional<std::string> gpu = text_of(values, "gpu");
  if (gpu || question.device == estimator::Device::kCuda) {
    const Result<const estimator::GpuModel*> found = find_gpu(question.catalog, gpu.value_or(kDefaultGpu));
    if (!found) {
      return found.error();
    }
    question.gpu = *found;
  }
  if (values.contains("trainers")) {
    const Result<std::int64_t> trainers = count_option(values, "trainers", 1, kMaxTrainers);
    if (!trainers) {
      return trainers.error();
    }
    question.trainers = *trainers;
  }
  if (Result<void> read = read_parallelism(values, question.trainers, question.training.parallelism); !read) {
    return read.error();
  }
  question.method = *method_option(values);  // the caller has asked whether it is one
  question.lenient = values.contains("lenient");
  const std::string zero_grad = text_of(values, "zero-grad").value_or("before-forward");
  if (zero_grad != "before-forward" && zero_grad != "before-backward") {
    return invalid("--zero-grad must be before-forward or before-backward");
  }
  question.zero_grad_before_backward = zero_grad == "before-backward";
  question.next_batch_early = values.contains("next-batch-early");
  question.reentrant_checkpointing = values.contains("reentrant");
  if (Result<void> read = read_allocator_option(values, question.runtime); !read) {
    return read.error();
  }
  question.model.graph = crds::GraphReference{};
  return {};
}

estimator::EstimateRequest request_of(const GraphQuestion& question, const estimator::TraceFile& graph) {
  estimator::EstimateRequest request;
  request.model = &question.model;
  request.training = &question.training;
  request.graph = &graph;
  request.gpu = question.gpu;
  request.trainers = question.trainers;
  request.method = question.method;
  request.device = question.device;
  request.lenient = question.lenient;
  request.zero_grad_before_backward = question.zero_grad_before_backward;
  request.next_batch_early = question.next_batch_early;
  request.reentrant_checkpointing = question.reentrant_checkpointing;
  request.runtime = question.runtime;
  return request;
}

Result<GraphAnswer> answer_for(const GraphQuestion& question, const estimator::TraceFile& graph) {
  estimator::EstimateRequest request = request_of(question, graph);
  Budget budget(limits_of_answer());
  request.budget = &budget;
  Result<estimator::Estimate> estimate = budget.run([&] { return estimator::estimate_memory(request); });
  if (!estimate) {
    return estimate.error();
  }
  GraphAnswer answer;
  answer.estimate = *std::move(estimate);
  if (question.gpu != nullptr) {
    answer.fits = answer.estimate.peak.upper_bound <= question.gpu->memory;
    if (graph.traces.front().batch_sizes.size() > 1) {
      const Result<std::int64_t> largest =
          budget.run([&] { return estimator::largest_batch(request, question.gpu->memory); });
      if (!largest) {
        return largest.error();
      }
      answer.largest_batch = *largest;
    }
  }
  return answer;
}

std::string does_not_fit(const GraphQuestion& question, const GraphAnswer& answer) {
  return "does not fit on " + question.gpu->name + ": a trainer takes up to " +
         to_string(answer.estimate.peak.upper_bound) + " of " + to_string(question.gpu->memory) +
         (answer.largest_batch ? "; the largest batch that fits is " + std::to_string(*answer.largest_batch)
                               : "");
}

Json to_json(const std::string& name, const estimator::TraceFile& graph, const GraphQuestion& question,
             const GraphAnswer& answer, double seconds) {
  const bool on_cpu = question.device == estimator::Device::kCpu;
  JsonObject json;
  json["graph"] = name;
  json["model"] = graph.name;
  json["torch"] = graph.producer.torch;
  json["device"] = on_cpu ? "cpu" : "cuda";
  json["precision"] = crds::name_of(question.training.precision);
  json["optimizer"] = crds::name_of(question.training.optimizer);
  json["batchSize"] = integer(question.training.batch_size_per_trainer);
  json["gpuModel"] = question.gpu == nullptr ? Json() : Json(question.gpu->name);
  json["trainers"] = integer(question.trainers);
  json["method"] = question.method == estimator::Method::kAmp ? "amp" : "plimsoll";
  json["peak"] = estimator::to_json(answer.estimate.peak);
  json["breakdown"] = estimator::to_json(answer.estimate.breakdown);
  json["peakPhase"] = answer.estimate.peak_phase;
  json["denseParameterBytes"] = integer(answer.estimate.dense_parameters.count);
  if (!answer.estimate.allocated_by_rank.empty()) {
    json["ranks"] = estimator::to_json(answer.estimate.allocated_by_rank);
  }
  json["largestLive"] = estimator::to_json(answer.estimate.largest_live);
  json["largestBatch"] = answer.largest_batch ? integer(*answer.largest_batch) : Json();
  json["warnings"] = Json(::Json::arrayValue);
  for (const std::string& warning : answer.estimate.warnings) {
    json["warnings"].append(warning);
  }
  if (question.gpu != nullptr) {
    json["capacityBytes"] = integer(question.gpu->memory.count);
    json["fits"] = answer.fits;
    if (!answer.fits) {
      json["reason"] = does_not_fit(question, answer);
      json["missingBytes"] = integer((answer.estimate.peak.upper_bound - question.gpu->memory).count);
    }
  }
  json["elapsedSeconds"] = seconds;
  return json;
}

void print_table(Console& console, const std::string& name, const GraphQuestion& question,
                 const GraphAnswer& answer) {
  const estimator::Estimate& estimate = answer.estimate;
  console.out << name << ", batch " << question.training.batch_size_per_trainer << ", "
              << crds::name_of(question.training.optimizer) << ", "
              << (question.gpu == nullptr ? "cpu" : question.gpu->name) << '\n'
              << "  tensors " << to_string(estimate.peak.allocated) << ", allocator "
              << to_string(estimate.peak.reserved) << ", at most " << to_string(estimate.peak.upper_bound)
              << ", peak in " << estimate.peak_phase << '\n';
  if (answer.largest_batch) {
    console.out << "  largest batch that fits: " << *answer.largest_batch << '\n';
  }
  const Bytes capacity = question.gpu == nullptr ? estimate.peak.upper_bound : question.gpu->memory;
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

void add_graph_options(po::options_description& options) {
  const auto value = [](const char* name) { return po::value<std::string>()->value_name(name); };
  options.add_options()("graph", value("FILE"), "an exported graph, JSON or gzip of it (docs/graph.md)")(
      "batch-size", value("B"), "with --graph: samples of one iteration")("optimizer", value("NAME"),
                                                                          "with --graph: Adam, SGD, ...")(
      "precision", value("NAME"), "with --graph: FP32 (default), BF16Mixed, ...")(
      "device", value("NAME"), "with --graph: cuda (default), or cpu for PyTorch's CPU kernels")(
      "single-tensor", "with --graph: the optimizer goes tensor by tensor (default on the CPU)")(
      "foreach", "with --graph: the optimizer takes all tensors at once (default on CUDA)")(
      "fused", "with --graph: the optimizer's fused kernels")(
      "accumulate", value("N"), "with --graph: take the batch in N equal parts and add up their gradients")(
      "parallelism", value("NAME"),
      "with --graph: DDP, FSDP, FSDP2, ZeRO1, ZeRO2, ZeRO3, Tensor or Pipeline among --trainers")(
      "tensor", value("N"),
      "with --graph and --config: N of the trainers split each layer, the rest hold replicas")(
      "split-columns", po::value<std::vector<std::string>>()->value_name("MODULE"),
      "with --tensor: layers split by output columns, by the end of their path, * for any one name")(
      "split-rows", po::value<std::vector<std::string>>()->value_name("MODULE"),
      "with --tensor: layers split by input rows, which follow those split by columns")(
      "pipeline", value("N"), "with --graph and --config: N of the trainers hold a stage each, 1F1B")(
      "microbatches", value("N"), "with --pipeline: equal parts that the batch is taken in, as --accumulate")(
      "pipeline-chunks", value("N"),
      "with --pipeline: parts of the model that each trainer has, interleaved")(
      "stage-blocks", po::value<std::vector<std::string>>()->value_name("MODULE"),
      "with --pipeline: modules that stages are made of, * for any one name (default: members of lists)")(
      "zero-grad", value("WHEN"),
      "with --graph: before-forward (default) or before-backward, where the loop calls zero_grad()")(
      "next-batch-early",
      "with --graph: the loader brings a batch to the card before the last one is freed, as Hugging Face's "
      "Trainer")("gradient-as-bucket-view", "with --graph: DDP's option of that name")(
      "checkpoint", value("HOW"),
      "with --graph: None (default), Selective, SelectiveHalf or Full, for the members of lists")(
      "checkpoint-module", po::value<std::vector<std::string>>()->value_name("PATH"),
      "with --graph: a module to checkpoint, * for any one name; may be repeated")(
      "reentrant", "with --checkpoint: torch.utils.checkpoint's use_reentrant=True")(
      "lenient", "with --graph: charge an operator without a rule a bound instead of refusing");
}

const char* graph_option_given(const po::variables_map& values) {
  const auto* const given = std::find_if(std::begin(kOnlyWithGraph), std::end(kOnlyWithGraph),
                                         [&](const char* name) { return values.contains(name); });
  return given == std::end(kOnlyWithGraph) ? nullptr : *given;
}

Result<void> read_training_options(const po::variables_map& values, crds::TrainingSpec& training) {
  if (!values.contains("batch-size") || !values.contains("optimizer")) {
    return invalid("the estimate needs --batch-size B and --optimizer NAME");
  }
  const Result<std::int64_t> batch = count_option(values, "batch-size", 1, kMaxSamples);
  const Result<crds::Optimizer> optimizer = crds::parse_optimizer(values["optimizer"].as<std::string>());
  const Result<crds::OptimizerImplementation> implementation = implementation_of(values);
  const Result<crds::Precision> precision =
      crds::parse_precision(text_of(values, "precision").value_or("FP32"));
  const Result<crds::ActivationCheckpointing> checkpointing =
      crds::parse_activation_checkpointing(text_of(values, "checkpoint").value_or("None"));
  if (!batch) {
    return batch.error();
  }
  if (!optimizer) {
    return optimizer.error().within("--optimizer");
  }
  if (!implementation) {
    return implementation.error();
  }
  if (!precision) {
    return precision.error().within("--precision");
  }
  if (!checkpointing) {
    return checkpointing.error().within("--checkpoint");
  }
  training.batch_size_per_trainer = *batch;
  training.optimizer = *optimizer;
  training.optimizer_implementation = *implementation;
  training.precision = *precision;
  training.activation_checkpointing = *checkpointing;
  if (values.contains("checkpoint-module")) {
    if (values.contains("checkpoint")) {
      return invalid("--checkpoint and --checkpoint-module exclude each other");
    }
    training.activation_checkpointing = crds::ActivationCheckpointing::kPerModule;
    training.checkpoint_modules = values["checkpoint-module"].as<std::vector<std::string>>();
  } else if (*checkpointing == crds::ActivationCheckpointing::kPerModule) {
    return invalid("name the modules to checkpoint with --checkpoint-module");
  }
  if (values.contains("accumulate") && values.contains("microbatches")) {
    return invalid(
        "--accumulate and --microbatches exclude each other: micro-batches are parts of the batch");
  }
  for (const char* const option : {"accumulate", "microbatches"}) {
    if (values.contains(option)) {
      const Result<std::int64_t> parts = count_option(values, option, 1, *batch);
      if (!parts) {
        return parts.error();
      }
      training.gradient_accumulation = *parts;
      if (*batch % *parts != 0) {
        return invalid(std::string("--") + option + " must divide the batch of " + std::to_string(*batch));
      }
    }
  }
  return {};
}

Result<const estimator::GpuModel*> find_gpu(const estimator::GpuCatalog& catalog, const std::string& name) {
  const estimator::GpuModel* found = catalog.find(name);
  if (found != nullptr) {
    return found;
  }
  std::string known;
  for (const estimator::GpuModel& model : catalog.models()) {
    known += (known.empty() ? "" : ", ") + model.name;
  }
  return invalid("no GPU model is called \"" + name.substr(0, 64) + "\"; known are " + known);
}

Result<void> read_allocator_option(const po::variables_map& values, estimator::RuntimeSettings& runtime) {
  const std::optional<std::string> text = text_of(values, "alloc-conf");
  if (!text) {
    return {};
  }
  const Result<estimator::AllocatorSettings> settings = estimator::parse_allocator_settings(*text);
  if (!settings) {
    return settings.error().within("--alloc-conf");
  }
  runtime.allocator = *settings;
  return {};
}

int run_graph_estimate(const po::variables_map& values, OutputFormat format, Console& console) {
  GraphQuestion question;
  if (const Result<void> read = read_question(values, question); !read) {
    return complain(console, kExitUsage, read.error());
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
  const Result<GraphAnswer> answer = answer_for(question, *graph);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  if (!answer) {
    return refuse(name, answer.error(), format, console);
  }
  for (const std::string& warning : answer->estimate.warnings) {
    console.err << "warning: " << warning << '\n';
  }
  if (format == OutputFormat::kTable) {
    print_table(console, name, question, *answer);
  } else {
    print_answers(console, format, {to_json(name, *graph, question, *answer, elapsed.count())});
  }
  return answer->fits ? kExitDone
                      : complain(console, kExitRefused, name + " " + does_not_fit(question, *answer));
}

}  // namespace plimsoll::cli
