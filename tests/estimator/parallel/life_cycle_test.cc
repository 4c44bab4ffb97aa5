#include "estimator/parallel/life_cycle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>

#include "tests/estimator/replica_model.h"

namespace plimsoll::estimator {
namespace {

using crds::ParallelStrategy;
using ::testing::HasSubstr;
using testing::Model;
using testing::model_of;
using testing::vector_of;

TEST(ParameterLifeCycle, ASingleTrainerHasParametersStateAndGradients) {
  Model model = model_of(ParallelStrategy::kAuto, 1, {vector_of(10), vector_of(5)});
  model.parameters[1].count = 3;
  ParameterLifeCycle life = model.life();
  life.persist();
  EXPECT_EQ(model.ledger.live(Part::kParameters), (10 + 3 * 5) * 4);
  EXPECT_EQ(model.ledger.live(Part::kOptimizerState), (10 + 3 * 5) * 4);
  EXPECT_EQ(model.ledger.live(Part::kDdpBuckets), 0);
  life.take_gradient(0, model.gradient(0));
  life.take_gradient(1, model.gradient(1));
  life.end_backward();
  life.step();
  EXPECT_EQ(model.ledger.live(Part::kGradients), (10 + 3 * 5) * 4);
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), 0);
}

// torch.nn.parallel.DistributedDataParallel, and its option gradient_as_bucket_view.
TEST(ParameterLifeCycle, DdpHasABucketForEachGradient) {
  for (const bool view : {false, true}) {
    Model model = model_of(ParallelStrategy::kDDP, 8, {vector_of(10), vector_of(6)});
    model.replication.gradient_as_bucket_view = view;
    ParameterLifeCycle life = model.life();
    life.persist();
    EXPECT_EQ(model.ledger.live(Part::kDdpBuckets), 16 * 4);
    life.take_gradient(0, model.gradient(0));
    life.take_gradient(1, model.gradient(1));
    EXPECT_EQ(model.ledger.live(Part::kGradients), view ? 0 : 16 * 4);
    EXPECT_EQ(model.ledger.most(Part::kGradients), view ? 10 * 4 : 16 * 4);
    for (const BlockId block : life.left_gradients()) {
      model.ledger.release(block);
    }
    EXPECT_EQ(model.ledger.most(Part::kGradients), view ? 10 * 4 : 2 * 16 * 4);
  }
}

TEST(ParameterLifeCycle, LaterMicroBatchesAddToTheGradients) {
  for (const ParallelStrategy strategy :
       {ParallelStrategy::kAuto, ParallelStrategy::kDDP, ParallelStrategy::kZeRO2, ParallelStrategy::kFSDP}) {
    Model model = model_of(strategy, strategy == ParallelStrategy::kAuto ? 1 : 2, {vector_of(8)});
    ParameterLifeCycle life = model.life();
    life.persist();
    std::array<std::int64_t, 2> left{};
    for (std::int64_t& live : left) {
      life.enter_forward(kRootUnit);
      life.end_forward();
      life.take_gradient(0, model.gradient(0));
      life.end_backward();
      live = model.ledger.live(Part::kGradients);
    }
    EXPECT_EQ(left[0], left[1]) << crds::name_of(strategy);
    EXPECT_GT(left[0], 0) << crds::name_of(strategy);
  }
}

// param_and_grad_buffer.py: main_grad holds all gradients in fp32 all the time; distrib_optimizer.py: the rest is sharded.
TEST(ParameterLifeCycle, MegatronKeepsWholeGradientsInFp32) {
  Model model = model_of(ParallelStrategy::kMegatron, 4, {vector_of(16)});
  model.parameters[0].width = 2;
  ParameterLifeCycle life = model.life();
  life.persist();
  EXPECT_EQ(model.ledger.live(Part::kParameters), 16 * 2 + 16 / 4 * 4);
  EXPECT_EQ(model.ledger.live(Part::kGradients), 16 * 4);
  EXPECT_EQ(model.ledger.live(Part::kOptimizerState), 16 / 4 * 4);
  EXPECT_EQ(model.ledger.live(Part::kDdpBuckets), 0);
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    life.take_gradient(0, model.gradient(0));
    life.end_backward();
    EXPECT_EQ(model.ledger.live(Part::kGradients), 16 * 4);
  }
  EXPECT_EQ(model.ledger.most(Part::kGradients), 16 * 4 + 16 * 2);
  EXPECT_TRUE(life.left_gradients().empty());
  life.keep_gradients();
  EXPECT_EQ(model.ledger.live(Part::kGradients), 16 * 4);
}

// hybrid_optimizer.py: parameters in their order, and experts that trainers share apart. Of 10 and 40 elements half are on the host.
TEST(ParameterLifeCycle, MegatronKeepsTheStatesOfAShareOfTheElementsOnTheHost) {
  Model model = model_of(ParallelStrategy::kMegatron, 4, {vector_of(16), vector_of(8), vector_of(40)});
  for (ReplicaParameter& parameter : model.parameters) {
    parameter.width = 2;
  }
  model.parameters[1].count = 3;
  model.parameters[2].experts_over = 4;
  model.replication.offload = crds::Offload::kOptimizer;
  model.replication.offload_percent = 50;
  ParameterLifeCycle life = model.life();
  life.persist();
  EXPECT_EQ(model.ledger.live(Part::kParameters), (16 + 3 * 8 + 40) * 2 + (10 + 40) * 4) << "copies stay";
  EXPECT_EQ(model.ledger.live(Part::kOptimizerState), (5 + 20) * 4);
  const HostMemory host = life.host_memory(crds::CheckpointSaving::kNone);
  EXPECT_EQ(host.parameters, Bytes{(5 + 20) * 4});
  EXPECT_EQ(host.gradients, Bytes{(5 + 20) * 4});
  EXPECT_EQ(host.optimizer_state, Bytes{(5 + 20) * 4});
  life.step();
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), 0);
}

TEST(ParameterLifeCycle, MegatronCanKeepAllStatesOnTheHost) {
  Model model = model_of(ParallelStrategy::kMegatron, 4, {vector_of(16)});
  model.parameters[0].width = 2;
  model.replication.offload = crds::Offload::kOptimizer;
  ParameterLifeCycle life = model.life();
  life.persist();
  EXPECT_EQ(model.ledger.live(Part::kParameters), 16 * 2 + 16 / 4 * 4);
  EXPECT_EQ(model.ledger.live(Part::kOptimizerState), 0);
  EXPECT_EQ(life.host_memory(crds::CheckpointSaving::kNone).optimizer_state, Bytes{16 / 4 * 4});
}

// zero_redundancy_optimizer.py: largest first, to the rank with the least. 10 to rank 0; 6 and 5 to rank 1;
// then rank 0 has less than 11 and gets the 2.
TEST(ParameterLifeCycle, ZeRO1GivesEachParameterAnOwner) {
  for (const auto& [rank, elements] : {std::pair(0, 10 + 2), std::pair(1, 6 + 5)}) {
    Model model =
        model_of(ParallelStrategy::kZeRO1, 2, {vector_of(2), vector_of(6), vector_of(10), vector_of(5)});
    model.replication.rank = rank;
    ParameterLifeCycle life = model.life();
    life.persist();
    EXPECT_EQ(model.ledger.live(Part::kOptimizerState), elements * 4) << rank;
    EXPECT_EQ(model.ledger.live(Part::kParameters), 23 * 4);
    EXPECT_EQ(model.ledger.live(Part::kDdpBuckets), 23 * 4);
  }
}

TEST(ParameterLifeCycle, WhatPersistsIsWhatPersistAllocates) {
  for (std::size_t i = 0; i < crds::kNames<ParallelStrategy>.size(); ++i) {
    Model model;
    model.parameters = {{.elements = 1000, .rows = 10, .columns = 100, .dimensions = 2, .first = 10},
                        {.elements = 7, .count = 3}};
    model.replication = {.strategy = static_cast<ParallelStrategy>(i), .replicas = 3};
    model.life().persist();
    std::int64_t live = 0;
    for (std::size_t part = 0; part < kParts; ++part) {
      live += model.ledger.live(static_cast<Part>(part));
    }
    const Result<OptimizerRun> run =
        optimizer_run(model.optimizer, crds::OptimizerImplementation::kSingleTensor, Device::kCpu, 215);
    EXPECT_EQ(
        persistent_bytes(model.replication, {model.parameters.begin(), model.parameters.end()}, *run).count,
        live);
  }
}

TEST(ParameterLifeCycle, HsdpGroupsThatAreImpossibleAreRefused) {
  crds::Parallelism parallelism;
  parallelism.replicate = 3;
  const auto refusal = [&](ParallelStrategy strategy, std::int64_t holders) {
    parallelism.strategy = strategy;
    const Result<void> checked = check_replicate(parallelism, holders);
    return checked ? std::string() : checked.error().message;
  };
  EXPECT_THAT(refusal(ParallelStrategy::kDDP, 6), HasSubstr("training.parallelism.replicate is 3"));
  EXPECT_THAT(refusal(ParallelStrategy::kFSDP2, 8), HasSubstr("must divide the 8 trainers"));
  EXPECT_THAT(refusal(ParallelStrategy::kFSDP, 3), HasSubstr("use DDP"));
  EXPECT_EQ(refusal(ParallelStrategy::kFSDP2, 3), "");
  EXPECT_EQ(refusal(ParallelStrategy::kFSDP, 6), "");
}

// CPUOffloadPolicy and DeepSpeed's offload_param: only what is gathered is on the GPU.
TEST(ParameterLifeCycle, OffloadedParametersAreOnTheGpuWhileTheyAreGathered) {
  for (const ParallelStrategy strategy :
       {ParallelStrategy::kFSDP, ParallelStrategy::kFSDP2, ParallelStrategy::kZeRO3}) {
    constexpr std::int64_t kElements = 400'000;  // more than DeepSpeed keeps whole
    Model model = model_of(strategy, 4, {vector_of(kElements, 0)});
    model.parameters[0].width = 2;
    model.replication.offload = crds::Offload::kParameters;
    ParameterLifeCycle life = model.life();
    life.persist();
    EXPECT_EQ(model.ledger.live(Part::kParameters), 0) << crds::name_of(strategy);
    EXPECT_EQ(model.ledger.live(Part::kOptimizerState), 0) << crds::name_of(strategy);
    life.enter_forward(0);
    EXPECT_GE(model.ledger.live(Part::kTemporaries), kElements * 2) << crds::name_of(strategy);
    life.leave_forward(0);
    life.end_forward();
    life.enter_backward(0, kRootUnit);
    life.take_gradient(0, model.gradient(0));
    life.leave_backward(0);
    life.end_backward();
    EXPECT_EQ(model.ledger.live(Part::kGradients), 0) << "copied to the host " << crds::name_of(strategy);
    EXPECT_TRUE(life.left_gradients().empty());
    life.step();
    EXPECT_EQ(model.ledger.live(Part::kTemporaries), 0) << crds::name_of(strategy);
  }
}

TEST(ParameterLifeCycle, AnOptimizerInBackwardFreesEachGradientAtOnce) {
  for (const auto& [strategy, replicas] :
       {std::pair(ParallelStrategy::kAuto, 1), std::pair(ParallelStrategy::kFSDP2, 4)}) {
    Model model = model_of(strategy, replicas, {vector_of(12, 0), vector_of(8, 1)});
    model.optimizer = crds::Optimizer::kAdam;
    model.replication.steps_in_backward = true;
    ParameterLifeCycle life = model.life();
    life.persist();
    for (const std::int32_t unit : {1, 0}) {
      life.enter_backward(unit, unit - 1);
      life.take_gradient(static_cast<std::size_t>(unit), model.gradient(static_cast<std::size_t>(unit)));
      life.leave_backward(unit);
      EXPECT_EQ(model.ledger.live(Part::kGradients), 0) << crds::name_of(strategy);
    }
    life.end_backward();
    const std::int64_t temporaries = model.ledger.most(Part::kTemporaries);
    life.step();
    EXPECT_EQ(model.ledger.most(Part::kTemporaries), temporaries) << "all have been updated";
    EXPECT_TRUE(life.left_gradients().empty());
  }
}

TEST(ParameterLifeCycle, OptimizersThatCannotStepInBackwardAreRefused) {
  crds::Parallelism parallelism;
  const auto refusal = [&](std::int64_t holders, std::int64_t micro_batches) {
    const Result<void> checked = check_steps(parallelism, true, holders, micro_batches);
    return checked ? std::string() : checked.error().message;
  };
  EXPECT_EQ(refusal(1, 1), "");
  EXPECT_THAT(refusal(1, 2), HasSubstr("training.optimizerInBackward needs gradientAccumulation 1"));
  EXPECT_THAT(refusal(2, 1), HasSubstr("needs parallelism.strategy FSDP or FSDP2"));
  parallelism.strategy = ParallelStrategy::kFSDP2;
  EXPECT_EQ(refusal(2, 1), "");
  parallelism.offload = crds::Offload::kParameters;
  EXPECT_THAT(refusal(2, 1), HasSubstr("does not go with parallelism.offload"));
}

// The host has the shards of all, and the states of what is trained.
TEST(ParameterLifeCycle, OffloadedFrozenParametersAreInTheHostsMemory) {
  for (const ParallelStrategy strategy : {ParallelStrategy::kFSDP2, ParallelStrategy::kZeRO3}) {
    Model model = model_of(strategy, 4, {vector_of(40, 0), vector_of(8, 0)});
    model.parameters[0].trained = false;
    model.replication.offload = crds::Offload::kParameters;
    const HostMemory host = model.life().host_memory(crds::CheckpointSaving::kNone);
    const bool copied = strategy == ParallelStrategy::kZeRO3;
    EXPECT_EQ(host.parameters.count, (10 + 2 + (copied ? 2 : 0)) * 4);
    EXPECT_EQ(host.optimizer_state.count, 2 * 4);
    EXPECT_EQ(host.gradients.count, 2 * 4);
  }
}

// Mixtral under FSDP2: memory rose with the trainers, unexplained.
TEST(ParameterLifeCycle, AWeightWithFewerRowsThanTrainersIsAWarning) {
  const ReplicaParameter experts{.elements = 8 * 100, .first = 8, .unit = 0};
  EXPECT_EQ(padding_warning("experts", experts, 8), "");
  const std::string warning = padding_warning("layers.0.experts.down", experts, 64);
  EXPECT_THAT(warning, HasSubstr("layers.0.experts.down has 8 rows, which FSDP2 pads to 64"));
  EXPECT_THAT(warning, HasSubstr("gathered 8 times as large"));
  EXPECT_THAT(warning, HasSubstr("shard_placement_fn"));
  EXPECT_THAT(warning, HasSubstr("parallelism.expert"));
}

// One trainer has nothing to shard or gather; DeepSpeed copies there, too.
TEST(ParameterLifeCycle, ShardingOnOneTrainerChangesNothing) {
  for (const ParallelStrategy strategy : {ParallelStrategy::kZeRO1, ParallelStrategy::kFSDP}) {
    Model model = model_of(strategy, 1, {vector_of(10, 0)});
    ParameterLifeCycle life = model.life();
    life.persist();
    life.enter_forward(0);
    life.leave_forward(0);
    life.end_forward();
    EXPECT_EQ(model.ledger.live(Part::kParameters), 10 * 4) << crds::name_of(strategy);
    EXPECT_EQ(model.ledger.live(Part::kOptimizerState), 10 * 4) << crds::name_of(strategy);
    EXPECT_EQ(model.ledger.most(Part::kTemporaries), 0) << crds::name_of(strategy);
  }
}

TEST(ParameterLifeCycle, MillionsOfReplicasAreTakenFromTheBudget) {
  Budget budget({.memory = 1_MiB});
  const Result<int> result = budget.run([&]() -> Result<int> {
    Model model = model_of(ParallelStrategy::kZeRO1, 1 << 30, {vector_of(10)});
    model.life(&budget).persist();
    return 0;
  });
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kTooLarge);
}

}  // namespace
}  // namespace plimsoll::estimator
