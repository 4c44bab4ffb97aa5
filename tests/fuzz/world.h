// The cluster that fuzzed jobs are decided for, and the ConfigMaps that they may name.
//
//   Budget budget(decision_limits(std::chrono::milliseconds(50)));
//   const Result<DecidedJob> decided = decide(job, budget);
//
// Built once, at the first use. Any thread.
#pragma once

#include "base/budget.h"
#include "base/json/view.h"
#include "base/result.h"
#include "estimator/provisioner/cluster_view.h"
#include "estimator/provisioner/model_source.h"
#include "estimator/provisioner/provisioner.h"

namespace plimsoll::testing {

// 64 nodes of 8 each of five GPU models; and a profile of the family "ads" in the namespace "ads".
const estimator::ClusterView& fuzz_cluster();

// ConfigMaps in any namespace, by the key that is requested: "tables.csv" (40 tables), "many.csv" (20,000
// rows, 100,000 tables), "graph.json" (a small graph, recorded on the CPU and as if on CUDA), "long.json"
// (one of 3,000 blocks). Other keys are not found.
estimator::ModelSource& fuzz_models();

// What the webhook and the operator do with a TrainingJob: decode it, validate it, read what it names and
// decide. Errors: of all but the last.
struct DecidedJob {
  crds::TrainingJob job;
  estimator::Provision provision;
};
Result<DecidedJob> decide(const JsonView& object, Budget& budget);

// As the webhook gives them to a decision that may take so long.
Budget::Limits decision_limits(std::chrono::milliseconds time);

}  // namespace plimsoll::testing
