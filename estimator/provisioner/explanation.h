// The texts of a decision: why a candidate was chosen, or why it cannot run the job. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "crds/training_job.h"
#include "estimator/provisioner/candidates.h"

namespace plimsoll::estimator::inline provisioner {

// "16 x A100-80GB"
std::string gpus_text(std::int64_t count, const std::string& model);

// One sentence: what is given, how that compares with the original request, and the highest peak.
std::string explain_choice(const crds::TrainingJobSpec& spec, const crds::Trainers& requested,
                           const Candidate& chosen, std::int64_t trainers, Bytes peak);

// The limits of the spec leave no number of trainers for this candidate.
std::string explain_no_count(const crds::ProvisioningSpec& provisioning, const Candidate& candidate);

// The cluster has fewer GPUs of the model than `trainers`.
std::string explain_capacity(const Candidate& candidate, std::int64_t trainers);

// "70 GiB", and how much of that earlier attempts needed beyond their estimate.
std::string usable_text(Bytes usable, Bytes shortfall);

// The event reason for an exceeded budget: "DeadlineExceeded", "Cancelled" or "TooLarge".
const char* event_reason_of(const Error& exceeded);

inline constexpr std::size_t kWarningLimit = 256;  // longer admission warnings may be cut by the API server

// The warning for a job that is admitted as the user wrote it.
std::string unchanged_warning(const std::string& reason, const crds::TrainingJobSpec& spec);

}  // namespace plimsoll::estimator::provisioner
