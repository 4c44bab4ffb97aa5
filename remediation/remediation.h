// remediate() decides what happens to a job whose attempt has ended without success: whether it is restarted,
// on which size, after how long, with a message that a user can act on.
//
//   Remediation next = remediate({.job = &job, .gpus = &gpus, .attempts = &status.attempts});
//   if (next.restart) patch(job, next.patch); else fail(next.reason);
//
// For any history: after a GPU ran out of memory the job never runs again on that size, nor on a size with
// neither more trainers nor larger GPUs, unless the memory was held by other processes on the card: then the size is not
// the cause, and the next attempt keeps off that node. The other exception: it may not be resized (mode Off or Initial), and a
// rule of its failure policy restarts it unchanged. A size never exceeds provisioning.maxTrainers, nor
// failurePolicy.oomMaxGrowth times the trainers that ran out. A loop of failures ends: all restarts count
// towards failurePolicy.maxRestarts, except those after a preemption, the first few after a failure of the
// infrastructure, and those that a rule exempts; these are limited, too.
//
// docs/remediation.md has the table of causes and actions. Pure but for the budget; any thread. The inputs
// are not kept.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/budget.h"
#include "base/json/json.h"
#include "crds/memory_profile.h"
#include "crds/training_job.h"
#include "crds/training_job_status.h"
#include "estimator/catalog/inventory.h"
#include "estimator/trace/trace.h"

namespace plimsoll::remediation {

struct RemediationInputs {
  const crds::TrainingJob* job = nullptr;                      // tables_from resolved
  const estimator::TraceFile* graph = nullptr;                 // what spec.model.graph refers to, or null
  const std::vector<estimator::AvailableGpu>* gpus = nullptr;  // present in the cluster
  const crds::MemoryProfile* profile = nullptr;                // of the job's family, or null
  const std::vector<crds::Attempt>* attempts = nullptr;        // oldest first; the last one has ended
  std::int64_t restarts_counted = 0;                           // towards failurePolicy.maxRestarts
  std::int64_t restarts_uncounted = 0;
  double min_share_of_asked = 0;  // as in estimator::ProvisionRequest, and so is the next
  bool swap_training = true;
  // For the search of a new size; where it is exceeded the job grows by failurePolicy.oomBumpUpRatio. Null:
  // no limit.
  Budget* budget = nullptr;
};

struct Remediation {
  bool restart = false;  // else the job has failed finally
  bool counts = true;    // towards maxRestarts
  // CamelCase, for the condition. Restarting: the outcome's name. Failed: "CodeError", "ReachedMaxRestarts",
  // "MaxResourcesReached", "ResizingNotAllowed", "FailurePolicyRule".
  std::string reason;
  std::string message;            // what happened, what was changed, what to do
  std::chrono::seconds delay{0};  // before the next attempt
  // JSON patch of the TrainingJob (add and replace only): trainers, selectors, GPU limits, annotations of the
  // decision, host memory. Empty: nothing changes.
  Json patch{::Json::arrayValue};
  bool expandable_segments = false;      // of PyTorch's allocator, in the next attempt
  std::optional<Bytes> shared_memory{};  // of its /dev/shm at least
};

// The last attempt must have ended, and not in success.
Remediation remediate(const RemediationInputs& inputs);

}  // namespace plimsoll::remediation
