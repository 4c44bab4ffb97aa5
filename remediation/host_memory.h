// Raises the host memory of a container that ran out of it, or that is to hold more.
//
//   HostMemory more = raise_host_memory(job, 460_GiB, "trainer");
//   if (more.change == HostMemory::Change::kRaised) patch(job, more.patch);
//
// Pure; any thread.
#pragma once

#include <string>

#include "base/bytes.h"
#include "base/json/json.h"
#include "crds/training_job.h"

namespace plimsoll::remediation {

struct HostMemory {
  enum class Change {
    kRaised,
    kAtLimit,    // it has as much as a node can give
    kUnlimited,  // the container has neither limit nor request
  };
  Change change = Change::kUnlimited;
  Bytes before{};  // the limit, else the request
  Bytes now{};
  Json patch{::Json::arrayValue};
};

// By failurePolicy.oomBumpUpRatio, and oomMinBumpUp at least, and to `predicted` where that is more; up to `most` (0: no bound). Limit and request
// keep their ratio. `container`: a container or init container of the template; empty: the trainer.
// One that the template does not have (a mesh's proxy) is kUnlimited. `asked`: by Plimsoll for the trainer in the
// attempt, whatever the template says; 0: nothing. `predicted`: that the trainer takes; 0: not known.
HostMemory raise_host_memory(const crds::TrainingJob& job, Bytes most, const std::string& container = {},
                             Bytes asked = {}, Bytes predicted = {});

// What the container that trains may have: its limit, else its request; 0: neither is given.
Bytes trainer_memory(const crds::TrainingJob& job, Bytes asked);

// The trainer's, by `more` in limit and request alike: what its /dev/shm holds counts against them.
HostMemory add_host_memory(const crds::TrainingJob& job, Bytes more, Bytes most, Bytes asked);

}  // namespace plimsoll::remediation
