// The texts of a decision: why a candidate was chosen, or why it cannot run the job. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "crds/global_batch.h"
#include "crds/training_job.h"
#include "estimator/host_training/swap_training.h"
#include "estimator/provisioner/candidates.h"
#include "estimator/types/request.h"

namespace plimsoll::estimator::inline provisioner {

// A setting that may take fewer trainers.
inline constexpr const char* kExpandableSegments =
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in the template, which avoids fragmentation";

// What is given to a job.
struct Choice {
  const Candidate* candidate = nullptr;
  std::int64_t trainers = 0;
  crds::BatchSplit batch;
  Bytes peak;  // of one trainer, at most
  // As in ProvisionRequest, where it is the reason for this number; else 0.
  double min_share_of_asked = 0;
  bool by_throughput = false;  // fewer would hold the job, and not be fast enough
};

// "25%"
std::string share_text(double share);

// One sentence: what is given, how that compares with the original request, and the highest peak.
std::string explain_choice(const crds::TrainingJobSpec& spec, const crds::Trainers& requested,
                           const Choice& choice);

// One sentence: the GPUs that train the job through host memory, how that compares with the original request, and how long it
// takes.
std::string explain_swap(const crds::Trainers& requested, const Candidate& candidate,
                         const SwapTraining& swap);

// No number of trainers of this candidate divides the global batch; and which batches near it the least number divides.
std::string explain_no_division(const crds::TrainingJobSpec& spec, const Candidate& candidate);

// The limits of the spec leave no number of trainers for this candidate.
std::string explain_no_count(const crds::ProvisioningSpec& provisioning, const Candidate& candidate);

// The cluster has fewer GPUs of the model than `trainers`.
std::string explain_capacity(const Candidate& candidate, std::int64_t trainers);

// Why a trainer's memory exceeds a GPU: the largest tensor of the estimate, and why more trainers would not help where they would not. Empty for
// an estimate that does not know its tensors.
std::string explain_excess(const crds::TrainingJobSpec& spec, const Estimate& estimate);

// "70 GiB", and how much of that earlier attempts needed beyond their estimate.
std::string usable_text(Bytes usable, Bytes shortfall);

// The event reason for an exceeded budget: "DeadlineExceeded", "Cancelled" or "TooLarge".
const char* event_reason_of(const Error& exceeded);

inline constexpr std::size_t kWarningLimit = 256;  // longer admission warnings may be cut by the API server

// The warning for a job that is admitted as the user wrote it.
std::string unchanged_warning(const std::string& reason, const crds::TrainingJobSpec& spec);

}  // namespace plimsoll::estimator::provisioner
