// `plimsoll provision`: what the admission webhook would do with a job, on a cluster or a description of one.
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <memory>

#include "base/json/edit.h"
#include "base/json/view.h"
#include "cli/answer_budget.h"
#include "cli/cluster_state.h"
#include "cli/jobs.h"
#include "cli/options.h"
#include "cli/subcommands.h"
#include "cli/text_table.h"
#include "crds/cluster_policy.h"
#include "estimator/provisioner/patch.h"
#include "estimator/provisioner/provisioner.h"
#include "kube/http_client.h"
#include "kube/kubeconfig.h"
#include "kube/transport.h"

namespace plimsoll::cli {
namespace {

constexpr Help kHelp = {
    "plimsoll provision -f JOB.yaml [--cluster CLUSTER.yaml] [-o FORMAT]",
    "Tells what the admission webhook would do with each TrainingJob in the files, and with each JobSet, PyTorchJob, ... whose\n"
    "model is described (docs/workloads.md): the GPU model, the number of trainers, why, and the JSON patch. Without\n"
    "--cluster, the cluster of the current kubeconfig is read (nodes, pods, GPUModels, MemoryProfiles, and what jobs refer\n"
    "to: ConfigMaps, runtimes of TrainJobs); nothing is written to it.",
    "  plimsoll provision -f examples/model-a.yaml --cluster examples/cluster.yaml\n"
    "  kubectl get nodes,pods,gpumodels,memoryprofiles -A -o yaml > cluster.yaml\n"
    "  kubectl plimsoll provision -f job.yaml -o json | jq .decision",
};

const kube::Resource kConfigMaps{.group = "", .version = "v1", .plural = "configmaps"};

struct World {
  ClusterState state;
  std::string namespace_name = kDefaultNamespace;  // of jobs that name none
  std::unique_ptr<kube::Client> client;            // null when the cluster is described by files
};

Result<World> world_of_files(const OptionReader& options, const std::vector<Document>& jobs,
                             Console& console) {
  Result<std::vector<Document>> documents = read_documents(options.texts("cluster"), console);
  if (!documents) {
    return documents.error();
  }
  documents->insert(documents->end(), jobs.begin(), jobs.end());
  Result<ClusterState> state = cluster_from_documents(*documents);
  return state ? World{.state = *std::move(state), .client = nullptr} : Result<World>(state.error());
}

Result<World> world_of_cluster(const OptionReader& options) {
  kube::initialise_transport();
  const Result<kube::ClientConfig> config = kube::load_client_config(
      kube::sources_from_environment(options.text("kubeconfig"), options.text("context")));
  if (!config) {
    return config.error().within("no --cluster FILE was given, and the current cluster cannot be read");
  }
  Result<std::unique_ptr<kube::Client>> client = kube::connect(*config);
  if (!client) {
    return client.error();
  }
  Result<ClusterState> state = cluster_from_client(**client);
  if (!state) {
    return state.error().within(config->server);
  }
  return World{*std::move(state), config->namespace_name, *std::move(client)};
}

// What the files have; else, where a cluster is read, what that has.
JobSources sources_of(const std::vector<Document>& documents, const World& world,
                      const OptionReader& options) {
  JobSources sources = cli::sources_of(documents, world.state);
  sources.default_namespace = options.text("namespace", world.namespace_name);
  if (kube::Client* const client = world.client.get()) {
    sources.config_maps = [in_files = sources.config_maps, client](const std::string& space,
                                                                   const std::string& name) -> Result<Json> {
      Result<Json> found = in_files(space, name);
      return found ? std::move(found) : client->get(kConfigMaps, space, name);
    };
    sources.objects = [in_files = sources.objects,
                       client](const workloads::ObjectName& name) -> Result<Json> {
      Result<Json> found = in_files(name);
      return found && !found->isNull() ? std::move(found)
                                       : client->get({.group = name.group,
                                                      .version = name.version,
                                                      .plural = name.plural,
                                                      .namespaced = !name.namespace_name.empty()},
                                                     name.namespace_name, name.name);
    };
  }
  return sources;
}

// The patch of a workload of another kind is of that object, not of the job that describes it.
void write_patch(Console& console, const JobOrError& job, const estimator::Provision& provision,
                 JsonEdit& answer) {
  const workloads::WorkloadSizing& sizing = *job.workload->sizing;
  Result<Json> patch = sizing.patch_for(provision);
  if (!patch) {
    console.err << "plimsoll: warning: " << job.name << ": it stays as it is: " << patch.error().message
                << '\n';
    patch = Json(::Json::arrayValue);
  }
  if (provision.decided() && !sizing.why_fixed().empty()) {
    console.err << "plimsoll: warning: " << job.name << ": the number of pods stays: " << sizing.why_fixed()
                << '\n';
  }
  answer["kind"] = job.workload->kind;
  answer["patch"] = *std::move(patch);
}

std::string nodes_text(std::int64_t trainers, std::int64_t per_node) {
  const std::int64_t nodes = (trainers + per_node - 1) / per_node;
  return nodes == 1 ? "1 node" : std::to_string(nodes) + " nodes";
}

void print_throughput(Console& console, const estimator::Throughput& given,
                      const std::optional<estimator::Throughput>& requested) {
  using estimator::rounded_text;
  console.out << "\n  Throughput, predicted within a factor of " << rounded_text(given.iteration.uncertainty)
              << ":\n";
  TextTable table({"", "iteration", "samples/s", "GPU-hours/million samples"});
  const auto add = [&](const char* name, const estimator::Throughput& of) {
    table.add({name, rounded_text(of.iteration.seconds) + " s", rounded_text(of.iteration.samples_per_second),
               rounded_text(of.gpu_hours_per_million_samples())});
  };
  add("given", given);
  if (requested) {
    add("requested", *requested);
  }
  console.out << table.to_string("    ");
}

void print_swap(Console& console, const estimator::SwapTraining& swap) {
  using estimator::rounded_text;
  const estimator::PlannedSwap& planned = swap.planned;
  console.out << "\n  Through host memory, by a swap plan (docs/harmony.md):\n";
  TextTable table(
      {"mode", "layers", "iteration", "lower bound", "slowdown", "swapped", "GPU to GPU", "host memory"});
  table.add({name_of(planned.plan.mode), std::to_string(swap.layers), rounded_text(planned.seconds) + " s",
             rounded_text(planned.bound_seconds) + " s", rounded_text(swap.slowdown()),
             to_string(planned.volumes.swapped()), to_string(planned.volumes.p2p),
             to_string(swap.host_memory)});
  console.out << table.to_string("    ");
}

// ", and 12% fewer GPU-hours for the same samples": fewer GPUs may take longer. Empty where it is not known.
std::string same_work_text(const estimator::Decision& decision) {
  if (!decision.throughput || !decision.requested) {
    return {};
  }
  const double ratio = decision.throughput->gpu_hours_per_million_samples() /
                       decision.requested->gpu_hours_per_million_samples();
  return ", and " + percent_text(std::abs(1 - ratio)) + (ratio <= 1 ? " fewer" : " more") +
         " GPU-hours for the same samples";
}

void print_decision(Console& console, const estimator::Decision& decision, const Json& requested) {
  const std::optional<std::int64_t> replicas = JsonView(member(requested, {"replicas"})).integer();
  const std::int64_t before = replicas.value_or(decision.trainers);
  if (replicas) {
    const std::string model = text_member(requested, {"gpuModel"});
    console.out << "  requested  " << before << " x " << (model.empty() ? "any GPU" : model) << '\n';
  }
  console.out << "  given      " << decision.trainers << " x " << decision.gpu_model << " on "
              << nodes_text(decision.trainers, decision.per_node);
  if (before > decision.trainers) {
    console.out << "    " << before - decision.trainers << " GPUs saved ("
                << percent_text(static_cast<double>(before - decision.trainers) / static_cast<double>(before))
                << ")" << same_work_text(decision);
  } else if (before < decision.trainers) {
    console.out << "    " << decision.trainers - before << " more than requested" << same_work_text(decision);
  }
  console.out << "\n  why        " << decision.reason << "\n\n  Memory of the most loaded trainer, of "
              << to_string(decision.capacity) << ":\n"
              << breakdown_bars(decision.estimate.breakdown, decision.capacity, console.unicode);
  if (decision.throughput) {
    print_throughput(console, *decision.throughput, decision.requested);
  }
  if (decision.swap) {
    print_swap(console, *decision.swap);
  }
  const estimator::Plan& plan = decision.plan;
  if (!plan.placements.empty()) {
    console.out << "\n  Embeddings: " << plan.placements.size() << " tables, slowest trainer "
                << milliseconds_text(plan.max_milliseconds) << " (mean "
                << milliseconds_text(plan.mean_milliseconds) << ", lower bound "
                << milliseconds_text(plan.lower_bound_milliseconds) << "), fullest "
                << to_string(plan.max_memory) << " (mean " << to_string(plan.mean_memory) << ")\n";
  }
}

void print_table(Console& console, const std::string& name, const estimator::Provision& provision,
                 const Json& requested, bool rejected, double seconds) {
  console.out << name << '\n';
  if (provision.decided()) {
    print_decision(console, *provision.decision, requested);
  } else if (rejected) {
    console.out << "  is rejected, as provisioning.onUnfit is Deny (" << provision.event_reason
                << "): " << provision.reason << '\n';
  } else {
    console.out << "  keeps what it requests (" << provision.event_reason << "): " << provision.reason
                << '\n';
  }
  if (!provision.alternatives.empty()) {
    TextTable table({"GPU model", "trainers", "cost", "iteration", "samples/s", "verdict"});
    for (const estimator::Alternative& candidate : provision.alternatives) {
      const double rate = candidate.samples_per_second;
      const bool sized = candidate.trainers > 0;
      table.add({candidate.gpu_model, sized ? std::to_string(candidate.trainers) : "-",
                 sized ? decimal_text(candidate.cost, 1) : "-",
                 rate > 0 ? estimator::rounded_text(candidate.iteration_seconds) + " s" : "-",
                 rate > 0 ? estimator::rounded_text(rate) : "-", candidate.reason});
    }
    console.out << '\n' << table.to_string("  ");
  }
  console.out << "\n  decided in " << decimal_text(seconds * 1e3, 1) << " ms\n\n";
}

}  // namespace

po::options_description provision_options() {
  po::options_description options;
  options.add_options()("filename,f", po::value<std::vector<std::string>>()->value_name("FILE"),
                        "TrainingJobs, YAML or JSON; - is standard input; may be repeated")(
      "cluster", po::value<std::vector<std::string>>()->value_name("FILE"),
      "nodes, pods, GPUModels, MemoryProfiles and ConfigMaps, as kubectl prints them; may be repeated")(
      "kubeconfig", po::value<std::string>()->value_name("FILE"),
      "without --cluster: how to reach the cluster")("context", po::value<std::string>()->value_name("NAME"),
                                                     "without --cluster: context of the kubeconfig")(
      "namespace,n", po::value<std::string>()->value_name("NAME"), "of jobs that name none")(
      "method", po::value<std::string>()->default_value("plimsoll")->value_name("NAME"),
      "plimsoll, or amp for the formula published in the AMP paper")(
      "min-share-of-asked",
      po::value<std::string>()->default_value(crds::kMinShareOfAsked)->value_name("PERCENT"),
      "as the chart's provisioning.minShareOfAsked: never fewer than this share of the requested trainers");
  add_timeout_option(options);
  add_output_option(options);
  options.add_options()("help,h", "print this help");
  return options;
}

int run_provision(const std::vector<std::string>& arguments, Console& console) {
  po::variables_map values;
  OutputFormat format{};
  if (const std::optional<int> code =
          read_options(arguments, provision_options(), kHelp, console, values, format)) {
    return *code;
  }
  OptionReader options(values);
  const estimator::Method method = read_method(options);
  const double min_share_of_asked =
      options.take("min-share-of-asked", parse_percentage(options.text("min-share-of-asked")));
  const std::chrono::milliseconds timeout = read_timeout(options);
  options.require(options.given("filename"), "name the jobs with -f FILE, or -f - for standard input");
  if (options.error()) {
    return complain(console, kExitUsage, *options.error());
  }
  const Result<std::vector<Document>> documents = read_documents(options.texts("filename"), console);
  if (!documents) {
    return complain(console, kExitUsage, documents.error());
  }
  const Result<World> world =
      options.given("cluster") ? world_of_files(options, *documents, console) : world_of_cluster(options);
  if (!world) {
    return complain(console, kExitUsage, world.error());
  }
  print_notes(console, world->state.notes);
  const JobsOfInput input = read_jobs(*documents, sources_of(*documents, *world, options));
  print_notes(console, input.notes);
  if (input.jobs.empty()) {
    return complain(console, kExitUsage, kNoJob);
  }
  JobAnswers answers(console, format);
  for (const JobOrError& job : input.jobs) {
    if (!job.job) {
      answers.refuse(job.name, job.job.error());
      continue;
    }
    estimator::ProvisionRequest request;
    request.job = &*job.job;
    request.graph = job.graph.get();
    request.gpus = &world->state.gpus;
    request.profile = world->state.profile_of(job.job->namespace_name, job.job->spec.model.family);
    request.method = method;
    AnswerBudget budget(timeout);
    request.budget = budget.get();
    request.suggest = true;
    request.every_gpu_model = true;
    request.min_share_of_asked = min_share_of_asked;
    const auto start = std::chrono::steady_clock::now();
    const estimator::Provision provision = estimator::provision(request);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    JsonEdit answer(estimator::to_json(*job.job, provision));
    answer["job"] = job.name;
    if (job.workload != nullptr) {
      write_patch(console, job, provision, answer);
    }
    answer["elapsedSeconds"] = elapsed.count();
    const bool rejected = estimator::rejects(job.job->spec.provisioning, provision);
    if (format == OutputFormat::kTable) {
      print_table(console, job.name, provision, answer["requested"].value(), rejected, elapsed.count());
    }
    // The last warning of a job that keeps its size says so and why, which is printed on its own; so is the reason of a decision.
    const bool kept = !provision.decided() && !provision.warnings.empty();
    for (const std::string& warning : provision.warnings) {
      if (!warning.starts_with(provision.reason) && !(kept && &warning == &provision.warnings.back())) {
        console.err << "warning: " << job.name << ": " << warning << '\n';
      }
    }
    if (!provision.decided() && provision.event_reason != "Disabled") {
      answers.complain(job.name + ": " + provision.reason);
    }
    answers.add(answer.root().value());
  }
  return answers.finish();
}

}  // namespace plimsoll::cli
