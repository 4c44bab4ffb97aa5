// The pods of a job's earlier attempts that have not ended yet. Two attempts of a job must never run at the
// same time, because both would write the same checkpoints; so an attempt begins only when this finds none.
//
//   Result<RemainingPods> pods = remaining_pods(client, job, {.except_job_uid = orphan}, now, call);
//   if (pods && pods->count > 0) wait(pods->message);
//
// Reads from the API server, not from a cache. A pod counts if it has the job's label and has not ended, and
// if its Job has the name of an attempt of this job, and is deleted, is an orphan, or belongs to this
// TrainingJob or to a deleted one of its name. A pod that only has the label, or whose Job belongs to another
// controller, does not count: it cannot delay the job.
//
// Deletes nothing, least of all by force: a node that does not answer may still run the container. Any
// thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/json/json.h"
#include "base/result.h"
#include "kube/client.h"

namespace plimsoll::controllers {

struct RemainingPods {
  std::int64_t count = 0;
  // A pod's grace period has been over for more than a minute: its node may be lost.
  bool stuck = false;
  std::string message;  // the pods and their nodes, the first few by name; what to do if they are stuck
};

struct WhichPods {
  std::string except_job_uid{};          // pods of this Job do not count
  std::string terminating_of_job_uid{};  // only pods of this Job count, and only those that were deleted
};

Result<RemainingPods> remaining_pods(kube::Client& client, const Json& job, const WhichPods& which,
                                     Clock::WallTime now, const kube::CallOptions& call);

}  // namespace plimsoll::controllers
