#include "cli/estimate_options.h"

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "base/number.h"
#include "cli/answer_budget.h"
#include "cli/input.h"
#include "cli/jobs.h"
#include "cli/subcommands.h"
#include "estimator/allocator/settings.h"
#include "estimator/spec/adapter_config.h"

namespace plimsoll::cli {
namespace {

constexpr std::int64_t kMaxSamples = std::int64_t{1} << 32;
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 24;
constexpr std::int64_t kMaxSplits = 4096;
constexpr std::int64_t kMaxWorkers = 1024;                          // as the API's own limit
constexpr std::int64_t kMaxBucketElements = std::int64_t{1} << 40;  // as the API's own limit
constexpr std::int64_t kMaxLayers = 65536;
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
      "with --graph: DDP, FSDP, FSDP2, ZeRO1, ZeRO2, ZeRO3, Tensor or Pipeline among --trainers; with --config "
      "Megatron, too")(
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
      "no-set-to-none", "with --graph and --config: the loop calls zero_grad(set_to_none=False)")(
      "set-to-none", "the same with True, the default of PyTorch 2; for --torch-version before 2.0")(
      "averaged-model", "with --graph and --config: an average of the weights (EMA) is on the card, too")(
      "grad-scaler", "with --graph and --config: torch.amp.GradScaler scales the loss, of FP16Mixed")(
      "cudnn-benchmark", "with --graph: torch.backends.cudnn.benchmark is on")(
      "initialisation", value("WHERE"),
      "with --graph and --config and --parallelism FSDP, FSDP2 or ZeRO1 to ZeRO3: Meta, CPU or GPU, where the model is made "
      "before it is sharded (default Auto: CPU, but Meta with ZeRO3 and where --tensor, --pipeline or --expert split it)")(
      "checkpoint-loading", value("HOW"),
      "with --config: None, FirstRank or EveryRank, who reads the whole checkpoint into host memory (default Auto: not known)")(
      "data-loader-workers", value("N"), "with --config: worker processes of each trainer's DataLoader")(
      "checkpoint-saving", value("HOW"),
      "with --graph and --config: None (default), Full, FullOffloaded, Sharded or ShardedAsync state_dict, saved between "
      "iterations")("last-batch-size", value("N"),
                    "with --graph and --config: samples of an epoch's last, smaller batch")(
      "validation-batch-size", value("N"),
      "with --graph and --config: samples that validation passes between iterations take at once")(
      "next-batch-early",
      "with --graph: the loader brings a batch to the card before the last one is freed, as Hugging Face's "
      "Trainer")("gradient-as-bucket-view", "with --graph: DDP's option of that name")(
      "no-reshard-after-forward", "with --graph: FSDP keeps a unit's parameters gathered until its backward")(
      "reduce-dtype", value("HOW"),
      "with --config, --parallelism FSDP or FSDP2 and a mixed precision: FP32 or Half, in which gradients are averaged "
      "(default Auto: Half with FSDP, FP32 with FSDP2)")(
      "offload", value("WHAT"),
      "with --graph and --config: None (default), Optimizer (ZeRO, Megatron) or Parameters (FSDP, ZeRO3) in host memory")(
      "offload-percent", value("P"),
      "with --offload Optimizer and --parallelism Megatron: of the elements, how many the host updates (default 100)")(
      "overlap-offload", "with --offload-percent: --overlap-cpu-optimizer-d2h-h2d")(
      "reduce-bucket-size", value("N"),
      "with --parallelism ZeRO1 to ZeRO3: DeepSpeed's reduce_bucket_size, in elements (default 500000000)")(
      "optimizer-in-backward", "with --graph: each parameter is updated once its gradient is complete")(
      "replicate", value("N"),
      "with --graph: HSDP, FSDP shards within N groups of trainers that each hold all parameters")(
      "checkpoint", value("HOW"),
      "with --graph: None (default), Selective, SelectiveHalf or Full, for the members of lists")(
      "checkpoint-module", po::value<std::vector<std::string>>()->value_name("PATH"),
      "with --graph: a module to checkpoint, * for any one name; may be repeated")(
      "reentrant", "with --checkpoint: torch.utils.checkpoint's use_reentrant=True")(
      "tables", value("FILE"),
      "with --graph: CSV of the embedding tables that it looks up, instead of those that it describes")(
      "embedding-optimizer", value("NAME"), "with --graph: of the tables (default RowWiseAdagrad)")(
      "allow", po::value<std::vector<std::string>>()->value_name("TABLE=TYPES"),
      "with --graph: sharding types a table may have, as for plimsoll shard")(
      "pin", po::value<std::vector<std::string>>()->value_name("TABLE=RANKS"),
      "with --graph: ranks a table may lie on, as for plimsoll shard")(
      "per-node", value("N"), "with --graph: trainers of each host, which tables are placed by (default 8)")(
      "lenient", "with --graph: charge an operator without a rule a bound instead of refusing");
  return options;
}

po::options_description config_options() {
  po::options_description options;
  const auto value = [](const char* name) { return po::value<std::string>()->value_name(name); };
  options.add_options()("config", value("FILE"),
                        "a Hugging Face config.json; takes --graph's training options")(
      "sequence-length", value("S"), "with --config: tokens of a sample")(
      "encoder-sequence-length", value("S"),
      "with --config of a T5: tokens that its encoder reads (default: --sequence-length, which its decoder writes)")(
      "attention", value("KIND"), "with --config: SDPA (default), Eager or Flash")(
      "sequence-parallel", "with --config and --tensor: split tokens between the layers' parts too")(
      "context", value("N"), "with --config: trainers that split each sample's tokens")(
      "expert", value("N"), "with --config: trainers that share each layer's experts")(
      "compile", value("WHAT"), "with --config: torch.compile of None (default), Layers or Model")(
      "padded-length", po::value<std::vector<std::string>>()->value_name("S"),
      "with --config: tokens that batches are padded to, besides the longest, --sequence-length; may be repeated")(
      "loss-chunks", value("N"),
      "with --config: logits and loss of the tokens in N parts, one after another")(
      "split-experts",
      "with --config: each expert has parameters of its own, not a layer's experts together")(
      "torch-version", value("V"),
      "with --config: the PyTorch that trains, as 2.6 (default: the newest known)")(
      "float8", value("HOW"), "with --config: torchao's float8, None (default), Linear or LinearAllGather")(
      "adapter", value("FILE"), "with --config: peft's adapter_config.json, of LoRA or DoRA")(
      "quantization", value("TYPE"),
      "with --adapter: bitsandbytes' type of the frozen layers, None (default), NF4, FP4 or Int8")(
      "double-quantization", "with --quantization NF4 or FP4: the blocks' maxima are quantised too")(
      "prepared-for-kbit-training", "with --adapter: after peft's prepare_model_for_kbit_training()")(
      "no-autocast-adapter-dtype", "with --adapter: peft's autocast_adapter_dtype=False")(
      "frozen-module", po::value<std::vector<std::string>>()->value_name("MODULE"),
      "with --config: a module that is not trained, by the end of its path; may be repeated")(
      "frozen-layers", value("N"), "with --config: the first N layers are not trained");
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

// The content of a file that is small text.
std::string read_small(OptionReader& options, const std::string& name, const char* what, Console& console) {
  const Result<std::string> content = options.error() ? *options.error() : read_input(name, console);
  if (!content) {
    options.fail(content.error());
    return {};
  }
  if (content->size() > kMaxConfig) {
    options.fail(Error(ErrorCode::kTooLarge,
                       name + " is larger than any " + what + ", " + std::to_string(kMaxConfig) + " bytes"));
    return {};
  }
  return *content;
}

std::optional<crds::FineTuning> read_fine_tuning(OptionReader& options, Console& console) {
  if (!options.given("adapter")) {
    for (const std::string name :
         {"quantization", "double-quantization", "prepared-for-kbit-training", "no-autocast-adapter-dtype"}) {
      options.require(!options.given(name), "--" + name + " goes with --adapter");
    }
    if (!options.given("frozen-module") && !options.given("frozen-layers")) {
      return std::nullopt;
    }
    crds::FineTuning frozen;
    frozen.frozen_modules = options.texts("frozen-module");
    frozen.frozen_layers = options.count("frozen-layers", 0, kMaxLayers, 0);
    return frozen;
  }
  options.require(!options.given("frozen-module") && !options.given("frozen-layers"),
                  "--frozen-module and --frozen-layers are without --adapter, which freezes all else");
  const std::string text = read_small(options, options.text("adapter"), "adapter_config.json", console);
  crds::FineTuning tuning =
      options.error() ? crds::FineTuning()
                      : options.take("adapter", estimator::read_adapter_config(text), crds::FineTuning());
  tuning.quantization = options.choice("quantization", crds::Quantization::kNone);
  tuning.double_quantization = options.given("double-quantization");
  options.require(!tuning.double_quantization || tuning.quantization == crds::Quantization::kNF4 ||
                      tuning.quantization == crds::Quantization::kFP4,
                  "--double-quantization goes with --quantization NF4 or FP4");
  tuning.prepared_for_kbit_training = options.given("prepared-for-kbit-training");
  tuning.autocast_adapter_dtype = !options.given("no-autocast-adapter-dtype");
  return tuning;
}

// As a TrainingJob's spec is checked: options that exclude each other, or have no effect.
void check_job(OptionReader& options, const crds::TrainingJob& job) {
  for (const crds::FieldError& wrong : crds::validate(job)) {
    if (wrong.field.starts_with("spec.training") || wrong.field.starts_with("spec.model")) {
      options.fail(invalid(crds::to_string({wrong})));
    }
  }
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
  options.add_options()("explain", "print how each part was computed: its rule, its source and the figures");
  add_timeout_option(options);
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

void read_fsdp(OptionReader& options, crds::Parallelism& parallelism) {
  using enum crds::ParallelStrategy;
  const bool fsdp = parallelism.strategy == kFSDP || parallelism.strategy == kFSDP2;
  parallelism.gradient_as_bucket_view = options.given("gradient-as-bucket-view");
  options.require(
      !parallelism.gradient_as_bucket_view || parallelism.strategy == kDDP || parallelism.strategy == kAuto,
      "--gradient-as-bucket-view goes with --parallelism DDP");
  parallelism.reshard_after_forward = !options.given("no-reshard-after-forward");
  options.require(parallelism.reshard_after_forward || fsdp,
                  "--no-reshard-after-forward goes with --parallelism FSDP or FSDP2");
  parallelism.reduce_dtype = options.choice("reduce-dtype", crds::ReduceDtype::kAuto);
  options.require(parallelism.reduce_dtype == crds::ReduceDtype::kAuto || fsdp,
                  "--reduce-dtype goes with --parallelism FSDP or FSDP2");
  parallelism.replicate = options.count("replicate", 1, kMaxSplits);
  parallelism.reduce_bucket_size =
      options.count("reduce-bucket-size", 1, kMaxBucketElements, crds::kReduceBucketSize);
  options.require(!options.given("reduce-bucket-size") || crds::is_zero(parallelism.strategy),
                  "--reduce-bucket-size goes with --parallelism ZeRO1 to ZeRO3");
  options.require(parallelism.replicate == 1 || fsdp, "--replicate goes with --parallelism FSDP or FSDP2");
}

void read_offload(OptionReader& options, crds::Parallelism& parallelism) {
  parallelism.offload = options.choice("offload", crds::Offload::kNone);
  options.require(
      parallelism.offload == crds::Offload::kNone || crds::can_offload(parallelism),
      "--offload Optimizer goes with --parallelism ZeRO1 to ZeRO3 and Megatron, Parameters with FSDP, "
      "FSDP2 and ZeRO3");
  parallelism.offload_percent = options.count("offload-percent", 1, 100, 100);
  parallelism.overlap_offload = options.given("overlap-offload");
  options.require(
      !(options.given("offload-percent") || parallelism.overlap_offload) ||
          crds::can_offload_in_part(parallelism),
      "--offload-percent and --overlap-offload go with --offload Optimizer and --parallelism Megatron");
}

void read_initialisation(OptionReader& options, crds::TrainingSpec& training) {
  training.initialisation = options.choice("initialisation", crds::Initialisation::kAuto);
  const bool given = options.given("initialisation");
  options.require(!given || crds::shards_model(training.parallelism.strategy),
                  "--initialisation goes with --parallelism FSDP, FSDP2, ZeRO1, ZeRO2 or ZeRO3");
  options.require(!given || options.text("device", "cuda") != "cpu", "--initialisation is for --device cuda");
}

void read_splits(OptionReader& options, crds::Parallelism& parallelism) {
  parallelism.tensor = options.count("tensor", 1, kMaxSplits);
  parallelism.pipeline = options.count("pipeline", 1, kMaxSplits);
  parallelism.pipeline_chunks = options.count("pipeline-chunks", 1, kMaxSplits);
  parallelism.context = options.count("context", 1, kMaxSplits);
  parallelism.expert = options.count("expert", 1, kMaxSplits);
  parallelism.sequence = options.given("sequence-parallel");
  parallelism.strategy = options.choice("parallelism", crds::ParallelStrategy::kAuto);
  options.require(!parallelism.sequence || parallelism.tensor > 1, "--sequence-parallel goes with --tensor");
  for (const std::string name : {"pipeline-chunks", "microbatches"}) {
    options.require(!options.given(name) || parallelism.pipeline > 1, "--" + name + " goes with --pipeline");
  }
  read_fsdp(options, parallelism);
}

void read_zero_grad(OptionReader& options, crds::TrainingSpec& training) {
  const bool keeps = options.given("no-set-to-none");
  options.require(!keeps || !options.given("set-to-none"),
                  "--set-to-none and --no-set-to-none exclude each other");
  if (keeps || options.given("set-to-none")) {
    training.set_to_none = !keeps;
  }
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
  training.optimizer_in_backward = options.given("optimizer-in-backward");
  read_zero_grad(options, training);
  training.averaged_model = options.given("averaged-model");
  training.grad_scaler = options.given("grad-scaler");
  options.require(!training.grad_scaler || training.precision == crds::Precision::kFP16Mixed,
                  "--grad-scaler needs --precision FP16Mixed");
  training.cudnn_benchmark = options.given("cudnn-benchmark");
  options.require(!training.cudnn_benchmark || options.text("device", "cuda") != "cpu",
                  "--cudnn-benchmark is for --device cuda: the CPU has no cuDNN");
  training.checkpoint_saving = options.choice("checkpoint-saving", crds::CheckpointSaving::kNone);
  training.checkpoint_loading = options.choice("checkpoint-loading", crds::CheckpointLoading::kAuto);
  training.data_loader_workers = options.count("data-loader-workers", 0, kMaxWorkers, 0);
  training.validation_batch_size = options.count("validation-batch-size", 1, kMaxSamples, 0);
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
  training.last_batch_size = options.count("last-batch-size", 1, batch, 0);
  options.require(training.last_batch_size % training.gradient_accumulation == 0,
                  "--last-batch-size must be a multiple of the parts that a batch is taken in");
  return training;
}

const estimator::GpuModel* read_gpu(OptionReader& options, const estimator::GpuCatalog& catalog,
                                    const std::string& otherwise) {
  const std::string name = options.text("gpu", otherwise);
  const estimator::GpuModel* found = catalog.find(name);
  if (found == nullptr) {
    std::vector<std::string> known;
    for (const estimator::GpuModel& model : catalog.models()) {
      known.push_back(model.name);
    }
    std::sort(known.begin(), known.end());
    options.fail(invalid("unknown GPU model \"" + name.substr(0, 64) + "\"" + did_you_mean(name, known) +
                         "; known are " + listed(known)));
  }
  return found;
}

void read_request(OptionReader& options, estimator::EstimateRequest& request) {
  request.method = read_method(options);
  request.device = options.choice<estimator::Device>(
      "device", {{"cuda", estimator::Device::kCuda}, {"cpu", estimator::Device::kCpu}}, request.device);
  request.trainers = options.count("trainers", 1, kMaxTrainers, request.trainers);
  if (options.given("alloc-conf")) {
    options.require(request.device == estimator::Device::kCuda,
                    "--alloc-conf is for --device cuda: the CPU has no caching allocator");
    request.runtime.allocator =
        options.take("alloc-conf", estimator::parse_allocator_settings(options.text("alloc-conf")));
  }
}

crds::TrainingJob job_of_config(OptionReader& options, Console& console) {
  crds::TrainingJob job;
  options.require(!options.given("filename") && !options.given("graph"),
                  "--config, --graph and -f exclude each other");
  for (const std::string name :
       {"split-columns", "split-rows", "stage-blocks", "zero-grad", "next-batch-early", "cudnn-benchmark",
        "reentrant", "tables", "embedding-optimizer", "allow", "pin", "per-node"}) {
    options.require(!options.given(name), "--" + name + " is for --graph");
  }
  options.require(options.given("sequence-length"), "--config needs --sequence-length S");
  job.name = options.text("config");
  crds::TransformerModel& model = job.spec.model.transformer.emplace();
  model.sequence_length = options.count("sequence-length", 1, kMaxTokens);
  model.encoder_sequence_length = options.count("encoder-sequence-length", 1, kMaxTokens, 0);
  model.attention = options.choice("attention", model.attention);
  job.spec.training = read_training(options);
  job.spec.training.compile = options.choice("compile", crds::Compilation::kNone);
  job.spec.training.loss_chunks = options.count("loss-chunks", 1, kMaxTokens);
  job.spec.training.float8 = options.choice("float8", crds::Float8::kNone);
  job.spec.training.torch_version = options.text("torch-version", "");
  for (const std::string& text : options.texts("padded-length")) {
    const std::int64_t length = parse_number<std::int64_t>(text).value_or(0);
    options.require(length >= 1 && length <= model.sequence_length,
                    "--padded-length must be a whole number from 1 to --sequence-length, " +
                        std::to_string(model.sequence_length),
                    text);
    job.spec.training.sequence_lengths.push_back(length);
  }
  model.split_experts = options.given("split-experts");
  read_splits(options, job.spec.training.parallelism);
  read_offload(options, job.spec.training.parallelism);
  read_initialisation(options, job.spec.training);
  model.config = read_small(options, job.name, "config.json", console);
  job.spec.training.fine_tuning = read_fine_tuning(options, console);
  check_job(options, job);
  return job;
}

}  // namespace plimsoll::cli
