#include "estimator/speed/collectives.h"

#include <gtest/gtest.h>

namespace plimsoll::estimator {
namespace {

constexpr Links kA100{.intra = 300e9, .inter = 25e9};
constexpr Links kB200{.intra = 900e9, .inter = 50e9};
constexpr double kGiB = 1 << 30;

TEST(Collectives, GroupsLieOnNodesByTheirStride) {
  EXPECT_EQ(group_of(64, 1, 8).on_node, 8);
  EXPECT_EQ(group_of(64, 8, 8).on_node, 1);
  EXPECT_EQ(group_of(64, 2, 8).nodes(), 16);
  EXPECT_EQ(group_of(4, 1, 8).nodes(), 1);
}

TEST(Collectives, ASingleTrainerExchangesNothing) {
  EXPECT_DOUBLE_EQ(collective_seconds(Collective::kAllReduce, kGiB, {}, kA100), 0);
  EXPECT_DOUBLE_EQ(occupied_share({}), 0);
}

// stas00/ml-engineering 744d01e1, network/benchmarks: bus bandwidths of all-reduce.
TEST(Collectives, LargeAllReducesReachTheMeasuredBusBandwidth) {
  const auto bus = [](const Group& group, const Links& links) {
    const auto n = static_cast<double>(group.size);
    return 2 * (n - 1) / n * 16 * kGiB / collective_seconds(Collective::kAllReduce, 16 * kGiB, group, links);
  };
  EXPECT_NEAR(bus(group_of(8, 1, 8), kA100), 235e9, 10e9);
  EXPECT_NEAR(bus(group_of(32, 1, 8), kB200), 382e9, 25e9);
}

// ai-dynamo/aiconfigurator 095f58a5, systems/data/{a100,h100,b200}_sxm/comm/nccl: 512 MiB among eight GPUs.
TEST(Collectives, LargeAllToAllsReachTheMeasuredBandwidth) {
  const auto moved = [](double link) {
    const Links links{.intra = link, .inter = 25e9};
    return 7.0 / 8 * kGiB / 2 / collective_seconds(Collective::kAllToAll, kGiB / 2, group_of(8, 1, 8), links);
  };
  EXPECT_NEAR(moved(300e9), 204e9, 10e9);
  EXPECT_NEAR(moved(450e9), 316e9, 20e9);
  EXPECT_NEAR(moved(900e9), 564e9, 50e9);
}

TEST(Collectives, ExchangesOverTheNetworkAloneSlowComputationDownLess) {
  EXPECT_LT(occupied_share(group_of(64, 8, 8)), 0.1 * occupied_share(group_of(64, 1, 8)));
}

TEST(Collectives, SmallOnesTakeTheirLatency) {
  const double one = collective_seconds(Collective::kAllGather, 1, group_of(8, 1, 8), kA100);
  EXPECT_NEAR(collective_seconds(Collective::kAllGather, 1024, group_of(8, 1, 8), kA100), one, 1e-7);
  EXPECT_GT(collective_seconds(Collective::kAllGather, 1, group_of(8, 8, 8), kA100), one);
}

TEST(Collectives, AnAllReduceIsAReduceScatterAndAnAllGather) {
  const Group group = group_of(16, 1, 8);
  EXPECT_NEAR(collective_seconds(Collective::kAllReduce, kGiB, group, kA100),
              2 * collective_seconds(Collective::kAllGather, kGiB, group, kA100), 1e-4);
}

TEST(Collectives, AllToAllCrossesTheNetworkOnce) {
  const double inside = collective_seconds(Collective::kAllToAll, kGiB, group_of(8, 1, 8), kA100);
  EXPECT_GT(collective_seconds(Collective::kAllToAll, kGiB, group_of(16, 1, 8), kA100), inside);
  EXPECT_GT(send_seconds(kGiB, true, kA100), send_seconds(kGiB, false, kA100));
}

}  // namespace
}  // namespace plimsoll::estimator
