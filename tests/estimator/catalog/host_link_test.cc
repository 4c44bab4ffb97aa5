#include "estimator/catalog/host_link.h"

#include <gtest/gtest.h>

#include "tests/estimator/provisioner_fixture.h"

namespace plimsoll::estimator {
namespace {

using plimsoll::testing::available;

constexpr double kGiB = 1024.0 * 1024 * 1024;

// 11.5 GiB a second is what Harmony's authors measured over PCIe 3.
TEST(HostLink, FollowsFromTheGenerationOfTheCard) {
  const auto host = [](const char* name) { return host_link_bandwidth(available(name, 1).model) / kGiB; };
  EXPECT_NEAR(host("V100-32GB"), 11.5, 1e-9);
  EXPECT_NEAR(host("A100-80GB"), 23, 1e-9);
  EXPECT_NEAR(host("H100-80GB"), 46, 1e-9);
}

TEST(HostLink, AnUnknownCardCountsAsOld) {
  GpuModel gpu = available("H100-80GB", 1).model;
  gpu.compute_capability.reset();
  EXPECT_NEAR(host_link_bandwidth(gpu) / kGiB, 11.5, 1e-9);
}

TEST(HostLink, IsSharedByAsManyGpusAsItsModelSays) {
  GpuModel gpu = available("A100-80GB", 1).model;
  EXPECT_EQ(host_link_bandwidth_of_one(gpu), host_link_bandwidth(gpu));
  gpu.host_links = {.bandwidth = 20_GiB, .gpus_per_root = 2, .peer_to_peer = crds::PeerToPeer::kAuto};
  EXPECT_EQ(host_link_bandwidth(gpu), 20 * kGiB);
  EXPECT_EQ(host_link_bandwidth_of_one(gpu), 10 * kGiB);
}

}  // namespace
}  // namespace plimsoll::estimator
