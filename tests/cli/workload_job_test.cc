#include "cli/workload_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/yaml.h"

namespace plimsoll::cli {
namespace {

using ::testing::HasSubstr;

constexpr const char* kModel = R"(
model: {transformer: {layers: 4, hidden: 256, heads: 4, ffn: 1024, vocab: 1000, seqLen: 128}}
training: {batchSizePerTrainer: 2, precision: BF16Mixed, optimizer: AdamW}
)";

class WorkloadJobTest : public ::testing::Test {
 protected:
  WorkloadJobTest() {
    sources_.config_maps = [this](const std::string&, const std::string&) -> Result<Json> {
      Json config_map;
      config_map["data"]["model"] = model_;
      return config_map;
    };
    sources_.profiles = [](const std::string&, const std::string&) { return nullptr; };
  }

  Result<std::shared_ptr<const WorkloadJob>> read() {
    const workloads::Kind* const kind = kind_of(job_);
    EXPECT_NE(kind, nullptr);
    return read_workload_job(*kind, job_, "team", sources_);
  }

  std::string model_ = kModel;
  Json job_ = parse_yaml_documents(R"(
apiVersion: batch/v1
kind: Job
metadata: {name: tuned, annotations: {plimsoll.dev/model: described/model}}
spec:
  completionMode: Indexed
  completions: 2
  parallelism: 2
  template: {spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 4}}}]}}
)")
                  ->front();
  JobSources sources_;
};

TEST_F(WorkloadJobTest, ADescribedWorkloadIsSizedWithoutALabel) {
  const Result<std::shared_ptr<const WorkloadJob>> job = read();
  ASSERT_TRUE(job) << to_string(job.error());
  EXPECT_FALSE((*job)->opted_in);
  EXPECT_EQ((*job)->kind, "Job");
  EXPECT_EQ((*job)->sizing->job().spec.trainers.replicas, 8);
  job_["metadata"]["labels"]["plimsoll.dev/family"] = "tuned";
  const Result<std::shared_ptr<const WorkloadJob>> labelled = read();
  ASSERT_TRUE(labelled);
  EXPECT_TRUE((*labelled)->opted_in);
}

TEST_F(WorkloadJobTest, AModeIsAutoOrOff) {
  job_["metadata"]["annotations"]["plimsoll.dev/mode"] = "Off";
  const Result<std::shared_ptr<const WorkloadJob>> off = read();
  ASSERT_TRUE(off) << to_string(off.error());
  EXPECT_EQ((*off)->sizing->job().spec.provisioning.mode, crds::ProvisioningMode::kOff);
  job_["metadata"]["annotations"]["plimsoll.dev/mode"] = "auto";
  const Result<std::shared_ptr<const WorkloadJob>> wrong = read();
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().message, HasSubstr("must be Auto or Off, is auto"));
}

TEST_F(WorkloadJobTest, WhatDescribesItIsChecked) {
  model_ = "{model: {transformer: {layerz: 4}}, training: {}}";
  const Result<std::shared_ptr<const WorkloadJob>> misspelt = read();
  ASSERT_FALSE(misspelt);
  EXPECT_THAT(misspelt.error().message, HasSubstr("did you mean layers?"));
  model_ = "just text";
  EXPECT_FALSE(read());
  job_["metadata"].removeMember("annotations");
  const Result<std::shared_ptr<const WorkloadJob>> nothing = read();
  ASSERT_FALSE(nothing);
  EXPECT_EQ(nothing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(nothing.error().message, HasSubstr("2 pods of 4 GPUs: its model is not described"));
  EXPECT_THAT(nothing.error().message, HasSubstr("docs/workloads.md"));
}

TEST_F(WorkloadJobTest, KindsAreOfTheirGroup) {
  EXPECT_EQ(kind_of(*parse_json(R"({"apiVersion":"example.org/v1","kind":"Job"})")), nullptr);
  EXPECT_EQ(kind_of(*parse_json(R"({"apiVersion":1,"kind":["Job"]})")), nullptr);
}

}  // namespace
}  // namespace plimsoll::cli
