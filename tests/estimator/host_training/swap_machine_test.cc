#include "estimator/host_training/swap_machine.h"

#include <gtest/gtest.h>

#include "tests/estimator/provisioner_fixture.h"

namespace plimsoll::estimator {
namespace {

using plimsoll::testing::available;

constexpr double kGiB = 1024.0 * 1024 * 1024;

TEST(SwapMachine, GpusCopyToEachOtherOverNvlinkAloneUnlessTheNodeSaysSo) {
  EXPECT_NEAR(swap_machine_of(available("A100-80GB", 1).model).p2p_bandwidth, 0.8 * 300e9, 1);
  EXPECT_EQ(swap_machine_of(available("RTX-4090", 1).model).p2p_bandwidth, 0);
  EXPECT_EQ(swap_machine_of(available("T4", 1).model).p2p_bandwidth, 0);
  GpuModel t4 = available("T4", 1).model;
  t4.host_links.peer_to_peer = crds::PeerToPeer::kSupported;
  EXPECT_NEAR(swap_machine_of(t4).p2p_bandwidth / kGiB, 8.2 * 16 / 15.75, 0.01);
  GpuModel a100 = available("A100-80GB", 1).model;
  a100.host_links.peer_to_peer = crds::PeerToPeer::kUnsupported;
  EXPECT_EQ(swap_machine_of(a100).p2p_bandwidth, 0);
}

TEST(SwapMachine, WhatAGpuModelSaysComesFirst) {
  GpuModel gpu = available("A100-80GB", 1).model;
  EXPECT_EQ(swap_machine_of(gpu).gpus_per_root, 0) << "all GPUs of the node share one root complex";
  gpu.host_links = {.bandwidth = 20_GiB, .gpus_per_root = 2, .peer_to_peer = crds::PeerToPeer::kAuto};
  const SwapMachine machine = swap_machine_of(gpu);
  EXPECT_EQ(machine.host_bandwidth, 20 * kGiB);
  EXPECT_EQ(machine.gpus_per_root, 2);
}

TEST(SwapMachine, WhatJobsHaveMeasuredComesBeforeTheDataSheetAndAfterTheGpuModel) {
  GpuModel gpu = available("A100-80GB", 1).model;
  crds::LearnedBounds learned;
  EXPECT_EQ(swap_machine_of(gpu, learned).host_bandwidth, swap_machine_of(gpu).host_bandwidth);
  learned.host_bandwidth = 20_GiB;
  EXPECT_EQ(swap_machine_of(gpu, learned).host_bandwidth, 20 * kGiB);
  gpu.host_links.bandwidth = 12_GiB;
  EXPECT_EQ(swap_machine_of(gpu, learned).host_bandwidth, 12 * kGiB);
}

}  // namespace
}  // namespace plimsoll::estimator
