// What the examples of operator/ leave open.
#pragma once

#include <boost/program_options/options_description.hpp>

#include "base/memory_pool.h"
#include "kube/client.h"
#include "operator/certificate_options.h"
#include "operator/feature_metrics.h"
#include "operator/leadership.h"
#include "operator/metrics_access.h"
#include "operator/metrics_server.h"
#include "operator/ops_server.h"
#include "operator/ops_servers.h"
#include "operator/policy_options.h"
#include "operator/process.h"
#include "operator/resource_metrics.h"
#include "tests/header_examples/anything.h"

namespace plimsoll::examples {
using namespace process;

struct certificate_options_example {
  CertificateOptions options;
  boost::program_options::options_description description;
  std::shared_ptr<http::RenewedCertificateSource> certificates;
  kube::Client& client;
};
struct feature_metrics_example {
  crds::ClusterPolicy policy;
};
struct leadership_example {
  kube::Client& client;
  LeadershipOptions options;
  std::optional<kube::LeaseOptions> lease;
  prometheus::Registry& registry;
  struct {
    void start();
  } controllers;
  void end_the_process();
};
struct metrics_access_example {
  kube::Client& client;
  http::Request request;
  Collectables collectables;
};
struct metrics_page_example {
  std::shared_ptr<prometheus::Registry> registry;
  ResourcePlan plan;
  ResourceMetrics::Pools pools;
  int workers = 0;
};
struct metrics_server_example {
  std::shared_ptr<prometheus::Registry> registry;
  kube::Client& client;
};
struct ops_server_example {
  std::function<Result<void>()> synced;
};
struct ops_servers_example {
  ServerOptions options;
  std::function<Result<void>()> synced;
  std::shared_ptr<prometheus::Registry> registry;
  kube::Client& client;
};
struct policy_options_example {
  PolicyOptions options;
  boost::program_options::options_description description;
};
struct process_metrics_example {
  std::shared_ptr<prometheus::Registry> registry;
};
struct process_example {
  ServerCommand command;
  boost::program_options::options_description description;
  std::vector<std::string> arguments;
  struct Server : ServerProcess {
    explicit Server(ServerParts parts);
    Result<void> start() override;
    void stop() override;
    std::chrono::milliseconds stop_limit() const override;
  };
};

}  // namespace plimsoll::examples
