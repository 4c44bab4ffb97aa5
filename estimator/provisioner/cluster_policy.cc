#include "estimator/provisioner/cluster_policy.h"

#include <string>

#include "crds/enums.h"

namespace plimsoll::estimator::inline provisioner {

std::optional<crds::ProvisioningMode> mode_of_label(std::string_view text) {
  const Result<crds::ProvisioningMode> mode = crds::parse_enum<crds::ProvisioningMode>(std::string(text));
  return mode ? std::optional(*mode) : std::nullopt;
}

void ClusterPolicy::settle_mode(crds::ProvisioningSpec& job,
                                std::optional<crds::ProvisioningMode> of_namespace) const {
  if (advice_only) {
    job.mode = crds::ProvisioningMode::kOff;
    job.mode_given = true;
  } else if (!job.mode_given) {
    job.mode = of_namespace.value_or(mode);
  }
}

}  // namespace plimsoll::estimator::provisioner
