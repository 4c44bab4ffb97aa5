// `plimsoll provision`: what the admission webhook would do with a job, on a cluster or a description of one.
#include <chrono>
#include <cstdlib>
#include <memory>

#include "base/json/edit.h"
#include "base/json/view.h"
#include "cli/cluster_state.h"
#include "cli/jobs.h"
#include "cli/limits.h"
#include "cli/options.h"
#include "cli/subcommands.h"
#include "cli/text_table.h"
#include "estimator/provisioner/patch.h"
#include "estimator/provisioner/provisioner.h"
#include "kube/http_client.h"
#include "kube/kubeconfig.h"
#include "kube/transport.h"

namespace plimsoll::cli {
namespace {

constexpr Help kHelp = {
    "plimsoll provision -f JOB.yaml [--cluster CLUSTER.yaml] [-o FORMAT]",
    "Tells what the admission webhook would do with each TrainingJob in the files: the GPU model, the number "
    "of "
    "trainers,\nwhy, and the JSON patch. Without --cluster the cluster of the current kubeconfig is asked "
    "(nodes, "
    "pods, GPUModels,\nMemoryProfiles and the ConfigMaps that tables come from); nothing is written to it.",
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

Result<World> world_of(const po::variables_map& values, const std::vector<Document>& documents,
                       Console& console) {
  World world;
  if (values.contains("cluster")) {
    Result<std::vector<Document>> described =
        read_documents(values["cluster"].as<std::vector<std::string>>(), console);
    if (!described) {
      return described.error();
    }
    described->insert(described->end(), documents.begin(), documents.end());
    Result<ClusterState> state = cluster_from_documents(*described);
    if (!state) {
      return state.error();
    }
    world.state = *std::move(state);
  } else {
    kube::initialise_transport();
    const auto text = [&](const char* name) {
      return values.contains(name) ? values[name].as<std::string>() : std::string();
    };
    const Result<kube::ClientConfig> config =
        kube::load_client_config(kube::sources_from_environment(text("kubeconfig"), text("context")));
    if (!config) {
      return config.error().within("no --cluster FILE was given, and the current cluster cannot be asked");
    }
    world.namespace_name = config->namespace_name;
    Result<std::unique_ptr<kube::Client>> client = kube::connect(*config);
    if (!client) {
      return client.error();
    }
    world.client = *std::move(client);
    Result<ClusterState> state = cluster_from_client(*world.client);
    if (!state) {
      return state.error().within(config->server);
    }
    world.state = *std::move(state);
  }
  if (values.contains("namespace")) {
    world.namespace_name = values["namespace"].as<std::string>();
  }
  return world;
}

std::string nodes_text(std::int64_t trainers, std::int64_t per_node) {
  const std::int64_t nodes = (trainers + per_node - 1) / per_node;
  return nodes == 1 ? "1 node" : std::to_string(nodes) + " nodes";
}

void print_decision(Console& console, const estimator::Decision& decision, const Json& requested) {
  const std::optional<std::int64_t> asked = JsonView(member(requested, {"replicas"})).integer();
  const std::int64_t before = asked.value_or(decision.trainers);
  if (asked) {
    const std::string model = text_member(requested, {"gpuModel"});
    console.out << "  asked  " << before << " x " << (model.empty() ? "any GPU" : model) << '\n';
  }
  console.out << "  given  " << decision.trainers << " x " << decision.gpu_model << " on "
              << nodes_text(decision.trainers, decision.per_node);
  if (before > decision.trainers) {
    console.out << "    " << before - decision.trainers << " GPUs saved ("
                << percent_text(static_cast<double>(before - decision.trainers) / static_cast<double>(before))
                << ")";
  } else if (before < decision.trainers) {
    console.out << "    " << decision.trainers - before << " more than asked";
  }
  console.out << "\n  why    " << decision.reason << "\n\n  Memory of the most loaded trainer, of "
              << to_string(decision.capacity) << ":\n"
              << breakdown_bars(decision.estimate.breakdown, decision.capacity, console.unicode);
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
                 const Json& requested, double seconds) {
  console.out << name << '\n';
  if (provision.decided()) {
    print_decision(console, *provision.decision, requested);
  } else {
    console.out << "  keeps what it asks for (" << provision.event_reason << "): " << provision.reason
                << '\n';
  }
  if (!provision.alternatives.empty()) {
    TextTable table({"GPU model", "trainers", "cost", "verdict"});
    for (const estimator::Alternative& candidate : provision.alternatives) {
      char cost[32];
      std::snprintf(cost, sizeof cost, "%.1f", candidate.cost);
      table.add({candidate.gpu_model, std::to_string(candidate.trainers), cost, candidate.reason});
    }
    console.out << '\n' << table.to_string("  ");
  }
  char elapsed[32];
  std::snprintf(elapsed, sizeof elapsed, "%.1f ms", seconds * 1e3);
  console.out << "\n  decided in " << elapsed << "\n\n";
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
      "plimsoll, or amp for the formula published in the AMP paper");
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
  const Result<estimator::Method> method = method_option(values);
  if (!method) {
    return complain(console, kExitUsage, method.error());
  }
  if (!values.contains("filename")) {
    return complain(console, kExitUsage, "name the jobs with -f FILE, or -f - for standard input");
  }
  const Result<std::vector<Document>> documents =
      read_documents(values["filename"].as<std::vector<std::string>>(), console);
  if (!documents) {
    return complain(console, kExitUsage, documents.error());
  }
  const Result<World> world = world_of(values, *documents, console);
  if (!world) {
    return complain(console, kExitUsage, world.error());
  }
  for (const std::string& note : world->state.notes) {
    console.err << "plimsoll: " << note << '\n';
  }
  const auto config_map = [&](const std::string& space, const std::string& name) -> Result<Json> {
    Result<Json> in_files = world->state.config_map(space, name);
    return in_files || world->client == nullptr ? in_files : world->client->get(kConfigMaps, space, name);
  };
  const std::vector<JobOrError> jobs = read_jobs(*documents, world->namespace_name, config_map);
  if (jobs.empty()) {
    return complain(console, kExitUsage, "there is no TrainingJob in the input");
  }
  int code = kExitDone;
  std::vector<Json> answers;
  for (const JobOrError& job : jobs) {
    if (!job.job) {
      code = std::max(code, complain(console, kExitRefused, job.name + ": " + job.job.error().message));
      answers.push_back(refusal(job.name, job.job.error()));
      continue;
    }
    estimator::ProvisionRequest request;
    request.job = &*job.job;
    request.graph = job.graph.get();
    request.gpus = &world->state.gpus;
    request.profile = world->state.profile_of(job.job->namespace_name, job.job->spec.model.family);
    request.method = *method;
    Budget budget(limits_of_answer());
    request.budget = &budget;
    const auto start = std::chrono::steady_clock::now();
    const estimator::Provision provision = estimator::provision(request);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    JsonEdit answer(estimator::to_json(*job.job, provision));
    answer["job"] = job.name;
    answer["elapsedSeconds"] = elapsed.count();
    if (format == OutputFormat::kTable) {
      print_table(console, job.name, provision, answer["requested"].value(), elapsed.count());
    }
    for (const std::string& warning : provision.warnings) {
      if (!warning.starts_with(provision.reason)) {  // the reason is told on its own
        console.err << "warning: " << job.name << ": " << warning << '\n';
      }
    }
    if (!provision.decided() && provision.event_reason != "Disabled") {
      code = std::max(code, complain(console, kExitRefused, job.name + ": " + provision.reason));
    }
    answers.push_back(answer.root().value());
  }
  if (format != OutputFormat::kTable) {
    print_answers(console, format, answers);
  }
  return code;
}

}  // namespace plimsoll::cli
