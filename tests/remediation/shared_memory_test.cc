#include "remediation/shared_memory.h"

#include <gtest/gtest.h>

#include "tests/estimator/provisioner_fixture.h"

namespace plimsoll::remediation {
namespace {

using plimsoll::testing::parse;
using Change = SharedMemoryGrowth::Change;

crds::TrainingJob job_of(const std::string& pod) {
  Json object = plimsoll::testing::job_object(4, 1000);
  object["spec"]["template"]["spec"] = parse(pod);
  return plimsoll::testing::decode(object);
}

// A trainer with these resources, and a volume at /dev/shm unless `volume` is empty.
crds::TrainingJob job_with(const std::string& resources, const std::string& volume = {}) {
  const std::string mount =
      volume.empty() ? "" : R"(, "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}])";
  const std::string volumes = volume.empty() ? "" : R"("volumes": [{"name": "shm", )" + volume + "}], ";
  return job_of("{" + volumes + R"("containers": [{"name": "trainer", "resources": )" + resources + mount +
                "}]}");
}

crds::Attempt attempt_with(std::int64_t gpus, std::optional<Bytes> given = {}) {
  crds::Attempt attempt;
  attempt.trainers = gpus;
  attempt.per_node = gpus;
  attempt.shared_memory = given;
  return attempt;
}

std::string patched(const crds::TrainingJob& job, const SharedMemoryGrowth& growth, const char* kind) {
  std::string why;
  const std::optional<Json> object = plimsoll::testing::apply_patch(job.raw, growth.memory.patch, why);
  EXPECT_TRUE(object) << why;
  return object ? text_member((*object)["spec"]["template"]["spec"]["containers"][0],
                              {"resources", kind, "memory"})
                : "";
}

TEST(SharedMemoryGrowth, OfTheRuntimesOwnIsToWhatThePodsGpusNeed) {
  const crds::TrainingJob job = job_with("{}");
  const SharedMemoryGrowth growth = enlarge_shared_memory(job, attempt_with(8), {});
  EXPECT_EQ(growth.change, Change::kEnlarged);
  EXPECT_EQ(growth.before, 64_MiB);
  EXPECT_EQ(growth.now, 16_GiB);
  EXPECT_TRUE(growth.memory.patch.empty()) << "there is no memory limit to grow";
  EXPECT_EQ(enlarge_shared_memory(job, attempt_with(1), {}).now, 2_GiB) << "workers of a DataLoader";
  crds::Attempt many = attempt_with(64);
  many.per_node = 8;
  EXPECT_EQ(enlarge_shared_memory(job, many, {}).now, 16_GiB) << "a pod has 8 of them";
}

TEST(SharedMemoryGrowth, DoublesWhatPlimsollOrTheTemplateGave) {
  EXPECT_EQ(enlarge_shared_memory(job_with("{}"), attempt_with(2, 4_GiB), {}).now, 8_GiB);
  const crds::TrainingJob own = job_with("{}", R"("emptyDir": {"medium": "Memory", "sizeLimit": "6Gi"})");
  EXPECT_EQ(enlarge_shared_memory(own, attempt_with(2), {}).now, 12_GiB);
  EXPECT_EQ(enlarge_shared_memory(own, attempt_with(2, 12_GiB), {}).now, 24_GiB)
      << "the template's was enlarged before";
  EXPECT_EQ(enlarge_shared_memory(own, attempt_with(2, 1_GiB), {}).now, 12_GiB);
  const crds::TrainingJob tiny = job_with("{}", R"("emptyDir": {"medium": "Memory", "sizeLimit": "128Mi"})");
  EXPECT_EQ(enlarge_shared_memory(tiny, attempt_with(8), {}).now, 16_GiB)
      << "seven more attempts would be lost";
}

// Without that, the kernel would kill the container instead.
TEST(SharedMemoryGrowth, RaisesTheMemoryThatItCountsAgainst) {
  const char* resources = R"({"limits": {"memory": "64Gi"}, "requests": {"memory": "32Gi"}})";
  const crds::TrainingJob job = job_with(resources);
  const SharedMemoryGrowth first = enlarge_shared_memory(job, attempt_with(8), 460_GiB);
  EXPECT_EQ(first.memory.before, 64_GiB);
  EXPECT_EQ(patched(job, first, "limits"), "80Gi");
  EXPECT_EQ(patched(job, first, "requests"), "48Gi");
  EXPECT_EQ(patched(job, enlarge_shared_memory(job, attempt_with(8, 16_GiB), 460_GiB), "limits"), "80Gi")
      << "16 GiB more than it had";
  const crds::TrainingJob own =
      job_with(resources, R"("emptyDir": {"medium": "Memory", "sizeLimit": "10Gi"})");
  EXPECT_EQ(patched(own, enlarge_shared_memory(own, attempt_with(8), 460_GiB), "limits"), "74Gi");
  const crds::TrainingJob request = job_with(R"({"requests": {"memory": "32Gi"}})");
  EXPECT_EQ(patched(request, enlarge_shared_memory(request, attempt_with(8), 460_GiB), "requests"), "48Gi");
  EXPECT_EQ(patched(request, enlarge_shared_memory(request, attempt_with(8), 460_GiB), "limits"), "");
}

// The template says nothing of memory: Plimsoll asked for what the swap plan keeps on the host, its /dev/shm included.
TEST(SharedMemoryGrowth, GrowsFromWhatPlimsollAskedForASwapPlan) {
  const crds::TrainingJob job = job_with("{}");
  crds::Attempt attempt = attempt_with(4, 2_GiB);
  attempt.host_memory = 100_GiB;
  const SharedMemoryGrowth growth = enlarge_shared_memory(job, attempt, 460_GiB);
  EXPECT_EQ(growth.now, 8_GiB);
  EXPECT_EQ(patched(job, growth, "limits"), "106Gi");
}

TEST(SharedMemoryGrowth, EndsAtHalfOfWhatTheContainerCanHave) {
  const crds::TrainingJob job = job_with(R"({"limits": {"memory": "24Gi"}})");
  const SharedMemoryGrowth growth = enlarge_shared_memory(job, attempt_with(8), 28_GiB);
  EXPECT_EQ(growth.change, Change::kEnlarged);
  EXPECT_EQ(growth.now, 14_GiB);
  EXPECT_EQ(patched(job, growth, "limits"), "28Gi") << "not all 14 GiB more: the node has none";
  for (const Bytes had : {14_GiB, 20_GiB}) {
    const SharedMemoryGrowth last = enlarge_shared_memory(job, attempt_with(8, had), 28_GiB);
    EXPECT_EQ(last.change, Change::kAtLimit);
    EXPECT_EQ(last.now, had) << "it is never lowered";
  }
  // A limit above what nodes give is not lowered either, and has room for it.
  const crds::TrainingJob most = job_with(R"({"limits": {"memory": "950Gi"}})");
  const SharedMemoryGrowth within = enlarge_shared_memory(most, attempt_with(8), 900_GiB);
  EXPECT_EQ(within.change, Change::kEnlarged);
  EXPECT_EQ(within.now, 16_GiB);
  EXPECT_EQ(within.memory.change, HostMemory::Change::kAtLimit);
  EXPECT_EQ(patched(most, within, "limits"), "950Gi");
}

TEST(SharedMemoryGrowth, OfUnknownNodesEndsBeforeItsNumbersDo) {
  const crds::TrainingJob job = job_with(R"({"limits": {"memory": "64Gi"}})");
  EXPECT_EQ(enlarge_shared_memory(job, attempt_with(8, Bytes::max()), {}).change, Change::kAtLimit);
  EXPECT_GT(enlarge_shared_memory(job, attempt_with(8, Bytes{Bytes::max().count - 1}), {}).now, 0_GiB);
}

TEST(SharedMemoryGrowth, LeavesWhatIsNotPlimsolls) {
  const crds::TrainingJob host_path = job_with("{}", R"("hostPath": {"path": "/dev/shm"})");
  EXPECT_EQ(enlarge_shared_memory(host_path, attempt_with(8), {}).change, Change::kNotPlimsolls);
  const crds::TrainingJob host_ipc = job_of(R"({"hostIPC": true, "containers": [{"name": "trainer"}]})");
  EXPECT_EQ(enlarge_shared_memory(host_ipc, attempt_with(8), {}).change, Change::kNotPlimsolls);
  const crds::TrainingJob unsized = job_with("{}", R"("emptyDir": {"medium": "Memory"})");
  EXPECT_EQ(enlarge_shared_memory(unsized, attempt_with(8), {}).change, Change::kIsAllMemory);
}

TEST(SharedMemoryGrowth, IsOfTheContainerThatTrains) {
  const crds::TrainingJob job = job_of(R"({"containers": [{"name": "logs"}, {"name": "trainer"}]})");
  crds::Attempt attempt = attempt_with(8);
  attempt.container = "trainer";
  EXPECT_EQ(enlarge_shared_memory(job, attempt, {}).change, Change::kEnlarged);
  for (const char* other : {"logs", "istio-proxy"}) {
    attempt.container = other;
    EXPECT_EQ(enlarge_shared_memory(job, attempt, {}).change, Change::kOtherContainer) << other;
  }
}

}  // namespace
}  // namespace plimsoll::remediation
