// What the examples of webhook/ leave open.
#pragma once

#include "estimator/provisioner/model_source.h"
#include "http/certificate_source.h"
#include "http/server.h"
#include "kube/client.h"
#include "kube/reflector.h"
#include "tests/header_examples/anything.h"
#include "webhook/admission_handler.h"
#include "webhook/admission_review.h"
#include "webhook/certificate_plan.h"
#include "webhook/certificate_rotator.h"
#include "webhook/cluster_objects.h"
#include "webhook/cluster_view_keeper.h"
#include "webhook/decision_scheduler.h"
#include "webhook/mutate.h"
#include "webhook/mutate_workload.h"
#include "webhook/progress_watch.h"

namespace plimsoll::examples {
using namespace webhook;

struct admission_handler_example {
  estimator::ClusterViewStore store;
  estimator::ModelSource& tables;
  AdmissionMetrics& metrics;
  http::ServerOptions options;
  std::shared_ptr<http::CertificateSource> certificates;
};
struct admission_review_example {
  std::string body;
  Anything reply(int status, const std::string& body);
  AdmissionAnswer handle(const AdmissionRequest& request);
};
struct certificate_plan_example {
  CertificateSecret held;
  bool newest_is_trusted;
  Clock::WallTime now;
  void write(const CertificateSecret& secret);
};
struct certificate_rotator_example {
  using Server = http::Server;
  kube::Client& client;
  CertificateRotatorOptions options;
  http::ServerOptions server_options;
  http::Handler handler;
};
struct cluster_objects_example {
  kube::Client& client;
  Budget budget{{}};
};
struct cluster_view_keeper_example {
  kube::Client& client;
  estimator::GpuCatalog catalog;
  estimator::ClusterViewStore store;
};
struct decision_scheduler_example {
  DecisionScheduler& scheduler;
  std::string namespace_name;
  DecisionScheduler::Time deadline;
  http::Request request;
  Anything keep_the_job(const Error& error);
  AdmissionRequest review;
  void decide(const AdmissionRequest& request, std::stop_token stop);
};
struct metrics_example {
  prometheus::Registry registry;
  std::chrono::milliseconds duration;
};
struct mutate_example {
  AdmissionRequest request;
  std::shared_ptr<const estimator::ClusterView> view;
  estimator::ModelSource& tables;
  Budget budget;
  void reply(const AdmissionAnswer& answer);
};
struct profile_quota_example {
  kube::Reflector::Options options;
  std::string key;
};
struct mutate_workload_example {
  AdmissionRequest request;
  MutateInputs inputs;
  Anything reply(const AdmissionAnswer& answer);
};
struct progress_watch_example {
  ProgressWatch watch;
  ProgressWatch::Time now, deadline;
  void be_not_ready(const Error& error);
};
struct table_source_example {
  kube::Client& client;
  Budget budget;
};

}  // namespace plimsoll::examples
