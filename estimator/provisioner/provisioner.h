// provision(): the webhook's decision: which GPU model, and how many trainers, for one job on one cluster.
//
//   ProvisionRequest request{.job = &job, .gpus = &gpus, .profile = profile};
//   Provision answer = provision(request);
//   if (answer.decided()) patch_with(*answer.decision); else warn(answer.reason);
//
// For every allowed GPU model that is present: reserved memory (estimate) -> what is left for embeddings ->
// smallest number of trainers whose plan fits (sharder). The most loaded trainer decides, never the mean (AMP,
// Finding 4). The number of trainers changes the communication cost and the share of each, so each number has
// its own estimate (Findings 7 and 9). Bounds exclude numbers and models before any search. When nothing fits or
// nothing can be estimated, the user's values stay and `reason` says why (AMP's fallback). With placement HBMOrSwap, what fits
// nowhere trains through host memory, if it can: through_host.h. Pure; any thread; `budget` bounds the work.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/budget.h"
#include "base/bytes.h"
#include "base/json/json.h"
#include "crds/global_batch.h"
#include "crds/memory_profile.h"
#include "crds/training_job.h"
#include "estimator/catalog/inventory.h"
#include "estimator/estimate/estimate.h"
#include "estimator/host_training/swap_training.h"
#include "estimator/provisioner/size_exclusion.h"
#include "estimator/sharder/sharder.h"
#include "estimator/speed/throughput.h"

namespace plimsoll::estimator::inline provisioner {

// The limit on the memory of one decision, in both servers. The largest models in use (Llama 3 405B, 10,000
// tables on 4,096 trainers) take a quarter of it.
inline constexpr Bytes kDecisionMemory = 128_MiB;

struct ProvisionRequest {
  const crds::TrainingJob* job = nullptr;           // tables_from resolved into spec.model.dlrm->tables
  const TraceFile* graph = nullptr;                 // what spec.model.graph refers to, once it has been read
  const std::vector<AvailableGpu>* gpus = nullptr;  // present in the cluster
  const crds::MemoryProfile* profile = nullptr;     // of the job's family; may be null
  Method method = Method::kPlimsoll;
  Budget* budget = nullptr;  // null: no limit
  // Never reused (size_exclusion.h). What the estimate of a failed size lacked is added to all other estimates,
  // as part of the allocator's slack.
  std::vector<FailedSize> failed = {};
  // Whether to look for changes with which a job fits that does not.
  bool suggest = false;
  // As if the template had PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.
  bool expandable_segments = false;
  // Of the requested trainers, which the decision leaves the job at least (crds/cluster_policy.h). Not of a swap plan, which runs in one
  // node and which the job asks for.
  double min_share_of_asked = 0;
  // False: no swap plans, because the feature gate SwapTraining is off (crds/feature_gates.h).
  bool swap_training = true;
  // Whether `alternatives` has the least number of each GPU model that can run the job; else a model is searched only as far as it may be
  // the best, which takes less time.
  bool every_gpu_model = false;
  // Skips the estimate: minTrainers hold the job on any GPU.
  bool unestimated = false;
};

// What one GPU model would take.
struct Alternative {
  std::string gpu_model;
  bool fits = false;
  bool searched = false;      // false: a bound excluded it, or another model was already better
  std::int64_t trainers = 0;  // when !fits: the largest number tried, or the bound
  std::int64_t per_node = 0;
  double cost = 0;                // trainers times the model's relative cost
  double iteration_seconds = 0;   // of these trainers, where they fit; 0: not known
  double samples_per_second = 0;  // likewise
  std::string reason;             // why it fits, or was not searched, or does not fit
};

// Changes to a job that does not fit, with which it would.
struct Change {
  std::vector<std::string> changes;  // "training.activationCheckpointing: Full"
  std::string gpu_model;
  std::int64_t trainers = 0;

  std::string text() const;  // "fits 16 x A100-80GB with ..."
};

struct Decision {
  std::string gpu_model;
  std::vector<std::string> product_labels;  // what the node selector (one) or affinity (several) must say
  std::int64_t trainers = 0;
  std::int64_t per_node = 0;
  crds::BatchSplit batch{};                // of one replica of the model
  std::string reason;                      // one sentence for people
  Estimate estimate;                       // of the most loaded trainer, embeddings included
  Plan plan;                               // empty when the model has no embedding tables
  Bytes capacity;                          // of one GPU, as its nodes report it
  std::optional<Throughput> throughput{};  // nothing: it is not known
  std::optional<Throughput> requested{};   // of the requested trainers, if any
  // With provisioning.placement HBMOrSwap, where nothing fits in GPU memory. The batch is then all of a step's samples, which
  // one process takes.
  std::optional<SwapTraining> swap{};
  std::optional<Bytes> host_memory_per_trainer{};  // of embedding tables; nothing: as the job says
  Bytes host_memory{};  // that the trainer's container asks for; 0: as the template says
};

struct Provision {
  std::optional<Decision> decision;
  // CamelCase. With a decision: "Provisioned", "AlreadyRight", "Recommended" (mode Off). Without:
  // "NoFittingGPU", "NoGPUInCluster", "ModelUnknown", "EstimateFailed", "Disabled"; and when the
  // budget is exceeded, naming the value that was too large, "DeadlineExceeded", "TooLarge", "Cancelled".
  std::string event_reason;
  std::string reason;                     // one sentence
  std::vector<std::string> warnings;      // for kubectl, each at most 256 characters
  std::vector<Alternative> alternatives;  // every allowed model that is present, best first
  std::vector<Change> changes;            // with which a job fits that does not; the cheapest first
  bool decided() const { return decision.has_value(); }
};

Provision provision(const ProvisionRequest& request);

// Whether provisioning.onUnfit rejects the job: it fits no allowed GPU of the cluster. Where there is none, or nothing could be estimated,
// that is not known, and it is admitted.
bool rejects(const crds::ProvisioningSpec& provisioning, const Provision& answer);

// Whether each trainer holds less when there are more of them: embedding tables are spread over all trainers,
// or the trainers share parameters, experts, gradients, optimizer state or a global batch.
bool more_trainers_take_less(const crds::TrainingJobSpec& spec);

}  // namespace plimsoll::estimator::provisioner
