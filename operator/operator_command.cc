#include "operator/operator_command.h"

#include <prometheus/collectable.h>
#include <prometheus/registry.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <boost/program_options.hpp>
#include <functional>
#include <memory>

#include "base/file.h"
#include "base/log.h"
#include "base/mutex.h"
#include "controllers/calibration.h"
#include "controllers/gpu_inventory.h"
#include "controllers/training_job_controller.h"
#include "kube/event_recorder.h"
#include "kube/fenced_client.h"
#include "kube/http_client.h"
#include "metrics/kubernetes_metrics.h"
#include "operator/feature_metrics.h"
#include "operator/leadership.h"
#include "operator/ops_servers.h"
#include "operator/policy_options.h"
#include "operator/process.h"
#include "operator/process_metrics.h"
#include "operator/resource_metrics.h"
#include "operator/resource_plan.h"
#include "operator/view_metrics.h"
#include "remediation/patterns.h"
#include "webhook/cluster_view_keeper.h"
#include "webhook/table_source.h"

namespace plimsoll::process {
namespace {

namespace po = boost::program_options;

// For writing the queued events when the process ends.
constexpr std::chrono::seconds kEventTimeout{3};
// How long the process may take to stop; a pod has 30 s.
constexpr std::chrono::seconds kStopLimit{27};
// A pass over a job calls the API server a dozen times, and each call may take half a minute; decisions take
// less. When no worker has finished a pass for this long, all of them are stuck.
constexpr std::chrono::minutes kPassLimit{5};

// They cost next to nothing; more are a mistake of what makes the command line.
constexpr std::size_t kMaxExcludedNamespaces = 1000;

constexpr ServerCommand kCommand{
    "operator",
    "usage: plimsoll operator [options]\n"
    "\n"
    "Runs the controllers until SIGTERM: keeps the GPUModel resources true to the nodes of the cluster, and\n"
    "runs training jobs through out-of-memory, preemption and lost nodes. Several may run; the one that\n"
    "holds the lease acts. A second signal ends it at once.\n",
    "\n"
    "Examples:\n"
    "  plimsoll operator\n"
    "  plimsoll operator --kubeconfig ~/.kube/config --leader-elect=false --ops-port 0 --ops-port-file port \\\n"
    "      --metrics-secure=false\n"};

struct OperatorOptions {
  ServerOptions server;
  LeadershipOptions leadership;
  PolicyOptions policy;
  std::vector<std::string> excluded_namespaces;
  int workers = 0;               // 0: by the processors and memory of the cgroup
  std::string prometheus_url;    // empty: not used
  std::string failure_patterns;  // a file; empty: those built in
};

// Updates metrics at the beginning of each scrape.
class Refresher final : public prometheus::Collectable {
 public:
  explicit Refresher(std::function<void()> refresh) : refresh_(std::move(refresh)) {}
  std::vector<prometheus::MetricFamily> Collect() const override {
    refresh_();
    return {};
  }

 private:
  const std::function<void()> refresh_;
};

// The parts of the process, in the order in which they are started. They are stopped in reverse order, except
// the lease, which is released after all controllers have stopped.
class OperatorProcess final : public ServerProcess {
 public:
  OperatorProcess(const OperatorOptions& options, const crds::ClusterPolicy& policy,
                  const remediation::Patterns& patterns, std::optional<kube::LeaseOptions> lease,
                  ServerParts parts, std::unique_ptr<kube::Client> prometheus)
      : options_(options),
        policy_(policy),
        patterns_(patterns),
        registry_(std::move(parts.registry)),
        client_(std::move(parts.client)),
        prometheus_(std::move(prometheus)),
        leadership_(*client_, options.leadership.lease_name, std::move(lease), *registry_),
        event_metrics_(*registry_),
        events_(*client_, {.component = "plimsoll-operator",
                           .instance = host_name(),
                           .on_loss = [this](auto why) { event_metrics_.lost(why); }}),
        keeper_(*client_, parts.catalog, view_, view_metrics_.observers(), options.server.namespaces),
        models_(*client_, {.cache_limit = plan_.table_cache}),
        calibration_(leader_client_, parts.catalog, calibration_options()),
        inventory_(leader_client_, std::move(parts.catalog), inventory_options()),
        jobs_(leader_client_, view_, &models_, &events_, jobs_options()),
        ops_(options.server,
             {{"controllers", [this] { return controllers_ready(); }},
              {"progress", [this] { return progress(); }}},
             {std::make_shared<Refresher>([this] { jobs_.refresh_metrics(); }), registry_,
              std::make_shared<ProcessMetrics>(), std::make_shared<FeatureMetrics>(policy_.gates),
              std::make_shared<ResourceMetrics>(plan_, ResourceMetrics::Pools{}, workers())},
             *client_) {}

  Result<void> start() override {
    // Health first: it says why the process is not ready yet.
    if (Result<void> started = ops_.start(); !started) {
      return started;
    }
    events_.start();
    keeper_.start();
    leadership_.start([this] { lead(); }, [this] { lost(); });
    if (Result<void> written = ops_.write_port_files(); !written) {
      return written;
    }
    log_info("Started the operator", {{"opsPort", ops_.ops_port()},
                                      {"metricsPort", ops_.metrics_port()},
                                      {"workers", workers()},
                                      {"memoryBytes", plan_.limits.memory.count},
                                      {"version", PLIMSOLL_VERSION}});
    return {};
  }

  void stop() override {
    {
      const MutexLock lock(lead_mutex_);
      stopping_ = true;
    }
    jobs_.stop();
    calibration_.stop();
    inventory_.stop();
    keeper_.stop();
    leadership_.stop();
    events_.stop(kEventTimeout);
    ops_.stop();
    log_info("Stopped the operator");
  }

  std::chrono::milliseconds stop_limit() const override { return kStopLimit; }
  int exit_code() const override { return lost_ ? kExitFailed : kExitDone; }

 private:
  int workers() const { return options_.workers > 0 ? options_.workers : plan_.reconcilers; }

  controllers::GpuInventoryController::Options inventory_options() {
    controllers::GpuInventoryController::Options options;
    options.events = &events_;
    options.registry = registry_.get();
    return options;
  }

  controllers::CalibrationController::Options calibration_options() {
    controllers::CalibrationController::Options options;
    options.events = &events_;
    options.prometheus = prometheus_.get();
    options.namespaces = options_.server.namespaces;
    options.registry = registry_.get();
    return options;
  }

  controllers::TrainingJobController::Options jobs_options() {
    controllers::TrainingJobController::Options options;
    options.workers = workers();
    options.decision_memory = plan_.reconcile;
    options.patterns = &patterns_;
    options.policy = policy_;
    options.namespaces = options_.server.namespaces;
    options.excluded_namespaces = {options_.excluded_namespaces.begin(), options_.excluded_namespaces.end()};
    options.leads = [this] { return leadership_.leads(); };
    options.cluster_is_known = [this] { return keeper_.has_synced() && inventory_.ready(); };
    options.registry = registry_.get();
    return options;
  }

  void lead() {
    const MutexLock lock(lead_mutex_);
    if (!stopping_) {
      log_info("Became the leader: starting the controllers");
      inventory_.start();
      calibration_.start();
      jobs_.start();
      leading_ = true;
    }
  }

  // Another process may already lead: only the end of this one is sure to end all its work.
  void lost() {
    log_error("Lost the lease: the process ends");
    lost_ = true;
    ::kill(::getpid(), SIGTERM);
  }

  // A replica that does not lead is ready, too.
  Result<void> controllers_ready() const {
    if (!keeper_.has_synced()) {
      return Error(ErrorCode::kUnavailable, "the cluster's GPU models are not known yet");
    }
    if (leading_ && !inventory_.ready()) {
      return Error(ErrorCode::kUnavailable, "the cluster's GPUs are not counted yet");
    }
    if (leading_ && !jobs_.ready()) {
      return Error(ErrorCode::kUnavailable, "the training jobs are not known yet");
    }
    if (!leading_ && !options_.leadership.elect) {
      return Error(ErrorCode::kUnavailable, "the controllers are starting");
    }
    return {};
  }

  Result<void> progress() const {
    const std::chrono::nanoseconds quiet = jobs_.stalled_for();
    if (quiet <= kPassLimit) {
      return {};
    }
    return Error(ErrorCode::kUnavailable,
                 "no worker has finished a job for " +
                     std::to_string(std::chrono::duration_cast<std::chrono::seconds>(quiet).count()) + " s");
  }

  const OperatorOptions& options_;
  const crds::ClusterPolicy policy_;
  const remediation::Patterns& patterns_;
  const ResourcePlan plan_ = plan_resources(process_limits());
  const std::jthread heap_trimmer_ = start_heap_trimmer(plan_.limits.memory);
  const std::shared_ptr<prometheus::Registry> registry_;
  const std::unique_ptr<kube::Client> client_;
  const std::unique_ptr<kube::Client> prometheus_;  // null: none
  Leadership leadership_;
  // For all writes of a leader.
  kube::FencedClient leader_client_{*client_, [this] { return leadership_.leads(); }};
  metrics::EventMetrics event_metrics_;
  kube::EventRecorder events_;
  estimator::ClusterViewStore view_;
  ViewMetrics view_metrics_{*registry_};
  webhook::ClusterViewKeeper keeper_;
  webhook::ConfigMapTableSource models_;
  controllers::CalibrationController calibration_;
  controllers::GpuInventoryController inventory_;
  controllers::TrainingJobController jobs_;
  OpsServers ops_;
  Mutex lead_mutex_;
  bool stopping_ PLIMSOLL_GUARDED_BY(lead_mutex_) = false;
  std::atomic<bool> leading_ = false;
  std::atomic<bool> lost_ = false;
};

Result<remediation::Patterns> patterns_of(const std::string& file) {
  if (file.empty()) {
    return remediation::Patterns::built_in();
  }
  const Result<std::string> text = read_file(file);
  if (!text) {
    return text.error();
  }
  Result<remediation::Patterns> patterns = remediation::Patterns::with_own(*text);
  return patterns ? std::move(patterns) : Result<remediation::Patterns>(patterns.error().within(file));
}

}  // namespace

int run_operator_command(const std::vector<std::string>& arguments) {
  OperatorOptions options;
  po::options_description description("Options");
  description.add_options()("help,h", "print this")(
      "workers", po::value(&options.workers)->default_value(options.workers)->value_name("N"),
      "training jobs that are looked after at the same time, up to 64; 0: by the processors and the memory "
      "of the cgroup")("prometheus-url", po::value(&options.prometheus_url)->value_name("URL"),
                       "Prometheus server with dcgm-exporter's series, for jobs without signposts: "
                       "http://prometheus.monitoring:9090")(
      "failure-patterns", po::value(&options.failure_patterns)->value_name("FILE"),
      "YAML of texts by which failures are recognised, tried before the built-in ones; `plimsoll classify "
      "--patterns` tries it out")(
      "exclude-namespace",
      namespaces_value("exclude-namespace", options.excluded_namespaces, kMaxExcludedNamespaces),
      "namespace whose training jobs are left alone, neither sized nor run; may be repeated");
  description.add(describe(options.policy));
  description.add(describe(options.leadership));
  description.add(describe(options.server));
  if (const std::optional<int> code = read_command_line(kCommand, description, arguments)) {
    return *code;
  }
  if (options.workers < 0 || options.workers > 64) {
    return wrong_usage(kCommand, "--workers must be from 0 to 64, is " + std::to_string(options.workers));
  }
  std::optional<kube::LeaseOptions> lease;
  if (options.leadership.elect) {
    Result<kube::LeaseOptions> parsed = lease_of(options.leadership);
    if (!parsed) {
      return wrong_usage(kCommand, parsed.error().message);
    }
    lease = *std::move(parsed);
  }
  Result<remediation::Patterns> patterns = patterns_of(options.failure_patterns);
  if (!patterns) {
    return wrong_usage(kCommand, "--failure-patterns: " + patterns.error().message);
  }
  const Result<crds::ClusterPolicy> policy = policy_of(options.policy);
  if (!policy) {
    return wrong_usage(kCommand, policy.error().message);
  }
  if (!options.prometheus_url.empty() && !policy->gates.enabled(crds::Feature::kDCGMLearning)) {
    return wrong_usage(kCommand, "--prometheus-url: " + crds::off_text(crds::Feature::kDCGMLearning) +
                                     "; leave the option out, or turn the gate on");
  }
  std::unique_ptr<kube::Client> prometheus;
  if (!options.prometheus_url.empty()) {
    kube::ClientConfig server;
    server.server = options.prometheus_url;
    Result<std::unique_ptr<kube::Client>> connected = kube::connect(server);
    if (!connected) {
      return wrong_usage(kCommand, "--prometheus-url: " + connected.error().message);
    }
    prometheus = *std::move(connected);
  }
  if (const Result<void> prepared = prepare_server(options.server); !prepared) {
    return wrong_usage(kCommand, prepared.error().message);
  }
  return serve(options.server, [&](ServerParts parts) {
    return std::make_unique<OperatorProcess>(options, *policy, *patterns, lease, std::move(parts),
                                             std::move(prometheus));
  });
}

}  // namespace plimsoll::process
