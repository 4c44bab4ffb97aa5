// The plan of an attempt: the estimate for its trainers, for the job's status, and the file for its
// containers.
//
//   AttemptPlan plan = plan_attempt(job, attempt, graph, cluster, &budget);
//
// The file is /etc/plimsoll/plan.json:
//
//  {"gpuModel", "trainers", "perNode", "globalBatchSize", "batchSizePerTrainer", "gradientAccumulation",
//   "peak": {...}, "sharding": {...}, "torchrec": {...}}
//
// `sharding` is the output of `plimsoll shard -o json`, `torchrec` that of -o torchrec (docs/cli.md); both
// are absent when the model has no tables. A job that trains through host memory has /etc/plimsoll/swap.json besides, the
// output of `plimsoll swap -o json`, which plimsoll.harmony executes. Equal inputs give equal plans. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/budget.h"
#include "crds/global_batch.h"
#include "crds/training_job.h"
#include "crds/training_job_status.h"
#include "estimator/provisioner/cluster_view.h"
#include "estimator/trace/trace.h"

namespace plimsoll::controllers {

struct AttemptPlan {
  Json estimate;                     // status.estimate; null when none could be made
  std::optional<Bytes> upper_bound;  // of the fullest trainer
  Json throughput{};                 // status.throughput; null when it is not known
  std::int64_t global_batch = 0;     // samples of an optimizer step
  crds::BatchSplit batch{};          // of one replica; 0 samples if it cannot be divided among the trainers
  Bytes learned{};                   // the part of it that was learned from earlier jobs
  std::string text;                  // of plan.json
  std::string swap_text;             // of swap.json; empty: the job trains in GPU memory
  Json swap{};                       // status.swapPlan; null: likewise
  std::string how;                   // "a swap plan (vPP, ...): ..."; empty: likewise
  std::optional<Bytes>
      predicted_host_memory{};  // of a pod, while each trainer loads the model, unless the job says otherwise
  Bytes host_memory{};          // that the trainer's container asks for; 0: as the template says
  Bytes shared_memory{};        // of its /dev/shm; 0: the container runtime's default
  std::string problem;          // why there is no estimate, or why the job does not fit; else empty
  std::string reason;           // CamelCase, of the condition Estimated
};

// `job` has its tables; `attempt` its GPU model and trainers. A plan that the budget does not allow, or that
// has too many shards to be written, is left out: `problem` says so.
// `earlier` attempts that ran out of memory under a swap plan leave less of each GPU to the next.
AttemptPlan plan_attempt(const crds::TrainingJob& job, const crds::Attempt& attempt,
                         const estimator::TraceFile* graph, const estimator::ClusterView& cluster,
                         Budget* budget, const std::vector<crds::Attempt>& earlier = {});

}  // namespace plimsoll::controllers
