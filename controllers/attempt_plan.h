// The plan of an attempt: the estimate for its trainers, for the job's status, and the file for its
// containers.
//
//   AttemptPlan plan = plan_attempt(job, attempt, graph, cluster, &budget);
//
// The file is /etc/plimsoll/plan.json:
//
//  {"gpuModel", "trainers", "perNode", "batchSizePerTrainer", "peak": {...}, "sharding": {...}, "torchrec": {...}}
//
// `sharding` is the output of `plimsoll shard -o json`, `torchrec` that of -o torchrec (docs/cli.md); both
// are absent when the model has no tables. Equal inputs give equal plans. Pure; any thread.
#pragma once

#include <optional>
#include <string>

#include "base/budget.h"
#include "crds/training_job.h"
#include "crds/training_job_status.h"
#include "estimator/provisioner/cluster_view.h"
#include "estimator/trace/trace.h"

namespace plimsoll::controllers {

struct AttemptPlan {
  Json estimate;                     // status.estimate; null when none could be made
  std::optional<Bytes> upper_bound;  // of the fullest trainer
  Bytes learned{};                   // the part of it that was learned from earlier jobs
  std::string text;                  // of plan.json
  std::string problem;               // why there is no estimate, or why the job does not fit; else empty
  std::string reason;                // CamelCase, of the condition Estimated
};

// `job` has its tables; `attempt` its GPU model and trainers. A plan that the budget does not allow, or that
// has too many shards to be written, is left out: `problem` says so.
AttemptPlan plan_attempt(const crds::TrainingJob& job, const crds::Attempt& attempt,
                         const estimator::TraceFile* graph, const estimator::ClusterView& cluster,
                         Budget* budget);

}  // namespace plimsoll::controllers
