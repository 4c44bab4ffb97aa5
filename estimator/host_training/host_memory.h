// What the container of a job takes of its node's memory: container_memory() where training keeps tensors in host memory, and
// host_demand() for any job. Pure; any thread.
//
//   container_memory(plan.host.total(), 1);                        // one process
//   host_demand(spec.training, estimate, 8).total();               // 8 trainers in a pod
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/json/json.h"
#include "crds/training_job.h"
#include "estimator/types/request.h"

namespace plimsoll::estimator::inline host_training {

Bytes container_memory(Bytes tensors, std::int64_t processes);

// The part of a container's memory that its tensors can have; negative where there is none.
Bytes tensors_within(Bytes container, std::int64_t processes);

// Of all trainers of a pod.
struct HostDemand {
  Bytes processes{};  // Python, PyTorch's and CUDA's libraries
  Bytes workers{};    // of data loaders, with the batches that wait
  Bytes tensors{};    // that training keeps on the host
  Bytes loading{};    // the checkpoint, which is there before the tensors are
  Bytes total() const { return processes + workers + std::max(tensors, loading); }
};

// `processes`: trainers of a pod. `training.checkpoint_loading` Auto counts as None. The model is as large as its parameters are in training:
// what is loaded in a narrower type is widened on the host, and the state_dict that it is copied from is mapped from its file (safetensors), so it
// is the node's cache and not the container's.
HostDemand host_demand(const crds::TrainingSpec& training, const Estimate& estimate, std::int64_t processes);

// {processes, workers, tensors, loading, total}, in bytes.
Json to_json(const HostDemand& demand);

// "32.0 GiB of processes, 201 GiB of the checkpoint while it is loaded"; parts that are 0 are left out.
std::string text_of(const HostDemand& demand);

}  // namespace plimsoll::estimator::host_training
