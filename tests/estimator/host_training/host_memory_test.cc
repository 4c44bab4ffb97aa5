#include "estimator/host_training/host_memory.h"

#include <gtest/gtest.h>

namespace plimsoll::estimator {
namespace {

TEST(HostMemory, AContainerHasRoomForItsProcessesBesideTheTensors) {
  EXPECT_EQ(container_memory(100_GiB, 1), Bytes::ceil(1.1 * static_cast<double>((100_GiB).count)) + 4_GiB);
  EXPECT_EQ(container_memory(Bytes{}, 8), 32_GiB);
}

TEST(HostMemory, TensorsThatFitAContainerAskForNoMore) {
  const Bytes tensors = tensors_within(1536_GiB, 8);
  EXPECT_GT(tensors, 1300_GiB);
  EXPECT_LE(container_memory(tensors, 8), 1536_GiB);
  EXPECT_LT(tensors_within(16_GiB, 8), Bytes{}) << "the processes alone take more";
}

}  // namespace
}  // namespace plimsoll::estimator
