#include "crds/unknown_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/crds/test_jobs.h"

namespace plimsoll::crds {
namespace {

using ::testing::HasSubstr;

std::string told(const Json& object) {
  return to_string(unknown_fields(JsonView(object)));
}

TEST(UnknownFields, AreNamedWithWhatWasProbablyMeant) {
  Json job = small_job();
  EXPECT_EQ(told(job), "");
  job["spec"]["training"]["batchSizePerTrainers"] = 1;
  EXPECT_EQ(told(job),
            "spec.training.batchSizePerTrainers: unknown field; did you mean batchSizePerTrainer?");
  job["spec"]["training"].removeMember("batchSizePerTrainers");
  job["spec"]["training"]["parallelism"]["tenosr"] = 8;
  EXPECT_EQ(told(job), "spec.training.parallelism.tenosr: unknown field; did you mean tensor?");
  job["spec"]["training"].removeMember("parallelism");
  job["spec"]["Trainers"]["replicas"] = 8;
  EXPECT_EQ(told(job), "spec.Trainers: unknown field; did you mean trainers?");
  job["spec"].removeMember("Trainers");
  job["metadata"]["lables"]["team"] = "ads";
  EXPECT_EQ(told(job), "metadata.lables: unknown field; did you mean labels?");
  job["metadata"].removeMember("lables");
  job["Spec"] = 1;
  EXPECT_EQ(told(job), "Spec: unknown field; did you mean spec?");
  EXPECT_FALSE(refuse_unknown_fields(JsonView(job)).ok());
}

TEST(UnknownFields, OfListedObjectsHaveTheirPosition) {
  const Json job = yaml(
      "{kind: TrainingJob, spec: {model: {dlrm: {tables: [{name: a, rows: 1, dim: 1}, {name: b, row: 1, dim: 1}]}},"
      " failurePolicy: {rules: [{action: FailJob, exitCodes: [1]}]}}}");
  EXPECT_THAT(told(job), HasSubstr("spec.model.dlrm.tables[1].row: unknown field; did you mean rows?"));
  EXPECT_THAT(told(job), HasSubstr("spec.failurePolicy.rules[0].exitCodes: unknown field"));
}

TEST(UnknownFields, TheTemplateAndTheStatusAreOpen) {
  Json job = small_job();
  job["spec"]["template"]["spec"]["anything"] = 1;
  job["status"]["anything"] = 1;
  EXPECT_EQ(told(job), "");
}

TEST(UnknownFields, OfOurOtherKindsAndNoOthers) {
  EXPECT_THAT(told(yaml("{kind: GPUModel, spec: {memry: 80Gi}}")), HasSubstr("did you mean memory?"));
  EXPECT_THAT(told(yaml("{kind: MemoryProfile, spec: {bounds: [{gpumodel: T4}]}}")),
              HasSubstr("spec.bounds[0].gpumodel: unknown field; did you mean gpuModel?"));
  EXPECT_EQ(told(yaml("{kind: Node, spec: {anything: 1}}")), "");
}

TEST(UnknownFields, OfWrongTypesAreTheDecodersErrors) {
  for (const char* text :
       {"[]", "7", "{kind: TrainingJob}", "{kind: TrainingJob, spec: [1]}", "{kind: 7}",
        "{kind: TrainingJob, metadata: a, spec: {model: 7, training: [], provisioning: a}}",
        "{kind: TrainingJob, spec: {model: {dlrm: {tables: {a: 1}}}}}"}) {
    EXPECT_EQ(told(yaml(text)), "") << text;
  }
}

TEST(UnknownFields, AreReportedUpToALimit) {
  Json job = small_job();
  for (int i = 0; i < 1000; ++i) {
    job["spec"]["field-number-" + std::to_string(i)] = i;
  }
  EXPECT_EQ(unknown_fields(JsonView(job)).size(), kMaxFieldErrors);
}

}  // namespace
}  // namespace plimsoll::crds
