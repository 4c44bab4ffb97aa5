// ClusterPolicy: what the platform team of a cluster sets for all of its jobs (docs/adoption.md): the chart's values
// `provisioning`, as options of both servers.
//
//   ClusterPolicy policy{.mode = ProvisioningMode::kInitial};
//   policy.settle_mode(job.spec.provisioning, mode_of_label("Off"));
//
// Plain values; any thread.
#pragma once

#include <optional>
#include <string_view>

#include "crds/feature_gates.h"
#include "crds/training_job.h"

namespace plimsoll::crds {

// A label of namespaces, and an annotation of workloads of other kinds.
inline constexpr const char* kModeKey = "plimsoll.dev/mode";
// Of provisioning.minShareOfAsked: a decision that leaves a job less than a quarter is more likely a wrong description of the job than
// a right estimate.
inline constexpr const char* kMinShareOfAsked = "25%";

struct ClusterPolicy {
  ProvisioningMode mode = ProvisioningMode::kAuto;  // of TrainingJobs that name none
  bool advice_only = false;                         // whatever jobs and namespaces say
  double min_share_of_asked = 0;  // of the requested trainers, which a decision leaves a job at least
  FeatureGates gates{};

  // Sets the mode of a job; `of_namespace` is what the label of its namespace says, if it has one. A job that names no mode
  // gets it written into it with its decision (estimator/provisioner/patch.h), except with advice_only, which may end.
  void settle_mode(ProvisioningSpec& job, std::optional<ProvisioningMode> of_namespace) const;
};

// Nothing for a text that is none of the modes, which counts as no label.
std::optional<ProvisioningMode> mode_of_label(std::string_view text);

}  // namespace plimsoll::crds
