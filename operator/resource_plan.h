// ResourcePlan: how a server divides the memory and the processors that it was given (base/cgroup.h), so that
// all that it does at once stays below its limit. docs/tenancy.md has the table.
//
//   const ResourcePlan plan = plan_resources(process_limits());
//   MemoryPool reviews(plan.reviews);
//
// Each kind of work has a share of its own: work that holds memory of one share and waits for another could
// otherwise wait for itself.
#pragma once

#include "base/bytes.h"
#include "base/cgroup.h"

namespace plimsoll::process {

struct ResourcePlan {
  ProcessLimits limits;
  Bytes bodies;       // requests that are being received
  Bytes reviews;      // requests that are handled, before and beside the decision
  Bytes decision;     // of each turn: those of all turns are a quarter of the memory
  Bytes imports;      // what decisions that read a ConfigMap take on top, together
  Bytes import;       // ... and each
  Bytes table_cache;  // what was parsed of ConfigMaps
  // Of each reconciler, imports included: a half of the memory for all, since an operator has no reviews.
  Bytes reconcile;
  int deciders = 0;     // admissions that compute at the same time (DecisionScheduler::for_cpus)
  int reconcilers = 0;  // jobs that the operator looks after at the same time
  int connections = 0;
};

ResourcePlan plan_resources(const ProcessLimits& limits);

}  // namespace plimsoll::process
