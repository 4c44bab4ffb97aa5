// What a container has at /dev/shm, where the ranks of a pod exchange data by NCCL and the workers of a DataLoader leave batches.
//
//   SharedMemory given = shared_memory_of(pod);    // the trainer's, of a template's or a pod's spec
//   if (given.kind == SharedMemory::Kind::kDefault && gpus > 1) warn(usual_shared_memory(gpus));
//
// The admission warns by it, remediation enlarges it, and the controller mounts it. The template may be of any shape. Pure; any
// thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/json/json.h"

namespace plimsoll::crds {

inline constexpr const char* kSharedMemoryDirectory = "/dev/shm";

// What container runtimes give where nothing is mounted: containerd's internal/cri/opts and Docker's --shm-size.
inline constexpr Bytes kDefaultSharedMemory = 64_MiB;

struct SharedMemory {
  enum class Kind {
    kDefault,  // nothing is mounted
    kSized,    // an emptyDir of medium Memory with a sizeLimit
    // The same without one: as large as the pod's memory limit, else as the memory of the node (the kubelet's
    // calculateEmptyDirMemorySize), so that it is full only when memory is.
    kUnsized,
    kHost,    // the node's, by hostIPC
    kForeign  // another volume: hostPath, a claim, an emptyDir on disk
  };
  Kind kind = Kind::kDefault;
  Bytes size{};          // of kDefault and kSized
  std::string volume{};  // its name, where one is mounted
};

// `pod`: a core/v1 PodSpec; `container`: the name of one of its containers; empty: the one that trains. A mount comes before hostIPC,
// as in container runtimes.
SharedMemory shared_memory_of(const Json& pod, const std::string& container = {});

// "a container has 64 MiB there unless ...", for messages.
std::string to_string(const SharedMemory& given);

// What Plimsoll gives to a pod of so many GPUs first, and recommends.
Bytes usual_shared_memory(std::int64_t gpus);

}  // namespace plimsoll::crds
