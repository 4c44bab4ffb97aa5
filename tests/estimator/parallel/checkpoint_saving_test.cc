#include "estimator/parallel/checkpoint_saving.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "estimator/parallel/life_cycle.h"

namespace plimsoll::estimator {
namespace {

using crds::CheckpointSaving;
using crds::ParallelStrategy;

// Counts what is allocated after the parameters and their states.
class Temporaries : public ParameterLedger {
 public:
  BlockId allocate(Part /*part*/, Bytes bytes_of_one, std::int64_t count, std::size_t /*parameter*/,
                   StreamId stream) override {
    EXPECT_EQ(stream, kComputeStream) << "state_dict() works on the stream of the computation";
    blocks_[next_] = bytes_of_one.count * count;
    live_ += bytes_of_one.count * count;
    most_ = std::max(most_, live_);
    return next_++;
  }
  void release(BlockId block) override {
    ASSERT_TRUE(blocks_.contains(block)) << "block " << block << " is not live";
    live_ -= blocks_.at(block);
    blocks_.erase(block);
  }
  std::int64_t live() const { return live_; }
  std::int64_t most() const { return most_; }

 private:
  BlockId next_ = 0;
  std::map<BlockId, std::int64_t> blocks_;
  std::int64_t live_ = 0;
  std::int64_t most_ = 0;
};

// Two layers of 100 rows of 10 and a root of 40, in fp32 with Adam: 8,160 bytes of parameters.
struct Saving {
  Replication replication;
  crds::Optimizer optimizer = crds::Optimizer::kAdam;
  std::int64_t width = 4;

  ParameterLifeCycle life(ParameterLedger& ledger) const {
    const Result<OptimizerRun> run =
        optimizer_run(optimizer, crds::OptimizerImplementation::kDefault, Device::kCuda, 215);
    EXPECT_TRUE(run.ok());
    const auto parameter = [&](std::int64_t rows, std::int64_t columns, std::int32_t unit) {
      return ReplicaParameter{.elements = rows * columns,
                              .rows = rows,
                              .columns = rows,
                              .dimensions = 2,
                              .first = rows,
                              .width = width,
                              .unit = unit};
    };
    return ParameterLifeCycle(
        ledger, replication,
        BudgetVector<ReplicaParameter>(
            {parameter(100, 10, 0), parameter(100, 10, 1), parameter(40, 1, kRootUnit)}, nullptr),
        *run);
  }
  // The most that saving takes at once.
  std::int64_t most(CheckpointSaving saving) const {
    Temporaries ledger;
    life(ledger).save(saving);
    EXPECT_EQ(ledger.live(), 0) << "everything is freed";
    return ledger.most();
  }
  HostMemory host(CheckpointSaving saving) const {
    Temporaries ledger;
    return life(ledger).host_memory(saving);
  }
};

constexpr std::int64_t kParameters = 8160;
constexpr std::int64_t kLayer = 4000;
constexpr std::int64_t kRoot = 160;

TEST(CheckpointSaving, OnlySomeGather) {
  crds::TrainingSpec training{.checkpoint_saving = CheckpointSaving::kSharded};
  EXPECT_FALSE(gathers_to_save(training));
  training.parallelism.strategy = ParallelStrategy::kFSDP2;
  EXPECT_FALSE(gathers_to_save(training));
  training.parallelism.strategy = ParallelStrategy::kFSDP;
  EXPECT_TRUE(gathers_to_save(training)) << "FSDP1 gathers what it cuts into chunks";
  training.checkpoint_saving = CheckpointSaving::kNone;
  EXPECT_FALSE(gathers_to_save(training));
}

TEST(CheckpointSaving, ReplicasOfAWholeModelGatherNothing) {
  for (const ParallelStrategy strategy : {ParallelStrategy::kAuto, ParallelStrategy::kDDP}) {
    const Saving ddp{.replication = {.strategy = strategy, .replicas = 4}};
    for (const CheckpointSaving saving : {CheckpointSaving::kFull, CheckpointSaving::kFullOffloaded,
                                          CheckpointSaving::kSharded, CheckpointSaving::kShardedAsync}) {
      EXPECT_EQ(ddp.most(saving), 0);
    }
  }
}

TEST(CheckpointSaving, FSDP2GathersAllForAFullOneAndATensorAtATimeWithCpuOffload) {
  const Saving fsdp2{.replication = {.strategy = ParallelStrategy::kFSDP2, .replicas = 4}};
  EXPECT_EQ(fsdp2.most(CheckpointSaving::kFull), 3 * kParameters) << "the model and Adam's two states";
  EXPECT_EQ(fsdp2.most(CheckpointSaving::kFullOffloaded), kLayer);
  EXPECT_EQ(fsdp2.most(CheckpointSaving::kSharded), 0);
  EXPECT_EQ(fsdp2.most(CheckpointSaving::kNone), 0);
}

TEST(CheckpointSaving, FSDP2OnOneTrainerHasNothingToGather) {
  const Saving alone{.replication = {.strategy = ParallelStrategy::kFSDP2, .replicas = 1}};
  EXPECT_EQ(alone.most(CheckpointSaving::kFull), 0);
}

TEST(CheckpointSaving, FSDP2PadsWhatTrainersCannotShareEvenly) {
  const Saving fsdp2{.replication = {.strategy = ParallelStrategy::kFSDP2, .replicas = 3}};
  EXPECT_EQ(fsdp2.most(CheckpointSaving::kFull), 3 * (2 * 102 * 40 + 42 * 4));
}

// The root stays gathered while the units are copied; each state of a unit is one gathered buffer.
TEST(CheckpointSaving, FSDP1CopiesEachUnitWhileItsFlatParameterIsGathered) {
  const Saving fsdp{.replication = {.strategy = ParallelStrategy::kFSDP, .replicas = 4}};
  EXPECT_EQ(fsdp.most(CheckpointSaving::kFull), 3 * kParameters);
  EXPECT_EQ(fsdp.most(CheckpointSaving::kFullOffloaded), 2 * kLayer) << "both states of one unit";
  // The last unit's states, and the chunks of the model, of the other units' states and of its own.
  EXPECT_EQ(fsdp.most(CheckpointSaving::kSharded), 2 * kLayer + 3 * kParameters / 4);
  EXPECT_EQ(fsdp.most(CheckpointSaving::kShardedAsync), fsdp.most(CheckpointSaving::kSharded));
}

TEST(CheckpointSaving, ZeRO1ReceivesOneRanksStateAfterTheOther) {
  Saving zero{.replication = {.strategy = ParallelStrategy::kZeRO1, .replicas = 2}};
  // Rank 0 owns the first layer and the root, or the second: of two, one receives and loads what the other sends.
  const std::int64_t rank0 = zero.most(CheckpointSaving::kFull);
  zero.replication.rank = 1;
  const std::int64_t rank1 = zero.most(CheckpointSaving::kFull);
  EXPECT_EQ(rank0, 2 * rank1) << "what is received, and what is loaded from it";
  EXPECT_EQ(zero.most(CheckpointSaving::kSharded), 0);
  zero.replication.replicas = 3;  // the ranks own 4,000, 4,000 and 160 bytes of parameters
  zero.replication.rank = 0;
  EXPECT_EQ(zero.most(CheckpointSaving::kFull), 2 * 2 * kLayer) << "the second one's, received and loaded";
}

TEST(CheckpointSaving, ZeRO3GathersOneParameterAtATime) {
  const Saving zero{.replication = {.strategy = ParallelStrategy::kZeRO3, .replicas = 4}};
  EXPECT_EQ(zero.most(CheckpointSaving::kFull), kLayer);
  EXPECT_EQ(zero.most(CheckpointSaving::kSharded), 0);
}

TEST(CheckpointSaving, TheHostHoldsWhatIsWritten) {
  const Saving fsdp2{.replication = {.strategy = ParallelStrategy::kFSDP2, .replicas = 4}};
  EXPECT_EQ(fsdp2.host(CheckpointSaving::kNone).total(), Bytes{});
  EXPECT_EQ(fsdp2.host(CheckpointSaving::kFull).checkpoint, Bytes{kLayer}) << "one storage after the other";
  EXPECT_EQ(fsdp2.host(CheckpointSaving::kFullOffloaded).checkpoint, Bytes{3 * kParameters}) << "rank 0";
  EXPECT_EQ(fsdp2.host(CheckpointSaving::kSharded).checkpoint, Bytes{3 * kParameters / 4})
      << "less than what is copied ahead";
  EXPECT_EQ(fsdp2.host(CheckpointSaving::kShardedAsync).checkpoint, Bytes{3 * kParameters / 4});
}

TEST(CheckpointSaving, TheHostHoldsWhatIsOffloadedOrPaged) {
  Saving fsdp2{.replication = {.strategy = ParallelStrategy::kFSDP2,
                               .replicas = 4,
                               .offload = crds::Offload::kParameters}};
  const HostMemory offloaded = fsdp2.host(CheckpointSaving::kNone);
  EXPECT_EQ(offloaded.parameters, Bytes{kParameters / 4});
  EXPECT_EQ(offloaded.gradients, Bytes{kParameters / 4});
  EXPECT_EQ(offloaded.optimizer_state, Bytes{2 * kParameters / 4});
  EXPECT_EQ(fsdp2.most(CheckpointSaving::kFullOffloaded), kLayer + kLayer / 4)
      << "a shard returns to the GPU to be gathered";
  const Saving paged{.replication = {}, .optimizer = crds::Optimizer::kPagedAdamW};
  EXPECT_EQ(paged.host(CheckpointSaving::kNone).optimizer_state, Bytes{}) << "too small to be paged";
}

}  // namespace
}  // namespace plimsoll::estimator
