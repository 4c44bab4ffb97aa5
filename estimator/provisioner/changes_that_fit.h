// changes_that_fit(): what to change in a job that fits no GPU of the cluster, so that it does.
//
//   for (const Change& change : changes_that_fit(request, decide).found) warn(change.text());
//
// Each change was tried: with it the job fits as many of the GPU model as it says. Pure; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "estimator/provisioner/provisioner.h"

namespace plimsoll::estimator::inline provisioner {

using Decide = std::function<Provision(const ProvisionRequest&)>;

struct ChangesThatFit {
  std::vector<Change> found;
  bool all_tried = true;  // false: the time or the work was used up before
};

// The cheapest changes first, of those with which the requested trainers are enough, then of others: those that
// leave what is computed as it is, then those that take longer, or another library, then those that change the
// training. None contains another with which the requested trainers are enough. `request.budget` is not null. The
// work is limited, and to half of the time that is left. `decide` is provision(), without changes.
ChangesThatFit changes_that_fit(const ProvisionRequest& request, const Decide& decide);

}  // namespace plimsoll::estimator::provisioner
