#include "estimator/execute/life_script.h"

#include <gtest/gtest.h>

#include <vector>

namespace plimsoll::estimator {
namespace {

using crds::ParallelStrategy;
using Kind = LifeCall::Kind;

// Two units of a matrix and a vector each, and AdamW.
BudgetVector<ReplicaParameter> parameters() {
  BudgetVector<ReplicaParameter> all;
  for (const std::int32_t unit : {0, 1}) {
    all.push_back(
        {.elements = 1000 * 30, .rows = 1000, .columns = 1000, .dimensions = 2, .first = 1000, .unit = unit});
    all.push_back({.elements = 500, .rows = 1, .first = 500, .unit = unit});
  }
  return all;
}

OptimizerRun adamw() {
  return *optimizer_run(crds::Optimizer::kAdamW, crds::OptimizerImplementation::kDefault, Device::kCuda, 215);
}

// Runs an iteration whose gradients are blocks of its own.
class Iteration : public ParameterLedger {
 public:
  explicit Iteration(const Replication& replication, Ledger& ledger) : ledger_(ledger) {
    ParameterLifeCycle life(*this, replication, parameters(), adamw());
    script_.ask(life, {Kind::kPersist});
    ledger_.enter(Phase::kForward);
    for (const std::int32_t unit : {0, 1}) {
      script_.ask(life, {Kind::kEnterForward, unit});
      script_.ask(life, {Kind::kLeaveForward, unit});
    }
    script_.ask(life, {Kind::kEndForward});
    ledger_.enter(Phase::kBackward);
    for (const std::int32_t unit : {1, 0}) {
      script_.ask(life, {Kind::kEnterBackward, unit, unit - 1});
      for (const std::int32_t each : {0, 1}) {
        script_.ask(life, {Kind::kTakeGradient, 2 * unit + each, ledger_.allocate(Part::kGradients, 7000_B)});
      }
      script_.ask(life, {Kind::kLeaveBackward, unit});
    }
    script_.ask(life, {Kind::kEndBackward});
    script_.ask(life, {Kind::kEndAccumulation, 0, 2});
    ledger_.enter(Phase::kOptimizerStep);
    script_.ask(life, {Kind::kStep});
  }

  BlockId allocate(Part part, Bytes bytes_of_one, std::int64_t count, std::size_t parameter,
                   StreamId stream) override {
    const BlockId block = ledger_.allocate(part, bytes_of_one, count, stream);
    script_.allocated(block, parameter);
    return block;
  }
  void release(BlockId block) override {
    ledger_.release(block);
    script_.released(block);
  }
  const LifeScript& script() const { return script_; }

 private:
  Ledger& ledger_;
  LifeScript script_;
};

Replication replication_of(ParallelStrategy strategy, std::int64_t replicas) {
  return {.strategy = strategy, .replicas = replicas};
}

TEST(LifeScript, OtherNumbersOfTrainersHaveOtherSizes) {
  Ledger recorded(kCudaGranule);
  const Iteration iteration(replication_of(ParallelStrategy::kFSDP2, 4), recorded);
  for (const std::int64_t replicas : {2, 4, 5, 8, 1000}) {
    Ledger resized = recorded;
    ASSERT_TRUE(iteration.script().resize(resized, replication_of(ParallelStrategy::kFSDP2, replicas),
                                          parameters(), adamw(), crds::CheckpointSaving::kNone, nullptr));
    Ledger expected(kCudaGranule);
    const Iteration again(replication_of(ParallelStrategy::kFSDP2, replicas), expected);
    ASSERT_EQ(resized.blocks().size(), expected.blocks().size());
    for (std::size_t i = 0; i < expected.blocks().size(); ++i) {
      EXPECT_EQ(resized.blocks()[i].bytes, expected.blocks()[i].bytes)
          << replicas << " replicas, block " << i;
    }
    EXPECT_EQ(resized.peak(), expected.peak());
    EXPECT_EQ(resized.peak() == recorded.peak(), replicas == 4);
  }
}

// A single trainer gathers nothing, and another strategy allocates in another order.
TEST(LifeScript, AnotherLifeHasNoSizes) {
  Ledger recorded(kCudaGranule);
  const Iteration iteration(replication_of(ParallelStrategy::kFSDP2, 4), recorded);
  for (const Replication& other :
       {replication_of(ParallelStrategy::kFSDP2, 1), replication_of(ParallelStrategy::kFSDP, 4),
        replication_of(ParallelStrategy::kDDP, 4)}) {
    Ledger resized = recorded;
    EXPECT_FALSE(iteration.script().resize(resized, other, parameters(), adamw(),
                                           crds::CheckpointSaving::kNone, nullptr));
  }
}

// 30,500 elements are copied to be padded for 8 trainers, but not for 4.
TEST(LifeScript, ANumberThatPadsTheFlatParameterHasNoSizes) {
  Ledger recorded(kCudaGranule);
  const Iteration iteration(replication_of(ParallelStrategy::kFSDP, 4), recorded);
  for (const std::int64_t replicas : {5, 8}) {
    Ledger resized = recorded;
    EXPECT_EQ(iteration.script()
                  .resize(resized, replication_of(ParallelStrategy::kFSDP, replicas), parameters(), adamw(),
                          crds::CheckpointSaving::kNone, nullptr)
                  .has_value(),
              replicas == 5);
  }
}

}  // namespace
}  // namespace plimsoll::estimator
