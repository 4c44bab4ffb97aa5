#include "workloads/references.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/yaml.h"
#include "workloads/workload.h"

namespace plimsoll::workloads {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Answers with what kind of object it is, and keeps what was asked for.
class Objects : public ObjectSource {
 public:
  Result<Json> object(const ObjectName& name, Budget*) override {
    asked.push_back(name.plural + " " + name.namespace_name + "/" + name.name);
    return missing ? Result<Json>(Error(ErrorCode::kNotFound, "it is not there")) : Json(name.plural);
  }

  std::vector<std::string> asked;
  bool missing = false;
};

class ReferencesTest : public ::testing::Test {
 protected:
  Result<References> read(ObjectSource* source) {
    return read_references(*find_kind("trainer.kubeflow.org", "TrainJob"), job_, "ml", source, nullptr);
  }

  Json job_ = parse_yaml_documents(R"(
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
spec: {runtimeRef: {apiGroup: trainer.kubeflow.org, kind: ClusterTrainingRuntime, name: torch-distributed}}
)")
                  ->front();
  Objects objects_;
};

TEST_F(ReferencesTest, TheRuntimeOfATrainJobIsReadAndItsDefinition) {
  const Result<References> references = read(&objects_);
  ASSERT_TRUE(references) << references.error().message;
  EXPECT_THAT(objects_.asked, ElementsAre("clustertrainingruntimes /torch-distributed",
                                          "customresourcedefinitions /trainjobs.trainer.kubeflow.org"));
  EXPECT_EQ(references->runtime, Json("clustertrainingruntimes"));
  EXPECT_EQ(references->definition, Json("customresourcedefinitions"));
}

TEST_F(ReferencesTest, ATrainJobThatHasTheFieldNeedsNoDefinition) {
  job_["spec"]["runtimeRef"]["kind"] = "TrainingRuntime";
  job_["spec"]["runtimePatches"] = Json(::Json::arrayValue);
  const Result<References> references = read(&objects_);
  ASSERT_TRUE(references) << references.error().message;
  EXPECT_THAT(objects_.asked, ElementsAre("trainingruntimes ml/torch-distributed"));
  EXPECT_TRUE(references->definition.isNull());
}

TEST_F(ReferencesTest, WhatCannotBeReadIsSaid) {
  objects_.missing = true;
  EXPECT_THAT(read(&objects_).error().message, HasSubstr("runtime of spec.runtimeRef"));
  EXPECT_EQ(read(&objects_).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(read(nullptr).error().code, ErrorCode::kUnavailable);
  job_["spec"]["runtimeRef"]["kind"] = "Pipeline";
  EXPECT_EQ(read(&objects_).error().code, ErrorCode::kUnsupported);
  job_["spec"].removeMember("runtimeRef");
  EXPECT_EQ(read(&objects_).error().code, ErrorCode::kInvalid);
}

TEST_F(ReferencesTest, OtherKindsNeedNone) {
  for (const Kind& kind : kinds()) {
    if (kind.kind != "TrainJob") {
      EXPECT_TRUE(read_references(kind, job_, "ml", nullptr, nullptr)) << kind.kind;
    }
  }
}

}  // namespace
}  // namespace plimsoll::workloads
