#include "webhook/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/webhook/samples.h"

namespace plimsoll::webhook {
namespace {

using ::testing::HasSubstr;
using testing::sample_job;
using testing::sample_review;
using ::testing::StartsWith;
using testing::update_review;

Validation validated(const Json& review) {
  const Decoded decoded = decode_review(write_json(review));
  EXPECT_FALSE(decoded.error.has_value()) << decoded.error->message;
  return validate(decoded.request);
}

TEST(Validate, AllowsAGoodJob) {
  const Validation validation = validated(sample_review(sample_job()));
  EXPECT_TRUE(validation.answer.allowed) << validation.answer.message;
  EXPECT_EQ(validation.reason, "Valid");
}

TEST(Validate, WarnsOfSeveralGpusAPodWithoutShmOfItsOwn) {
  const auto warnings = [](const Json& job) { return validated(sample_review(job)).answer.warnings; };
  ASSERT_EQ(warnings(sample_job()).size(), 1U);
  const std::string text = warnings(sample_job())[0];
  EXPECT_THAT(text, HasSubstr("64 MiB"));
  EXPECT_THAT(text, HasSubstr("emptyDir: {medium: Memory, sizeLimit: 16Gi}"));
  EXPECT_LE(text.size(), kWarningLimit) << "the API server would cut it";

  Json one = sample_job();
  one["spec"]["trainers"]["perNode"] = 1;
  EXPECT_TRUE(warnings(one).empty());
  one["spec"]["trainers"]["perNode"] = 8;
  one["spec"]["trainers"]["replicas"] = 1;
  EXPECT_TRUE(warnings(one).empty());

  Json host_ipc = sample_job();
  host_ipc["spec"]["template"]["spec"]["hostIPC"] = true;
  EXPECT_TRUE(warnings(host_ipc).empty());

  Json mounted = sample_job();
  Json& pod = mounted["spec"]["template"]["spec"];
  pod["containers"][0]["volumeMounts"][0]["name"] = "shm";
  pod["containers"][0]["volumeMounts"][0]["mountPath"] = "/dev/shm";
  pod["volumes"][0]["name"] = "shm";
  pod["volumes"][0]["emptyDir"]["medium"] = "Memory";
  EXPECT_TRUE(warnings(mounted).empty());
  pod["containers"][0]["volumeMounts"][0]["mountPath"] = "/scratch";
  EXPECT_EQ(warnings(mounted).size(), 1U);

  Json elsewhere = sample_job();
  elsewhere["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue";
  EXPECT_TRUE(warnings(elsewhere).empty());
  Json opted_out = sample_job();
  opted_out["metadata"]["annotations"][crds::kProvisioningAnnotation] = "disabled";
  EXPECT_TRUE(warnings(opted_out).empty());
  Json swaps = sample_job();
  swaps["metadata"]["annotations"][crds::kDecisionAnnotation] = R"({"swapPlan":"vPP"})";
  EXPECT_TRUE(warnings(swaps).empty()) << "one process drives all GPUs";
}

// A job whose pods have one GPU, of which there is nothing else to warn.
Json quiet_job() {
  Json job = sample_job();
  job["spec"]["trainers"]["perNode"] = 1;
  return job;
}

TEST(Validate, WarnsOfFieldsOfTheTemplateThatPodsDoNotHave) {
  Json job = quiet_job();
  job["spec"]["template"]["spec"]["contaners"] = job["spec"]["template"]["spec"]["containers"];
  const Validation validation = validated(sample_review(job));
  EXPECT_TRUE(validation.answer.allowed) << "a newer cluster may know it";
  ASSERT_EQ(validation.answer.warnings.size(), 1U);
  const std::string text = validation.answer.warnings[0];
  EXPECT_THAT(text, StartsWith("spec.template.spec.contaners: unknown field; did you mean containers?"));
  EXPECT_THAT(text, HasSubstr("only if this cluster is newer"));
  EXPECT_LE(text.size(), kWarningLimit) << "the API server would cut it";
  EXPECT_TRUE(validated(sample_review(quiet_job())).answer.warnings.empty());
}

TEST(Validate, WarnsOfAFewUnknownFieldsByNameAndCountsTheRest) {
  Json job = quiet_job();
  for (int i = 0; i < 8; ++i) {
    job["spec"]["template"]["spec"]["field" + std::to_string(i)] = 1;
  }
  const std::vector<std::string> warnings = validated(sample_review(job)).answer.warnings;
  ASSERT_EQ(warnings.size(), 6U);
  EXPECT_EQ(warnings.back(), "spec.template: 3 further unknown fields");
}

TEST(Validate, WarnsOfUnknownFieldsWhenTheTemplateChanges) {
  Json before = quiet_job();
  before["spec"]["template"]["spec"]["newerThanUs"] = true;
  Json now = before;
  now["spec"]["suspend"] = true;
  EXPECT_TRUE(validated(update_review(before, now)).answer.warnings.empty());
  now["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.example/t:2";
  EXPECT_EQ(validated(update_review(before, now)).answer.warnings.size(), 1U);
}

TEST(Validate, WarnsOnceOfShmAndNotWithEveryEdit) {
  const Json before = sample_job();
  const auto warnings = [&](const Json& now) {
    return validated(update_review(before, now)).answer.warnings;
  };
  Json now = before;
  now["spec"]["suspend"] = true;
  EXPECT_TRUE(warnings(now).empty());
  now["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.example/t:2";
  EXPECT_EQ(warnings(now).size(), 1U);
  now = before;
  now["spec"]["trainers"]["replicas"] = 64;
  EXPECT_EQ(warnings(now).size(), 1U);
}

TEST(Validate, ShmOfATemplateOfWrongTypesIsRefusedByItsPath) {
  Json job = sample_job();
  job["spec"]["template"]["spec"]["volumes"][0]["name"] = "shm";
  job["spec"]["template"]["spec"]["volumes"][0]["emptyDir"] = "Memory";
  const Validation validation = validated(sample_review(job));
  EXPECT_FALSE(validation.answer.allowed);
  EXPECT_THAT(validation.answer.message, HasSubstr("volumes[0].emptyDir"));
  EXPECT_TRUE(validation.answer.warnings.empty());
}

TEST(Validate, NamesEveryFieldThatIsWrong) {
  Json job = sample_job();
  job["spec"]["provisioning"]["minTrainers"] = 100;
  job["spec"]["provisioning"]["maxTrainers"] = 10;
  job["spec"]["model"]["dlrm"]["topMLP"][4] = 7;
  const Validation validation = validated(sample_review(job));
  EXPECT_FALSE(validation.answer.allowed);
  EXPECT_EQ(validation.answer.code, 422);
  EXPECT_EQ(validation.answer.reason, "Invalid");
  EXPECT_NE(validation.answer.message.find("minTrainers"), std::string::npos) << validation.answer.message;
  EXPECT_NE(validation.answer.message.find("topMLP"), std::string::npos) << validation.answer.message;
  EXPECT_EQ(validation.answer.causes.size(), 2U);
}

TEST(Validate, RefusesAChangeOfTheModel) {
  Json now = sample_job();
  now["spec"]["model"]["dlrm"]["tables"][0]["rows"] = 5;
  const Validation validation = validated(update_review(sample_job(), now));
  EXPECT_FALSE(validation.answer.allowed);
  EXPECT_NE(validation.answer.message.find("spec.model"), std::string::npos) << validation.answer.message;
}

TEST(Validate, LocksNobodyOutOfWhatExists) {
  Json stored = sample_job();
  stored["spec"]["provisioning"]["minTrainers"] = 100;  // invalid by today's rules
  stored["spec"]["provisioning"]["maxTrainers"] = 10;
  Json labelled = stored;
  labelled["metadata"]["labels"]["team"] = "growth";
  EXPECT_TRUE(validated(update_review(stored, labelled)).answer.allowed);

  Json released = stored;
  released["metadata"]["deletionTimestamp"] = "2026-11-21T08:00:00Z";
  released["spec"]["suspend"] = true;
  EXPECT_TRUE(validated(update_review(stored, released)).answer.allowed);

  Json repaired = sample_job();
  EXPECT_TRUE(validated(update_review(stored, repaired)).answer.allowed);
  Json unreadable = stored;
  unreadable["spec"] = "broken";
  EXPECT_TRUE(validated(update_review(unreadable, repaired)).answer.allowed);
}

TEST(Validate, AllowsWhatIsNotItsOwn) {
  Json pod = sample_review(Json(::Json::objectValue));
  pod["request"]["kind"]["kind"] = "Pod";
  EXPECT_TRUE(validated(pod).answer.allowed);
  Json status = update_review(sample_job(), Json(::Json::objectValue));
  status["request"]["subResource"] = "status";
  EXPECT_TRUE(validated(status).answer.allowed);
  EXPECT_TRUE(validated(sample_review(Json(), "DELETE")).answer.allowed);
}

TEST(Validate, NeverSendsAPatch) {
  Json job = sample_job();
  job["spec"]["training"]["batchSizePerTrainer"] = 0;
  EXPECT_TRUE(validated(sample_review(job)).answer.patch.isNull());
  EXPECT_TRUE(validated(sample_review(sample_job())).answer.patch.isNull());
}

}  // namespace
}  // namespace plimsoll::webhook
