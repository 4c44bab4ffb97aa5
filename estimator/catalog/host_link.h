// host_link_bandwidth(): how fast a GPU and its host's memory exchange large pinned blocks.
//
//   double bytes_a_second = host_link_bandwidth(gpu);   // 23 GiB on an A100
//
// What a GPUModel or the nodes' labels say comes first (GpuModel::host_links). Else it follows from the generation of PCIe, which
// follows from the card's compute capability. Pure; any thread.
#pragma once

#include "estimator/catalog/gpu_catalog.h"

namespace plimsoll::estimator::inline catalog {

// Bytes a second of 16 lanes of PCIe 3, each way (PCI-SIG's transfer rate, 128b/130b encoded).
inline constexpr double kPcie3 = 15.75e9;

// Bytes a second of a root complex, each way.
double host_link_bandwidth(const GpuModel& gpu);

// What one GPU has of it while all others transfer, too. A card whose GPUModel or labels do not say how many share a root complex
// has one to itself. So it was with eight H100 of a node: overlapping the copies of 15.3 GB of each saved it 312 ms, which is 49 GB a
// second (tests/estimator/host_training/offload_curve.csv, its last two rows).
double host_link_bandwidth_of_one(const GpuModel& gpu);

}  // namespace plimsoll::estimator::catalog
