#include "estimator/catalog/host_link.h"

#include <algorithm>

namespace plimsoll::estimator::inline catalog {
namespace {

constexpr double kPcie4 = 2 * kPcie3;
constexpr double kPcie5 = 4 * kPcie3;

// What large pinned copies reach of it: 11.5 GiB a second over PCIe 3 (the constants of msr-fiddle/harmony at 5fd838f,
// sched_args.py).
constexpr double kShare = 11.5 * 1024 * 1024 * 1024 / kPcie3;

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

}  // namespace

double host_link_bandwidth(const GpuModel& gpu) {
  return gpu.host_links.bandwidth ? static_cast<double>(gpu.host_links.bandwidth->count)
                                  : pcie_of(gpu) * kShare;
}

double host_link_bandwidth_of_one(const GpuModel& gpu) {
  return host_link_bandwidth(gpu) /
         static_cast<double>(std::max<std::int64_t>(1, gpu.host_links.gpus_per_root));
}

}  // namespace plimsoll::estimator::catalog
