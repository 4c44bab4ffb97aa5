#include "estimator/speed/host_update.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "tests/estimator/swap/published_profile.h"

namespace plimsoll::estimator {
namespace {

// The sum of all layers' steps, relative to what Harmony's authors measured. Blocks of GPT-2 have 12 parameters, BERT's 16, others 2.
double share_of_published(const char* model, std::int64_t parameters) {
  const SwapProfile published = testing::published_profile(model);
  double ours = 0;
  double theirs = 0;
  for (std::size_t i = 0; i < published.layers(); ++i) {
    theirs += published.update_seconds[i];
    ours +=
        published.weights[i] == Bytes{}
            ? 0
            : host_update_seconds(
                  {.parameters = parameters, .weights = published.weights[i], .state = published.state[i]});
  }
  std::printf("%-10s published %7.3f s, by the rate %+.0f %%\n", model, theirs, 100 * (ours / theirs - 1));
  return ours / theirs;
}

TEST(HostUpdate, IsNearThePublishedStepsOfAdam) {
  EXPECT_NEAR(share_of_published("gpt2_xl", 12), 1, 0.05);
  EXPECT_NEAR(share_of_published("gpt2_10b", 12), 1, 0.05);
  EXPECT_NEAR(share_of_published("gpt2_40b", 12), 1, 0.05);
  EXPECT_NEAR(share_of_published("bert_large", 16), 1, 0.25);
  EXPECT_NEAR(share_of_published("bert_96", 16), 1, 0.25);
}

// Most of VGG-416's layers fit the processor's cache, where their steps are faster than memory.
TEST(HostUpdate, IsAboveThePublishedStepsOfLayersThatFitTheCache) {
  EXPECT_GT(share_of_published("vgg416", 2), 1);
}

TEST(HostUpdate, RisesWithWhatTheStepReadsAndWrites) {
  const HostUpdate adam{.parameters = 1, .weights = 1_GiB, .state = 2_GiB};
  const HostUpdate sgd{.parameters = 1, .weights = 1_GiB, .state = {}};
  EXPECT_GT(host_update_seconds(adam), 2 * host_update_seconds(sgd));
  EXPECT_EQ(host_update_seconds({}), 0);
}

TEST(HostUpdate, TakesAMeasuredBandwidth) {
  const HostUpdate update{.parameters = 12, .weights = 1_GiB, .state = 2_GiB, .bandwidth = 7e9};
  EXPECT_DOUBLE_EQ(host_update_seconds(update), static_cast<double>((7_GiB).count) / 7e9);
}

// 28 bytes of a parameter with Adam in fp32; 12 more where 16 bits move: gradients 2 read, 4 written, weights 4 read, 2 written.
TEST(HostUpdate, ConvertsWhatMovesInAnotherType) {
  const HostUpdate same{.weights = 4_GiB, .state = 8_GiB};
  HostUpdate mixed = same;
  mixed.moved = 2_GiB;
  EXPECT_NEAR(host_update_seconds(mixed) / host_update_seconds(same), 40.0 / 28, 1e-9);
}

}  // namespace
}  // namespace plimsoll::estimator
