// What the examples of controllers/ leave open.
#pragma once

#include <prometheus/registry.h>

#include "controllers/attempt_plan.h"
#include "controllers/attempt_pods.h"
#include "controllers/calibration.h"
#include "controllers/child_writer.h"
#include "controllers/dcgm.h"
#include "controllers/departed_pods.h"
#include "controllers/gpu_inventory.h"
#include "controllers/job_children.h"
#include "controllers/job_events.h"
#include "controllers/job_record.h"
#include "controllers/learning.h"
#include "controllers/training_job_controller.h"
#include "controllers/training_job_executor.h"
#include "controllers/training_job_planner.h"
#include "kube/http_client.h"
#include "tests/header_examples/anything.h"

namespace plimsoll::examples {
using namespace controllers;

struct gpu_hours_example {
  crds::JobStatus status;
  crds::Attempt ended_attempt;
};
struct attempt_plan_example {
  crds::TrainingJob job;
  crds::Attempt attempt;
  const estimator::TraceFile* graph;
  estimator::ClusterView cluster;
  Budget budget;
};
struct attempt_pods_example {
  kube::Client& client;
  Json job;
  std::string orphan;
  Clock::WallTime now;
  kube::CallOptions call;
  void wait(const std::string& message);
};
struct calibration_example {
  kube::Client& client;
  prometheus::Registry registry;
};
struct child_writer_example {
  kube::Client& client;
  Json job, wanted;
  kube::CallOptions call;
};
struct dcgm_example {
  crds::Attempt attempt;
  kube::CallOptions options;
};
struct departed_pods_example {
  kube::SharedObject pod;
};
struct gpu_inventory_example {
  kube::Client& client;
};
struct job_children_example {
  kube::Client& client;
  crds::TrainingJob job;
  crds::Attempt attempt;
  AttemptPlan plan;
};
struct job_events_example {
  PassContext context;
  Json object;
};
struct job_record_example {
  PassContext context;
  Json object;
  crds::TrainingJob job;
  kube::CallOptions call;
};
struct learning_example {
  LearnedJob job;
  const crds::ProfileSample* known;
  std::vector<estimator::AvailableGpu> gpus;
  std::vector<crds::ProfileSample> samples;
  JsonEdit status;
};
struct training_job_controller_example {
  kube::Client& client;
  estimator::ClusterViewStore cluster;
  estimator::ModelSource* models;
  kube::EventRecorder* events;
};
struct training_job_executor_example {
  PassContext context;
  Json object;
};
struct training_job_planner_example {
  crds::TrainingJob job;
  crds::JobStatus status;
  const Clock& clock;
};

}  // namespace plimsoll::examples
