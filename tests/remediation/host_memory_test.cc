#include "remediation/host_memory.h"

#include <gtest/gtest.h>

#include "tests/estimator/provisioner_fixture.h"

namespace plimsoll::remediation {
namespace {

using plimsoll::testing::parse;
using Change = HostMemory::Change;

// A job with this pod, which may have half as much again.
crds::TrainingJob job_of(const std::string& pod) {
  Json object = plimsoll::testing::job_object(4, 1000);
  object["spec"]["failurePolicy"]["oomBumpUpRatio"] = "1.5";
  object["spec"]["template"]["spec"] = parse(pod);
  return plimsoll::testing::decode(object);
}

crds::TrainingJob job_with(const std::string& resources) {
  return job_of(R"({"containers": [{"name": "trainer", "resources": )" + resources + "}]}");
}

// The memory of a container after the patch.
std::string patched(const crds::TrainingJob& job, const HostMemory& raised, const char* kind,
                    const char* list = "containers", int index = 0) {
  std::string why;
  const std::optional<Json> object = plimsoll::testing::apply_patch(job.raw, raised.patch, why);
  EXPECT_TRUE(object) << why;
  return object
             ? text_member((*object)["spec"]["template"]["spec"][list][index], {"resources", kind, "memory"})
             : "";
}

TEST(HostMemory, GrowsByTheRatioAndTheRequestWithTheLimit) {
  const crds::TrainingJob job = job_with(R"({"limits": {"memory": "64Gi"}, "requests": {"memory": "16Gi"}})");
  const HostMemory raised = raise_host_memory(job, 0_GiB);
  EXPECT_EQ(raised.change, Change::kRaised);
  EXPECT_EQ(raised.before, 64_GiB);
  EXPECT_EQ(raised.now, 96_GiB);
  EXPECT_EQ(patched(job, raised, "limits"), "96Gi");
  EXPECT_EQ(patched(job, raised, "requests"), "24Gi");
}

// 160 -> 192 -> 230 GiB by a ratio, though what 8 trainers load is known.
TEST(HostMemory, GrowsToWhatIsPredictedAtOnce) {
  const crds::TrainingJob job = job_with(R"({"limits": {"memory": "64Gi"}, "requests": {"memory": "16Gi"}})");
  const HostMemory raised = raise_host_memory(job, 0_GiB, {}, {}, 233_GiB);
  EXPECT_EQ(raised.now, 233_GiB);
  EXPECT_EQ(patched(job, raised, "limits"), "233Gi");
  EXPECT_EQ(raise_host_memory(job, 200_GiB, {}, {}, 233_GiB).now, 200_GiB) << "what a node can give";
  EXPECT_EQ(raise_host_memory(job, 0_GiB, {}, {}, 70_GiB).now, 96_GiB) << "it ran out all the same";
  const crds::TrainingJob beside = job_of(
      R"({"containers": [{"name": "trainer"}, {"name": "logs", "resources": {"limits": {"memory": "1Gi"}}}]})");
  EXPECT_EQ(raise_host_memory(beside, 0_GiB, "logs", {}, 233_GiB).now, 1536_MiB) << "it is the trainer's";
}

TEST(HostMemory, ARequestAloneGrowsAlone) {
  const crds::TrainingJob job = job_with(R"({"limits": {"cpu": 8}, "requests": {"memory": 17179869184}})");
  const HostMemory raised = raise_host_memory(job, 0_GiB);
  EXPECT_EQ(raised.before, 16_GiB) << "a number is bytes";
  EXPECT_EQ(raised.now, 24_GiB);
  EXPECT_EQ(patched(job, raised, "requests"), "24Gi");
  EXPECT_EQ(patched(job, raised, "limits"), "");
}

// 1.5 x 100 MB = 150,000,000 bytes = 143.05 MiB; and 100 MiB more than 100 MB is 195.4 MiB.
TEST(HostMemory, GrowsByTheLeastBumpAtLeastToWholeMebibytes) {
  crds::TrainingJob job = job_with(R"({"limits": {"memory": "100M"}})");
  EXPECT_EQ(raise_host_memory(job, 0_GiB).now, 196_MiB) << "the least bump's default is 100 MiB";
  job.spec.failure_policy.oom_min_bump_up = Bytes{1};
  EXPECT_EQ(raise_host_memory(job, 0_GiB).now, 144_MiB);
  job.spec.failure_policy.oom_min_bump_up = 2_GiB;
  EXPECT_EQ(raise_host_memory(job, 0_GiB).now, 2048_MiB + 96_MiB);
}

TEST(HostMemory, GrowsUpToWhatANodeHas) {
  const crds::TrainingJob job = job_with(R"({"limits": {"memory": "64Gi"}, "requests": {"memory": "64Gi"}})");
  HostMemory raised = raise_host_memory(job, 80_GiB);
  EXPECT_EQ(raised.change, Change::kRaised);
  EXPECT_EQ(raised.now, 80_GiB);
  EXPECT_EQ(patched(job, raised, "requests"), "80Gi");
  for (const Bytes most : {64_GiB, 1_GiB}) {
    raised = raise_host_memory(job, most);
    EXPECT_EQ(raised.change, Change::kAtLimit);
    EXPECT_EQ(raised.now, 64_GiB) << "it is never lowered";
    EXPECT_TRUE(raised.patch.empty());
  }
}

TEST(HostMemory, WithoutLimitAndRequestThereIsNothingToRaise) {
  for (const char* resources : {"{}", R"({"limits": {"cpu": 8}})", R"({"limits": {"memory": 0}})"}) {
    const HostMemory raised = raise_host_memory(job_with(resources), 0_GiB);
    EXPECT_EQ(raised.change, Change::kUnlimited) << resources;
    EXPECT_TRUE(raised.patch.empty());
  }
}

TEST(HostMemory, IsThatOfTheContainerThatRanOut) {
  const crds::TrainingJob job = job_of(R"({
      "initContainers": [{"name": "fetch", "resources": {"limits": {"memory": "2Gi"}}}],
      "containers": [{"name": "logs", "resources": {"limits": {"memory": "4Gi"}}},
                     {"name": "trainer", "resources": {"limits": {"memory": "8Gi"}}}]})");
  EXPECT_EQ(patched(job, raise_host_memory(job, 0_GiB), "limits", "containers", 1), "12Gi") << "the trainer";
  EXPECT_EQ(patched(job, raise_host_memory(job, 0_GiB, "logs"), "limits", "containers", 0), "6Gi");
  EXPECT_EQ(patched(job, raise_host_memory(job, 0_GiB, "fetch"), "limits", "initContainers", 0), "3Gi");
  EXPECT_EQ(raise_host_memory(job, 0_GiB, "istio-proxy").change, Change::kUnlimited);
}

// The template says nothing of memory: Plimsoll asked for what the swap plan keeps on the host.
TEST(HostMemory, GrowsFromWhatPlimsollAskedForTheTrainer) {
  const crds::TrainingJob job = job_of(R"({"containers": [{"name": "trainer"}, {"name": "proxy"}]})");
  const HostMemory raised = raise_host_memory(job, 0_GiB, {}, 64_GiB);
  EXPECT_EQ(raised.change, Change::kRaised);
  EXPECT_EQ(raised.before, 64_GiB);
  EXPECT_EQ(patched(job, raised, "limits"), "96Gi");
  EXPECT_EQ(patched(job, raised, "requests"), "96Gi");
  EXPECT_EQ(raise_host_memory(job, 0_GiB, "proxy", 64_GiB).change, Change::kUnlimited) << "not for the proxy";
}

}  // namespace
}  // namespace plimsoll::remediation
