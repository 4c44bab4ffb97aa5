// Enlarges the /dev/shm of the container that trains, after an attempt that found it full.
//
//   SharedMemoryGrowth more = enlarge_shared_memory(job, attempt, 460_GiB);
//   if (more.change == SharedMemoryGrowth::Change::kEnlarged) { mount(more.now); patch(job, more.memory.patch); }
//
// What a process writes to /dev/shm is memory of its container (kubernetes.io: "Memory backed emptyDir"): without a larger limit the
// kernel would kill the container instead. So the limit grows by what is added, as far as a node has it. Pure; any thread.
#pragma once

#include "base/bytes.h"
#include "crds/shared_memory.h"
#include "crds/training_job.h"
#include "crds/training_job_status.h"
#include "remediation/host_memory.h"

namespace plimsoll::remediation {

struct SharedMemoryGrowth {
  enum class Change {
    kEnlarged,
    kAtLimit,        // it is half of what the container can have
    kNotPlimsolls,   // `given` is the node's or a volume that is not in memory, and stays
    kIsAllMemory,    // `given` has no size of its own: only more memory helps
    kOtherContainer  // it was another container's
  };
  Change change = Change::kOtherContainer;
  crds::SharedMemory given{};  // by the template
  Bytes before{};
  Bytes now{};
  HostMemory memory{};  // of the container, where it is enlarged; its patch may be empty
};

// To what a pod of its GPUs usually needs, at least twice as much as the attempt had, and at most half of what the container can
// have: as large as Linux makes a tmpfs (Documentation/filesystems/tmpfs.rst), because the processes need the rest. `most`: memory
// that a node can give to the container; 0: unknown.
SharedMemoryGrowth enlarge_shared_memory(const crds::TrainingJob& job, const crds::Attempt& attempt,
                                         Bytes most);

}  // namespace plimsoll::remediation
