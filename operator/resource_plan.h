// ResourcePlan: how a server divides its memory and processors (base/cgroup.h), so that all concurrent work
// stays below its limits. docs/tenancy.md has the table.
//
//   const ResourcePlan plan = plan_resources(process_limits());
//   MemoryPool reviews(plan.reviews);
//
// Each kind of work has its own share: work that holds memory of a share and waits for more of the same one
// could wait for itself.
#pragma once

#include "base/bytes.h"
#include "base/cgroup.h"

namespace plimsoll::process {

struct ResourcePlan {
  ProcessLimits limits;
  Bytes bodies;       // for bodies of requests
  Bytes reviews;      // for handling requests, without the decision
  Bytes decision;     // for each turn; all turns together have a quarter of the memory
  Bytes imports;      // for all decisions that read a ConfigMap, in addition
  Bytes import;       // for each of them
  Bytes table_cache;  // for parsed ConfigMaps
  // For each reconciler, imports included; all together have half of the memory, since an operator has no
  // reviews.
  Bytes reconcile;
  int deciders = 0;     // admissions that compute at the same time (DecisionScheduler::for_cpus)
  int reconcilers = 0;  // jobs that the operator reconciles at the same time
  int connections = 0;
};

ResourcePlan plan_resources(const ProcessLimits& limits);

}  // namespace plimsoll::process
