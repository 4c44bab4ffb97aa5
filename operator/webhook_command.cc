#include "operator/webhook_command.h"

#include <prometheus/registry.h>

#include <boost/program_options.hpp>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/log.h"
#include "base/memory_pool.h"
#include "http/server.h"
#include "http/tls_dial.h"
#include "operator/certificate_options.h"
#include "operator/feature_metrics.h"
#include "operator/ops_servers.h"
#include "operator/policy_options.h"
#include "operator/process.h"
#include "operator/process_metrics.h"
#include "operator/resource_metrics.h"
#include "operator/resource_plan.h"
#include "operator/view_metrics.h"
#include "webhook/admission_handler.h"
#include "webhook/cluster_objects.h"
#include "webhook/cluster_view_keeper.h"
#include "webhook/decision_scheduler.h"
#include "webhook/metrics.h"
#include "webhook/table_source.h"

namespace plimsoll::process {
namespace {

namespace po = boost::program_options;

// For the readiness check's connection to our own port; the kubelet waits one second by default.
constexpr std::chrono::milliseconds kDialTimeout{900};

constexpr ServerCommand kCommand{
    "webhook",
    "usage: plimsoll webhook (--certificate-directory DIR | --certificate-secret NAMESPACE/NAME) [options]\n"
    "\n"
    "Serves the admission webhooks of TrainingJobs over TLS until SIGTERM: sets the GPU model and the\n"
    "number of trainers of each job, and refuses jobs that cannot be run. It reads GPUModels,\n"
    "MemoryProfiles and the ConfigMaps that jobs name. It writes nothing but its own certificates, and\n"
    "those only with --certificate-secret. A second signal ends it at once.\n",
    "\n"
    "Examples:\n"
    "  plimsoll webhook --certificate-directory /etc/plimsoll/tls\n"
    "  plimsoll webhook --certificate-secret plimsoll-system/plimsoll-webhook-tls \\\n"
    "      --certificate-names plimsoll-webhook.plimsoll-system.svc --webhook-configuration plimsoll\n"
    "  plimsoll webhook --certificate-directory tls --bind-address 127.0.0.1 --port 0 --port-file port \\\n"
    "      --kubeconfig ~/.kube/config\n"};

struct WebhookOptions {
  ServerOptions server;
  std::string bind_address = "0.0.0.0";
  int port = 9443;  // wider than a port: Boost reads -1 into an unsigned as a large number
  std::string port_file;
  CertificateOptions certificates;
  PolicyOptions policy;
  int workers = 0;
  std::string lame_duck = "5s";
};

po::options_description describe(WebhookOptions& options) {
  po::options_description own("Options");
  own.add_options()             //
      ("help,h", "print this")  //
      ("bind-address",
       po::value(&options.bind_address)->default_value(options.bind_address)->value_name("IP"),
       "where the webhooks are served")  //
      ("port", po::value(&options.port)->default_value(options.port)->value_name("PORT"),
       "port of the webhooks; 0 takes a free one")  //
      ("port-file", po::value(&options.port_file)->value_name("FILE"),
       "where to write the port that was taken")  //
      ("workers", po::value(&options.workers)->default_value(options.workers)->value_name("N"),
       "admissions that compute at the same time; 0: by the processors and the memory of the cgroup")  //
      ("lame-duck", po::value(&options.lame_duck)->default_value(options.lame_duck)->value_name("DURATION"),
       "how long new connections are still taken after SIGTERM, while the cluster learns of it");
  own.add(describe(options.certificates)).add(describe(options.policy)).add(describe(options.server));
  return own;
}

// Requests that are handled or wait for their turn, each on its own thread: threads are cheap, and the
// scheduler limits those that compute.
constexpr int kHandlers = 64;
// How long the process may take to stop after the lame duck; a pod has 30 s for both.
constexpr std::chrono::seconds kDrainLimit{22};

int deciders_of(const WebhookOptions& options, const ResourcePlan& plan) {
  return options.workers > 0 ? options.workers : plan.deciders;
}

// The parts of the process, in the order in which they are started. They are stopped in reverse order.
class WebhookProcess final : public ServerProcess {
 public:
  WebhookProcess(const WebhookOptions& options, std::chrono::milliseconds lame_duck,
                 const crds::ClusterPolicy& policy,
                 const std::optional<webhook::CertificateRotatorOptions>& rotation, ServerParts parts)
      : options_(options),
        lame_duck_(lame_duck),
        policy_(policy),
        scheduler_(webhook::DecisionScheduler::for_cpus(deciders_of(options, plan_))),
        registry_(std::move(parts.registry)),
        client_(std::move(parts.client)),
        keeper_(*client_, std::move(parts.catalog), view_, view_metrics_.observers(),
                options.server.namespaces),
        tables_(*client_, {.cache_limit = plan_.table_cache}),
        objects_(*client_),
        certificates_(make_certificates(options.certificates, rotation, *client_)),
        server_(
            {.bind_address = options.bind_address,
             .port = static_cast<std::uint16_t>(options.port),
             .workers = kHandlers,
             .body_memory_limit = static_cast<std::size_t>(plan_.bodies.count),
             .max_connections = static_cast<std::size_t>(plan_.connections),
             .max_in_flight = kHandlers},
            [this](const http::Request& request) { return handler_.handle(request); }, certificates_),
        ops_(options.server,
             {{"caches",
               [this] {
                 return ready_if(keeper_.has_synced(), "GPUModels and MemoryProfiles are not listed yet");
               }},
              {"certificate", [this] { return certificates_->ready(); }},
              {"webhook",
               [this] {
                 return server_.draining()
                            ? ready_if(false, "stopping")
                            : http::dial_tls(options_.bind_address, server_.port(), kDialTimeout);
               }},
              {"progress", [this] { return handler_.progress(); }}},
             {registry_, std::make_shared<webhook::ServerMetrics>(server_, *certificates_, &scheduler_),
              std::make_shared<ProcessMetrics>(), std::make_shared<FeatureMetrics>(policy.gates),
              std::make_shared<ResourceMetrics>(
                  plan_, ResourceMetrics::Pools{{"reviews", &reviews_}, {"imports", &imports_}},
                  deciders_of(options, plan_))},
             *client_) {}

  Result<void> start() override {
    // Health first: it says why the process is not ready yet.
    if (Result<void> started = ops_.start(); !started) {
      return started;
    }
    if (Result<void> started = certificates_->start(); !started) {
      return started;
    }
    if (Result<void> started = server_.start(); !started) {
      return started;
    }
    keeper_.start();
    if (Result<void> written = write_port_file(options_.port_file, server_.port()); !written) {
      return written;
    }
    if (Result<void> written = ops_.write_port_files(); !written) {
      return written;
    }
    log_info("Started the webhook", {{"port", server_.port()},
                                     {"opsPort", ops_.ops_port()},
                                     {"metricsPort", ops_.metrics_port()},
                                     {"workers", deciders_of(options_, plan_)},
                                     {"memoryBytes", plan_.limits.memory.count},
                                     {"version", PLIMSOLL_VERSION}});
    return {};
  }

  void stop() override {
    server_.stop(lame_duck_);
    keeper_.stop();
    certificates_->stop();
    ops_.stop();
    log_info("Stopped the webhook", {{"requests", server_.stats().requests.load()}});
  }

  std::chrono::milliseconds stop_limit() const override { return lame_duck_ + kDrainLimit; }

 private:
  static Result<void> ready_if(bool condition, const std::string& problem) {
    return condition ? Result<void>() : Error(ErrorCode::kUnavailable, problem);
  }

  const WebhookOptions& options_;
  const std::chrono::milliseconds lame_duck_;
  const crds::ClusterPolicy policy_;
  const ResourcePlan plan_ = plan_resources(process_limits());
  const std::jthread heap_trimmer_ = start_heap_trimmer(plan_.limits.memory);
  MemoryPool reviews_{plan_.reviews};
  MemoryPool imports_{plan_.imports};
  webhook::DecisionScheduler scheduler_;
  const std::shared_ptr<prometheus::Registry> registry_;
  webhook::AdmissionMetrics metrics_{*registry_};
  const std::unique_ptr<kube::Client> client_;
  estimator::ClusterViewStore view_;
  ViewMetrics view_metrics_{*registry_};
  webhook::ClusterViewKeeper keeper_;
  webhook::ConfigMapTableSource tables_;
  webhook::ClusterObjects objects_;
  const std::shared_ptr<http::RenewedCertificateSource> certificates_;
  webhook::AdmissionHandler handler_{{.cluster = &view_,
                                      .tables = &tables_,
                                      .objects = &objects_,
                                      .metrics = &metrics_,
                                      .memory = &reviews_,
                                      .decision_memory = plan_.decision,
                                      .imports = &imports_,
                                      .import_memory = plan_.import,
                                      .scheduler = &scheduler_,
                                      .policy = policy_}};
  http::Server server_;
  OpsServers ops_;
};

}  // namespace

int run_webhook_command(const std::vector<std::string>& arguments) {
  WebhookOptions options;
  const po::options_description description = describe(options);
  if (const std::optional<int> code = read_command_line(kCommand, description, arguments)) {
    return *code;
  }
  const Result<std::optional<webhook::CertificateRotatorOptions>> rotation =
      rotation_of(options.certificates);
  if (!rotation) {
    return wrong_usage(kCommand, rotation.error().message);
  }
  const Result<std::chrono::milliseconds> lame_duck = duration_option("lame-duck", options.lame_duck);
  if (!lame_duck) {
    return wrong_usage(kCommand, lame_duck.error().message);
  }
  const Result<crds::ClusterPolicy> policy = policy_of(options.policy);
  if (!policy) {
    return wrong_usage(kCommand, policy.error().message);
  }
  if (options.port < 0 || options.port > 65535) {
    return wrong_usage(kCommand, "--port must lie between 0 and 65535");
  }
  if (options.workers < 0 || options.workers > 256) {
    return wrong_usage(kCommand, "--workers must lie between 0 and 256");
  }
  if (const Result<void> prepared = prepare_server(options.server); !prepared) {
    return wrong_usage(kCommand, prepared.error().message);
  }
  return serve(options.server, [&](ServerParts parts) {
    return std::make_unique<WebhookProcess>(options, *lame_duck, *policy, *rotation, std::move(parts));
  });
}

}  // namespace plimsoll::process
