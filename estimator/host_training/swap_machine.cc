#include "estimator/host_training/swap_machine.h"

#include "estimator/catalog/host_link.h"

namespace plimsoll::estimator::inline host_training {
namespace {

// What copies between GPUs reach of 16 lanes of PCIe: 8.2 GiB a second over PCIe 3 (the constants of msr-fiddle/harmony at
// 5fd838f, sched_args.py).
constexpr double kPeerShare = 8.2 * 1024 * 1024 * 1024 / kPcie3;

// Of NVLink, 80 % (docs/speed.md, Constants). gpus.yaml has NVLink from 300 GB/s on, both directions together.
constexpr double kNvlinkShare = 0.8;
constexpr Bytes kSlowestNvlink{300'000'000'000};

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

SwapMachine swap_machine_of(const GpuModel& gpu, const crds::LearnedBounds& learned) {
  SwapMachine machine;
  machine.host_bandwidth = learned.host_bandwidth && !gpu.host_links.bandwidth
                               ? static_cast<double>(learned.host_bandwidth->count)
                               : host_link_bandwidth(gpu);
  machine.gpus_per_root = gpu.host_links.gpus_per_root;
  machine.p2p_bandwidth = peer_bandwidth(gpu);
  machine.gpu_memory_bandwidth = static_cast<double>(gpu.hbm_bandwidth.count);
  return machine;
}

}  // namespace plimsoll::estimator::host_training
