#include "cli/swap_source.h"

#include <algorithm>
#include <fstream>
#include <utility>
#include <vector>

#include "base/json/edit.h"
#include "base/json/view.h"
#include "base/number.h"
#include "cli/cluster_state.h"
#include "cli/estimate_options.h"
#include "cli/input.h"
#include "cli/jobs.h"
#include "crds/global_batch.h"
#include "estimator/layer_costs/layer_profile.h"
#include "estimator/swap/planner.h"
#include "estimator/trace/import_graph.h"

namespace plimsoll::cli {
namespace {

// As Harmony's authors ran it: 32 samples on 2 GPUs, 64 on 4.
constexpr std::int64_t kSamplesOfGpu = 16;
// Larger microbatches exceed a GPU long before they are faster.
constexpr std::int64_t kMaxMicrobatch = 256;

Result<estimator::SwapProfile> read_profile(const std::string& path, Console& console) {
  const Result<std::string> content = read_input(path, console);
  if (!content) {
    return content.error();
  }
  const Result<JsonText> json = JsonText::parse_as_tree(*content);
  Result<estimator::SwapProfile> profile =
      json ? estimator::read_swap_profile(json->root()) : Result<estimator::SwapProfile>(json.error());
  return profile ? std::move(profile) : Result<estimator::SwapProfile>(profile.error().within(path));
}

// The positions that a config.json has, which are the tokens of a sample where --sequence-length does not say it.
std::int64_t positions_of(OptionReader& options, const std::string& config) {
  const Result<JsonText> json = JsonText::parse_as_tree(config);
  for (const char* const name : {"n_positions", "max_position_embeddings"}) {
    const std::optional<std::int64_t> count =
        json ? member(json->root(), {name}).integer() : std::optional<std::int64_t>();
    if (count && *count >= 1) {
      return *count;
    }
  }
  options.require(!json.ok(),
                  "--config without n_positions or max_position_embeddings needs --sequence-length S");
  return 1;
}

crds::TrainingSpec training_of(OptionReader& options) {
  crds::TrainingSpec training;
  training.batch_size_per_trainer = 1;
  training.optimizer = options.choice("optimizer", crds::Optimizer::kAdamW);
  training.precision = options.choice("precision", crds::Precision::kFP32);
  training.torch_version = options.text("torch-version", "");
  return training;
}

void read_config(OptionReader& options, Console& console, SwapModel& model) {
  const std::string path = options.text("config");
  const Result<std::string> content = options.error() ? *options.error() : read_input(path, console);
  if (!content) {
    options.fail(content.error());
    return;
  }
  crds::TransformerModel& transformer = model.job.spec.model.transformer.emplace();
  transformer.config = *content;
  transformer.attention = options.choice("attention", transformer.attention);
  transformer.split_experts = options.given("split-experts");
  transformer.sequence_length = options.given("sequence-length")
                                    ? options.count("sequence-length", 1, std::int64_t{1} << 24)
                                    : positions_of(options, *content);
  model.job.spec.training = training_of(options);
  model.about = path + ", " + std::to_string(transformer.sequence_length) + " tokens";
}

void read_graph(OptionReader& options, Console& console, SwapModel& model) {
  for (const char* const name : {"sequence-length", "attention", "split-experts", "torch-version"}) {
    options.require(!options.given(name), "--" + std::string(name) + " is for --config; a graph has it");
  }
  const std::string path = options.text("graph");
  const Result<std::string> content = options.error() ? *options.error() : read_input(path, console);
  Result<estimator::TraceFile> graph =
      content ? estimator::import_traces(*content) : Result<estimator::TraceFile>(content.error());
  if (!graph) {
    options.fail(content ? graph.error().within(path) : graph.error());
    return;
  }
  model.graph = std::make_shared<const estimator::TraceFile>(*std::move(graph));
  model.job.spec.model.graph = crds::GraphReference{};
  model.job.spec.training = training_of(options);
  model.about = path;
}

void read_job(OptionReader& options, Console& console, SwapModel& model) {
  for (const char* const name :
       {"sequence-length", "attention", "split-experts", "torch-version", "optimizer", "precision"}) {
    options.require(!options.given(name),
                    "--" + std::string(name) + " goes with --config; a job has it in its spec");
  }
  const Result<std::vector<Document>> documents = options.error()
                                                      ? Result<std::vector<Document>>(*options.error())
                                                      : read_documents({options.text("filename")}, console);
  const Result<ClusterState> state =
      documents ? cluster_from_documents(*documents) : Result<ClusterState>(documents.error());
  if (!state) {
    options.fail(state.error());
    return;
  }
  JobsOfInput input = read_jobs(*documents, sources_of(*documents, *state));
  print_notes(console, input.notes);
  std::vector<JobOrError>& jobs = input.jobs;
  if (jobs.size() != 1) {
    options.fail(
        invalid("plimsoll swap plans for one job, and the input has " + std::to_string(jobs.size())));
    return;
  }
  if (!jobs.front().job) {
    options.fail(jobs.front().job.error().within(jobs.front().name));
    return;
  }
  model.job = *std::move(jobs.front().job);
  model.graph = jobs.front().graph;
  model.catalog = state->catalog;
  model.about = jobs.front().name;
}

std::unique_ptr<SwapModel> read_model(OptionReader& options, Console& console) {
  auto model = std::make_unique<SwapModel>();
  if (options.given("config")) {
    read_config(options, console, *model);
  } else if (options.given("graph")) {
    read_graph(options, console, *model);
  } else {
    read_job(options, console, *model);
  }
  if (options.error()) {
    return nullptr;
  }
  model->device = options.choice<estimator::Device>(
      "device", {{"cuda", estimator::Device::kCuda}, {"cpu", estimator::Device::kCpu}},
      estimator::Device::kCuda);
  const std::vector<std::string>& allowed = model->job.spec.provisioning.gpu_models;
  const std::string& asked = model->job.spec.trainers.gpu_model;
  model->gpu = read_gpu(options, model->catalog,
                        !asked.empty()     ? asked
                        : !allowed.empty() ? allowed.front()
                                           : kDefaultGpu);
  if (model->gpu != nullptr) {
    const crds::TrainingSpec& training = model->job.spec.training;
    model->about += std::string(", ") + crds::name_of(training.optimizer) + ", " +
                    crds::name_of(training.precision) + ", on " + model->gpu->name;
  }
  return model;
}

std::vector<std::int64_t> read_microbatches(OptionReader& options) {
  std::vector<std::int64_t> sizes;
  const std::string text = options.text("microbatches");
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, end - at);
    const std::optional<std::int64_t> size = parse_number<std::int64_t>(part);
    options.require(size && *size >= 1 && (sizes.empty() || *size > sizes.back()),
                    "--microbatches must be rising numbers of samples, such as 1,2,4", part);
    sizes.push_back(size.value_or(1));
    at = end + 1;
  }
  return sizes;
}

estimator::EstimateRequest request_of(const SwapModel& model) {
  return {.model = &model.job.spec.model,
          .training = &model.job.spec.training,
          .graph = model.graph.get(),
          .gpu = model.gpu,
          .device = model.device};
}

std::vector<std::int64_t> divisors(std::int64_t samples) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 1; size <= std::min(samples, kMaxMicrobatch); ++size) {
    if (samples % size == 0) {
      sizes.push_back(size);
    }
  }
  return sizes;
}

}  // namespace

po::options_description swap_source_options() {
  const auto value = [](const char* name) { return po::value<std::string>()->value_name(name); };
  po::options_description options;
  options.add_options()("profile", value("FILE"), "JSON of what the layers take; - is standard input")(
      "config", value("FILE"), "a Hugging Face config.json, whose layers' profile is derived")(
      "graph", value("FILE"), "an exported graph (docs/graph.md), likewise")(
      "filename,f", value("FILE"), "a TrainingJob, likewise: its model, training, GPUs and batch")(
      "gpu", value("NAME"),
      "of a derived profile: the card, for times and the default of --capacity; else the job's own, else A100-80GB")(
      "device", value("NAME"),
      "of a derived profile: cuda (default), or cpu for bytes on plimsoll.harmony's virtual devices")(
      "sequence-length", value("S"),
      "with --config: tokens of a sample (default: the positions that it has)")(
      "attention", value("KIND"), "with --config: SDPA (default), Eager or Flash")(
      "split-experts", "with --config: each expert has parameters of its own")(
      "torch-version", value("V"),
      "with --config: the PyTorch that trains, as 2.6 (default: the newest known)")(
      "optimizer", value("NAME"), "with --config and --graph: of the host (default AdamW)")(
      "precision", value("NAME"),
      "with --config and --graph: FP32 (default), TF32, BF16, or BF16Mixed: plimsoll.harmony's precision=torch.bfloat16")(
      "microbatches", value("LIST"),
      "of a derived profile: sizes such as 1,2,4 (default: those that divide the samples)")(
      "write-profile", value("FILE"), "writes the derived profile as JSON");
  return options;
}

std::optional<std::int64_t> SwapSource::gpus() const {
  if (model_ == nullptr || model_->job.spec.trainers.replicas <= 1) {
    return std::nullopt;
  }
  const crds::Trainers& trainers = model_->job.spec.trainers;
  return std::min(trainers.replicas, trainers.per_node);
}

std::optional<std::int64_t> SwapSource::samples(std::int64_t gpus) const {
  if (model_ == nullptr) {
    return std::nullopt;
  }
  if (model_->job.name.empty()) {
    return kSamplesOfGpu * gpus;
  }
  const crds::TrainingJobSpec& spec = model_->job.spec;
  return crds::global_batch_of(spec.training, spec.trainers.replicas);
}

std::optional<Bytes> SwapSource::usable() const {
  if (model_ == nullptr) {
    return std::nullopt;
  }
  const double headroom = model_->job.spec.provisioning.headroom;
  const Bytes memory = model_->gpu->memory;
  return memory - Bytes::ceil(static_cast<double>(memory.count) * headroom);
}

std::optional<Bytes> SwapSource::capacity() const {
  const std::optional<Bytes> left = usable();
  return left ? std::optional<Bytes>(estimator::swap_capacity(request_of(*model_), *left)) : std::nullopt;
}

const std::string& SwapSource::about() const {
  static const std::string none;
  return model_ == nullptr ? none : model_->about;
}

Result<estimator::SwapProfile> SwapSource::profile(std::int64_t samples, AnswerBudget& budget) const {
  if (model_ == nullptr) {
    return read_profile(measured_, *console_);
  }
  estimator::LayerProfileRequest request{
      .job = request_of(*model_), .microbatches = microbatches_.empty() ? divisors(samples) : microbatches_};
  request.job.budget = budget.get();
  Result<estimator::SwapProfile> profile = budget.run([&] { return estimator::layer_profile(request); });
  if (profile && !write_to_.empty()) {
    std::ofstream file(write_to_);
    file << write_json(estimator::to_json(*profile).json()) << '\n';
    if (!file.flush()) {
      return invalid("--write-profile: " + write_to_ + " could not be written");
    }
  }
  return profile;
}

SwapSource read_swap_source(OptionReader& options, Console& console) {
  SwapSource source;
  source.console_ = &console;
  int given = 0;
  for (const char* const name : {"profile", "config", "graph", "filename"}) {
    given += options.given(name) ? 1 : 0;
  }
  options.require(given == 1, given == 0 ? "plimsoll swap needs --profile, --config, --graph or -f"
                                         : "--profile, --config, --graph and -f exclude each other");
  if (options.given("profile")) {
    for (const char* const name :
         {"gpu", "device", "sequence-length", "attention", "split-experts", "torch-version", "optimizer",
          "precision", "microbatches", "write-profile"}) {
      options.require(!options.given(name),
                      "--" + std::string(name) + " is for a profile that is derived; --profile has it");
    }
    source.measured_ = options.text("profile");
    return source;
  }
  source.microbatches_ = read_microbatches(options);
  source.write_to_ = options.text("write-profile");
  if (!options.error()) {
    source.model_ = read_model(options, console);
  }
  return source;
}

}  // namespace plimsoll::cli
