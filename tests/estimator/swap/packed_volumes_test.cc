#include "estimator/swap/packed_volumes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/estimator/swap/published_profile.h"

namespace plimsoll::estimator {
namespace {

using ::testing::HasSubstr;

std::vector<std::size_t> every(std::size_t step, std::size_t end) {
  std::vector<std::size_t> packs;
  for (std::size_t first = 0; first < end; first += step) {
    packs.push_back(first);
  }
  return packs;
}

PackedVolumes volumes(const SwapPlan& plan, const std::string& model) {
  const SwapProfile profile = testing::published_profile(model);
  const Result<void> checked = check_plan(plan, profile.weights.size());
  EXPECT_TRUE(checked.ok()) << (checked ? "" : checked.error().message);
  return packed_volumes(plan, profile, SwapRuntime::kPublished);
}

// The schedules that Harmony's authors published, under the rules of their code.
TEST(PackedVolumes, OfGpt2XlsPublishedPipeline) {
  SwapPlan plan{.mode = SwapMode::kVPP,
                .gpus = 4,
                .samples = 64,
                .forward_microbatch = 4,
                .backward_microbatch = 4,
                .forward_packs = {0, 6, 13, 20, 27, 34, 41},
                .backward_packs = every(3, 51)};
  const PackedVolumes moved = volumes(plan, "gpt2_xl");
  EXPECT_EQ(moved.weights_in, 12'930'859'776_B);
  EXPECT_EQ(moved.kept, 127'157'504_B);
  EXPECT_EQ(moved.gradients_out, 6'753'416'192_B);
  EXPECT_EQ(moved.stash, 12'583'960'576_B);
  EXPECT_EQ(moved.p2p, 9'646'899'200_B);
  EXPECT_EQ(moved.hand_over, 0_B);
}

TEST(PackedVolumes, OfGpt2XlsPublishedDataParallelism) {
  const PackedVolumes moved = volumes({.mode = SwapMode::kVDP,
                                       .gpus = 4,
                                       .samples = 64,
                                       .forward_microbatch = 2,
                                       .backward_microbatch = 1,
                                       .forward_packs = {0, 2, 15, 28},
                                       .backward_packs = {0, 8, 19, 30, 41}},
                                      "gpt2_xl");
  EXPECT_EQ(moved.weights_in, 48'671'659'008_B);
  EXPECT_EQ(moved.gradients_out, 6'753'416'192_B);
  EXPECT_EQ(moved.stash, 2'517'630'976_B);
  EXPECT_EQ(moved.hand_over, 6'710'886'400_B);
  EXPECT_EQ(moved.p2p, 0_B);
}

TEST(PackedVolumes, OfAGptOf40BillionOnEightGpus) {
  const PackedVolumes moved = volumes({.mode = SwapMode::kVPP,
                                       .gpus = 8,
                                       .samples = 32,
                                       .forward_microbatch = 1,
                                       .backward_microbatch = 1,
                                       .forward_packs = every(2, 202),
                                       .backward_packs = every(2, 204)},
                                      "gpt2_40b");
  EXPECT_EQ(moved.weights_in, 324'769'890'304_B);
  EXPECT_EQ(moved.kept, 1'619'427'328_B);
  EXPECT_EQ(moved.gradients_out, 163'606'364'160_B);
  EXPECT_EQ(moved.stash, 107'374'706'688_B);
  EXPECT_EQ(moved.p2p, 108'447'924'224_B);
}

TEST(PackedVolumes, OtherMicrobatchesInBackwardGoThroughTheHostAtTheTurn) {
  SwapPlan plan{.gpus = 2,
                .samples = 8,
                .forward_microbatch = 2,
                .backward_microbatch = 2,
                .forward_packs = {0, 2},
                .backward_packs = {0, 2, 4}};
  const SwapProfile profile{.weights = std::vector<Bytes>(6, 10_B),
                            .buffers = std::vector<Bytes>(6),
                            .state = std::vector<Bytes>(6),
                            .input = std::vector<Bytes>(6, 3_B)};
  const PackedVolumes same = packed_volumes(plan, profile, SwapRuntime::kPlimsoll);
  plan.backward_microbatch = 1;
  const PackedVolumes other = packed_volumes(plan, profile, SwapRuntime::kPlimsoll);
  EXPECT_EQ(same.p2p - other.p2p, 3_B * 8);
  EXPECT_EQ(other.hand_over - same.hand_over, 3_B * 16);
}

// What plimsoll.harmony counts (trainer/plimsoll/harmony/plan.py, volumes; tests/trainer/harmony_chain_test.py compares the two).
TEST(PackedVolumes, OfOurRuntimeCountSamplesTwiceAndBuffersOneWay) {
  SwapPlan plan{.gpus = 2, .samples = 8, .forward_packs = {0, 2}, .backward_packs = {0, 2, 4}};
  const SwapProfile profile{.weights = std::vector<Bytes>(6, 10_B),
                            .buffers = std::vector<Bytes>(6, 1_B),
                            .state = std::vector<Bytes>(6),
                            .input = {2_B, 3_B, 3_B, 3_B, 3_B, 3_B}};
  const PackedVolumes pipeline = packed_volumes(plan, profile, SwapRuntime::kPlimsoll);
  EXPECT_EQ(pipeline.gradients_out, 60_B);
  EXPECT_EQ(pipeline.inputs, 2_B * 16);
  EXPECT_EQ(pipeline.stash, 3_B * 16);
  EXPECT_EQ(pipeline.p2p, 3_B * 8 * 4);
  EXPECT_EQ(pipeline.reduced, 0_B);
  plan.peer_to_peer = false;
  const PackedVolumes through_host = packed_volumes(plan, profile, SwapRuntime::kPlimsoll);
  EXPECT_EQ(through_host.p2p, 0_B);
  EXPECT_EQ(through_host.hand_over, pipeline.p2p * 2);
  plan.mode = SwapMode::kVDP;
  const PackedVolumes parallel = packed_volumes(plan, profile, SwapRuntime::kPlimsoll);
  EXPECT_EQ(parallel.reduced, 60_B);
  EXPECT_EQ(parallel.between_gpus(), 60_B);
  plan.forward_packs = {};
  plan.backward_packs = {0};
  EXPECT_EQ(packed_volumes(plan, profile, SwapRuntime::kPlimsoll).inputs, 2_B * 8);
}

TEST(PackedVolumes, APlanThatIsNotOneIsRefused) {
  const SwapPlan good{.gpus = 2, .samples = 4, .forward_packs = {0, 1}, .backward_packs = {0, 2}};
  EXPECT_TRUE(check_plan(good, 4));
  const auto refusal = [&](auto change) {
    SwapPlan plan = good;
    change(plan);
    const Result<void> checked = check_plan(plan, 4);
    return checked ? std::string() : checked.error().message;
  };
  EXPECT_THAT(refusal([](SwapPlan& p) { p.mode = SwapMode::kDP; }), HasSubstr("mode must be vDP or vPP"));
  EXPECT_THAT(refusal([](SwapPlan& p) { p.gpus = 0; }), HasSubstr("must be at least 1"));
  EXPECT_THAT(refusal([](SwapPlan& p) { p.mode = SwapMode::kVDP, p.gpus = 3; }),
              HasSubstr("samples is 4 and must be a multiple of the 3 GPUs of vDP"));
  EXPECT_THAT(refusal([](SwapPlan& p) { p.forward_microbatch = 3; }), HasSubstr("must divide the 4 samples"));
  EXPECT_THAT(refusal([](SwapPlan& p) { p.backward_packs = {}; }),
              HasSubstr("packs.backward must be first layers"));
  EXPECT_THAT(refusal([](SwapPlan& p) {
                p.backward_packs = {0, 4};
              }),
              HasSubstr("rising from 0 to at most 3"));
  EXPECT_THAT(refusal([](SwapPlan& p) {
                p.forward_packs = {0, 2};
              }),
              HasSubstr("rising from 0 to at most 1"));
  EXPECT_THAT(refusal([](SwapPlan& p) { p.forward_packs = {0, 0}; }), HasSubstr("packs.forward"));
  EXPECT_THAT(refusal([](SwapPlan& p) { p.backward_packs = {0}; }), HasSubstr("packs.forward must be empty"));
  EXPECT_THAT(
      refusal([](SwapPlan& p) { p.resident = {0}; }),
      HasSubstr("layer 0 cannot be resident: its forward and its backward task are on different GPUs"));
  EXPECT_THAT(refusal([](SwapPlan& p) { p.resident = {2, 4}; }), HasSubstr("from 0 to at most 3"));
  EXPECT_THAT(refusal([](SwapPlan& p) {
                p.resident = {3, 2};
              }),
              HasSubstr("resident must be layers, rising"));
  EXPECT_THAT(refusal([](SwapPlan& p) { p.mode = SwapMode::kVDP, p.mirrored = true; }),
              HasSubstr("mirrored is for vPP"));
  EXPECT_THAT(refusal([](SwapPlan& p) { p.mode = SwapMode::kVDP, p.resident = {2}; }),
              HasSubstr("resident must be empty"));
}

TEST(PackedVolumes, AStashThatCannotStayIsRefused) {
  const SwapPlan good{.gpus = 2,
                      .samples = 4,
                      .forward_packs = {0, 1, 2, 3},
                      .backward_packs = {0, 1, 2, 3, 4},
                      .mirrored = true,
                      .resident_stashes = {1, 3}};
  EXPECT_TRUE(check_plan(good, 6));
  EXPECT_EQ(stashes_of(good), (std::vector<std::size_t>{1, 2, 3}));
  for (const std::vector<std::size_t>& stashes :
       {std::vector<std::size_t>{0}, {4}, {5}, {3, 1}, {2, 2}, {1, 2, 3, 4}}) {
    SwapPlan plan = good;
    plan.resident_stashes = stashes;
    EXPECT_THAT(check_plan(plan, 6).error().message,
                HasSubstr("residentStashes must be first layers of backward packs, rising"));
  }
  SwapPlan plan = good;
  plan.mirrored = false;
  plan.gpus = 4;
  EXPECT_THAT(check_plan(plan, 6).error().message,
              HasSubstr("the stash of layer 1 cannot be resident: its forward and its backward task"));
  plan.mode = SwapMode::kVDP;
  EXPECT_TRUE(check_plan(plan, 6)) << "each GPU runs all tasks";
}

TEST(PackedVolumes, StashesThatStayDoNotMove) {
  SwapPlan plan{.gpus = 1, .samples = 4, .forward_packs = {0, 2}, .backward_packs = {0, 1, 2, 4}};
  const SwapProfile profile{.weights = std::vector<Bytes>(6, 10_B),
                            .buffers = std::vector<Bytes>(6),
                            .state = std::vector<Bytes>(6),
                            .input = {1_B, 2_B, 4_B, 8_B, 16_B, 32_B}};
  PackedVolumes none = packed_volumes(plan, profile, SwapRuntime::kPlimsoll);
  EXPECT_EQ(none.stash, (2_B + 4_B) * 4 * 2);
  plan.resident_stashes = {2};
  const PackedVolumes one = packed_volumes(plan, profile, SwapRuntime::kPlimsoll);
  EXPECT_EQ(one.stash, 2_B * 4 * 2);
  none.stash = one.stash;
  EXPECT_EQ(one, none) << "all else is as before";
}

// Mirrored, a layer's two tasks are on one GPU where both passes are cut alike.
TEST(PackedVolumes, BackwardTasksMayReturnToTheGpusOfTheForwardTasks) {
  SwapPlan plan{
      .gpus = 4, .samples = 4, .forward_packs = {0, 1, 2, 3, 4}, .backward_packs = {0, 1, 2, 3, 4, 5}};
  const auto gpus = [&] {
    std::vector<std::int32_t> each;
    for (const PackedTask& task : packed_tasks(plan, 6)) {
      each.push_back(task.gpu);
    }
    return each;
  };
  EXPECT_EQ(gpus(), (std::vector<std::int32_t>{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2}));
  EXPECT_EQ(homes_of_layers(plan, 6), (std::vector<std::int32_t>{-1, 1, -1, 3, -1, 1}));
  plan.mirrored = true;
  EXPECT_EQ(gpus(), (std::vector<std::int32_t>{0, 1, 2, 3, 0, 1, 0, 3, 2, 1, 0}));
  EXPECT_EQ(homes_of_layers(plan, 6), (std::vector<std::int32_t>{0, 1, 2, 3, 0, 1}));
  plan.mode = SwapMode::kVDP;
  EXPECT_EQ(homes_of_layers(plan, 6), std::vector<std::int32_t>(6, -1));
}

TEST(PackedVolumes, LayersThatStayMoveNothing) {
  SwapPlan plan{.gpus = 1, .samples = 4, .forward_packs = {0, 2}, .backward_packs = {0, 2, 4}};
  const SwapProfile profile{.weights = {1_B, 2_B, 4_B, 8_B, 16_B, 32_B},
                            .buffers = std::vector<Bytes>(6),
                            .state = std::vector<Bytes>(6),
                            .input = std::vector<Bytes>(6, 3_B)};
  const PackedVolumes none = packed_volumes(plan, profile, SwapRuntime::kPlimsoll);
  plan.resident = {1, 5};
  const PackedVolumes two = packed_volumes(plan, profile, SwapRuntime::kPlimsoll);
  EXPECT_EQ(none.weights_in - two.weights_in, 2_B * 2 + 32_B);
  EXPECT_EQ(none.gradients_out - two.gradients_out, 34_B);
  EXPECT_EQ(none.stash, two.stash);
}

TEST(PackedVolumes, AreThoseOfTheTableByWhatIsMoved) {
  SwapPlan plan{.mode = SwapMode::kVDP,
                .gpus = 4,
                .samples = 64,
                .forward_microbatch = 2,
                .backward_microbatch = 1,
                .forward_packs = {0, 2, 15, 28},
                .backward_packs = {0, 8, 19, 30, 41}};
  const PackedVolumes packed = volumes(plan, "gpt2_xl");
  const SwapVolumes moved = volumes_of(plan, packed);
  EXPECT_EQ(moved.weights, packed.weights_in);
  EXPECT_EQ(moved.state, Bytes{}) << "the host updates";
  EXPECT_EQ(moved.swapped(), packed.swapped());
  EXPECT_EQ(moved.all_reduce_payload, packed.gradients_out * 4);
  EXPECT_EQ(moved.all_reduce_wire, packed.gradients_out * 3) << "to GPU 0";
  plan.mode = SwapMode::kVPP;
  EXPECT_EQ(volumes_of(plan, packed).all_reduce_payload, Bytes{});
}

}  // namespace
}  // namespace plimsoll::estimator
