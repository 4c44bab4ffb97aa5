// provision(): the decision the webhook makes: which GPU model, and how many trainers, for one job on one
// cluster.
//
//   ProvisionRequest request{.job = &job, .gpus = &gpus, .profile = profile};
//   Provision answer = provision(request);
//   if (answer.decided()) patch_with(*answer.decision); else warn(answer.reason);
//
// For every allowed GPU model that is present: reserved memory (estimate) -> what is left for embeddings ->
// smallest number of trainers whose plan fits (sharder), the most loaded trainer deciding and never the mean
// (AMP, Finding 4). The number of trainers enters the communication cost and the share of each, so it is
// re-estimated with it (Findings 7 and 9). Bounds rule counts and models out before any search. Nothing fits,
// or nothing can be estimated: the user's values stay and `reason` says why (AMP's fallback). Pure; any
// thread; `budget` bounds the work.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/budget.h"
#include "base/bytes.h"
#include "base/json/json.h"
#include "crds/memory_profile.h"
#include "crds/training_job.h"
#include "estimator/catalog/inventory.h"
#include "estimator/estimate/estimate.h"
#include "estimator/provisioner/size_exclusion.h"
#include "estimator/sharder/sharder.h"

namespace plimsoll::estimator::inline provisioner {

// What a decision may take of a process's memory; both servers give each so much. The largest models that are
// trained (Llama 3 405B, 10,000 tables on 4,096 trainers) take a quarter of it.
inline constexpr Bytes kDecisionMemory = 128_MiB;

struct ProvisionRequest {
  const crds::TrainingJob* job = nullptr;           // tables_from resolved into spec.model.dlrm->tables
  const TraceFile* graph = nullptr;                 // what spec.model.graph refers to, once it has been read
  const std::vector<AvailableGpu>* gpus = nullptr;  // present in the cluster
  const crds::MemoryProfile* profile = nullptr;     // of the job's family; may be null
  Method method = Method::kPlimsoll;
  Budget* budget = nullptr;  // null: no limit
  // Never reused (size_exclusion.h); and what the estimate of a failed size lacked is added to all
  // other estimates, as part of the allocator's slack.
  std::vector<FailedSize> failed = {};
  // The model's size is left out: whatever the GPU, minTrainers hold the job.
  bool unestimated = false;
};

// What one GPU model would take.
struct Candidate {
  std::string gpu_model;
  bool fits = false;
  bool searched = false;      // false: a bound ruled it out, or another model was already better
  std::int64_t trainers = 0;  // when !fits: the largest count tried, or the bound
  std::int64_t per_node = 0;
  double cost = 0;     // trainers times the model's relative cost
  std::string reason;  // why it was chosen, or passed over, or does not fit
};

struct Decision {
  std::string gpu_model;
  std::vector<std::string> product_labels;  // what the node selector (one) or affinity (several) must say
  std::int64_t trainers = 0;
  std::int64_t per_node = 0;
  std::string reason;  // one sentence for people
  Estimate estimate;   // of the most loaded trainer, embeddings included
  Plan plan;           // empty when the model has no embedding tables
  Bytes capacity;      // of one GPU, as its nodes report it
};

struct Provision {
  std::optional<Decision> decision;
  // CamelCase. With a decision: "Provisioned", "AlreadyRight", "Recommended" (mode Off). Without:
  // "NoFittingGPU", "NoGPUInCluster", "ModelUnknown", "EstimateFailed", "Disabled"; and for want of budget,
  // naming the value that was too large, "DeadlineExceeded", "TooLarge", "Cancelled".
  std::string event_reason;
  std::string reason;                   // one sentence
  std::vector<std::string> warnings;    // for kubectl, each at most 256 characters
  std::vector<Candidate> alternatives;  // every allowed model that is present, best first
  bool decided() const { return decision.has_value(); }
};

Provision provision(const ProvisionRequest& request);

// Whether each trainer holds less when there are more of them: embedding tables are spread over all trainers,
// or the trainers share parameters, gradients or optimizer state.
bool more_trainers_take_less(const crds::TrainingJobSpec& spec);

}  // namespace plimsoll::estimator::provisioner
