#include "estimator/provisioner/trainer_loads.h"

#include <gtest/gtest.h>

#include "crds/training_job.h"
#include "estimator/sharder/sharder.h"

namespace plimsoll::estimator {
namespace {

// A plan that keeps tables whole cannot spread a hot one: its trainer takes its lookups.
TEST(TrainerLoads, FollowTheTables) {
  ShardRequest request;
  request.tables = expand_tables({{.name = "hot", .rows = 1'000'000, .dim = 64, .pooling_factor = 100},
                                  {.name = "cold", .rows = 1'000'000, .dim = 64}});
  request.topology = {.trainers = 2, .per_node = 2};
  request.batch_size = 1024;
  request.budget = 40_GiB;
  request.allocated_bytes = true;
  request.constraints = {{.table = 0, .types = {ShardingType::kTableWise}, .ranks = {0}},
                         {.table = 1, .types = {ShardingType::kTableWise}, .ranks = {1}}};
  const Result<Plan> plan = shard(request);
  ASSERT_TRUE(plan.ok()) << to_string(plan.error());
  Estimate fullest;
  fullest.peak.allocated = 3_GiB + plan->max_memory;
  const std::vector<TrainerLoad> loads = trainer_loads(fullest, *plan);
  ASSERT_EQ(loads.size(), 2u);
  EXPECT_EQ(loads[0].embeddings, loads[1].embeddings);
  const Bytes more{99 * 8 * 1024 * 2};  // indices of both trainers' batches
  EXPECT_EQ(loads[0].lookups - loads[1].lookups, more);
  EXPECT_EQ(loads[0].allocated, fullest.peak.allocated);
  EXPECT_EQ(loads[1].allocated, fullest.peak.allocated - more);
  // Where the dense part differs too, as among ZeRO-1's owners, both count.
  fullest.allocated_by_rank = {1_GiB, 3_GiB};
  EXPECT_EQ(trainer_loads(fullest, *plan)[0].allocated, fullest.peak.allocated - 2_GiB);
  EXPECT_TRUE(trainer_loads(fullest, {}).empty());
}

// 10 bytes at the peak beside the 20 of the fullest trainer's shards.
TEST(TrainerLoads, TablesInHostMemoryAreNotOnTheGpu) {
  Estimate fullest;
  fullest.peak.allocated = 30_B;
  Plan plan;
  plan.max_memory = 20_B;
  RankLoad on_gpu;
  on_gpu.memory = 20_B;
  on_gpu.weights = 12_B;
  on_gpu.optimizer = 4_B;
  RankLoad cached = on_gpu;  // 14 of its 16 bytes are on the host
  cached.memory = 6_B;
  cached.host_memory = 14_B;
  RankLoad whole_on_host = on_gpu;  // buffers only
  whole_on_host.memory = 3_B;
  whole_on_host.host_memory = 16_B;
  plan.ranks = {on_gpu, cached, whole_on_host};
  EXPECT_EQ(write_json(to_json(trainer_loads(fullest, plan))),
            R"([{"allocatedBytes":30,"embeddingBytes":16,"lookupBytes":4},)"
            R"({"allocatedBytes":16,"embeddingBytes":2,"lookupBytes":4},)"
            R"({"allocatedBytes":13,"embeddingBytes":0,"lookupBytes":3}])");
}

TEST(TrainerLoads, NoTrainersAreAnEmptyList) {
  EXPECT_EQ(write_json(to_json(std::vector<TrainerLoad>())), "[]");
}

// A graph's lookups say when buffers exist: they count where they make a new peak, and indices always.
TEST(TrainerLoads, BuffersOfExchangesCountWhileTheyExist) {
  Estimate fullest;
  fullest.peak.allocated = 100_B + 50_B;
  fullest.breakdown.embeddings = 50_B;
  fullest.lookups = LookupLevels{
      .pooled_forward = 40_B, .pooled_backward = 60_B, .sequences_forward = {}, .sequences_backward = {}};
  Plan plan;
  plan.max_memory = 50_B;
  RankLoad load;
  load.memory = 50_B;
  load.weights = 30_B;
  load.optimizer = 5_B;
  plan.ranks = {load, load, load};
  const std::vector<RankExchange> exchanges = {
      {.kept = 2_B, .pooled = {.forward = 59_B, .backward = 39_B}, .sequences = {}},
      {.kept = 2_B, .pooled = {.forward = 70_B, .backward = 39_B}, .sequences = {}},
      {.kept = 2_B, .pooled = {.forward = 59_B, .backward = 55_B}, .sequences = {}}};
  const std::vector<TrainerLoad> loads = trainer_loads(fullest, plan, exchanges);
  ASSERT_EQ(loads.size(), 3U);
  EXPECT_EQ(loads[0].allocated, 100_B + 35_B + 2_B);
  EXPECT_EQ(loads[1].allocated, 40_B + 70_B + 35_B + 2_B);
  EXPECT_EQ(loads[2].allocated, 60_B + 55_B + 35_B + 2_B);
  EXPECT_EQ(loads[2].embeddings, 35_B);
  EXPECT_EQ(loads[2].lookups, 17_B);
  fullest.lookups->pooled_gradient_is_copy = true;
  std::vector<RankExchange> views = exchanges;
  views[2].pooled.unmade = 7_B;
  EXPECT_EQ(trainer_loads(fullest, plan, views)[2].allocated, 60_B - 7_B + 55_B + 35_B + 2_B);
  fullest.lookups.reset();
  EXPECT_EQ(trainer_loads(fullest, plan, exchanges)[0].allocated, 150_B) << "of a spec";
}

}  // namespace
}  // namespace plimsoll::estimator
