#include "crds/gpu_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/crds/test_jobs.h"

namespace plimsoll::crds {
namespace {

using ::testing::HasSubstr;

Json model_with(const std::string& spec) {
  return yaml(
      "{apiVersion: plimsoll.dev/v1alpha1, kind: GPUModel, metadata: {name: a100-80gb}, spec: " + spec + "}");
}

std::string error_of(const Json& object) {
  const Result<GpuModel> model = decode_gpu_model(object);
  return model ? "decoded" : model.error().message;
}

TEST(GpuModel, DecodesWhatIsGivenAndKeepsTheRestEmpty) {
  const Result<GpuModel> model = decode_gpu_model(model_with(
      "{productLabels: [NVIDIA-A100-SXM4-80GB], memory: 81920Mi, hbmBandwidth: 2000000000000, costPerHour: \"2.95\"}"));
  ASSERT_TRUE(model.ok()) << to_string(model.error());
  EXPECT_EQ(model->name, "a100-80gb");
  EXPECT_EQ(model->spec.product_labels, std::vector<std::string>{"NVIDIA-A100-SXM4-80GB"});
  EXPECT_EQ(model->spec.memory, 80_GiB);
  EXPECT_EQ(model->spec.hbm_bandwidth, 2'000'000'000'000_B);
  EXPECT_EQ(model->spec.cost_per_hour, 2.95);
  EXPECT_FALSE(model->spec.cuda_context.has_value());
  EXPECT_FALSE(model->spec.intra_node_bandwidth.has_value());
}

TEST(GpuModel, AutoscalingNeedsBothOfItsFigures) {
  const Result<GpuModel> model =
      decode_gpu_model(model_with("{autoscaling: {maxNodes: 16, gpusPerNode: 8}}"));
  ASSERT_TRUE(model.ok()) << to_string(model.error());
  EXPECT_EQ(model->spec.autoscaling->max_nodes, 16);
  EXPECT_EQ(model->spec.autoscaling->gpus_per_node, 8);
  EXPECT_THAT(error_of(model_with("{autoscaling: {maxNodes: 16}}")),
              HasSubstr("spec.autoscaling.gpusPerNode: is required"));
  EXPECT_THAT(error_of(model_with("{autoscaling: {maxNodes: many, gpusPerNode: 8}}")),
              HasSubstr("spec.autoscaling.maxNodes: must be an integer"));
}

TEST(GpuModel, HostLinksMayBeGivenInPart) {
  const Result<GpuModel> model = decode_gpu_model(model_with("{hostLinks: {peerToPeer: Supported}}"));
  ASSERT_TRUE(model.ok()) << to_string(model.error());
  EXPECT_EQ(model->spec.host_links, (HostLinks{.peer_to_peer = PeerToPeer::kSupported}));
  EXPECT_THAT(error_of(model_with("{hostLinks: {peerToPeer: Maybe}}")),
              HasSubstr("spec.hostLinks.peerToPeer"));
  EXPECT_THAT(error_of(model_with("{hostLinks: {gpusPerRootComplex: -1}}")),
              HasSubstr("spec.hostLinks.gpusPerRootComplex"));
  EXPECT_THAT(error_of(model_with("{hostLinks: {bandwidth: 0}}")), HasSubstr("spec.hostLinks.bandwidth"));
}

TEST(GpuModel, NeedsNoSpec) {
  EXPECT_TRUE(
      decode_gpu_model(yaml("{apiVersion: plimsoll.dev/v1alpha1, kind: GPUModel, metadata: {name: h100}}"))
          .ok());
}

TEST(GpuModel, NamesTheFieldThatIsWrong) {
  EXPECT_THAT(error_of(model_with("{memory: 80GB}")),
              HasSubstr("spec.memory: must be a quantity of bytes like 80Gi"));
  EXPECT_THAT(error_of(model_with("{memory: 80.5}")), HasSubstr("spec.memory"));
  EXPECT_THAT(error_of(model_with("{memory: 0}")), HasSubstr("spec.memory: must be at least 1"));
  EXPECT_THAT(error_of(model_with("{memory: 99999Ei}")),
              HasSubstr("spec.memory: quantity is larger than 2^63"));
  EXPECT_THAT(error_of(model_with("{cudaContext: -1}")), HasSubstr("spec.cudaContext"));
  EXPECT_THAT(error_of(model_with("{costPerHour: 2.95}")), HasSubstr("spec.costPerHour"));
  EXPECT_THAT(error_of(model_with("{costPerHour: \"0.0\"}")),
              HasSubstr("spec.costPerHour: costPerHour must be more than 0"));
  EXPECT_THAT(error_of(model_with("{productLabels: [A100, \"\"]}")), HasSubstr("spec.productLabels[1]"));
  EXPECT_THAT(error_of(model_with("{productLabels: [A100, A100]}")), HasSubstr("spec.productLabels[1]"));
  for (const char* wrong : {"8", "8.0", "\"8\"", "\"8.10\"", "\"sm_80\"", "{}"}) {
    EXPECT_THAT(error_of(model_with("{computeCapability: " + std::string(wrong) + "}")),
                HasSubstr("spec.computeCapability"))
        << wrong;
  }
  EXPECT_THAT(error_of(model_with("[]")), HasSubstr("spec: must be an object, is a list"));
  EXPECT_THAT(error_of(small_job()), HasSubstr("kind: must be GPUModel"));
}

TEST(GpuModel, StatusSurvivesTheWay) {
  GpuModelStatus status{
      .total_gpus = 132,
      .free_gpus = 4,
      .nodes = {{.gpus_per_node = 8, .nodes = 16}, {.gpus_per_node = 4, .nodes = 1}},
      .product_labels = {"NVIDIA-A100-SXM4-80GB", "A100-SXM4-80GB"},
      .memory = Bytes::from_mib(81920),
      .host_memory = 500_GiB,
      .host_links =
          HostLinks{.bandwidth = 24_GiB, .gpus_per_root = 2, .peer_to_peer = PeerToPeer::kUnsupported},
      .capabilities = GpuCapabilities{.compute_capability = "7.0",
                                      .native_precisions = {"FP16"},
                                      .flash_attention = {},
                                      .oldest_cuda = "9.0",
                                      .newest_cuda = "12.9"},
      .driver_version = "535.104.12",
      .cpu_architectures = {"amd64", "arm64"},
      .free_nodes = {{.gpus_per_node = 1, .nodes = 2}, {.gpus_per_node = 2, .nodes = 1}}};
  Json object = model_with("{}");
  object["status"] = encode_status(status);
  EXPECT_EQ(object["status"]["memory"], "80Gi");
  const Result<GpuModel> model = decode_gpu_model(object);
  ASSERT_TRUE(model.ok()) << to_string(model.error());
  EXPECT_EQ(model->status.total_gpus, 132);
  EXPECT_EQ(model->status.free_gpus, 4);
  EXPECT_EQ(model->status.host_memory, 500_GiB);
  EXPECT_EQ(model->status.host_links, status.host_links);
  ASSERT_EQ(model->status.nodes.size(), 2U);
  EXPECT_EQ(model->status.nodes[1].gpus_per_node, 4);
  ASSERT_EQ(model->status.free_nodes.size(), 2U);
  EXPECT_EQ(model->status.free_nodes[0].nodes, 2);
  EXPECT_EQ(model->status.product_labels, status.product_labels);
  EXPECT_EQ(model->status.memory, status.memory);
  EXPECT_FALSE(encode_status({}).isMember("memory"));
}

}  // namespace
}  // namespace plimsoll::crds
