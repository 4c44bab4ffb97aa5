#include "cli/estimate_options.h"

#include <array>
#include <utility>
#include <vector>

#include "cli/input.h"
#include "cli/jobs.h"
#include "cli/subcommands.h"
#include "estimator/allocator/settings.h"

namespace plimsoll::cli {
namespace {

constexpr std::int64_t kMaxSamples = std::int64_t{1} << 32;
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 24;
constexpr std::int64_t kMaxSplits = 4096;
constexpr std::size_t kMaxConfig = 65536;  // bytes, as the API's own limit

po::options_description graph_options() {
  po::options_description options;
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
      "no-reshard-after-forward", "with --graph: FSDP keeps a unit's parameters gathered until its backward")(
      "checkpoint", value("HOW"),
      "with --graph: None (default), Selective, SelectiveHalf or Full, for the members of lists")(
      "checkpoint-module", po::value<std::vector<std::string>>()->value_name("PATH"),
      "with --graph: a module to checkpoint, * for any one name; may be repeated")(
      "reentrant", "with --checkpoint: torch.utils.checkpoint's use_reentrant=True")(
      "lenient", "with --graph: charge an operator without a rule a bound instead of refusing");
  return options;
}

po::options_description config_options() {
  po::options_description options;
  const auto value = [](const char* name) { return po::value<std::string>()->value_name(name); };
  options.add_options()("config", value("FILE"),
                        "a Hugging Face config.json; takes --graph's training options")(
      "sequence-length", value("S"), "with --config: tokens of a sample")(
      "attention", value("KIND"), "with --config: SDPA (default), Eager or Flash")(
      "sequence-parallel", "with --config and --tensor: split tokens between the layers' parts too")(
      "context", value("N"), "with --config: trainers that split each sample's tokens")(
      "expert", value("N"), "with --config: trainers that share each layer's experts");
  return options;
}

crds::OptimizerImplementation read_implementation(OptionReader& options) {
  using enum crds::OptimizerImplementation;
  constexpr std::array<std::pair<const char*, crds::OptimizerImplementation>, 3> kFlags = {
      {{"single-tensor", kSingleTensor}, {"foreach", kForEach}, {"fused", kFused}}};
  crds::OptimizerImplementation found = kDefault;
  for (const auto& [flag, implementation] : kFlags) {
    if (options.given(flag)) {
      options.require(found == kDefault, "--single-tensor, --foreach and --fused exclude each other");
      found = implementation;
    }
  }
  return found;
}

void read_checkpointing(OptionReader& options, crds::TrainingSpec& training) {
  using enum crds::ActivationCheckpointing;
  training.activation_checkpointing = options.choice("checkpoint", kNone);
  training.checkpoint_modules = options.texts("checkpoint-module");
  const bool per_module = !training.checkpoint_modules.empty();
  options.require(!(per_module && options.given("checkpoint")),
                  "--checkpoint and --checkpoint-module exclude each other");
  options.require(per_module || training.activation_checkpointing != kPerModule,
                  "name the modules to checkpoint with --checkpoint-module");
  if (per_module) {
    training.activation_checkpointing = kPerModule;
  }
}

void read_splits(OptionReader& options, crds::Parallelism& parallelism) {
  parallelism.tensor = options.count("tensor", 1, kMaxSplits);
  parallelism.pipeline = options.count("pipeline", 1, kMaxSplits);
  parallelism.pipeline_chunks = options.count("pipeline-chunks", 1, kMaxSplits);
  parallelism.context = options.count("context", 1, kMaxSplits);
  parallelism.expert = options.count("expert", 1, kMaxSplits);
  parallelism.sequence = options.given("sequence-parallel");
  parallelism.strategy = options.choice("parallelism", crds::ParallelStrategy::kAuto);
  parallelism.gradient_as_bucket_view = options.given("gradient-as-bucket-view");
  parallelism.reshard_after_forward = !options.given("no-reshard-after-forward");
}

}  // namespace

po::options_description estimate_options() {
  po::options_description options;
  options.add_options()("filename,f", po::value<std::vector<std::string>>()->value_name("FILE"),
                        "TrainingJobs, YAML or JSON; - is standard input; may be repeated")(
      "gpu", po::value<std::string>()->value_name("NAME"),
      "GPU model or product label; else the job's own, else A100-80GB")(
      "trainers", po::value<std::string>()->value_name("N"), "number of trainers; else the job's own")(
      "method", po::value<std::string>()->default_value("plimsoll")->value_name("NAME"),
      "plimsoll, or amp for the formula published in the AMP paper")(
      "alloc-conf", po::value<std::string>()->value_name("TEXT"),
      "as PYTORCH_CUDA_ALLOC_CONF: expandable_segments:True, ...; else the pod template's own");
  for (const po::options_description& group : {graph_options(), config_options()}) {
    for (const auto& option : group.options()) {
      options.add(option);
    }
  }
  add_output_option(options);
  options.add_options()("help,h", "print this help");
  return options;
}

void refuse_options_of_models(OptionReader& options) {
  const auto refuse = [&](const po::options_description& group, const std::string& sources) {
    for (const auto& option : group.options()) {
      options.require(!options.given(option->long_name()),
                      "--" + option->long_name() + " goes with " + sources + "; a job has it in its spec");
    }
  };
  refuse(graph_options(), "--graph and --config");
  refuse(config_options(), "--config");
}

crds::TrainingSpec read_training(OptionReader& options) {
  crds::TrainingSpec training;
  options.require(options.given("batch-size") && options.given("optimizer"),
                  "the estimate needs --batch-size B and --optimizer NAME");
  training.batch_size_per_trainer = options.count("batch-size", 1, kMaxSamples);
  training.optimizer = options.choice("optimizer", training.optimizer);
  training.optimizer_implementation = read_implementation(options);
  training.precision = options.choice("precision", crds::Precision::kFP32);
  read_checkpointing(options, training);
  options.require(!(options.given("accumulate") && options.given("microbatches")),
                  "--accumulate and --microbatches exclude each other: micro-batches are parts of the batch");
  const std::int64_t batch = training.batch_size_per_trainer;
  for (const std::string option : {"accumulate", "microbatches"}) {
    if (options.given(option)) {
      training.gradient_accumulation = options.count(option, 1, batch);
      options.require(batch % training.gradient_accumulation == 0,
                      "--" + option + " must divide the batch of " + std::to_string(batch));
    }
  }
  return training;
}

const estimator::GpuModel* read_gpu(OptionReader& options, const estimator::GpuCatalog& catalog,
                                    const std::string& otherwise) {
  const std::string name = options.text("gpu", otherwise);
  const estimator::GpuModel* found = catalog.find(name);
  if (found == nullptr) {
    std::string known;
    for (const estimator::GpuModel& model : catalog.models()) {
      known += (known.empty() ? "" : ", ") + model.name;
    }
    options.fail(invalid("unknown GPU model \"" + name.substr(0, 64) + "\"; known are " + known));
  }
  return found;
}

void read_request(OptionReader& options, estimator::EstimateRequest& request) {
  request.method = read_method(options);
  request.device = options.choice<estimator::Device>(
      "device", {{"cuda", estimator::Device::kCuda}, {"cpu", estimator::Device::kCpu}}, request.device);
  request.trainers = options.count("trainers", 1, kMaxTrainers, request.trainers);
  if (options.given("alloc-conf")) {
    request.runtime.allocator =
        options.take("alloc-conf", estimator::parse_allocator_settings(options.text("alloc-conf")));
  }
}

crds::TrainingJob job_of_config(OptionReader& options, Console& console) {
  crds::TrainingJob job;
  options.require(!options.given("filename") && !options.given("graph"),
                  "--config, --graph and -f exclude each other");
  for (const std::string name :
       {"split-columns", "split-rows", "stage-blocks", "zero-grad", "next-batch-early", "reentrant"}) {
    options.require(!options.given(name), "--" + name + " is for --graph");
  }
  options.require(options.given("sequence-length"), "--config needs --sequence-length S");
  job.name = options.text("config");
  crds::TransformerModel& model = job.spec.model.transformer.emplace();
  model.sequence_length = options.count("sequence-length", 1, kMaxTokens);
  model.attention = options.choice("attention", model.attention);
  job.spec.training = read_training(options);
  read_splits(options, job.spec.training.parallelism);
  const Result<std::string> content = options.error() ? *options.error() : read_input(job.name, console);
  if (!content) {
    options.fail(content.error());
  } else if (content->size() > kMaxConfig) {
    options.fail(Error(ErrorCode::kTooLarge, job.name + " is larger than any config.json, " +
                                                 std::to_string(kMaxConfig) + " bytes"));
  } else {
    model.config = *content;
  }
  return job;
}

}  // namespace plimsoll::cli
