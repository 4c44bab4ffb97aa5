#include "estimator/provisioner/candidates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "estimator/sharder/plan.h"
#include "tests/estimator/provisioner_fixture.h"

namespace plimsoll::estimator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Candidates candidates_of(const crds::TrainingJob& job, const std::vector<AvailableGpu>& gpus,
                         const std::vector<FailedSize>& failed = {}, double min_share_of_asked = 0) {
  return candidates_for(job.spec, nullptr, original_request_of(job), gpus, failed, min_share_of_asked);
}

crds::Parallelism parallelism(std::int64_t tensor, std::int64_t pipeline = 1) {
  crds::Parallelism made;
  made.tensor = tensor;
  made.pipeline = pipeline;
  return made;
}

TEST(Candidates, AreThePresentModelsThatTheJobAllows) {
  Json object = plimsoll::testing::job_object(2, 1'000'000);
  const std::vector<AvailableGpu> gpus = plimsoll::testing::four_models();
  EXPECT_EQ(candidates_of(plimsoll::testing::decode(object), gpus).list.size(), 4U);
  object["spec"]["provisioning"]["gpuModels"].append("h100-80gb");
  object["spec"]["provisioning"]["gpuModels"].append("B200");
  const Candidates allowed = candidates_of(plimsoll::testing::decode(object), gpus);
  ASSERT_EQ(allowed.list.size(), 1U);
  EXPECT_EQ(allowed.list.front().name(), "H100-80GB");
  EXPECT_EQ(allowed.list.front().capacity, 512);
  EXPECT_THAT(allowed.warnings, ElementsAre(HasSubstr("no node has a GPU called \"B200\"")));
  EXPECT_THAT(candidates_of(plimsoll::testing::decode(object), {}).why_none,
              HasSubstr("no schedulable node"));
}

TEST(Candidates, ThatCannotRunTheJobAreKeptWithTheReason) {
  Json object = plimsoll::testing::job_object(2, 1'000'000);
  object["spec"]["training"]["precision"] = "BF16";
  std::vector<AvailableGpu> gpus = plimsoll::testing::four_models();
  for (const Candidate& candidate : candidates_of(plimsoll::testing::decode(object), gpus).list) {
    EXPECT_EQ(candidate.impossible.empty(), candidate.name() != "V100-32GB") << candidate.name();
  }
  gpus.push_back(plimsoll::testing::available("GH200", 4));
  gpus.back().cpu_architectures = {"arm64"};
  object["spec"]["template"]["spec"]["nodeSelector"]["kubernetes.io/arch"] = "amd64";
  const Candidate arm = candidates_of(plimsoll::testing::decode(object), gpus).list.back();
  EXPECT_EQ(arm.name(), "GH200");
  EXPECT_THAT(arm.impossible, HasSubstr("its nodes are arm64"));
  gpus.back().cpu_architectures = {"amd64", "arm64"};
  EXPECT_EQ(candidates_of(plimsoll::testing::decode(object), gpus).list.back().impossible, "");
}

TEST(Candidates, BeginAboveTheSizesThatFailed) {
  Json object = plimsoll::testing::job_object(2, 1'000'000);
  object["spec"]["provisioning"]["minTrainers"] = 8;
  object["spec"]["provisioning"]["maxTrainers"] = 100;
  const std::vector<FailedSize> failed = {{"A100-40GB", 16, 8, 40_GiB, 41_GiB}};
  const std::vector<AvailableGpu> gpus = plimsoll::testing::four_models();  // candidates point to them
  for (const Candidate& candidate : candidates_of(plimsoll::testing::decode(object), gpus, failed).list) {
    const bool larger = candidate.gpu->model.memory > 40_GiB;
    EXPECT_EQ(candidate.failed, larger ? 0 : 16) << candidate.name();
    EXPECT_EQ(candidate.least, larger ? 8 : 24) << candidate.name();
    EXPECT_EQ(candidate.most, 96) << "whole nodes";
  }
}

TEST(Candidates, LeaveAJobItsShareOfTheRequestedTrainers) {
  Json object = plimsoll::testing::job_object(2, 1'000'000, 40);
  const std::vector<AvailableGpu> gpus = {plimsoll::testing::available("A100-80GB", 8)};
  const auto only = [&](double share) {
    return candidates_of(plimsoll::testing::decode(object), gpus, {}, share).list.front();
  };
  EXPECT_EQ(only(0).least, 1);
  EXPECT_EQ(only(0).floor, 0);
  EXPECT_EQ(only(0.25).floor, 10);
  EXPECT_EQ(only(0.26).floor, 11) << "rounded up";
  EXPECT_EQ(only(0.25).least, 16) << "whole nodes";
  object["spec"]["provisioning"]["minTrainers"] = 12;
  EXPECT_EQ(only(0.25).floor, 0) << "minTrainers decides";
  object["spec"]["trainers"].removeMember("replicas");
  object["spec"]["provisioning"]["minTrainers"] = 1;
  EXPECT_EQ(only(0.25).least, 1) << "nothing was requested";
}

TEST(Candidates, NumbersOfTrainersAreWholeNodesAndWholeReplicas) {
  EXPECT_EQ(round_up_to_nodes(5, 8), 5);
  EXPECT_EQ(round_up_to_nodes(9, 8), 16);
  EXPECT_EQ(whole_replicas(3, 8, parallelism(2)), 4);
  EXPECT_EQ(whole_replicas(9, 8, parallelism(2, 3)), 24);
  EXPECT_EQ(whole_replicas(1, 8, parallelism(16)), 16);
  crds::Parallelism hybrid = parallelism(2);
  hybrid.context = 2;
  hybrid.replicate = 3;
  EXPECT_EQ(whole_replicas(1, 24, hybrid), 12) << "the six that hold the same parameters are three groups";
}

TEST(Candidates, TheLowerRankIsTheFewerTrainersOrTheLowerCost) {
  AvailableGpu cheap = plimsoll::testing::available("V100-32GB", 8);
  AvailableGpu dear = plimsoll::testing::available("H100-80GB", 8);
  cheap.model.relative_cost = 1;
  dear.model.relative_cost = 4;
  const Candidate slow{.gpu = &cheap};
  const Candidate fast{.gpu = &dear};
  EXPECT_LT(rank_of(crds::Objective::kFewestGPUs, fast, 8), rank_of(crds::Objective::kFewestGPUs, slow, 16));
  EXPECT_LT(rank_of(crds::Objective::kLowestCost, slow, 16), rank_of(crds::Objective::kLowestCost, fast, 8));
  EXPECT_LT(rank_of(crds::Objective::kFewestGPUs, slow, 8), rank_of(crds::Objective::kFewestGPUs, fast, 8));
}

TEST(Candidates, ByTheSampleAThroughputThatIsNotKnownRanksLast) {
  AvailableGpu cheap = plimsoll::testing::available("V100-32GB", 8);
  cheap.model.relative_cost = 1;
  AvailableGpu dear = plimsoll::testing::available("H100-80GB", 8);
  dear.model.relative_cost = 4;
  const Candidate slow{.gpu = &cheap};
  const Candidate fast{.gpu = &dear};
  constexpr auto kObjective = crds::Objective::kLowestCostPerSample;
  EXPECT_LT(rank_of(kObjective, fast, 8, 500), rank_of(kObjective, slow, 8, 100)) << "32 / 500, 8 / 100";
  EXPECT_LT(rank_of(kObjective, slow, 8, 100), rank_of(kObjective, fast, 8, 300));
  EXPECT_LT(rank_of(kObjective, fast, 8, 1), rank_of(kObjective, slow, 8, 0));
}

}  // namespace
}  // namespace plimsoll::estimator
