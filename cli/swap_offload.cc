#include "cli/swap_offload.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/json/edit.h"
#include "base/number.h"
#include "cli/command.h"
#include "cli/estimate_options.h"
#include "cli/jobs.h"
#include "cli/swap_remedies.h"
#include "cli/text_table.h"
#include "crds/global_batch.h"
#include "estimator/host_training/offload_search.h"
#include "estimator/swap/planner.h"
#include "estimator/types/runtime_settings.h"

namespace plimsoll::cli {
namespace {

using crds::ParallelStrategy;
using estimator::OffloadPoint;

constexpr std::int64_t kGpusOfNode = 8;
constexpr double kMaxSeconds = 1e6;

// What a plan for plimsoll.harmony takes, and other executors have no use for.
constexpr std::array kOfHarmony = {"mode",      "prefetch", "links",      "no-p2p",       "gpus-per-root",
                                   "runtime",   "without",  "plan",       "explain",      "compare",
                                   "semantics", "paging",   "fused-turn", "microbatches", "write-profile"};

struct Question {
  crds::TrainingJob job;
  std::int64_t gpus_of_node = kGpusOfNode;
  estimator::OffloadSearch search;
  std::string executor;
  std::string about;
};

ParallelStrategy strategy_of(OptionReader& options) {
  using enum ParallelStrategy;
  return options.choice<ParallelStrategy>("executor",
                                          {{"harmony", kAuto},
                                           {"Megatron", kMegatron},
                                           {"ZeRO1", kZeRO1},
                                           {"ZeRO2", kZeRO2},
                                           {"ZeRO3", kZeRO3},
                                           {"FSDP", kFSDP},
                                           {"FSDP2", kFSDP2}},
                                          kAuto);
}

// The batch of a replica, from that of all GPUs.
void read_batch(OptionReader& options, std::int64_t gpus, crds::TrainingSpec& training) {
  const crds::Parallelism& parallelism = training.parallelism;
  const std::int64_t replica = parallelism.tensor * parallelism.pipeline * parallelism.context;
  options.require(gpus % replica == 0, "--gpus must be a multiple of --tensor x --pipeline x --context, " +
                                           std::to_string(replica));
  const std::int64_t replicas = std::max<std::int64_t>(1, gpus / replica);
  const std::int64_t samples = options.count("batch-size", 1, estimator::kMaxSwapSamples, replicas);
  const std::int64_t microbatch = options.count("microbatch", 1, samples);
  options.require(samples % (replicas * microbatch) == 0,
                  "--batch-size must be a multiple of the replicas times --microbatch, " +
                      std::to_string(replicas * microbatch));
  training.batch_size_per_trainer = std::max<std::int64_t>(1, samples / replicas);
  training.gradient_accumulation =
      std::max<std::int64_t>(1, training.batch_size_per_trainer / std::max<std::int64_t>(1, microbatch));
}

// "100=4.189", "0=0.996"
void read_measured(OptionReader& options, estimator::MeasuredOffload& measured) {
  for (const std::string& text : options.texts("measured")) {
    const std::size_t sign = text.find('=');
    const std::string percent = text.substr(0, std::min(sign, text.size()));
    const std::optional<double> seconds =
        sign == std::string::npos ? std::nullopt : parse_number<double>(text.substr(sign + 1));
    options.require(
        (percent == "0" || percent == "100") && seconds && *seconds > 0 && *seconds < kMaxSeconds,
        "--measured must be 0=SECONDS or 100=SECONDS: an iteration with nothing, or with all, on the host",
        text);
    std::optional<double>& place = percent == "0" ? measured.none : measured.all;
    options.require(!place, "--measured has " + percent + "= twice", text);
    place = seconds;
  }
  options.require(!measured.none || !measured.all || *measured.none < *measured.all,
                  "--measured: an iteration with all on the host takes longer than one with nothing there");
}

// Of --config and --graph.
void read_training(OptionReader& options, Question& question, ParallelStrategy strategy) {
  crds::TrainingSpec& training = question.job.spec.training;
  estimator::EstimateRequest& job = question.search.job;
  options.require(options.given("gpus"), "plimsoll swap needs --gpus");
  read_splits(options, training.parallelism);
  training.parallelism.strategy = strategy;
  training.parallelism.overlap_offload = options.given("overlap-offload");
  training.activation_checkpointing = options.choice("checkpoint", crds::ActivationCheckpointing::kNone);
  job.trainers = options.count("gpus", 1, kMaxTrainers);
  job.per_node = options.count("per-node", 1, estimator::kMaxSwapGpus, kGpusOfNode);
  read_batch(options, job.trainers, training);
}

// Of -f.
void read_job(OptionReader& options, Question& question, ParallelStrategy strategy, Console& console) {
  const po::options_description of_executors = swap_offload_options();
  for (const auto& option : of_executors.options()) {
    const std::string& name = option->long_name();
    options.require(name == "executor" || name == "measured" || name == "remedies" || name == "most-gpus" ||
                        !options.given(name),
                    "--" + name + " goes with --config; a job has it in its spec");
  }
  for (const char* const name : {"gpus", "batch-size", "microbatch"}) {
    options.require(!options.given(name), "--" + std::string(name) + " does not go with -f and --executor " +
                                              question.executor + ": the job has it in its spec");
  }
  crds::TrainingJobSpec& spec = question.job.spec;
  options.require(spec.training.parallelism.strategy == strategy,
                  std::string("the job's training.parallelism.strategy is ") +
                      crds::name_of(spec.training.parallelism.strategy) + ", and --executor is " +
                      question.executor);
  estimator::EstimateRequest& job = question.search.job;
  job.trainers = spec.trainers.replicas;
  job.per_node = spec.trainers.per_node;
  std::vector<std::string> warnings;
  job.runtime = estimator::runtime_settings_of(question.job.raw, warnings);
  for (const std::string& warning : warnings) {
    console.err << "warning: " << warning << '\n';
  }
}

Question read_question(OptionReader& options, const SwapModel& model, const SwapSource& source,
                       Console& console) {
  Question question;
  question.job = model.job;
  question.about = model.about;
  const ParallelStrategy strategy = strategy_of(options);
  question.executor = crds::name_of(strategy);
  model.job.name.empty() ? read_training(options, question, strategy)
                         : read_job(options, question, strategy, console);
  options.require(!options.given("overlap-offload") || strategy == ParallelStrategy::kMegatron,
                  "--overlap-offload goes with --executor Megatron");
  read_measured(options, question.search.measured);
  options.require(options.given("remedies") || !options.given("most-gpus"),
                  "--most-gpus goes with --remedies");
  question.search.capacity =
      options.given("capacity") ? options.bytes("capacity") : source.usable().value_or(Bytes{});
  question.search.node_memory = options.given("host-memory") ? options.bytes("host-memory") : Bytes::max();
  estimator::EstimateRequest& job = question.search.job;
  question.gpus_of_node = job.per_node;
  job.per_node = std::min(job.per_node, job.trainers);
  job.graph = model.graph.get();
  job.gpu = model.gpu;
  job.device = model.device;
  return question;
}

// What is on the host at least; the answer has one.
std::pair<crds::Offload, std::int64_t> on_host(const estimator::OffloadAnswer& answer) {
  const OffloadPoint& least = answer.points[*answer.least];
  return {least.offload, least.percent};
}

// Leaves in the question the training that was answered: a global batch is taken in the fewest parts with which the least has to be
// on the host.
Result<estimator::OffloadAnswer> answered(Question& question, AnswerBudget& budget) {
  crds::TrainingSpec& training = question.job.spec.training;
  const crds::TrainingSpec asked = training;
  const Result<std::vector<crds::BatchSplit>> splits =
      crds::batch_splits(asked, question.search.job.trainers);
  if (!splits) {
    return splits.error();
  }
  question.search.job.model = &question.job.spec.model;
  question.search.job.training = &training;
  question.search.job.budget = budget.get();
  std::optional<estimator::OffloadAnswer> best;
  crds::TrainingSpec best_training;
  for (const crds::BatchSplit& split : *splits) {
    training = crds::with_split(asked, split);
    Result<estimator::OffloadAnswer> answer = estimator::search_offload(question.search);
    if (!answer) {
      return answer.error();
    }
    if (!best || !best->least || (answer->least && on_host(*answer) < on_host(*best))) {
      best = *std::move(answer);
      best_training = training;
    }
    if (best->least == 0U) {
      break;
    }
  }
  training = best_training;
  return *std::move(best);
}

std::string what_is_there(const OffloadPoint& point) {
  switch (point.offload) {
    case crds::Offload::kNone: return "nothing";
    case crds::Offload::kOptimizer:
      return point.percent == 100 ? "the optimizer" : std::to_string(point.percent) + " % of the optimizer";
    case crds::Offload::kParameters: break;
  }
  return "the optimizer and the parameters";
}

std::string heading(const Question& question) {
  const estimator::EstimateRequest& job = question.search.job;
  return question.about + ":\n" + question.executor + " on " + std::to_string(job.trainers) + " GPUs of " +
         to_string(question.search.capacity) + ", " +
         std::to_string(crds::global_batch_of(*job.training, job.trainers)) + " samples in microbatches of " +
         std::to_string(job.training->batch_size_per_trainer / job.training->gradient_accumulation) + "\n\n";
}

std::string answer_text(const Question& question, const estimator::OffloadAnswer& answer) {
  const estimator::EstimateRequest& job = question.search.job;
  const std::optional<double> base = answer.points.front().seconds;
  TextTable table({"on the host", "of a GPU", "host memory of a node", "iteration", "slowdown", ""});
  for (std::size_t i = 0; i < answer.points.size(); ++i) {
    const OffloadPoint& point = answer.points[i];
    table.add({what_is_there(point), to_string(point.device), to_string(point.host * job.per_node),
               point.seconds ? milliseconds_text(*point.seconds * 1000) : "-",
               point.seconds && base && *base > 0 ? decimal_text(*point.seconds / *base, 2) : "-",
               answer.least == i    ? "the least that fits"
               : !point.fits_device ? "exceeds a GPU"
               : !point.fits_host   ? "exceeds the host"
                                    : ""});
  }
  return heading(question) + table.to_string("  ");
}

JsonObject answer_json(const Question& question, const estimator::OffloadAnswer& answer) {
  JsonArray points;
  for (const OffloadPoint& point : answer.points) {
    JsonObject json;
    json["offload"] = crds::name_of(point.offload);
    json["offloadPercent"] = point.percent;
    json["deviceBytes"] = point.device.count;
    json["hostBytesPerTrainer"] = point.host.count;
    json["iterationSeconds"] = point.seconds ? Json(*point.seconds) : Json();
    json["fits"] = point.fits();
    points.append(std::move(json));
  }
  JsonObject json;
  json["executor"] = question.executor;
  json["gpus"] = question.search.job.trainers;
  json["capacityBytes"] = question.search.capacity.count;
  json["least"] = answer.least ? Json(static_cast<Json::UInt64>(*answer.least)) : Json();
  json["points"] = std::move(points);
  return json;
}

std::string refusal(const Question& question, const estimator::OffloadAnswer& answer) {
  const auto on_gpu = std::find_if(answer.points.begin(), answer.points.end(),
                                   [](const OffloadPoint& point) { return point.fits_device; });
  if (on_gpu != answer.points.end()) {
    const Bytes host = on_gpu->host * question.search.job.per_node;
    return "with " + what_is_there(*on_gpu) +
           " on the host, the least that fits a GPU, a node's host takes " + to_string(host) + " of " +
           to_string(question.search.node_memory) + ": " + to_string(host - question.search.node_memory) +
           " are missing. More nodes would share it";
  }
  const OffloadPoint& most = answer.points.back();
  return "with " + what_is_there(most) + " on the host, a GPU still takes " + to_string(most.device) +
         " of " + to_string(question.search.capacity) + ": " +
         to_string(most.device - question.search.capacity) +
         " are missing. More GPUs, smaller microbatches or activation checkpointing would reduce what is left";
}

// A global batch is taken in the fewest parts; the search tries more.
int run_remedies(Question& question, std::int64_t most_gpus, AnswerBudget& budget, OutputFormat format,
                 Console& console) {
  crds::TrainingSpec& training = question.job.spec.training;
  const Result<std::vector<crds::BatchSplit>> splits =
      crds::batch_splits(training, question.search.job.trainers);
  if (!splits) {
    return complain(console, exit_code_of(splits.error()), splits.error());
  }
  training = crds::with_split(training, splits->front());
  question.search.job.model = &question.job.spec.model;
  question.search.job.training = &training;
  question.search.job.budget = budget.get();
  const estimator::RemedySearch search{.job = question.search.job,
                                       .capacity = question.search.capacity,
                                       .node_memory = question.search.node_memory,
                                       .gpus_of_node = question.gpus_of_node,
                                       .most_trainers = most_gpus};
  const Result<estimator::RemedyAnswer> answer =
      budget.run([&] { return estimator::search_remedies(search); });
  if (!answer) {
    return complain(console, exit_code_of(answer.error()), answer.error());
  }
  if (format == OutputFormat::kTable) {
    console.out << heading(question) << remedies_text(search, *answer);
  } else {
    JsonObject json = remedies_json(*answer);
    json["executor"] = question.executor;
    json["capacityBytes"] = question.search.capacity.count;
    print_answers(console, format, {std::move(json)});
  }
  return answer->best
             ? kExitDone
             : complain(console, kExitRefused,
                        "nothing makes the training fit: neither recomputation, nor host memory, nor smaller "
                        "micro-batches, on up to " +
                            std::to_string(std::max(most_gpus, search.job.trainers)) +
                            " GPUs. --most-gpus allows more, and --tensor and --pipeline split the model");
}

}  // namespace

po::options_description swap_offload_options() {
  const auto value = [](const char* name) { return po::value<std::string>()->value_name(name); };
  po::options_description options;
  options.add_options()(
      "executor", value("NAME"),
      "harmony (default): a plan for plimsoll.harmony; Megatron, ZeRO1, ZeRO2, ZeRO3, FSDP or FSDP2: the least that it has to "
      "keep in host memory, and what each share takes")(
      "tensor", value("N"), "of another executor, with --config: GPUs that split each layer")(
      "sequence-parallel", "likewise: tokens are split between the layers' parts, too")(
      "pipeline", value("N"), "likewise: stages of the pipeline")(
      "pipeline-chunks", value("N"), "likewise: parts of the model that each stage has, interleaved")(
      "context", value("N"), "likewise: GPUs that split each sample's tokens")(
      "expert", value("N"), "likewise: GPUs that share each layer's experts")(
      "checkpoint", value("HOW"), "likewise: None (default), Selective, SelectiveHalf or Full")(
      "per-node", value("N"), "likewise: GPUs of a node (default 8)")(
      "remedies",
      "of another executor: the cheapest way to fit, by recomputation, host memory, more GPUs and smaller micro-batches together")(
      "most-gpus", value("N"), "with --remedies: GPUs that it may take (default: eight times as many)")(
      "overlap-offload", "with --executor Megatron: --overlap-cpu-optimizer-d2h-h2d")(
      "measured", po::value<std::vector<std::string>>()->value_name("PERCENT=SECONDS"),
      "of another executor: an iteration that was measured with nothing (0=) or all (100=) on the host; may be repeated");
  return options;
}

bool asks_for_offload(OptionReader& options) {
  return strategy_of(options) != ParallelStrategy::kAuto;
}

void refuse_offload_options(OptionReader& options) {
  const po::options_description of_executors = swap_offload_options();
  for (const auto& option : of_executors.options()) {
    const std::string& name = option->long_name();
    options.require(name == "executor" || !options.given(name),
                    "--" + name + " goes with --executor Megatron, ZeRO1, ZeRO2, ZeRO3, FSDP or FSDP2");
  }
}

int run_swap_offload(OptionReader& options, const SwapSource& source, AnswerBudget& budget,
                     OutputFormat format, Console& console) {
  for (const char* const name : kOfHarmony) {
    options.require(!options.given(name), "--" + std::string(name) +
                                              " is for plimsoll.harmony: not with --executor " +
                                              options.text("executor"));
  }
  const SwapModel* const model = source.model();
  options.require(model != nullptr || options.error(),
                  "--executor needs --config, --graph or -f: a measured profile is of plimsoll.harmony");
  if (model == nullptr || options.error()) {
    return complain(console, kExitUsage, *options.error());
  }
  Question question = read_question(options, *model, source, console);
  if (options.error()) {
    return complain(console, kExitUsage, *options.error());
  }
  if (options.given("remedies")) {
    const std::int64_t trainers = question.search.job.trainers;
    const std::int64_t most =
        options.count("most-gpus", 1, kMaxTrainers, std::min(8 * trainers, kMaxTrainers));
    options.require(!options.given("measured"), "--measured does not go with --remedies");
    return options.error() ? complain(console, kExitUsage, *options.error())
                           : run_remedies(question, most, budget, format, console);
  }
  const Result<estimator::OffloadAnswer> answer = budget.run([&] { return answered(question, budget); });
  if (!answer) {
    return complain(console, exit_code_of(answer.error()), answer.error());
  }
  if (format == OutputFormat::kTable) {
    console.out << answer_text(question, *answer);
  } else {
    print_answers(console, format, {answer_json(question, *answer)});
  }
  return answer->least ? kExitDone : complain(console, kExitRefused, refusal(question, *answer));
}

}  // namespace plimsoll::cli
