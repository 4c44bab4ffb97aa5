#include "crds/cluster_policy.h"

#include <string>

#include "crds/enums.h"

namespace plimsoll::crds {

std::optional<ProvisioningMode> mode_of_label(std::string_view text) {
  const Result<ProvisioningMode> mode = parse_enum<ProvisioningMode>(std::string(text));
  return mode ? std::optional(*mode) : std::nullopt;
}

void ClusterPolicy::settle_mode(ProvisioningSpec& job, std::optional<ProvisioningMode> of_namespace) const {
  if (advice_only) {
    job.mode = ProvisioningMode::kOff;
    job.mode_given = true;
  } else if (!job.mode_given) {
    job.mode = of_namespace.value_or(mode);
  }
}

}  // namespace plimsoll::crds
