#include "estimator/parallel/life_cycle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>
#include <utility>
#include <vector>

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

// Units of 10 and 6 elements and a root of 3 on four trainers: shards of 3, 2 and 1 elements, so that the flat
// parameters have 12, 8 and 4.
TEST(ParameterLifeCycle, FsdpGathersAUnitAtATime) {
  Model model = model_of(ParallelStrategy::kFSDP, 4, {vector_of(10, 0), vector_of(6, 1), vector_of(3)});
  ParameterLifeCycle life = model.life();
  const auto temporaries = [&] { return model.ledger.live(Part::kTemporaries); };
  life.persist();
  EXPECT_EQ(model.ledger.live(Part::kParameters), (3 + 2 + 1) * 4);
  EXPECT_EQ(model.ledger.live(Part::kOptimizerState), (3 + 2 + 1) * 4);

  life.enter_forward(kRootUnit);
  EXPECT_EQ(temporaries(), 4 * 4);
  life.enter_forward(0);
  EXPECT_EQ(temporaries(), (4 + 12) * 4);
  life.leave_forward(0);
  EXPECT_EQ(temporaries(), 4 * 4);
  life.enter_forward(1);
  life.leave_forward(1);
  life.leave_forward(kRootUnit);
  life.end_forward();
  EXPECT_EQ(temporaries(), 4 * 4) << "the root stays for backward";
  EXPECT_EQ(model.ledger.most(Part::kTemporaries), (4 + 12) * 4);

  life.enter_backward(1, 0);
  EXPECT_EQ(temporaries(), (4 + 8 + 12) * 4) << "the next unit is gathered early";
  life.take_gradient(1, model.gradient(1));
  life.leave_backward(1);
  EXPECT_EQ(temporaries(), (4 + 12) * 4);
  EXPECT_EQ(model.ledger.live(Part::kGradients), 2 * 4) << "its shard";
  life.enter_backward(0, kRootUnit);
  life.take_gradient(0, model.gradient(0));
  life.leave_backward(0);
  life.take_gradient(2, model.gradient(2));
  life.end_backward();
  EXPECT_EQ(temporaries(), 0);
  EXPECT_EQ(model.ledger.live(Part::kGradients), (3 + 2 + 1) * 4);
}

// What an H100 reserved for FSDP1 in mixed precision was up to 23 % more than estimated: these blocks are of other streams than
// the computation's (_flat_param.py: _use_low_precision_shard; _runtime_utils.py: _post_backward_hook).
TEST(ParameterLifeCycle, FsdpCastsWhatItSendsAndWhatItReduces) {
  for (const bool offloads : {false, true}) {
    Model model = model_of(ParallelStrategy::kFSDP, 4, {vector_of(16, 0)});
    model.parameters[0].width = 2;
    model.replication.offload = offloads ? crds::Offload::kParameters : crds::Offload::kNone;
    ParameterLifeCycle life = model.life();
    life.persist();
    life.enter_forward(0);
    EXPECT_EQ(model.ledger.live(Part::kTemporaries), 16 * 2);
    EXPECT_EQ(model.ledger.most(Part::kTemporaries), 16 * 2 + 4 * 2) << "the shard in 16 bits";
    life.leave_forward(0);
    life.enter_backward(0, kRootUnit);
    life.take_gradient(0, model.gradient(0));
    life.leave_backward(0);
    EXPECT_EQ(model.ledger.most(Part::kTemporaries), 16 * 2 + 16 * 4) << "the flat gradient and its cast";
    EXPECT_EQ(model.ledger.live(Part::kTemporaries), 0);
    EXPECT_TRUE(model.ledger.streams().contains(kPreGatherStream));
    EXPECT_TRUE(model.ledger.streams().contains(kReductionStream));
  }
}

// accelerate's FSDP1: the shards that are left are cast.
TEST(ParameterLifeCycle, FsdpMayReduceInThePrecisionOfTheComputation) {
  for (const ParallelStrategy strategy : {ParallelStrategy::kFSDP, ParallelStrategy::kFSDP2}) {
    std::int64_t most[2];
    for (const bool half : {false, true}) {
      Model model = model_of(strategy, 4, {vector_of(16, 0)});
      model.parameters[0].width = 2;
      model.replication.reduces_in_half = half;
      ParameterLifeCycle life = model.life();
      life.persist();
      life.enter_forward(0);
      life.leave_forward(0);
      life.enter_backward(0, kRootUnit);
      life.take_gradient(0, model.gradient(0));
      life.leave_backward(0);
      life.end_backward();
      EXPECT_EQ(model.ledger.live(Part::kGradients), 4 * 4) << "the optimizer's shard";
      most[half ? 1 : 0] = model.ledger.most(Part::kTemporaries);
    }
    EXPECT_EQ(most[1] < most[0], strategy == ParallelStrategy::kFSDP);
  }
}

TEST(ParameterLifeCycle, TheRootGathersTheLastUnitAhead) {
  for (const ParallelStrategy strategy : {ParallelStrategy::kFSDP, ParallelStrategy::kFSDP2}) {
    Model model = model_of(strategy, 4, {vector_of(8, 0), vector_of(4)});
    ParameterLifeCycle life = model.life();
    life.persist();
    life.enter_forward(kRootUnit);
    life.enter_forward(0);
    life.leave_forward(0);
    life.end_forward();
    const std::int64_t before = model.ledger.live(Part::kTemporaries);
    life.enter_backward(kRootUnit, 0);
    EXPECT_EQ(model.ledger.live(Part::kTemporaries), before + 8 * 4) << crds::name_of(strategy);
  }
}

TEST(ParameterLifeCycle, FsdpMayKeepUnitsFromForwardToBackward) {
  Model model = model_of(ParallelStrategy::kFSDP, 2, {vector_of(10, 0), vector_of(6, 1)});
  model.replication.reshard_after_forward = false;
  ParameterLifeCycle life = model.life();
  for (const std::int32_t unit : {0, 1}) {
    life.enter_forward(unit);
    life.leave_forward(unit);
  }
  life.end_forward();
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), (10 + 6) * 4);
  life.enter_backward(1, 0);
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), (10 + 6) * 4) << "not gathered again";
}

// FSDP2 shards rows: five rows of two elements on four trainers are two rows each. It gathers into a buffer of
// 4 x 4 elements, from which the parameter is copied; the next gather frees the buffer.
TEST(ParameterLifeCycle, Fsdp2ShardsRowsAndCopiesOutOfABuffer) {
  const ReplicaParameter matrix{.elements = 10, .rows = 5, .columns = 2, .first = 5, .unit = 0};
  Model model = model_of(ParallelStrategy::kFSDP2, 4, {matrix, matrix});
  model.parameters[1].unit = 1;
  ParameterLifeCycle life = model.life();
  life.persist();
  EXPECT_EQ(model.ledger.live(Part::kParameters), 2 * (2 * 2) * 4);
  life.enter_forward(0);
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), (16 + 10) * 4);
  life.leave_forward(0);
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), 16 * 4);
  life.enter_forward(1);
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), (16 + 10) * 4);
  life.leave_forward(1);
  life.end_forward();
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), 0);
  life.enter_backward(1, 0);
  life.take_gradient(1, model.gradient(1));
  life.leave_backward(1);
  life.enter_backward(0, kRootUnit);
  life.take_gradient(0, model.gradient(0));
  life.leave_backward(0);
  life.end_backward();
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), 0);
  EXPECT_EQ(model.ledger.live(Part::kGradients), 2 * (2 * 2) * 4);
  EXPECT_EQ(model.ledger.streams(),
            (std::set<StreamId>{kComputeStream, kCommunicationStream, kReductionStream}))
      << "what is gathered and reduced is in pools of its own";
}

// HSDP on eight trainers, two groups of four: as FSDP on four, for the all-reduce among groups is in place.
TEST(ParameterLifeCycle, HsdpShardsWithinAGroup) {
  for (const ParallelStrategy strategy : {ParallelStrategy::kFSDP, ParallelStrategy::kFSDP2}) {
    const auto most = [&](std::int64_t replicas, std::int64_t replicate) {
      Model model = model_of(strategy, replicas, {vector_of(10, 0), vector_of(6)});
      model.replication.replicate = replicate;
      ParameterLifeCycle life = model.life();
      life.persist();
      life.enter_forward(kRootUnit);
      life.enter_forward(0);
      life.leave_forward(0);
      life.end_forward();
      life.enter_backward(0, kRootUnit);
      life.take_gradient(0, model.gradient(0));
      life.leave_backward(0);
      life.take_gradient(1, model.gradient(1));
      life.end_backward();
      return std::array{model.ledger.most(Part::kParameters), model.ledger.most(Part::kTemporaries),
                        model.ledger.most(Part::kGradients), model.ledger.most(Part::kOptimizerState)};
    };
    EXPECT_EQ(most(8, 2), most(4, 1)) << crds::name_of(strategy);
    EXPECT_EQ(most(8, 2)[0], (3 + 2) * 4) << crds::name_of(strategy);
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

// torchtitan's mesh efsdp: the two trainers that hold the same experts shard them, all four the rest.
TEST(ParameterLifeCycle, SharedExpertsAreAUnitWithinTheirs) {
  Model model = model_of(ParallelStrategy::kFSDP2, 4, {vector_of(8, 0), vector_of(16, 0)});
  model.parameters[1].experts_over = 2;
  ParameterLifeCycle life = model.life();
  life.persist();
  EXPECT_EQ(model.ledger.live(Part::kParameters), 8 / 4 * 4 + 16 / 2 * 4);
  life.enter_forward(0);
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), 8 * 4 + 2 * 16 * 4) << "the experts' buffer is the last";
  life.leave_forward(0);
  life.end_forward();
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), 0);
  life.enter_backward(0, kRootUnit);
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), (8 + 16) * 4);
  life.take_gradient(1, model.gradient(1));
  EXPECT_EQ(model.ledger.live(Part::kGradients), 16 / 2 * 4) << "reduced before the rest of the unit";
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), (8 + 16) * 4)
      << "the reduce-scatter's input instead of the experts";
  life.take_gradient(0, model.gradient(0));
  life.leave_backward(0);
  life.end_backward();
  EXPECT_EQ(model.ledger.live(Part::kGradients), 16 / 2 * 4 + 8 / 4 * 4);
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), 0);
}

// stage.py: with a pipeline, FSDP2 neither reduces nor reshards before the last micro-batch. The torchtitan rows of
// 405B were half of what was measured without it.
TEST(ParameterLifeCycle, InAPipelineFsdp2KeepsWholeGradientsUntilTheLastMicroBatch) {
  Model model = model_of(ParallelStrategy::kFSDP2, 4, {vector_of(12, 0), vector_of(8, 1), vector_of(4)});
  for (ReplicaParameter& parameter : model.parameters) {
    parameter.width = 2;  // and reduced in 4 bytes
  }
  model.replication.reduces_once = true;
  ParameterLifeCycle life = model.life();
  for (int micro_batch = 0; micro_batch < 3; ++micro_batch) {
    life.enter_forward(kRootUnit);
    for (const std::int32_t unit : {0, 1}) {
      life.enter_forward(unit);
      life.leave_forward(unit);
    }
    life.end_forward();
    for (const std::int32_t unit : {1, 0}) {
      life.enter_backward(unit, unit - 1);
      life.take_gradient(static_cast<std::size_t>(unit), model.gradient(static_cast<std::size_t>(unit)));
      life.leave_backward(unit);
    }
    life.take_gradient(2, model.gradient(2));
    life.end_backward();
    EXPECT_EQ(model.ledger.live(Part::kGradients), (12 + 8 + 4) * 4) << micro_batch;
    EXPECT_EQ(model.ledger.live(Part::kTemporaries), (12 + 8 + 4) * 2) << "all gathered, " << micro_batch;
  }
  life.end_accumulation(0, 2);
  EXPECT_EQ(model.ledger.live(Part::kGradients), (3 + 2 + 1) * 4);
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), 0);
}

// _fsdp_param_group.py, wait_for_unshard: with one shard the parameters are copied, without a buffer.
TEST(ParameterLifeCycle, Fsdp2CopiesParametersOnASingleTrainer) {
  Model model = model_of(ParallelStrategy::kFSDP2, 1, {vector_of(10, 0)});
  ParameterLifeCycle life = model.life();
  life.persist();
  life.enter_forward(0);
  EXPECT_EQ(model.ledger.most(Part::kTemporaries), 10 * 4);
  life.leave_forward(0);
  life.end_forward();
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), 0);
  life.enter_backward(0, kRootUnit);
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), 10 * 4);
  life.take_gradient(0, model.gradient(0));
  life.leave_backward(0);
  life.end_backward();
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), 0);
  EXPECT_EQ(model.ledger.live(Part::kGradients), 10 * 4);
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

// enable_fsdp_float8_all_gather: a byte an element is gathered; gradients are reduced as before.
TEST(ParameterLifeCycle, Float8IsGatheredInOneByte) {
  Model model = model_of(ParallelStrategy::kFSDP2, 4, {vector_of(12, 0)});
  model.parameters[0].width = 2;
  model.parameters[0].gathered_width = 1;
  ParameterLifeCycle life = model.life();
  life.enter_forward(0);
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), (12 + 12) * 1)
      << "the buffer and what is copied out of it";
  life.leave_forward(0);
  life.end_forward();
  life.enter_backward(0, kRootUnit);
  life.take_gradient(0, model.gradient(0));
  life.leave_backward(0);
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), 12 * 4) << "the input of the reduce-scatter";
}

// Frozen parameters of FSDP2 counted whole on each trainer: 15 GiB of an 8B model on each of 64.
TEST(ParameterLifeCycle, FrozenParametersAreShardedAndGatheredAndHaveNoGradient) {
  Model model = model_of(ParallelStrategy::kFSDP2, 4, {vector_of(40, 0), vector_of(8, 0)});
  model.parameters[0].trained = false;
  ParameterLifeCycle life = model.life();
  life.persist();
  EXPECT_EQ(model.ledger.live(Part::kParameters), (10 + 2) * 4);
  EXPECT_EQ(model.ledger.live(Part::kOptimizerState), 2 * 4);
  life.enter_forward(0);
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), 2 * (40 + 8) * 4) << "the buffer and its copy";
  life.leave_forward(0);
  life.end_forward();
  life.enter_backward(0, kRootUnit);
  life.take_gradient(1, model.gradient(1));
  life.leave_backward(0);
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), 8 * 4) << "the input of the reduce-scatter";
  life.end_backward();
  EXPECT_EQ(model.ledger.live(Part::kGradients), 2 * 4);
  life.step();
}

// With FSDP1 a flat parameter is trained as a whole, so that peft wraps each adapter apart. The unit that comes next is gathered
// after them: FSDP prefetches in the order of forward's units.
TEST(ParameterLifeCycle, AdaptersAreUnitsWithinTheirsWithFsdp1) {
  Model model = model_of(ParallelStrategy::kFSDP, 4,
                         {vector_of(40, 0), vector_of(8, 0), vector_of(40, 1), vector_of(8, 1)});
  model.parameters[0].trained = model.parameters[2].trained = false;
  ParameterLifeCycle life = model.life();
  const auto temporaries = [&] { return model.ledger.live(Part::kTemporaries); };
  life.persist();
  EXPECT_EQ(model.ledger.live(Part::kParameters), 2 * (10 + 2) * 4);
  EXPECT_EQ(model.ledger.live(Part::kOptimizerState), 2 * 2 * 4);
  for (const std::int32_t unit : {0, 1}) {
    life.enter_forward(unit);
    EXPECT_EQ(temporaries(), (40 + 8) * 4);
    life.leave_forward(unit);
    EXPECT_EQ(temporaries(), 0);
  }
  life.end_forward();
  life.enter_backward(1, 0);
  EXPECT_EQ(temporaries(), (40 + 8) * 4) << "the next unit waits for the adapters";
  life.take_gradient(3, model.gradient(3));
  EXPECT_EQ(temporaries(), (40 + 40) * 4) << "its adapters are done";
  life.leave_backward(1);
  EXPECT_EQ(temporaries(), 40 * 4);
  life.enter_backward(0, kRootUnit);
  life.take_gradient(1, model.gradient(1));
  life.leave_backward(0);
  life.end_backward();
  EXPECT_EQ(temporaries(), 0);
  EXPECT_EQ(model.ledger.live(Part::kGradients), 2 * 2 * 4);
}

TEST(ParameterLifeCycle, AUnitThatIsWholeIsNotGatheredAgainAfterTheAdapters) {
  Model model = model_of(ParallelStrategy::kFSDP, 4, {vector_of(40, 0), vector_of(40, 1), vector_of(8, 1)});
  model.parameters[0].trained = model.parameters[1].trained = false;
  model.replication.reshard_after_forward = false;
  ParameterLifeCycle life = model.life();
  for (const std::int32_t unit : {0, 1}) {
    life.enter_forward(unit);
    life.leave_forward(unit);
  }
  life.end_forward();
  const std::int64_t whole = model.ledger.live(Part::kTemporaries);
  EXPECT_EQ(whole, (40 + 40 + 8) * 4);
  life.enter_backward(1, 0);
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), whole);
  life.take_gradient(2, model.gradient(2));
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), (40 + 40) * 4);
  life.leave_backward(1);
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), 40 * 4);
}

TEST(ParameterLifeCycle, AUnitThatIsFrozenAsAWholeIsFreedAfterItsBackward) {
  for (const ParallelStrategy strategy : {ParallelStrategy::kFSDP, ParallelStrategy::kFSDP2}) {
    Model model = model_of(strategy, 4, {vector_of(40, 0)});
    model.parameters[0].trained = false;
    model.replication.reshard_after_forward = false;
    ParameterLifeCycle life = model.life();
    life.persist();
    life.keep_gradients();
    EXPECT_TRUE(life.left_gradients().empty());
    life.enter_forward(0);
    life.leave_forward(0);
    life.end_forward();
    EXPECT_EQ(model.ledger.live(Part::kTemporaries), 40 * 4);
    life.enter_backward(0, kRootUnit);
    life.leave_backward(0);
    EXPECT_EQ(model.ledger.live(Part::kTemporaries), 0);
    life.end_backward();
    life.step();
    EXPECT_EQ(model.ledger.live(Part::kGradients), 0);
    EXPECT_EQ(model.ledger.live(Part::kOptimizerState), 0);
  }
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

// Of four trainers two share the experts, so that two hold the same ones.
TEST(ParameterLifeCycle, ExpertsAreShardedAmongThoseThatHoldThem) {
  for (const ParallelStrategy strategy : {ParallelStrategy::kFSDP2, ParallelStrategy::kZeRO3}) {
    constexpr std::int64_t kElements = 800'000;
    Model model = model_of(strategy, 4, {vector_of(kElements, 0), vector_of(kElements, 1)});
    model.parameters[1].experts_over = 2;
    ParameterLifeCycle life = model.life();
    life.persist();
    const std::int64_t shards = (kElements / 4 + kElements / 2) * 4;
    const std::int64_t copies =
        strategy == ParallelStrategy::kZeRO3 ? 2 : 1;  // the optimizer's is another one
    EXPECT_EQ(model.ledger.live(Part::kParameters), copies * shards) << crds::name_of(strategy);
    EXPECT_EQ(model.ledger.live(Part::kOptimizerState), shards) << crds::name_of(strategy);
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

TEST(ParameterLifeCycle, GlooCopiesWhatItGathers) {
  for (const bool copies : {false, true}) {
    Model model = model_of(ParallelStrategy::kFSDP, 2, {vector_of(10, 0)});
    model.replication.collectives_copy = copies;
    ParameterLifeCycle life = model.life();
    life.enter_forward(0);
    EXPECT_EQ(model.ledger.live(Part::kTemporaries), 10 * 4);
    EXPECT_EQ(model.ledger.most(Part::kTemporaries), (copies ? 2 : 1) * 10 * 4);
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
