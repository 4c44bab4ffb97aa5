// DeepSpeed's ZeRO. What real runs take is in tests/estimator/estimate/parallel_truth_test.cc.
#include <gtest/gtest.h>

#include <utility>

#include "tests/estimator/replica_model.h"

namespace plimsoll::estimator {
namespace {

using crds::ParallelStrategy;
using testing::Model;
using testing::model_of;
using testing::vector_of;

constexpr std::int64_t kElements = 400'000;  // more than a parameter may have that ZeRO-3 keeps whole

void pass_through(ParameterLifeCycle& life, Model& model, std::int32_t unit, std::size_t parameter) {
  life.enter_backward(unit, kRootUnit);
  life.take_gradient(parameter, model.gradient(parameter));
  life.leave_backward(unit);
}

// Ten elements on four trainers: three each, which the optimizer updates in a copy, in fp32 too.
TEST(DeepSpeed, ZeRO2KeepsAShardOfGradientsAndState) {
  Model model = model_of(ParallelStrategy::kZeRO2, 4, {vector_of(10)});
  model.replication.reduce_bucket_elements = 16;
  ParameterLifeCycle life = model.life();
  life.persist();
  EXPECT_EQ(model.ledger.live(Part::kParameters), 10 * 4 + 3 * 4);
  EXPECT_EQ(model.ledger.live(Part::kOptimizerState), 3 * 4);
  EXPECT_EQ(model.ledger.live(Part::kDdpBuckets), 0);
  life.take_gradient(0, model.gradient(0));
  EXPECT_EQ(model.ledger.live(Part::kDdpBuckets), 16 * 4) << "however small the model is";
  EXPECT_EQ(model.ledger.live(Part::kGradients), 0) << "in the bucket";
  life.end_backward();
  EXPECT_EQ(model.ledger.most(Part::kTemporaries), 10 * 4) << "the bucket's copy";
  EXPECT_EQ(model.ledger.live(Part::kDdpBuckets), 0);
  EXPECT_EQ(model.ledger.live(Part::kGradients), 3 * 4);
  life.step();
  EXPECT_EQ(model.ledger.live(Part::kGradients), 0);
}

TEST(DeepSpeed, ABucketIsReducedWhenItIsFull) {
  Model model = model_of(ParallelStrategy::kZeRO2, 2, {vector_of(10), vector_of(6), vector_of(8)});
  model.replication.reduce_bucket_elements = 16;
  ParameterLifeCycle life = model.life();
  life.persist();
  for (const std::size_t parameter : {2, 1, 0}) {
    EXPECT_EQ(model.ledger.most(Part::kTemporaries), 0);
    life.take_gradient(parameter, model.gradient(parameter));
  }
  EXPECT_EQ(model.ledger.most(Part::kTemporaries), (8 + 6) * 4);
  EXPECT_EQ(model.ledger.live(Part::kGradients), (4 + 3) * 4);
  life.end_backward();
  EXPECT_EQ(model.ledger.live(Part::kGradients), (4 + 3 + 5) * 4);
}

// In half precision ZeRO-1 is DeepSpeed's: no owners of whole parameters, and no DDP.
TEST(DeepSpeed, ZeRO1KeepsGradientsUntilTheStep) {
  Model model = model_of(ParallelStrategy::kZeRO1, 4, {vector_of(12)});
  model.parameters[0].width = 2;
  model.replication.reduce_bucket_elements = 16;
  ParameterLifeCycle life = model.life();
  life.persist();
  EXPECT_EQ(model.ledger.live(Part::kParameters), 12 * 2 + 3 * 4);
  EXPECT_EQ(model.ledger.live(Part::kOptimizerState), 3 * 4);
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    life.take_gradient(0, model.gradient(0));
    EXPECT_EQ(model.ledger.live(Part::kDdpBuckets), 16 * 2);
    life.end_backward();
    EXPECT_EQ(model.ledger.live(Part::kDdpBuckets), 0);
    EXPECT_EQ(model.ledger.live(Part::kGradients), 12 * 2);
  }
  life.step();
  EXPECT_EQ(model.ledger.live(Part::kGradients), 0);
}

// extra_large_param_to_reduce: such a gradient stays where it is until the next one comes.
TEST(DeepSpeed, AGradientThatExceedsTheBucketStaysBesideIt) {
  for (const ParallelStrategy strategy : {ParallelStrategy::kZeRO2, ParallelStrategy::kZeRO3}) {
    Model model = model_of(strategy, 2, {vector_of(10), vector_of(20)});
    model.replication.reduce_bucket_elements = 16;
    ParameterLifeCycle life = model.life();
    life.take_gradient(1, model.gradient(1));
    EXPECT_EQ(model.ledger.live(Part::kGradients), 20 * 4);
    life.take_gradient(0, model.gradient(0));
    EXPECT_EQ(model.ledger.most(Part::kTemporaries), 20 * 4);
    EXPECT_EQ(model.ledger.live(Part::kGradients), strategy == ParallelStrategy::kZeRO2 ? 10 * 4 : 0);
  }
}

TEST(DeepSpeed, ZeRO3KeepsAShardOfAll) {
  Model model = model_of(ParallelStrategy::kZeRO3, 4,
                         {vector_of(kElements, 0), vector_of(kElements, 0), vector_of(1000, 0)});
  for (ReplicaParameter& parameter : model.parameters) {
    parameter.width = 2;
  }
  model.replication.reduce_bucket_elements = 16;
  ParameterLifeCycle life = model.life();
  life.persist();
  const std::int64_t shard = (2 * kElements + 1000) / 4;
  EXPECT_EQ(model.ledger.live(Part::kParameters), shard * 4 + shard * 2 + 1000 * 2) << "small ones are whole";
  EXPECT_EQ(model.ledger.live(Part::kOptimizerState), shard * 4);
  EXPECT_EQ(model.ledger.live(Part::kGradients), shard * 2);
  EXPECT_EQ(model.ledger.live(Part::kDdpBuckets), 16 * 2);
  life.enter_forward(kRootUnit);
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), 2 * kElements * 2) << "the all-gather's result";
  life.enter_forward(0);
  EXPECT_EQ(model.ledger.most(Part::kTemporaries), 2 * 2 * kElements * 2) << "copied out of it";
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), 2 * kElements * 2);
  life.leave_forward(0);
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), 2 * kElements * 2) << "used again soon";
  life.end_forward();
  pass_through(life, model, 0, 0);
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), 0);
  life.end_backward();
  EXPECT_EQ(model.ledger.live(Part::kGradients), shard * 2);
  life.step();
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), 0);
  EXPECT_EQ(model.ledger.live(Part::kGradients), shard * 2);
}

// Of a frozen parameter there is the partition alone: no copy that the optimizer updates, no gradient and no state.
TEST(DeepSpeed, ZeRO3ShardsFrozenParametersToo) {
  Model model = model_of(ParallelStrategy::kZeRO3, 4, {vector_of(8'000'000, 0), vector_of(400'000, 0)});
  model.parameters[0].trained = false;
  model.replication.reduce_bucket_elements = 1'000'000;
  ParameterLifeCycle life = model.life();
  life.persist();
  EXPECT_EQ(model.ledger.live(Part::kParameters), (2'000'000 + 100'000 + 100'000) * 4);
  EXPECT_EQ(model.ledger.live(Part::kOptimizerState), 100'000 * 4);
  EXPECT_EQ(model.ledger.live(Part::kGradients), 100'000 * 4);
  life.enter_forward(kRootUnit);
  life.enter_forward(0);
  EXPECT_GE(model.ledger.live(Part::kTemporaries), (8'000'000 + 400'000) * 4);
  life.leave_forward(0);
  life.end_forward();
  life.enter_backward(0, kRootUnit);
  life.take_gradient(1, model.gradient(1));
  life.leave_backward(0);
  life.end_backward();
  const std::int64_t before = model.ledger.most(Part::kGradients);
  life.step();
  EXPECT_EQ(model.ledger.most(Part::kGradients), before) << "the step has gradients of what is trained alone";
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), 0);
}

TEST(DeepSpeed, AModelThatIsFrozenAsAWholeTakesNoStep) {
  Model model = model_of(ParallelStrategy::kZeRO3, 4, {vector_of(400'000, 0)});
  model.parameters[0].trained = false;
  ParameterLifeCycle life = model.life();
  life.persist();
  const std::int64_t persistent = model.ledger.live();
  life.step();
  EXPECT_EQ(model.ledger.most(), persistent);
}

// __inflight_param_registry: each parameter that is on the way keeps the whole buffer.
TEST(DeepSpeed, TheBufferLivesUntilItsLastParameterIsUsed) {
  Model model = model_of(
      ParallelStrategy::kZeRO3, 4,
      {vector_of(kElements), vector_of(kElements), vector_of(kElements, 0), vector_of(kElements, 1)});
  ParameterLifeCycle life = model.life();
  life.enter_forward(kRootUnit);
  for (const std::int32_t unit : {0, 1}) {
    life.enter_forward(unit);
    EXPECT_EQ(model.ledger.live(Part::kTemporaries), 2 * 4 * kElements * 4) << unit;
    life.leave_forward(unit);
  }
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), 4 * kElements * 4) << "the root's head is the last";
}

// NoGatherCoalescedHandle: nobody else has a part.
TEST(DeepSpeed, OneTrainerGathersNothing) {
  Model model = model_of(ParallelStrategy::kZeRO3, 1, {vector_of(kElements, 0), vector_of(kElements, 0)});
  ParameterLifeCycle life = model.life();
  life.enter_forward(kRootUnit);
  life.enter_forward(0);
  EXPECT_EQ(model.ledger.most(Part::kTemporaries), 0);
}

// stage3_max_reuse_distance is 1e9 elements: after the first unit 6e8 are used in forward and again in backward. What is
// gathered ahead ends with the parameter that exceeds stage3_prefetch_bucket_size.
TEST(DeepSpeed, UnitsThatAreUsedAgainMuchLaterAreFreed) {
  constexpr std::int64_t kUnit = 600'000'000;
  Model model =
      model_of(ParallelStrategy::kZeRO3, 4, {vector_of(kUnit, 0), vector_of(kUnit, 1), vector_of(kUnit, 2)});
  ParameterLifeCycle life = model.life();
  life.persist();
  life.enter_forward(kRootUnit);
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), kUnit * 4);
  life.enter_forward(0);
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), 2 * kUnit * 4);
  life.leave_forward(0);
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), kUnit * 4);
  life.enter_forward(1);
  EXPECT_EQ(model.ledger.most(Part::kTemporaries), 2 * kUnit * 4) << "stage3_max_live_parameters";
  life.leave_forward(1);
  life.enter_forward(2);
  life.leave_forward(2);
  EXPECT_GE(model.ledger.live(Part::kTemporaries), kUnit * 4) << "the last unit is used again at once";
  life.end_forward();
  for (const std::int32_t unit : {2, 1, 0}) {
    pass_through(life, model, unit, static_cast<std::size_t>(unit));
  }
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), 0);
}

TEST(DeepSpeed, SmallUnitsAreGatheredAhead) {
  Model model = model_of(ParallelStrategy::kZeRO3, 4, {vector_of(kElements, 0), vector_of(kElements, 1)});
  ParameterLifeCycle life = model.life();
  life.enter_forward(0);
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), 2 * kElements * 4);
}

// offload_optimizer: parameters in 16 bits and the bucket stay on the GPU.
TEST(DeepSpeed, AnOffloadedOptimizerLeavesTheParameters) {
  Model model = model_of(ParallelStrategy::kZeRO2, 4, {vector_of(12)});
  model.parameters[0].width = 2;
  model.replication.offload = crds::Offload::kOptimizer;
  model.replication.reduce_bucket_elements = 16;
  ParameterLifeCycle life = model.life();
  life.persist();
  EXPECT_EQ(model.ledger.live(Part::kParameters), 12 * 2);
  EXPECT_EQ(model.ledger.live(Part::kOptimizerState), 0);
  life.take_gradient(0, model.gradient(0));
  EXPECT_EQ(model.ledger.live(Part::kDdpBuckets), 16 * 2);
  life.end_backward();
  EXPECT_EQ(model.ledger.live(Part::kGradients), 0);
}

}  // namespace
}  // namespace plimsoll::estimator
