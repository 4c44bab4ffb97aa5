#include "operator/resource_plan.h"

#include <gtest/gtest.h>

#include "base/memory_pool.h"
#include "webhook/decision_scheduler.h"

namespace plimsoll::process {
namespace {

// The chart's limit. 16 workers by the processors of the machine took 2.7 GB of it.
TEST(ResourcePlan, FollowsTheLimitsOfTheContainer) {
  const ResourcePlan plan = plan_resources({.cpus = 2, .memory = 512_MiB});
  EXPECT_EQ(plan.bodies, 64_MiB);
  EXPECT_EQ(plan.reviews, 128_MiB);
  EXPECT_EQ(plan.imports, 128_MiB);
  EXPECT_EQ(plan.table_cache, 32_MiB);
  EXPECT_EQ(plan.decision.count, (512_MiB).count / 24);
  EXPECT_EQ(plan.deciders, 2);
  EXPECT_EQ(plan.reconcilers, 4);
  EXPECT_EQ(plan.connections, 1024);
  // More processors are of no use without the memory for their decisions.
  EXPECT_EQ(plan_resources({.cpus = 96, .memory = 512_MiB}).deciders, 2);
  EXPECT_EQ(plan_resources({.cpus = 96, .memory = 16_GiB}).deciders, 16);
}

TEST(ResourcePlan, NeverGivesAwayMoreThanThereIs) {
  for (const double cpus : {0.1, 1.0, 2.0, 7.5, 16.0, 256.0}) {
    for (Bytes memory = 64_MiB; memory < 2048_GiB; memory = memory * 2) {
      const ResourcePlan plan = plan_resources({.cpus = cpus, .memory = memory});
      const int turns = webhook::DecisionScheduler::for_cpus(plan.deciders).slots;
      EXPECT_LE(plan.decision * turns, Bytes{memory.count / 4}) << to_string(memory) << " " << cpus;
      EXPECT_LE(plan.reconcile * plan.reconcilers, Bytes{memory.count / 2});
      const Bytes together =
          plan.bodies + plan.reviews + plan.imports + plan.table_cache + plan.decision * turns;
      EXPECT_LE(together, memory - Bytes{memory.count / 16}) << to_string(memory);
      EXPECT_LE(2 * plan.import, MemoryPool(plan.imports).largest());
    }
  }
}

}  // namespace
}  // namespace plimsoll::process
