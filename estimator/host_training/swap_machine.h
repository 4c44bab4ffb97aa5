// swap_machine_of(): how the GPUs of a node reach host memory and each other, for the simulator of swap plans.
//
//   SwapMachine machine = swap_machine_of(gpu.model);
//
// What a GPUModel or the nodes' labels say comes first (GpuModel::host_links), then what jobs of the family have measured. Else the
// generation of PCIe follows from the card's compute capability, all GPUs of a node share one root complex, and GPUs copy to each other
// over NVLink alone: PCIe cards of one product can do so on some boards and not on others. Pure; any thread.
#pragma once

#include "crds/memory_profile.h"
#include "estimator/catalog/gpu_catalog.h"
#include "estimator/swap/machine.h"

namespace plimsoll::estimator::inline host_training {

SwapMachine swap_machine_of(const GpuModel& gpu, const crds::LearnedBounds& learned = {});

}  // namespace plimsoll::estimator::host_training
