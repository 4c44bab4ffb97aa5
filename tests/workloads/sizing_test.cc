#include "workloads/sizing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/yaml.h"
#include "estimator/catalog/gpu_catalog.h"

namespace plimsoll::workloads {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr crds::ProvisioningMode kAuto = crds::ProvisioningMode::kAuto;

Json yaml(const std::string& text) {
  return parse_yaml_documents(text)->front();
}

Json worker(const std::string& gpus, const std::string& arguments) {
  return yaml("{spec: {containers: [{name: sidecar}, {name: ray, args: " + arguments +
              ", resources: {limits: {nvidia.com/gpu: " + gpus + "}}}]}}");
}

// Two replicated jobs of GPUs; only the workers can have another number.
Json job_set() {
  Json set = yaml(R"(
metadata: {name: pair, labels: {plimsoll.dev/family: pair}}
spec:
  replicatedJobs:
    - {name: leader, replicas: 1, template: {spec: {}}}
    - {name: workers, replicas: 3, template: {spec: {}}}
)");
  set["spec"]["replicatedJobs"][0]["template"]["spec"]["template"] = worker("8", "[--nnodes=4]");
  set["spec"]["replicatedJobs"][1]["template"]["spec"]["template"] =
      worker("8", "[--nnodes=4, --nproc-per-node=8]");
  return set;
}

Description description() {
  return {yaml("{transformer: {seqLen: 128, layers: 2, hidden: 64, heads: 4, ffn: 256, vocab: 1000}}"),
          yaml("{batchSizePerTrainer: 4}")};
}

Result<WorkloadSizing> sizing_of(const Json& object, crds::ProvisioningMode mode = kAuto) {
  static const References none;
  return WorkloadSizing::of(*find_kind("jobset.x-k8s.io", "JobSet"), object, none, "ml", description(), mode);
}

// As provision() would decide.
estimator::Provision decided(std::int64_t trainers, std::int64_t per_node) {
  estimator::Provision provision;
  estimator::Decision& decision = provision.decision.emplace();
  decision.gpu_model = "A100-80GB";
  decision.product_labels = {"NVIDIA-A100-SXM4-80GB"};
  decision.trainers = trainers;
  decision.per_node = per_node;
  decision.reason = "so";
  return provision;
}

std::vector<std::string> texts(const Json& patch) {
  std::vector<std::string> list;
  for (const Json& operation : patch) {
    const std::string path = text_member(operation, {"path"});
    if (!path.starts_with("/metadata")) {
      list.push_back(path + " " + write_json(member(operation, {"value"})));
    }
  }
  return list;
}

TEST(WorkloadSizing, DescribesTheWorkloadAsATrainingJob) {
  const Json set = job_set();
  Result<WorkloadSizing> sizing = sizing_of(set);
  ASSERT_TRUE(sizing) << sizing.error().message;
  const crds::TrainingJob& job = sizing->job();
  EXPECT_EQ(job.name, "pair");
  EXPECT_EQ(job.namespace_name, "ml");
  EXPECT_EQ(job.spec.model.family, "pair");
  EXPECT_EQ(job.spec.trainers.replicas, 32);
  EXPECT_EQ(job.spec.trainers.per_node, 8);
  EXPECT_EQ(job.spec.provisioning.min_trainers, 32);
}

TEST(WorkloadSizing, EveryGroupIsPatchedWhereItIs) {
  const Json set = job_set();
  const Result<Json> patch = sizing_of(set)->patch_for(decided(64, 8));
  ASSERT_TRUE(patch) << patch.error().message;
  const std::string leader = "/spec/replicatedJobs/0/template/spec/template/spec";
  const std::string workers = "/spec/replicatedJobs/1/template/spec/template/spec";
  const std::string selector = R"({"nvidia.com/gpu.product":"NVIDIA-A100-SXM4-80GB"})";
  // The leader's replicas are 1, in a Job of one pod that has no completions.
  EXPECT_THAT(texts(*patch), UnorderedElementsAre(leader + "/nodeSelector " + selector,
                                                  workers + "/nodeSelector " + selector,
                                                  leader + "/containers/1/args/0 \"--nnodes=8\"",
                                                  workers + "/containers/1/args/0 \"--nnodes=8\"",
                                                  "/spec/replicatedJobs/1/replicas 7"));
}

TEST(WorkloadSizing, NodesWithFewerGpusHaveMorePods) {
  const Json set = job_set();
  const Result<Json> patch = sizing_of(set)->patch_for(decided(32, 4));
  ASSERT_TRUE(patch) << patch.error().message;
  const std::vector<std::string> written = texts(*patch);
  EXPECT_THAT(written, ::testing::Contains("/spec/replicatedJobs/1/replicas 7"));
  EXPECT_THAT(
      written,
      ::testing::Contains(
          "/spec/replicatedJobs/1/template/spec/template/spec/containers/1/args/1 \"--nproc-per-node=4\""));
  EXPECT_THAT(
      written,
      ::testing::Contains(
          "/spec/replicatedJobs/0/template/spec/template/spec/containers/1/resources/limits/nvidia.com~1gpu \"4\""));
}

TEST(WorkloadSizing, ADecisionThatTheKindCannotHaveIsAnError) {
  const Json set = job_set();
  EXPECT_THAT(sizing_of(set)->patch_for(decided(8, 8)).error().message, HasSubstr("would leave none"));
  Json fixed = set;
  fixed["spec"]["replicatedJobs"][1]["template"]["spec"]["parallelism"] = 2;
  const Result<WorkloadSizing> sizing = sizing_of(fixed);
  ASSERT_TRUE(sizing) << sizing.error().message;
  EXPECT_FALSE(sizing->why_fixed().empty());
  EXPECT_EQ(sizing->job().spec.provisioning.max_trainers, 56);
  EXPECT_THAT(sizing->patch_for(decided(32, 8)).error().message, HasSubstr("its number stays"));
}

TEST(WorkloadSizing, TheSizeOfALeaderWorkerSetCountsItsLeader) {
  Json set = yaml(R"(
metadata: {name: set, labels: {plimsoll.dev/family: pair}}
spec: {replicas: 1, leaderWorkerTemplate: {size: 4}}
)");
  set["spec"]["leaderWorkerTemplate"]["leaderTemplate"] = worker("8", "[]");
  set["spec"]["leaderWorkerTemplate"]["workerTemplate"] = worker("8", "[]");
  const References none;
  const Result<WorkloadSizing> sizing = WorkloadSizing::of(
      *find_kind("leaderworkerset.x-k8s.io", "LeaderWorkerSet"), set, none, "ml", description(), kAuto);
  ASSERT_TRUE(sizing) << sizing.error().message;
  const Result<Json> patch = sizing->patch_for(decided(48, 8));
  ASSERT_TRUE(patch) << patch.error().message;
  const std::string selector = R"({"nvidia.com/gpu.product":"NVIDIA-A100-SXM4-80GB"})";
  EXPECT_THAT(texts(*patch),
              UnorderedElementsAre("/spec/leaderWorkerTemplate/leaderTemplate/spec/nodeSelector " + selector,
                                   "/spec/leaderWorkerTemplate/workerTemplate/spec/nodeSelector " + selector,
                                   "/spec/leaderWorkerTemplate/size 6"));
}

TEST(WorkloadSizing, APodGetsANodeSelectorUnlessItIsAPartOfAJob) {
  Json pod = worker("4", "[--nproc-per-node=4]");
  pod["metadata"] = yaml("{generateName: one-, labels: {plimsoll.dev/family: pair}}");
  const Kind& kind = *find_kind("", "Pod");
  const References none;
  const Result<WorkloadSizing> sizing = WorkloadSizing::of(kind, pod, none, "ml", description(), kAuto);
  ASSERT_TRUE(sizing) << sizing.error().message;
  EXPECT_EQ(sizing->job().spec.provisioning.min_trainers, 4);
  EXPECT_EQ(sizing->job().spec.provisioning.max_trainers, 4);
  const Result<Json> patch = sizing->patch_for(decided(4, 4));
  ASSERT_TRUE(patch) << patch.error().message;
  EXPECT_THAT(texts(*patch), UnorderedElementsAre(
                                 R"(/spec/nodeSelector {"nvidia.com/gpu.product":"NVIDIA-A100-SXM4-80GB"})"));

  Json part = pod;
  part["spec"]["containers"][1]["args"] = yaml("{a: [--nnodes=2, --nproc-per-node=4]}")["a"];
  EXPECT_THAT(WorkloadSizing::of(kind, part, none, "ml", description(), kAuto).error().message,
              HasSubstr("a part of a job whose size is not known: --nnodes is 2"));
}

TEST(WorkloadSizing, ModeOffAndNoDecisionChangeNothingButAnnotations) {
  const Json set = job_set();
  const Result<Json> advice = sizing_of(set, crds::ProvisioningMode::kOff)->patch_for(decided(64, 8));
  ASSERT_TRUE(advice);
  EXPECT_THAT(texts(*advice), IsEmpty());
  EXPECT_FALSE(advice->empty());
  EXPECT_TRUE(sizing_of(set)->patch_for({})->empty());
}

}  // namespace
}  // namespace plimsoll::workloads
