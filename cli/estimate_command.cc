// `plimsoll estimate`: the peak GPU memory of a job as it is written, on its most loaded trainer.
#include <chrono>

#include "base/json/edit.h"
#include "cli/answer_budget.h"
#include "cli/cluster_state.h"
#include "cli/estimate_options.h"
#include "cli/explanation.h"
#include "cli/graph_estimate.h"
#include "cli/jobs.h"
#include "cli/options.h"
#include "cli/placed_tables.h"
#include "cli/subcommands.h"
#include "cli/text_table.h"
#include "cli/throughput_report.h"
#include "crds/global_batch.h"
#include "estimator/estimate/estimate.h"
#include "estimator/estimate/explain.h"
#include "estimator/estimate/largest_batch.h"
#include "estimator/host_training/host_memory.h"
#include "estimator/provisioner/explanation.h"
#include "estimator/provisioner/trainer_loads.h"

namespace plimsoll::cli {
namespace {

constexpr Help kHelp = {
    "plimsoll estimate -f JOB.yaml [--gpu NAME] [--trainers N] [--method plimsoll|amp] [--explain] [-o FORMAT]\n"
    "       plimsoll estimate --graph GRAPH.json.gz --batch-size B --optimizer NAME [--precision P] [--gpu NAME]\n"
    "                         [--device cuda|cpu] [-o FORMAT]\n"
    "       plimsoll estimate --config config.json --batch-size B --sequence-length S --optimizer NAME [--gpu NAME]\n"
    "                         [--trainers N] [--parallelism NAME] [-o FORMAT]",
    "Tells the peak GPU memory of each TrainingJob in the files, on its most loaded trainer, and what it consists of, and that of\n"
    "each JobSet, PyTorchJob, ... whose model is described (docs/workloads.md).\n"
    "Embedding tables are placed first, for the shard of a trainer is most of its memory. Needs no cluster: "
    "tables that\n"
    "come from a ConfigMap are looked for in the same files, and so are MemoryProfiles and GPUModels.",
    "  plimsoll estimate -f examples/model-a.yaml --trainers 72\n"
    "  plimsoll estimate -f examples/single-gpu.yaml --gpu V100-32GB --trainers 1 -o json\n"
    "  cat jobs.yaml | plimsoll estimate -f - --method amp\n"
    "  plimsoll estimate --graph gpt.json.gz --batch-size 32 --optimizer AdamW --gpu H100\n"
    "  plimsoll estimate --config config.json --batch-size 1 --sequence-length 8192 --optimizer AdamW \\\n"
    "                    --precision BF16Mixed --parallelism FSDP2 --trainers 8 --gpu H100",
};

// What is estimated. All that it points to outlives it.
struct EstimateInput {
  const crds::TrainingJob* job = nullptr;
  const estimator::GpuModel* gpu = nullptr;  // also with --device cpu, for the size of the card
  crds::TrainingSpec training;               // with the samples of one replica
  estimator::EstimateRequest request;
  bool explain = false;
};

struct Answer {
  estimator::Estimate estimate;
  std::vector<estimator::TrainerLoad> trainers;  // by rank, where tables are spread over them
  std::optional<estimator::Throughput> throughput;
  Bytes headroom;
  std::optional<std::int64_t>
      largest_batch;  // of a trainer; nothing where the batch is not free, and with tables
  bool fits = false;
  std::string reason;  // why it does not fit
  Bytes missing;
};

// What the headroom leaves of the card.
Bytes usable_of(const crds::TrainingJob& job, const estimator::GpuModel& gpu) {
  return gpu.memory - Bytes::ceil(static_cast<double>(gpu.memory.count) * job.spec.provisioning.headroom);
}

Result<estimator::Estimate> estimate_with(estimator::EstimateRequest request, Bytes embeddings,
                                          AnswerBudget& budget) {
  request.budget = budget.get();
  request.embedding_bytes = embeddings;
  return budget.run([&] { return estimator::estimate_memory(request); });
}

// To be appended to why the job does not fit.
std::string excess_text(const crds::TrainingJob& job, const Answer& answer) {
  const std::string text = estimator::explain_excess(job.spec, answer.estimate);
  return text.empty() ? text : "; " + text;
}

Result<Answer> answer_for(const EstimateInput& input, AnswerBudget& budget) {
  const crds::TrainingJob& job = *input.job;
  Result<estimator::Estimate> estimate = estimate_with(input.request, Bytes{}, budget);
  if (!estimate) {
    return estimate.error();
  }
  Answer answer;
  const Bytes usable = *input.request.capacity;
  answer.headroom = input.gpu->memory - usable;
  PlacedTables placed;
  if (!job.spec.model.tables().empty()) {
    const Bytes left = std::max(Bytes{}, usable - estimate->peak.upper_bound);
    Result<PlacedTables> tables = place_tables(input.request, *input.gpu, left, budget, {},
                                               job.spec.provisioning.host_memory.value_or(Bytes{}));
    if (!tables) {
      return tables.error();
    }
    placed = *std::move(tables);
    estimate = estimate_with(input.request, placed.embeddings, budget);
    if (!estimate) {
      return estimate.error();
    }
  }
  answer.estimate = *std::move(estimate);
  answer.trainers = estimator::trainer_loads(answer.estimate, placed.plan, placed.exchanges);
  answer.throughput = throughput_of(input.request, placed, budget);
  const bool no_card = input.request.gpu == nullptr;
  answer.fits = no_card || (placed.why.constraint.empty() && answer.estimate.peak.upper_bound <= usable);
  if (!answer.fits) {
    answer.missing = std::max(Bytes{}, answer.estimate.peak.upper_bound - usable);
    answer.reason = "does not fit on " + std::to_string(input.request.trainers) + " x " + input.gpu->name +
                    ": " +
                    (placed.why.reason.empty()
                         ? "a trainer takes up to " + to_string(answer.estimate.peak.upper_bound) + ", and " +
                               to_string(usable) + " may be used" + excess_text(job, answer)
                         : placed.why.reason);
  }
  return answer;
}

// Where each batch has its estimate: not with tables, which are placed for one batch, nor with a global batch.
void add_largest_batch(const EstimateInput& input, Answer& answer, AnswerBudget& budget) {
  const crds::TrainingJobSpec& spec = input.job->spec;
  if (input.request.gpu == nullptr || spec.model.has_tables() || spec.training.global_batch_size > 0) {
    return;
  }
  estimator::EstimateRequest request = input.request;
  request.budget = budget.get();
  const Result<std::int64_t> largest =
      budget.run([&] { return estimator::largest_batch(request, *request.capacity); });
  if (largest) {
    answer.largest_batch = *largest;
  } else if (largest.error().code != ErrorCode::kInvalid) {  // a graph that holds for some batches only
    answer.estimate.warnings.push_back("the largest batch that fits was not found: " +
                                       largest.error().message);
  }
}

// Of the pod of the most loaded trainer.
estimator::HostDemand demand_of(const EstimateInput& input, const Answer& answer) {
  return estimator::host_demand(input.training, answer.estimate,
                                std::min(input.request.per_node, input.request.trainers));
}

// Nothing where only processes are known of.
std::string host_demand_line(const estimator::HostDemand& demand) {
  return demand.total() > demand.processes
             ? "  host memory of a pod about " + to_string(demand.total()) + ": " + text_of(demand) + "\n"
             : std::string();
}

Json to_json(const std::string& name, const EstimateInput& input, const Answer& answer, double seconds) {
  JsonObject json;
  json["job"] = name;
  json["gpuModel"] = input.gpu->name;
  json["trainers"] = input.request.trainers;
  json["perNode"] = input.request.per_node;
  json["batchSizePerTrainer"] = input.training.batch_size_per_trainer;
  json["gradientAccumulation"] = input.training.gradient_accumulation;
  json["method"] = name_of(input.request.method);
  json["peak"] = estimator::to_json(answer.estimate.peak);
  json["breakdown"] = estimator::to_json(answer.estimate.breakdown);
  json["margins"] = estimator::to_json(answer.estimate.margins);
  json["hostBytes"] = estimator::to_json(answer.estimate.host);
  json["hostDemand"] = estimator::to_json(demand_of(input, answer));
  if (input.explain) {
    json["explanation"] = estimator::to_json(estimator::explain(input.request, answer.estimate));
  }
  json["peakPhase"] = answer.estimate.peak_phase;
  if (answer.estimate.initial) {
    json["initialisation"] = estimator::to_json(*answer.estimate.initial);
  }
  if (!answer.trainers.empty()) {
    json["ranks"] = estimator::to_json(answer.trainers);
  } else if (!answer.estimate.allocated_by_rank.empty()) {
    json["ranks"] = estimator::to_json(answer.estimate.allocated_by_rank);
  }
  json["largestLive"] = estimator::to_json(answer.estimate.largest_live);
  json["denseParameterBytes"] = answer.estimate.dense_parameters.count;
  if (answer.throughput) {
    json["throughput"] = throughput_json(*answer.throughput);
  }
  json["capacityBytes"] = input.gpu->memory.count;
  json["headroomBytes"] = answer.headroom.count;
  if (answer.largest_batch) {
    json["largestBatch"] = *answer.largest_batch;
  }
  json["fits"] = answer.fits;
  if (!answer.fits) {
    json["reason"] = answer.reason;
    json["missingBytes"] = answer.missing.count;
  }
  json["elapsedSeconds"] = seconds;
  return json;
}

void print_table(Console& console, const std::string& name, const EstimateInput& input,
                 const Answer& answer) {
  const estimator::Peak& peak = answer.estimate.peak;
  console.out << name << " on " << input.request.trainers << " x " << input.gpu->name << '\n'
              << "  most loaded trainer: at most " << to_string(peak.upper_bound) << " of "
              << to_string(input.gpu->memory) << (answer.fits ? ", fits" : ", DOES NOT FIT") << " ("
              << to_string(answer.headroom) << " headroom)\n"
              << "  tensors " << to_string(peak.allocated) << ", allocator " << to_string(peak.reserved)
              << ", peak in " << answer.estimate.peak_phase << '\n'
              << initial_line(answer.estimate, input.training.parallelism.strategy)
              << host_memory_line(answer.estimate.host) << host_demand_line(demand_of(input, answer))
              << (answer.largest_batch.value_or(0) > 0 ? "  largest batch per trainer that fits: " +
                                                             std::to_string(*answer.largest_batch) + "\n"
                                                       : std::string())
              << (answer.throughput ? throughput_text(*answer.throughput, input.explain) : std::string())
              << '\n'
              << breakdown_bars(answer.estimate.breakdown, input.gpu->memory, console.unicode) << '\n';
  if (input.explain) {
    console.out << explanation_text(estimator::explain(input.request, answer.estimate)) << '\n';
  }
}

Result<EstimateInput> input_for(const JobOrError& entry, const ClusterState& state,
                                const po::variables_map& values, std::vector<std::string>& warnings) {
  const crds::TrainingJob& job = *entry.job;
  EstimateInput input;
  input.job = &job;
  input.explain = values.contains("explain");
  estimator::EstimateRequest& request = input.request;
  request.model = &job.spec.model;
  request.graph = entry.graph.get();
  request.trainers = job.spec.trainers.replicas;
  request.runtime = estimator::runtime_settings_of(job.raw, warnings);
  OptionReader options(values);
  const std::vector<std::string>& allowed = job.spec.provisioning.gpu_models;
  const std::string any = allowed.empty() ? kDefaultGpu : allowed.front();
  input.gpu = read_gpu(options, state.catalog,
                       job.spec.trainers.gpu_model.empty() ? any : job.spec.trainers.gpu_model);
  read_request(options, request);
  request.per_node = std::min(job.spec.trainers.per_node, request.trainers);
  options.require(request.trainers % request.per_node == 0,
                  "--trainers must be at most the job's perNode, or a multiple of it: " +
                      std::to_string(request.per_node));
  if (options.error()) {
    return *options.error();
  }
  request.gpu = request.device == estimator::Device::kCuda ? input.gpu : nullptr;
  request.capacity = usable_of(job, *input.gpu);
  if (const crds::MemoryProfile* profile = state.profile_of(job.namespace_name, job.spec.model.family)) {
    request.learned = crds::bounds_for(*profile, input.gpu->name);
    request.given = crds::given_bounds_for(*profile, input.gpu->name);
  }
  return input;
}

// A job with a global batch is estimated with the fewest parts that fit, as `provision` would choose.
Result<Answer> answer_for_job(const JobOrError& entry, EstimateInput& input,
                              std::chrono::milliseconds timeout) {
  AnswerBudget budget(timeout);
  const Result<std::vector<crds::BatchSplit>> splits =
      crds::batch_splits(entry.job->spec.training, input.request.trainers);
  if (!splits) {
    return splits.error();
  }
  Result<Answer> answer = Answer();
  for (const crds::BatchSplit& split : *splits) {
    input.training = crds::with_split(entry.job->spec.training, split);
    answer = answer_for(input, budget);
    if (!answer || answer->fits) {
      break;
    }
  }
  if (answer) {
    add_largest_batch(input, *answer, budget);
  }
  return answer;
}

}  // namespace

int run_estimate(const std::vector<std::string>& arguments, Console& console) {
  po::variables_map values;
  OutputFormat format{};
  if (const std::optional<int> code =
          read_options(arguments, estimate_options(), kHelp, console, values, format)) {
    return *code;
  }
  OptionReader options(values);
  read_method(options);
  const std::chrono::milliseconds timeout = read_timeout(options);
  const bool by_config = options.given("config");
  if (!options.error() && options.given("graph") && !by_config) {
    return run_graph_estimate(values, format, console);
  }
  std::vector<JobOrError> jobs;
  if (by_config) {
    crds::TrainingJob job = job_of_config(options, console);
    jobs.push_back({job.name, std::move(job)});
  } else {
    refuse_options_of_models(options);
    options.require(options.given("filename"), "name the jobs with -f FILE, or -f - for standard input");
  }
  if (options.error()) {
    return complain(console, kExitUsage, *options.error());
  }
  const Result<std::vector<Document>> documents =
      by_config ? std::vector<Document>() : read_documents(options.texts("filename"), console);
  if (!documents) {
    return complain(console, kExitUsage, documents.error());
  }
  const Result<ClusterState> state = cluster_from_documents(*documents);
  if (!state) {
    return complain(console, kExitRefused, state.error());
  }
  if (!by_config) {
    JobsOfInput input = read_jobs(*documents, sources_of(*documents, *state));
    print_notes(console, input.notes);
    jobs = std::move(input.jobs);
  }
  if (jobs.empty()) {
    return complain(console, kExitUsage, kNoJob);
  }
  JobAnswers answers(console, format);
  for (const JobOrError& job : jobs) {
    const auto start = std::chrono::steady_clock::now();
    if (!job.job) {
      answers.refuse(job.name, job.job.error());
      continue;
    }
    std::vector<std::string> warnings;
    Result<EstimateInput> input = input_for(job, *state, values, warnings);
    if (!input) {
      return complain(console, kExitUsage, input.error());
    }
    for (const std::string& warning : warnings) {
      console.err << "plimsoll: warning: " << job.name << ": " << warning << '\n';
    }
    input->request.training = &input->training;
    const Result<Answer> answer = answer_for_job(job, *input, timeout);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    if (!answer) {
      answers.refuse(job.name, answer.error());
      continue;
    }
    for (const std::string& note : answer->estimate.warnings) {
      console.err << "plimsoll: warning: " << job.name << ": " << note << '\n';
    }
    if (format == OutputFormat::kTable) {
      print_table(console, job.name, *input, *answer);
    }
    if (!answer->fits) {
      answers.complain(job.name + " " + answer->reason);
    }
    answers.add(to_json(job.name, *input, *answer, elapsed.count()));
  }
  return answers.finish();
}

}  // namespace plimsoll::cli
