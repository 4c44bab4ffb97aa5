#include "estimator/host_training/swap_machine.h"

namespace plimsoll::estimator::inline host_training {
namespace {

// Bytes a second of 16 lanes, each way (PCI-SIG's transfer rates, 128b/130b encoded).
constexpr double kPcie3 = 15.75e9;
constexpr double kPcie4 = 2 * kPcie3;
constexpr double kPcie5 = 4 * kPcie3;

// What large pinned copies, and copies between GPUs, reach of it: 11.5 and 8.2 GiB a second over PCIe 3 (the constants of
// msr-fiddle/harmony at 5fd838f, sched_args.py).
constexpr double kHostShare = 11.5 * 1024 * 1024 * 1024 / kPcie3;
constexpr double kPeerShare = 8.2 * 1024 * 1024 * 1024 / kPcie3;

// Of NVLink, 80 % (docs/speed.md, Constants). gpus.yaml has NVLink from 300 GB/s on, both directions together.
constexpr double kNvlinkShare = 0.8;
constexpr Bytes kSlowestNvlink{300'000'000'000};

// By the data sheets: Turing and older have PCIe 3, Ampere and Ada 4, Hopper and Blackwell 5. A card of unknown capability
// counts as old.
double pcie_of(const GpuModel& gpu) {
  constexpr ComputeCapability kAmpere{.major = 8, .minor = 0};
  constexpr ComputeCapability kHopper{.major = 9, .minor = 0};
  if (!gpu.compute_capability || *gpu.compute_capability < kAmpere) {
    return kPcie3;
  }
  return *gpu.compute_capability < kHopper ? kPcie4 : kPcie5;
}

double peer_bandwidth(const GpuModel& gpu) {
  const bool has_nvlink = gpu.intra_node_bandwidth >= kSlowestNvlink;
  switch (gpu.host_links.peer_to_peer) {
    case crds::PeerToPeer::kUnsupported: return 0;
    case crds::PeerToPeer::kSupported: break;
    case crds::PeerToPeer::kAuto:
      if (!has_nvlink) {
        return 0;
      }
  }
  const double each_way = static_cast<double>(gpu.intra_node_bandwidth.count) / 2;
  return each_way * (has_nvlink ? kNvlinkShare : kPeerShare);
}

}  // namespace

SwapMachine swap_machine_of(const GpuModel& gpu) {
  SwapMachine machine;
  machine.host_bandwidth = gpu.host_links.bandwidth ? static_cast<double>(gpu.host_links.bandwidth->count)
                                                    : pcie_of(gpu) * kHostShare;
  machine.gpus_per_root = gpu.host_links.gpus_per_root;
  machine.p2p_bandwidth = peer_bandwidth(gpu);
  return machine;
}

}  // namespace plimsoll::estimator::host_training
