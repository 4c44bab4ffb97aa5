// `plimsoll estimate`: the peak GPU memory of a job as it is asked for, the fullest trainer deciding.
#include <chrono>
#include <cmath>

#include "base/json/edit.h"
#include "base/quantity.h"
#include "cli/cluster_state.h"
#include "cli/config_estimate.h"
#include "cli/graph_estimate.h"
#include "cli/jobs.h"
#include "cli/limits.h"
#include "cli/options.h"
#include "cli/subcommands.h"
#include "cli/text_table.h"
#include "estimator/estimate/estimate.h"
#include "estimator/provisioner/trainer_loads.h"
#include "estimator/sharder/sharder.h"

namespace plimsoll::cli {
namespace {

constexpr Help kHelp = {
    "plimsoll estimate -f JOB.yaml [--gpu NAME] [--trainers N] [--method plimsoll|amp] [-o FORMAT]\n"
    "       plimsoll estimate --graph GRAPH.json.gz --batch-size B --optimizer NAME [--precision P] [--gpu NAME]\n"
    "                         [--device cuda|cpu] [-o FORMAT]\n"
    "       plimsoll estimate --config config.json --batch-size B --sequence-length S --optimizer NAME [--gpu NAME]\n"
    "                         [--trainers N] [--parallelism NAME] [-o FORMAT]",
    "Tells the peak GPU memory of each TrainingJob in the files, on its most loaded trainer, and what it consists of.\n"
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

constexpr const char* kDefaultGpu = "A100-80GB";
constexpr std::int64_t kMaxTrainers = 65536;  // as the API's own limit

struct Question {
  estimator::GpuModel gpu;
  std::int64_t trainers = 1;
  std::int64_t per_node = 8;
  estimator::Method method = estimator::Method::kPlimsoll;
  const crds::MemoryProfile* profile = nullptr;
  const estimator::TraceFile* graph = nullptr;  // of a job whose model is one
  estimator::Device device = estimator::Device::kCuda;
  estimator::RuntimeSettings runtime;
};

struct Answer {
  estimator::Estimate estimate;
  std::vector<estimator::TrainerLoad> trainers;  // by rank, where tables are spread over them
  Bytes headroom;
  bool fits = false;
  std::string reason;  // why it does not fit
  Bytes missing;
};

Json integer(std::int64_t value) {
  return Json(static_cast<::Json::Int64>(value));
}

// What the headroom leaves of the card.
Bytes usable_of(const crds::TrainingJob& job, const estimator::GpuModel& gpu) {
  return gpu.memory - Bytes::ceil(static_cast<double>(gpu.memory.count) * job.spec.provisioning.headroom);
}

Result<estimator::Estimate> estimate_with(const crds::TrainingJob& job, const Question& question,
                                          Bytes embeddings) {
  estimator::EstimateRequest request;
  request.model = &job.spec.model;
  request.training = &job.spec.training;
  request.graph = question.graph;
  request.gpu = question.device == estimator::Device::kCuda ? &question.gpu : nullptr;
  request.device = question.device;
  request.trainers = question.trainers;
  request.per_node = question.per_node;
  request.embedding_bytes = embeddings;
  request.method = question.method;
  request.runtime = question.runtime;
  request.capacity = usable_of(job, question.gpu);
  if (question.profile != nullptr) {
    request.learned = crds::bounds_for(*question.profile, question.gpu.name);
    request.given = crds::given_bounds_for(*question.profile, question.gpu.name);
  }
  Budget budget(limits_of_answer());
  request.budget = &budget;
  return budget.run([&] { return estimator::estimate_memory(request); });
}

// The fullest trainer's embeddings within `budget`; where they do not fit, the least that it would have to
// hold, and why.
Result<Bytes> embeddings_of(const crds::TrainingJob& job, const Question& question, Bytes budget,
                            estimator::Infeasibility& why, estimator::Plan& found) {
  estimator::ShardRequest request;
  request.tables = estimator::expand_tables(job.spec.model.dlrm->tables);
  request.topology = {.trainers = question.trainers,
                      .per_node = question.per_node,
                      .intra_node_bandwidth = question.gpu.intra_node_bandwidth,
                      .inter_node_bandwidth = question.gpu.inter_node_bandwidth,
                      .hbm_bandwidth = question.gpu.hbm_bandwidth};
  request.batch_size = job.spec.training.batch_size_per_trainer;
  request.optimizer = job.spec.training.embedding_optimizer;
  request.budget = budget;
  request.allocated_bytes = true;  // as the provisioner
  Result<estimator::Plan> plan = estimator::shard(request, &why);
  if (plan) {
    found = *std::move(plan);
    return found.max_memory;
  }
  if (plan.error().code != ErrorCode::kUnfittable) {
    return plan.error();
  }
  const std::int64_t sharers = why.constraint == "TotalMemory" ? question.trainers : 1;
  return budget + Bytes{(why.missing.count + sharers - 1) / sharers};
}

Result<Answer> answer_for(const crds::TrainingJob& job, const Question& question) {
  Result<estimator::Estimate> estimate = estimate_with(job, question, Bytes{});
  if (!estimate) {
    return estimate.error();
  }
  Answer answer;
  const Bytes usable = usable_of(job, question.gpu);
  answer.headroom = question.gpu.memory - usable;
  estimator::Infeasibility why;
  estimator::Plan plan;
  if (job.spec.model.dlrm && !job.spec.model.dlrm->tables.empty()) {
    const Bytes left = std::max(Bytes{}, usable - estimate->peak.upper_bound);
    const Result<Bytes> embeddings = embeddings_of(job, question, left, why, plan);
    if (!embeddings) {
      return embeddings.error();
    }
    estimate = estimate_with(job, question, *embeddings);
    if (!estimate) {
      return estimate.error();
    }
  }
  answer.estimate = *std::move(estimate);
  answer.trainers = estimator::trainer_loads(answer.estimate, plan);
  const bool no_card = question.device == estimator::Device::kCpu;
  answer.fits = no_card || (why.constraint.empty() && answer.estimate.peak.upper_bound <= usable);
  if (!answer.fits) {
    answer.missing = std::max(Bytes{}, answer.estimate.peak.upper_bound - usable);
    answer.reason =
        "does not fit on " + std::to_string(question.trainers) + " x " + question.gpu.name + ": " +
        (why.reason.empty() ? "a trainer takes up to " + to_string(answer.estimate.peak.upper_bound) +
                                  ", and " + to_string(usable) + " may be used"
                            : why.reason);
  }
  return answer;
}

Json to_json(const std::string& name, const Question& question, const Answer& answer, double seconds) {
  JsonObject json;
  json["job"] = name;
  json["gpuModel"] = question.gpu.name;
  json["trainers"] = integer(question.trainers);
  json["perNode"] = integer(question.per_node);
  json["method"] = question.method == estimator::Method::kAmp ? "amp" : "plimsoll";
  json["peak"] = estimator::to_json(answer.estimate.peak);
  json["breakdown"] = estimator::to_json(answer.estimate.breakdown);
  json["peakPhase"] = answer.estimate.peak_phase;
  if (!answer.trainers.empty()) {
    json["ranks"] = estimator::to_json(answer.trainers);
  } else if (!answer.estimate.allocated_by_rank.empty()) {
    json["ranks"] = estimator::to_json(answer.estimate.allocated_by_rank);
  }
  json["largestLive"] = estimator::to_json(answer.estimate.largest_live);
  json["denseParameterBytes"] = integer(answer.estimate.dense_parameters.count);
  json["capacityBytes"] = integer(question.gpu.memory.count);
  json["headroomBytes"] = integer(answer.headroom.count);
  json["fits"] = answer.fits;
  if (!answer.fits) {
    json["reason"] = answer.reason;
    json["missingBytes"] = integer(answer.missing.count);
  }
  json["elapsedSeconds"] = seconds;
  return json;
}

void print_table(Console& console, const std::string& name, const Question& question, const Answer& answer) {
  const estimator::Peak& peak = answer.estimate.peak;
  console.out << name << " on " << question.trainers << " x " << question.gpu.name << '\n'
              << "  most loaded trainer: at most " << to_string(peak.upper_bound) << " of "
              << to_string(question.gpu.memory) << (answer.fits ? ", fits" : ", DOES NOT FIT") << " ("
              << to_string(answer.headroom) << " headroom)\n"
              << "  tensors " << to_string(peak.allocated) << ", allocator " << to_string(peak.reserved)
              << ", peak in " << answer.estimate.peak_phase << "\n\n"
              << breakdown_bars(answer.estimate.breakdown, question.gpu.memory, console.unicode) << '\n';
}

Result<Question> question_for(const crds::TrainingJob& job, const ClusterState& state,
                              const po::variables_map& values, std::vector<std::string>& warnings) {
  Question question;
  std::string gpu = values.contains("gpu") ? values["gpu"].as<std::string>() : job.spec.trainers.gpu_model;
  if (gpu.empty()) {
    gpu = job.spec.provisioning.gpu_models.empty() ? kDefaultGpu : job.spec.provisioning.gpu_models.front();
  }
  const Result<const estimator::GpuModel*> found = find_gpu(state.catalog, gpu);
  if (!found) {
    return found.error();
  }
  question.gpu = **found;
  question.trainers = job.spec.trainers.replicas;
  if (values.contains("trainers")) {
    const Result<std::int64_t> trainers = count_option(values, "trainers", 1, kMaxTrainers);
    if (!trainers) {
      return trainers.error();
    }
    question.trainers = *trainers;
  }
  question.per_node = std::min(job.spec.trainers.per_node, question.trainers);
  if (question.trainers % question.per_node != 0) {
    return invalid("--trainers must be at most the job's perNode, or a multiple of it: " +
                   std::to_string(question.per_node));
  }
  if (values.contains("device")) {
    const std::string device = values["device"].as<std::string>();
    if (device != "cuda" && device != "cpu") {
      return invalid("--device must be cuda or cpu");
    }
    question.device = device == "cpu" ? estimator::Device::kCpu : estimator::Device::kCuda;
  }
  question.profile = state.profile_of(job.namespace_name, job.spec.model.family);
  question.runtime = estimator::runtime_settings_of(job.raw, warnings);
  if (Result<void> read = read_allocator_option(values, question.runtime); !read) {
    return read.error();
  }
  return question;
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
  add_graph_options(options);
  add_config_options(options);
  add_output_option(options);
  options.add_options()("help,h", "print this help");
  return options;
}

int run_estimate(const std::vector<std::string>& arguments, Console& console) {
  po::variables_map values;
  OutputFormat format{};
  if (const std::optional<int> code =
          read_options(arguments, estimate_options(), kHelp, console, values, format)) {
    return *code;
  }
  const Result<estimator::Method> method = method_option(values);
  if (!method) {
    return complain(console, kExitUsage, method.error());
  }
  if (values.contains("graph")) {
    return run_graph_estimate(values, format, console);
  }
  const bool by_config = values.contains("config");
  if (const char* name = by_config ? nullptr : graph_option_given(values)) {
    return complain(console, kExitUsage,
                    std::string("--") + name + " goes with --graph and --config; a job says it itself");
  }
  if (const char* name = by_config ? nullptr : config_option_given(values)) {
    return complain(console, kExitUsage,
                    std::string("--") + name + " goes with --config; a job says it itself");
  }
  if (!by_config && !values.contains("filename")) {
    return complain(console, kExitUsage, "name the jobs with -f FILE, or -f - for standard input");
  }
  const Result<std::vector<Document>> documents =
      by_config ? Result<std::vector<Document>>(std::vector<Document>())
                : read_documents(values["filename"].as<std::vector<std::string>>(), console);
  if (!documents) {
    return complain(console, kExitUsage, documents.error());
  }
  const Result<ClusterState> state = cluster_from_documents(*documents);
  if (!state) {
    return complain(console, kExitRefused, state.error());
  }
  std::vector<JobOrError> jobs = read_jobs(
      *documents, kDefaultNamespace,
      [&](const std::string& space, const std::string& name) { return state->config_map(space, name); });
  if (by_config) {
    Result<crds::TrainingJob> job = job_of_config(values, console);
    if (!job) {
      return complain(console, kExitUsage, job.error());
    }
    jobs.push_back({job->name, *std::move(job)});
  }
  if (jobs.empty()) {
    return complain(console, kExitUsage, "there is no TrainingJob in the input");
  }
  int code = kExitDone;
  std::vector<Json> answers;
  for (const JobOrError& job : jobs) {
    const auto start = std::chrono::steady_clock::now();
    if (!job.job) {
      code = std::max(code, complain(console, kExitRefused, job.name + ": " + job.job.error().message));
      answers.push_back(refusal(job.name, job.job.error()));
      continue;
    }
    std::vector<std::string> warnings;
    Result<Question> question = question_for(*job.job, *state, values, warnings);
    if (!question) {
      return complain(console, kExitUsage, question.error());
    }
    question->graph = job.graph.get();
    for (const std::string& warning : warnings) {
      console.err << "plimsoll: warning: " << job.name << ": " << warning << '\n';
    }
    question->method = *method;
    const Result<Answer> answer = answer_for(*job.job, *question);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    if (!answer) {
      code = std::max(code, complain(console, kExitRefused, job.name + ": " + answer.error().message));
      answers.push_back(refusal(job.name, answer.error()));
      continue;
    }
    if (format == OutputFormat::kTable) {
      print_table(console, job.name, *question, *answer);
    }
    if (!answer->fits) {
      code = std::max(code, complain(console, kExitRefused, job.name + " " + answer->reason));
    }
    answers.push_back(to_json(job.name, *question, *answer, elapsed.count()));
  }
  if (format != OutputFormat::kTable) {
    print_answers(console, format, answers);
  }
  return code;
}

}  // namespace plimsoll::cli
