#include "estimator/parallel/life_cycle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

namespace plimsoll::estimator {
namespace {

using crds::ParallelStrategy;

// The live memory of each part. A block that is freed twice fails the test.
class Recorder : public ParameterLedger {
 public:
  BlockId allocate(Part part, Bytes bytes_of_one, std::int64_t count, std::size_t /*parameter*/) override {
    blocks_[next_] = {part, bytes_of_one * count};
    live_[part] += bytes_of_one * count;
    most_[part] = std::max(most_[part], live_[part]);
    return next_++;
  }
  void release(BlockId block) override {
    const auto found = blocks_.find(block);
    ASSERT_NE(found, blocks_.end()) << "block " << block << " is not live";
    live_[found->second.first] -= found->second.second;
    blocks_.erase(found);
  }
  std::int64_t live(Part part) const { return live_.contains(part) ? live_.at(part).count : 0; }
  std::int64_t most(Part part) const { return most_.contains(part) ? most_.at(part).count : 0; }

 private:
  BlockId next_ = 0;
  std::map<BlockId, std::pair<Part, Bytes>> blocks_;
  std::map<Part, Bytes> live_;
  std::map<Part, Bytes> most_;
};

// Vectors in FP32 with Momentum, whose state is as large as what it updates.
struct Model {
  Recorder ledger;
  std::vector<ReplicaParameter> parameters;
  Replication replication;
  crds::Optimizer optimizer = crds::Optimizer::kMomentum;

  ParameterLifeCycle life(Budget* budget = nullptr) {
    const Result<OptimizerRun> run =
        optimizer_run(optimizer, crds::OptimizerImplementation::kSingleTensor, Device::kCpu, 215);
    EXPECT_TRUE(run.ok());
    return ParameterLifeCycle(ledger, replication, {parameters.begin(), parameters.end(), budget}, *run,
                              budget);
  }
  // Backward's gradient of the parameter, as whoever executes the iteration allocates it.
  BlockId gradient(std::size_t parameter) {
    return ledger.allocate(Part::kGradients, parameters[parameter].bytes(), parameters[parameter].count,
                           parameter);
  }
};

ReplicaParameter vector_of(std::int64_t elements, std::int32_t unit = kRootUnit) {
  return {.elements = elements, .rows = 1, .first = elements, .unit = unit};
}

Model model_of(ParallelStrategy strategy, std::int64_t replicas, std::vector<ReplicaParameter> parameters) {
  Model model;
  model.parameters = std::move(parameters);
  model.replication = {.strategy = strategy, .replicas = replicas};
  return model;
}

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

// Ten elements on four trainers: three each. Gradients go through a bucket that holds all of them.
TEST(ParameterLifeCycle, ZeRO2KeepsAShardOfGradientsAndState) {
  Model model = model_of(ParallelStrategy::kZeRO2, 4, {vector_of(10)});
  ParameterLifeCycle life = model.life();
  life.persist();
  EXPECT_EQ(model.ledger.live(Part::kParameters), 10 * 4);
  EXPECT_EQ(model.ledger.live(Part::kOptimizerState), 3 * 4);
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), 10 * 4);
  life.take_gradient(0, model.gradient(0));
  EXPECT_EQ(model.ledger.live(Part::kGradients), 3 * 4);
}

// ZeRO-3 in 16 bits keeps a shard of the parameters and of their fp32 copy.
TEST(ParameterLifeCycle, ZeRO3KeepsAShardOfAll) {
  Model model = model_of(ParallelStrategy::kZeRO3, 4, {vector_of(10, 0)});
  model.parameters[0].width = 2;
  ParameterLifeCycle life = model.life();
  life.persist();
  EXPECT_EQ(model.ledger.live(Part::kParameters), 3 * 4 + 3 * 2);
  EXPECT_EQ(model.ledger.live(Part::kOptimizerState), 3 * 4);
  life.enter_forward(kRootUnit);
  life.enter_forward(0);
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), 4 * 3 * 2) << "gathered in 16 bits";
  life.leave_forward(0);
  life.end_forward();
  life.enter_backward(0, kRootUnit);
  life.take_gradient(0, model.gradient(0));
  life.leave_backward(0);
  life.end_backward();
  EXPECT_EQ(model.ledger.live(Part::kGradients), 3 * 2) << "DeepSpeed keeps them in 16 bits";
  EXPECT_EQ(model.ledger.live(Part::kTemporaries), 0);
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
}

// One trainer has nothing to shard or gather, whatever the strategy.
TEST(ParameterLifeCycle, ShardingOnOneTrainerChangesNothing) {
  for (const ParallelStrategy strategy :
       {ParallelStrategy::kZeRO1, ParallelStrategy::kZeRO2, ParallelStrategy::kZeRO3, ParallelStrategy::kFSDP,
        ParallelStrategy::kFSDP2}) {
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
