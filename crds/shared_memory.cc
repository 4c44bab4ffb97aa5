#include "crds/shared_memory.h"

#include <algorithm>
#include <optional>

#include "base/json/edit.h"
#include "base/quantity.h"
#include "crds/training_job.h"

namespace plimsoll::crds {
namespace {

// Of each GPU's process. NCCL: a segment of 9,637,888 bytes by default (github.com/NVIDIA/nccl issue 342) for each of up to 32
// channels (MAXCHANNELS) and both neighbours of its ring: 0.6 GB. DataLoader: prefetch_factor 2 for each worker; 4 workers with
// 256 float images of 3 x 224 x 224 are 1.2 GB. PyTorch's own tutorials are built with as much (--shm-size=2gb).
constexpr Bytes kOfEachGpu = 2_GiB;
// Pods have less; the product stays a size that a pod can be given.
constexpr std::int64_t kMostGpus = 1024;

// "/dev/shm/" is the same place to the kernel.
bool is_shared_memory_path(const std::string& path) {
  return path.substr(0, path.find_last_not_of('/') + 1) == kSharedMemoryDirectory;
}

const Json& named(const Json& list, const std::string& name) {
  if (list.isArray()) {
    for (const Json& each : list) {
      if (text_member(each, {"name"}) == name) {
        return each;
      }
    }
  }
  return Json::nullSingleton();
}

const Json& container_of(const Json& pod, const std::string& name) {
  const Json& containers = member(pod, {"containers"});
  if (!name.empty()) {
    const Json& one = named(containers, name);
    return one.isNull() ? named(member(pod, {"initContainers"}), name) : one;
  }
  const int trainer = trainer_container(containers);
  return trainer < 0 ? Json::nullSingleton() : element(containers, static_cast<std::size_t>(trainer));
}

SharedMemory of_volume(const Json& volume, const std::string& name) {
  const Json& directory = member(volume, {"emptyDir"});
  if (text_member(directory, {"medium"}) != "Memory") {
    return {.kind = SharedMemory::Kind::kForeign, .volume = name};
  }
  // The kubelet takes 0 for none, and the API server refuses what is not a quantity.
  const Bytes size = quantity_of(member(directory, {"sizeLimit"})).value_or(Bytes{});
  return size > Bytes{} ? SharedMemory{.kind = SharedMemory::Kind::kSized, .size = size, .volume = name}
                        : SharedMemory{.kind = SharedMemory::Kind::kUnsized, .volume = name};
}

}  // namespace

SharedMemory shared_memory_of(const Json& pod, const std::string& container) {
  const Json& mounts = member(container_of(pod, container), {"volumeMounts"});
  if (mounts.isArray()) {
    for (const Json& mount : mounts) {
      if (is_shared_memory_path(text_member(mount, {"mountPath"}))) {
        const std::string name = text_member(mount, {"name"});
        return of_volume(named(member(pod, {"volumes"}), name), name);
      }
    }
  }
  if (member(pod, {"hostIPC"}) == Json(true)) {
    return {.kind = SharedMemory::Kind::kHost};
  }
  return {.kind = SharedMemory::Kind::kDefault, .size = kDefaultSharedMemory};
}

std::string to_string(const SharedMemory& given) {
  switch (given.kind) {
    case SharedMemory::Kind::kDefault:
      return "a container has 64 MiB there unless an emptyDir of medium Memory is mounted";
    case SharedMemory::Kind::kSized: return "its emptyDir " + given.volume + " has " + to_string(given.size);
    case SharedMemory::Kind::kUnsized:
      return "its emptyDir " + given.volume + " has no sizeLimit, so that it is as large as the memory limit";
    case SharedMemory::Kind::kHost: return "by hostIPC it is that of the node";
    case SharedMemory::Kind::kForeign: return "the template mounts its volume " + given.volume + " there";
  }
  return {};
}

Bytes usual_shared_memory(std::int64_t gpus) {
  return kOfEachGpu * std::clamp<std::int64_t>(gpus, 1, kMostGpus);
}

}  // namespace plimsoll::crds
