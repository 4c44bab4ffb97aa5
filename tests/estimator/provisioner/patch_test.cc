// patch_for() and to_json() of estimator/provisioner/provisioner.h.
#include <gmock/gmock.h>

#include "estimator/provisioner/patch.h"
#include "tests/estimator/provisioner_fixture.h"

namespace plimsoll::estimator {
namespace {

using plimsoll::testing::admitted;
using plimsoll::testing::annotation;
using plimsoll::testing::available;
using plimsoll::testing::Cluster;
using plimsoll::testing::decode;
using plimsoll::testing::four_models;
using plimsoll::testing::job_object;
using plimsoll::testing::parse;
using plimsoll::testing::provision;
using ::testing::HasSubstr;

constexpr std::int64_t kGiBOfRows = 2'097'152;
constexpr const char* kProduct = "nvidia.com/gpu.product";

Json big_job() {
  return job_object(400, 2 * kGiBOfRows);
}

Json& terms_of(Json& object) {
  return object["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
               ["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
}

TEST(Patch, WritesTheDecisionIntoTheJob) {
  const Json object = admitted(big_job(), four_models());
  EXPECT_EQ(object["spec"]["trainers"]["replicas"].asInt64(), 16);
  EXPECT_EQ(object["spec"]["trainers"]["perNode"].asInt64(), 8);
  EXPECT_EQ(object["spec"]["trainers"]["gpuModel"].asString(), "A100-80GB");
  const Json& pod = object["spec"]["template"]["spec"];
  EXPECT_EQ(pod["nodeSelector"][kProduct].asString(), "NVIDIA-A100-SXM4-80GB");
  EXPECT_EQ(pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"].asString(), "8");
  EXPECT_FALSE(pod["containers"][0]["resources"].isMember("requests"));
  EXPECT_EQ(annotation(object, crds::kRequestedAnnotation), R"({"gpuModel":"","perNode":8,"replicas":128})");
  EXPECT_EQ(annotation(object, crds::kRequestedReplicasAnnotation), "128");
  EXPECT_THAT(annotation(object, crds::kReasonAnnotation), HasSubstr("112 saved"));
  const Json record = parse(annotation(object, crds::kDecisionAnnotation));
  EXPECT_EQ(record["gpuModel"].asString(), "A100-80GB");
  EXPECT_EQ(record["trainers"].asInt64(), 16);
  EXPECT_EQ(record["perNode"].asInt64(), 8);
  EXPECT_EQ(record["gpusSaved"].asInt64(), 112);
  EXPECT_EQ(record["capacityBytes"].asInt64(), Bytes::from_mib(81'038).count);
  EXPECT_GT(record["upperBoundBytes"].asInt64(), 0);
  EXPECT_GE(std::stod(record["imbalance"].asString()), 1.0);
}

TEST(Patch, HoldsAddAndReplaceOnly) {
  const crds::TrainingJob job = decode(big_job());
  for (const Json& operation : patch_for(job, provision(job, four_models()))) {
    EXPECT_TRUE(operation["op"] == "add" || operation["op"] == "replace") << write_json(operation);
    EXPECT_EQ(operation["path"].asString().find("nvidia.com/gpu"), std::string::npos) << "unescaped slash";
  }
}

TEST(Patch, KeepsWhatItDoesNotKnow) {
  Json object = big_job();
  object["spec"]["newerField"] = "kept";
  object["metadata"]["annotations"]["mine"] = "kept";
  object["spec"]["template"]["spec"]["nodeSelector"]["zone"] = "a";
  object["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] = "1Gi";
  const Json after = admitted(object, four_models());
  EXPECT_EQ(after["spec"]["newerField"].asString(), "kept");
  EXPECT_EQ(after["metadata"]["annotations"]["mine"].asString(), "kept");
  EXPECT_EQ(after["spec"]["template"]["spec"]["nodeSelector"]["zone"].asString(), "a");
  EXPECT_EQ(after["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"].asString(),
            "1Gi");
  EXPECT_EQ(after["spec"]["model"], object["spec"]["model"]);
}

TEST(Patch, TheContainerNamedTrainerGetsTheGpus) {
  Json object = job_object(1, kGiBOfRows);
  object["spec"]["template"]["spec"]["containers"] = parse(R"([{"name": "sidecar"},
    {"name": "trainer", "resources": {"limits": {"nvidia.com/gpu": 8}, "requests": {"nvidia.com/gpu": 8}}}])");
  const Json after = admitted(object, four_models());
  const Json& containers = after["spec"]["template"]["spec"]["containers"];
  EXPECT_FALSE(containers[0].isMember("resources"));
  EXPECT_EQ(containers[1]["resources"]["limits"]["nvidia.com/gpu"].asString(), "1");
  EXPECT_EQ(containers[1]["resources"]["requests"]["nvidia.com/gpu"].asString(), "1");
}

TEST(Patch, SeveralSpellingsBecomeAnAffinity) {
  const Cluster cluster = {available("A100-80GB", 64, 8, 2)};
  const Json expected = parse(R"({"key": "nvidia.com/gpu.product", "operator": "In",
    "values": ["NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-80GB-PCIe"]})");
  Json object = big_job();
  Json after = admitted(object, cluster);
  EXPECT_FALSE(after["spec"]["template"]["spec"].isMember("nodeSelector"));
  ASSERT_EQ(terms_of(after).size(), 1U);
  EXPECT_EQ(terms_of(after)[0]["matchExpressions"][0], expected);

  // The user's terms are alternatives: each gets the requirement, and keeps what it had.
  terms_of(object) = parse(R"([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},
                               {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}])");
  after = admitted(object, cluster);
  ASSERT_EQ(terms_of(after).size(), 2U);
  EXPECT_EQ(terms_of(after)[0]["matchExpressions"][0]["key"].asString(), "zone");
  EXPECT_EQ(terms_of(after)[0]["matchExpressions"][1], expected);
  EXPECT_EQ(terms_of(after)[1]["matchExpressions"][0], expected);
  EXPECT_TRUE(terms_of(after)[1].isMember("matchFields"));
}

TEST(Patch, ACloudsLabelIsWrittenUnderItsOwnKey) {
  AvailableGpu gpu = available("A100-80GB", 64);
  gpu.product_labels = {"cloud.google.com/gke-accelerator=nvidia-a100-80gb"};
  const Json after = admitted(big_job(), {gpu});
  EXPECT_EQ(after["spec"]["template"]["spec"]["nodeSelector"]["cloud.google.com/gke-accelerator"].asString(),
            "nvidia-a100-80gb");
  EXPECT_FALSE(after["spec"]["template"]["spec"]["nodeSelector"].isMember(kProduct));
}

TEST(Patch, ModeOffOnlyWritesTheRecommendation) {
  Json object = big_job();
  object["spec"]["provisioning"]["mode"] = "Off";
  const Json after = admitted(object, four_models());
  EXPECT_EQ(after["spec"], object["spec"]);
  EXPECT_EQ(parse(annotation(after, crds::kDecisionAnnotation))["trainers"].asInt64(), 16);
  EXPECT_EQ(annotation(after, crds::kRequestedAnnotation), "");
}

TEST(Patch, IsEmptyWithoutADecision) {
  Json object = big_job();
  object["metadata"]["annotations"]["plimsoll.dev/provisioning"] = "disabled";
  const crds::TrainingJob job = decode(object);
  EXPECT_EQ(patch_for(job, provision(job, four_models())).size(), 0U);
  const crds::TrainingJob other = decode(big_job());
  EXPECT_EQ(patch_for(other, provision(other, {})).size(), 0U);
}

TEST(Patch, BrokenAnnotationsOfOursAreWrittenAnew) {
  for (const char* broken : {"not JSON", "[]", R"({"perNode":"8"})", R"({"perNode":-1})"}) {
    Json object = big_job();
    object["metadata"]["annotations"][crds::kRequestedAnnotation] = broken;
    object["metadata"]["annotations"][crds::kDecisionAnnotation] = broken;
    const Json after = admitted(object, four_models());
    EXPECT_EQ(annotation(after, crds::kRequestedAnnotation), R"({"gpuModel":"","perNode":8,"replicas":128})");
  }
}

struct Shape {
  const char* name;
  void (*change)(Json&);
  std::size_t spellings;
};

class Idempotence : public ::testing::TestWithParam<Shape> {};

TEST_P(Idempotence, AnAdmittedJobIsAdmittedAgainWithoutAPatch) {
  Json object = big_job();
  GetParam().change(object);
  Cluster cluster = four_models();
  cluster[1] = available("A100-80GB", 64, 8, GetParam().spellings);
  const Json once = admitted(object, cluster);
  const crds::TrainingJob again = decode(once);
  const Provision second = provision(again, cluster);
  EXPECT_EQ(write_json(patch_for(again, second)), "[]");
  if (second.decided() && again.spec.provisioning.mode != crds::ProvisioningMode::kOff) {
    EXPECT_EQ(second.event_reason, "AlreadyRight");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Idempotence,
    ::testing::Values(
        Shape{"plain", [](Json&) {}, 1}, Shape{"two_spellings", [](Json&) {}, 2},
        Shape{"off", [](Json& job) { job["spec"]["provisioning"]["mode"] = "Off"; }, 1},
        Shape{"nothing_asked", [](Json& job) { job["spec"].removeMember("trainers"); }, 1},
        Shape{"too_few", [](Json& job) { job["spec"]["trainers"]["replicas"] = 8; }, 1},
        Shape{"pinned",
              [](Json& job) {
                job["spec"]["template"]["spec"]["nodeSelector"][kProduct] = "NVIDIA-A100-SXM4-80GB";
              },
              2},
        Shape{"lower_case_model", [](Json& job) { job["spec"]["trainers"]["gpuModel"] = "a100-80gb"; }, 1},
        Shape{"null_parents",
              [](Json& job) {
                job["metadata"]["annotations"] = Json();
                job["spec"]["template"]["spec"]["nodeSelector"] = Json();
                job["spec"]["template"]["spec"]["containers"][0]["resources"] = Json();
              },
              1},
        Shape{"other_affinity",
              [](Json& job) {
                terms_of(job) = parse(R"([{"matchExpressions": [{"key": "z", "operator": "Exists"}]}, {}])");
              },
              2},
        Shape{"requests",
              [](Json& job) {
                job["spec"]["template"]["spec"]["containers"][0]["resources"] =
                    parse(R"({"limits": {"nvidia.com/gpu": 4}, "requests": {"nvidia.com/gpu": "4"}})");
              },
              1},
        Shape{"suspended", [](Json& job) { job["spec"]["suspend"] = true; }, 1}),
    [](const ::testing::TestParamInfo<Shape>& shape) { return shape.param.name; });

TEST(Patch, AnotherDecisionMovesOurSelectorsAndKeepsTheFirstRequest) {
  const Json first = admitted(big_job(), four_models());
  Cluster cluster = {available("H100-80GB", 64)};
  Json second = admitted(first, cluster);
  EXPECT_EQ(second["spec"]["trainers"]["gpuModel"].asString(), "H100-80GB");
  EXPECT_EQ(second["spec"]["template"]["spec"]["nodeSelector"][kProduct].asString(), "NVIDIA-H100-80GB-HBM3");
  EXPECT_EQ(annotation(second, crds::kRequestedReplicasAnnotation), "128");

  cluster = {available("A100-40GB", 64, 8, 2)};  // from one spelling to two
  second["spec"]["template"]["spec"]["nodeSelector"]["zone"] = "a";
  Json third = admitted(second, cluster);
  EXPECT_FALSE(third["spec"]["template"]["spec"]["nodeSelector"].isMember(kProduct));
  EXPECT_EQ(third["spec"]["template"]["spec"]["nodeSelector"]["zone"].asString(), "a");
  EXPECT_EQ(terms_of(third)[0]["matchExpressions"][0]["values"].size(), 2U);

  cluster = {available("V100-32GB", 64)};  // and back to one: the expression is changed in place
  Json fourth = admitted(third, cluster);
  EXPECT_EQ(terms_of(fourth)[0]["matchExpressions"].size(), 1U);
  EXPECT_EQ(terms_of(fourth)[0]["matchExpressions"][0]["values"][0].asString(), "Tesla-V100-SXM2-32GB");
  EXPECT_EQ(annotation(fourth, crds::kRequestedAnnotation), annotation(first, crds::kRequestedAnnotation));
  const crds::TrainingJob again = decode(fourth);
  EXPECT_EQ(write_json(patch_for(again, provision(again, cluster))), "[]");
}

TEST(Patch, ASelectorThatTheUserWritesLaterPins) {
  Json object = admitted(big_job(), four_models());
  object["spec"]["template"]["spec"]["nodeSelector"][kProduct] = "Tesla-V100-SXM2-32GB";
  const Json after = admitted(object, four_models());
  EXPECT_EQ(after["spec"]["trainers"]["gpuModel"].asString(), "V100-32GB");
}

TEST(ProvisionJson, KeepsTheContract) {
  const crds::TrainingJob job = decode(big_job());
  const Json json = to_json(job, provision(job, four_models()));
  for (const char* key : {"gpuModel", "trainers", "perNode", "reason", "gpusSaved", "capacityBytes", "peak",
                          "breakdown", "peakPhase", "sharding", "productLabels"}) {
    EXPECT_TRUE(json["decision"].isMember(key)) << key;
  }
  EXPECT_EQ(json["requested"]["replicas"].asInt64(), 128);
  EXPECT_EQ(json["alternatives"].size(), 4U);
  for (const char* key : {"gpuModel", "fits", "searched", "trainers", "perNode", "cost", "iterationSeconds",
                          "samplesPerSecond", "reason"}) {
    EXPECT_TRUE(json["alternatives"][0].isMember(key)) << key;
  }
  EXPECT_GT(json["patch"].size(), 3U);
  EXPECT_EQ(json["eventReason"].asString(), "Provisioned");

  const Json none = to_json(job, provision(job, {}));
  EXPECT_TRUE(none["decision"].isNull());
  EXPECT_EQ(none["patch"].size(), 0U);
  EXPECT_EQ(none["alternatives"].size(), 0U);
}

}  // namespace
}  // namespace plimsoll::estimator
