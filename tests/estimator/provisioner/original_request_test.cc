#include "estimator/provisioner/original_request.h"

#include <gmock/gmock.h>

#include "tests/estimator/provisioner_fixture.h"

namespace plimsoll::estimator {
namespace {

using plimsoll::testing::admitted;
using plimsoll::testing::available;
using plimsoll::testing::Cluster;
using plimsoll::testing::decode;
using plimsoll::testing::job_object;
using plimsoll::testing::parse;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr const char* kProduct = "nvidia.com/gpu.product";
constexpr const char* kA100 = "NVIDIA-A100-SXM4-80GB";
constexpr const char* kA100Pcie = "NVIDIA-A100-80GB-PCIe";
constexpr const char* kV100 = "Tesla-V100-SXM2-32GB";

// 800 GiB of tables: 16 A100-80GB instead of the 128 GPUs that were requested.
Json big_job() {
  return job_object(400, 2 * 2'097'152);
}

Json& selector_of(Json& object) {
  return object["spec"]["template"]["spec"]["nodeSelector"];
}

Json& terms_of(Json& object) {
  return object["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
               ["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
}

OriginalRequest request_of(const Json& object) {
  return original_request_of(decode(object));
}

TEST(OriginalRequest, BeforeAnyAdmissionItIsTheJob) {
  Json object = big_job();
  selector_of(object)[kProduct] = kV100;
  selector_of(object)["zone"] = "a";
  terms_of(object) =
      parse(R"([{"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["b", "c"]},
                                                     {"key": "rack", "operator": "Exists"}]}])");
  const OriginalRequest original = request_of(object);
  EXPECT_FALSE(original.recorded);
  EXPECT_EQ(original.trainers.replicas, 128);
  EXPECT_TRUE(original.trainers.replicas_given);
  EXPECT_EQ(original.trainers.per_node, 8);
  EXPECT_THAT(original.written_products, IsEmpty());
  EXPECT_THAT(original.node_selector, ElementsAre(Pair(kProduct, kV100), Pair("zone", "a")));
  ASSERT_EQ(original.terms.size(), 1U);
  ASSERT_EQ(original.terms[0].size(), 1U) << "Exists does not limit the values";
  EXPECT_EQ(original.terms[0][0].key, "zone");
  EXPECT_FALSE(original.terms[0][0].in);
  EXPECT_THAT(original.terms[0][0].values, ElementsAre("b", "c"));
}

TEST(OriginalRequest, ASecondAdmissionReadsWhatTheFirstRecorded) {
  Json before = big_job();
  selector_of(before)["zone"] = "a";
  const Json after = admitted(before, {available("A100-80GB", 64)});
  ASSERT_EQ(after["spec"]["trainers"]["replicas"].asInt64(), 16);
  const OriginalRequest original = request_of(after);
  EXPECT_TRUE(original.recorded);
  EXPECT_EQ(original.trainers.replicas, 128);
  EXPECT_EQ(original.trainers.per_node, 8);
  EXPECT_EQ(original.trainers.gpu_model, "");
  EXPECT_THAT(original.written_products, ElementsAre(kA100));
  EXPECT_THAT(original.node_selector, ElementsAre(Pair("zone", "a"))) << "without the product";
  EXPECT_EQ(write_json(to_json(original)), write_json(to_json(request_of(before))));
}

TEST(OriginalRequest, TheAffinityThatAnAdmissionWroteIsLeftOut) {
  Json before = big_job();
  terms_of(before) = parse(R"([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}])");
  const Json after = admitted(before, {available("A100-80GB", 64, 8, 2)});
  const OriginalRequest original = request_of(after);
  EXPECT_THAT(original.written_products, ElementsAre(kA100, kA100Pcie));
  ASSERT_EQ(original.terms.size(), 1U);
  ASSERT_EQ(original.terms[0].size(), 1U);
  EXPECT_EQ(original.terms[0][0].key, "zone");
}

TEST(OriginalRequest, AProductThatTheUserRequestedOrChangedStays) {
  Json requested = big_job();
  selector_of(requested)[kProduct] = kA100;
  EXPECT_THAT(request_of(admitted(requested, {available("A100-80GB", 64)})).node_selector,
              ElementsAre(Pair(kProduct, kA100)));
  Json changed = admitted(big_job(), {available("A100-80GB", 64)});
  selector_of(changed)[kProduct] = kV100;
  EXPECT_THAT(request_of(changed).node_selector, ElementsAre(Pair(kProduct, kV100)));
}

TEST(OriginalRequest, AnAnnotationThatIsNotOursIsIgnored) {
  for (const char* text : {"", "[1]", "not JSON", "{}", R"({"perNode": 0})", R"({"perNode": -8})",
                           R"({"perNode": "8"})", R"({"perNode": 1e99})"}) {
    Json object = big_job();
    object["metadata"]["annotations"][crds::kRequestedAnnotation] = text;
    const OriginalRequest original = request_of(object);
    EXPECT_FALSE(original.recorded) << text;
    EXPECT_EQ(original.trainers.replicas, 128) << text;
  }
}

// minTrainers is the count of a job that does not give one.
TEST(OriginalRequest, ACountThatWasNotGivenIsNotRecorded) {
  Json object = big_job();
  object["spec"]["trainers"].removeMember("replicas");
  object["spec"]["provisioning"]["minTrainers"] = 4;
  const Json record = to_json(request_of(object));
  EXPECT_EQ(write_json(record), R"({"gpuModel":"","perNode":8})");
  object["metadata"]["annotations"][crds::kRequestedAnnotation] = write_json(record);
  object["spec"]["trainers"]["replicas"] = 16;  // what the admission wrote
  const OriginalRequest original = request_of(object);
  EXPECT_TRUE(original.recorded);
  EXPECT_FALSE(original.trainers.replicas_given);
  EXPECT_EQ(original.trainers.replicas, 4);
}

// ---- allows() ----

OriginalRequest selecting(const std::string& key, const std::string& value) {
  OriginalRequest original;
  original.node_selector[key] = value;
  return original;
}

OriginalRequest requiring(std::vector<std::vector<LabelRequirement>> terms) {
  OriginalRequest original;
  original.terms = std::move(terms);
  return original;
}

const AvailableGpu& a100() {
  static const AvailableGpu gpu = available("A100-80GB", 8);
  return gpu;
}

TEST(OriginalRequestAllows, TheProductAndTheFamily) {
  EXPECT_TRUE(OriginalRequest().allows(a100(), kA100, {}));
  EXPECT_TRUE(selecting(kProduct, kA100).allows(a100(), kA100, {}));
  EXPECT_FALSE(selecting(kProduct, kV100).allows(a100(), kA100, {}));
  EXPECT_FALSE(selecting(kProduct, kA100).allows(a100(), kA100Pcie, {})) << "of each spelling";
  EXPECT_TRUE(selecting("nvidia.com/gpu.family", "ampere").allows(a100(), kA100, {}));
  EXPECT_FALSE(selecting("nvidia.com/gpu.family", "hopper").allows(a100(), kA100, {}));
  AvailableGpu unknown = a100();
  unknown.model.family.clear();
  EXPECT_TRUE(selecting("nvidia.com/gpu.family", "hopper").allows(unknown, kA100, {}));
}

TEST(OriginalRequestAllows, LabelsThatDoNotDescribeTheGpuCountAsMet) {
  EXPECT_TRUE(selecting("zone", "a").allows(a100(), kA100, {"nvidia-tesla-a100"}));
}

TEST(OriginalRequestAllows, ACloudsLabelIsRecognizedByItsValues) {
  AvailableGpu gpu = a100();
  gpu.model.cloud_labels = {"nvidia-a100-80gb"};
  const std::set<std::string> present = {"nvidia-a100-80gb", "nvidia-tesla-v100"};
  EXPECT_TRUE(selecting("cloud.example/gpu", "nvidia-a100-80gb").allows(gpu, kA100, present));
  EXPECT_FALSE(selecting("cloud.example/gpu", "nvidia-tesla-v100").allows(gpu, kA100, present));
  EXPECT_TRUE(selecting("cloud.example/gpu", "nvidia-tesla-k80").allows(gpu, kA100, present))
      << "no GPU that is present has this value";
}

TEST(OriginalRequestAllows, NodesWithOnlyACloudsLabelHaveNoProduct) {
  const std::string label = "cloud.example/gpu=nvidia-a100-80gb";
  EXPECT_FALSE(selecting(kProduct, kA100).allows(a100(), label, {}));
  EXPECT_TRUE(requiring({{{kProduct, false, {kV100}}}}).allows(a100(), label, {}));
  EXPECT_TRUE(selecting("cloud.example/gpu", "nvidia-a100-80gb").allows(a100(), label, {}));
}

TEST(OriginalRequestAllows, OneTermWithAllItsRequirements) {
  const LabelRequirement is_a100{kProduct, true, {kV100, kA100}};
  const LabelRequirement is_not_a100{kProduct, false, {kA100}};
  const LabelRequirement is_hopper{"nvidia.com/gpu.family", true, {"hopper"}};
  EXPECT_TRUE(requiring({{is_a100}}).allows(a100(), kA100, {}));
  EXPECT_FALSE(requiring({{is_not_a100}}).allows(a100(), kA100, {}));
  EXPECT_FALSE(requiring({{is_a100, is_hopper}}).allows(a100(), kA100, {}));
  EXPECT_TRUE(requiring({{is_hopper}, {is_a100}}).allows(a100(), kA100, {}));
  EXPECT_TRUE(requiring({{is_hopper}, {}}).allows(a100(), kA100, {})) << "a term without requirements";
}

// DoesNotExist is In without values.
TEST(OriginalRequestAllows, ANodeWithAProductIsExcludedByDoesNotExist) {
  Json object = big_job();
  terms_of(object) =
      parse(R"([{"matchExpressions": [{"key": "nvidia.com/gpu.product", "operator": "DoesNotExist"}]}])");
  EXPECT_FALSE(request_of(object).allows(a100(), kA100, {}));
}

TEST(ProductExpression, HasTheKeyOfTheLabels) {
  EXPECT_EQ(write_json(product_expression({kA100, kA100Pcie})),
            R"({"key":"nvidia.com/gpu.product","operator":"In",)"
            R"("values":["NVIDIA-A100-SXM4-80GB","NVIDIA-A100-80GB-PCIe"]})");
  EXPECT_EQ(write_json(product_expression({"cloud.example/gpu=a", "cloud.example/gpu=b"})),
            R"({"key":"cloud.example/gpu","operator":"In","values":["a","b"]})");
}

TEST(RequiredTerms, AreNullWithoutAnAffinity) {
  EXPECT_TRUE(required_terms(decode(big_job())).isNull());
  Json object = big_job();
  terms_of(object) = parse(R"([{"matchFields": []}])");
  EXPECT_EQ(required_terms(decode(object)).size(), 1U);
}

}  // namespace
}  // namespace plimsoll::estimator
