#include "estimator/swap/volumes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/estimator/swap/published_profile.h"
#include "tests/testing/random_seed.h"

namespace plimsoll::estimator {
namespace {

using ::testing::HasSubstr;

constexpr std::array kModes = {SwapMode::kDP, SwapMode::kPP, SwapMode::kVDP, SwapMode::kVPP};

std::vector<SwapLayer> uniform(std::size_t layers, std::int64_t w, std::int64_t dw, std::int64_t k,
                               std::int64_t x) {
  std::vector<SwapLayer> result(layers, {Bytes{w}, Bytes{dw}, Bytes{k}, Bytes{x}, Bytes{x}, Bytes{x}});
  result.back().output = Bytes{};
  result.front().input_gradient = Bytes{};
  return result;
}

// Both ways of counting, which have to agree.
SwapVolumes volumes(SwapMode mode, const std::vector<SwapLayer>& layers, const SwapWork& work,
                    const SwapRules& rules = {}) {
  const SwapVolumes walked = walk_volumes(mode, layers, work, rules);
  EXPECT_EQ(walked, closed_volumes(mode, layers, work, rules)) << name_of(mode);
  return walked;
}

struct Row {
  std::int64_t weights, gradients, state, stash, hand_over, p2p, payload, ring;
};

void expect(const SwapVolumes& volumes, const Row& row) {
  EXPECT_EQ(volumes,
            (SwapVolumes{Bytes{row.weights}, Bytes{row.gradients}, Bytes{row.state}, Bytes{row.stash},
                         Bytes{row.hand_over}, Bytes{row.p2p}, Bytes{row.payload}, Bytes{row.ring}}));
}

struct Case {
  std::size_t layers;
  SwapWork work;
  std::int64_t w, dw, k, x;
  Row dp, vdp, pp, vpp;
};

// The talk's example of four layers on two GPUs: each task's bytes, and that they add up to the whole.
TEST(SwapVolumes, AreKnownStepByStep) {
  const std::vector<SwapLayer> layers = uniform(4, 100, 100, 200, 10);
  std::vector<SwapStep> steps;
  const SwapVolumes all = walk_volumes(SwapMode::kVPP, layers, {2, 2}, {}, nullptr, &steps);
  ASSERT_EQ(steps.size(), 12U);
  EXPECT_EQ(to_string(steps[0].task), "GPU 0, forward of layer 0");
  expect(steps[0].moved, {100, 0, 0, 20, 0, 20, 0, 0});
  EXPECT_EQ(to_string(steps[3].task), "GPU 1, forward of layer 3");
  expect(steps[3].moved, {100, 0, 0, 20, 0, 0, 0, 0});
  EXPECT_EQ(to_string(steps[4].task), "GPU 0, backward of layer 3");
  expect(steps[4].moved, {100, 0, 0, 20, 0, 20, 0, 0});
  EXPECT_EQ(to_string(steps[5].task), "GPU 0, update of layer 3");
  expect(steps[5].moved, {100, 0, 400, 0, 0, 0, 0, 0});
  for (const SwapMode mode : kModes) {
    steps.clear();
    const SwapVolumes whole = walk_volumes(mode, layers, {2, 2}, {}, nullptr, &steps);
    SwapVolumes sum;
    for (const SwapStep& step : steps) {
      sum.weights += step.moved.weights;
      sum.gradients += step.moved.gradients;
      sum.state += step.moved.state;
      sum.stash += step.moved.stash;
      sum.hand_over += step.moved.hand_over;
      sum.p2p += step.moved.p2p;
    }
    EXPECT_EQ(sum.swapped(), whole.swapped()) << name_of(mode);
    EXPECT_EQ(sum.p2p, whole.p2p) << name_of(mode);
  }
  EXPECT_EQ(all, closed_volumes(SwapMode::kVPP, layers, {2, 2}));
}

// The table of the talk (its coefficients: DP 4M+2N, 2M+2N, 2N, 2M; vDP 3N, 0, 2N, 2M; PP 4M+2, 2M+2, 2, 2M; vPP 3, 0, 2,
// 2M) on uniform layers, with the borders between layers counted exactly.
TEST(SwapVolumes, AreThoseOfThePapersTable) {
  const std::vector<Case> cases = {
      {4,
       {2, 4},
       100,
       100,
       200,
       10,
       {8000, 4800, 3200, 320, 0, 0, 800, 800},
       {2400, 0, 3200, 320, 480, 0, 800, 800},
       {7200, 4000, 1600, 320, 0, 80, 0, 0},
       {1200, 0, 1600, 320, 0, 240, 0, 0}},
      {8,
       {4, 8},
       64,
       64,
       128,
       6,
       {20480, 12288, 8192, 768, 0, 0, 2048, 3072},
       {6144, 0, 8192, 768, 1344, 0, 2048, 3072},
       {17408, 9216, 2048, 768, 0, 288, 0, 0},
       {1536, 0, 2048, 768, 0, 672, 0, 0}},
      {24,
       {4, 16},
       50,
       50,
       100,
       4,
       {86400, 48000, 19200, 3072, 0, 0, 4800, 7200},
       {14400, 0, 19200, 3072, 5888, 0, 4800, 7200},
       {79200, 40800, 4800, 3072, 0, 384, 0, 0},
       {3600, 0, 4800, 3072, 0, 2944, 0, 0}},
      {48,
       {4, 32},
       123,
       123,
       246,
       7,
       {802944, 425088, 94464, 21504, 0, 0, 23616, 35424},
       {70848, 0, 94464, 21504, 42112, 0, 23616, 35424},
       {767520, 389664, 23616, 21504, 0, 1344, 0, 0},
       {17712, 0, 23616, 21504, 0, 21056, 0, 0}},
      {16,
       {1, 4},
       10,
       10,
       20,
       1,
       {2880, 1600, 640, 128, 0, 0, 0, 0},
       {480, 0, 640, 128, 240, 0, 0, 0},
       {2880, 1600, 640, 128, 0, 0, 0, 0},
       {480, 0, 640, 128, 240, 0, 0, 0}},  // on one GPU, vPP is vDP
      {4,
       {4, 4},
       100,
       100,
       200,
       10,
       {9600, 6400, 6400, 320, 0, 0, 1600, 2400},
       {4800, 0, 6400, 320, 480, 0, 1600, 2400},
       {7200, 4000, 1600, 320, 0, 240, 0, 0},
       {1200, 0, 1600, 320, 0, 240, 0, 0}},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.layers);
    const std::vector<SwapLayer> layers = uniform(one.layers, one.w, one.dw, one.k, one.x);
    expect(volumes(SwapMode::kDP, layers, one.work), one.dp);
    expect(volumes(SwapMode::kVDP, layers, one.work), one.vdp);
    expect(volumes(SwapMode::kPP, layers, one.work), one.pp);
    expect(volumes(SwapMode::kVPP, layers, one.work), one.vpp);
  }
}

// Harmony's profile of GPT-2 XL, 64 samples in microbatches of 4, on 4 GPUs.
TEST(SwapVolumes, OfGpt2XlToTheByte) {
  const std::vector<SwapLayer> layers = layers_at(testing::published_profile("gpt2_xl"), 4);
  const SwapWork work{.gpus = 4, .microbatches = 16};
  const SwapVolumes dp = volumes(SwapMode::kDP, layers, work);
  EXPECT_EQ(dp.weights, 471'750'451'200_B);
  EXPECT_EQ(dp.gradients, 262'083'584'000_B);
  EXPECT_EQ(dp.state, 104'833'433'600_B);
  EXPECT_EQ(dp.stash, 68'293'230'592_B);
  const SwapVolumes vdp = volumes(SwapMode::kVDP, layers, work);
  EXPECT_EQ(vdp.weights, 78'625'075'200_B);
  EXPECT_EQ(vdp.hand_over, 136'584'364'032_B);
  const SwapVolumes pp = volumes(SwapMode::kPP, layers, work);
  EXPECT_EQ(pp.weights, 432'437'913'600_B);
  EXPECT_EQ(pp.gradients, 222'771'046'400_B);
  EXPECT_EQ(pp.state, 26'208'358'400_B);
  const SwapVolumes vpp = volumes(SwapMode::kVPP, layers, work);
  EXPECT_EQ(vpp.weights, 19'656'268'800_B);
  EXPECT_EQ(vpp.p2p, 68'292'182'016_B);
}

// Weights of a layer that stay on a GPU until another layer's are needed, in units of a layer's weights.
TEST(SwapVolumes, PagingSavesWhereTasksOfOneLayerFollowEachOther) {
  struct Paged {
    std::size_t layers;
    SwapWork work;
    std::int64_t strict, one_layer, drop_clean;
  };
  for (const Paged& one : {Paged{4, {2, 4}, 80, 64, 40}, Paged{8, {4, 8}, 320, 288, 176},
                           Paged{24, {4, 16}, 1728, 1664, 928}, Paged{48, {4, 32}, 6528, 6400, 3392}}) {
    const std::vector<SwapLayer> layers = uniform(one.layers, 1, 1, 2, 1);
    const auto weights = [&](SwapPaging paging) {
      return volumes(SwapMode::kDP, layers, one.work, {.paging = paging}).weights.count;
    };
    EXPECT_EQ(weights(SwapPaging::kStrict), one.strict);
    EXPECT_EQ(weights(SwapPaging::kOneLayer), one.one_layer);
    EXPECT_EQ(weights(SwapPaging::kDropClean), one.drop_clean);
  }
}

TEST(SwapVolumes, AFusedTurnSavesTheLastLayersForwardTask) {
  const std::vector<SwapLayer> layers = uniform(4, 100, 100, 200, 10);
  const SwapVolumes vdp = volumes(SwapMode::kVDP, layers, {2, 4}, {.fused_turn = true});
  EXPECT_EQ(vdp.weights, 2_B * (3 * 400 - 100));
  EXPECT_EQ(vdp.stash, 2_B * 4 * 30);
  EXPECT_EQ(volumes(SwapMode::kVPP, layers, {2, 4}, {.fused_turn = true}).weights, 3_B * 400 - 100_B);
}

TEST(SwapVolumes, WalkAndClosedFormAgreeOnRandomModels) {
  constexpr int kCases = 2000;
  const auto seed = plimsoll::testing::random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto up_to = [&](std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(0, most)(random);
  };
  for (int i = 0; i < kCases; ++i) {
    std::vector<SwapLayer> layers(static_cast<std::size_t>(1 + up_to(19)));
    for (SwapLayer& layer : layers) {
      for (Bytes* const size : {&layer.weights, &layer.gradients, &layer.state, &layer.input, &layer.output,
                                &layer.input_gradient}) {
        *size = Bytes{up_to(1'000'000'000)};
      }
    }
    layers.back().output = layers.front().input_gradient = Bytes{};
    SwapWork work{.gpus = 1 + up_to(7)};
    work.microbatches = work.gpus * (1 + up_to(4));
    for (const SwapMode mode : kModes) {
      for (const SwapPaging paging : {SwapPaging::kStrict, SwapPaging::kOneLayer, SwapPaging::kDropClean}) {
        for (const bool fused : {false, true}) {
          if (check_work(mode, layers.size(), work)) {
            volumes(mode, layers, work, {.paging = paging, .fused_turn = fused});
          }
        }
      }
    }
    ASSERT_FALSE(HasFailure()) << layers.size() << " layers, " << work.gpus << " GPUs, " << work.microbatches;
  }
}

TEST(SwapVolumes, ImpossibleWorkIsRefused) {
  EXPECT_THAT(check_work(SwapMode::kDP, 4, {.gpus = 3, .microbatches = 4}).error().message,
              HasSubstr("DP needs as many microbatches on each GPU: 3 GPUs do not divide 4"));
  EXPECT_THAT(check_work(SwapMode::kPP, 4, {.gpus = 5, .microbatches = 5}).error().message,
              HasSubstr("a pipeline of 5 stages needs as many layers; there are 4"));
  EXPECT_FALSE(check_work(SwapMode::kVPP, 4, {.gpus = 0, .microbatches = 1}));
  EXPECT_TRUE(check_work(SwapMode::kVPP, 4, {.gpus = 5, .microbatches = 3})) << "some GPUs have no layer";
}

}  // namespace
}  // namespace plimsoll::estimator
