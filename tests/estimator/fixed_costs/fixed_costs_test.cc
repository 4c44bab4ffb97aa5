#include "estimator/fixed_costs/fixed_costs.h"

#include <gtest/gtest.h>

#include "estimator/catalog/gpu_catalog.h"
#include "estimator/estimate/estimate.h"

namespace plimsoll::estimator {
namespace {

FixedCosts costs_on(const GpuModel& gpu, const crds::LearnedBounds& learned) {
  EstimateRequest request;
  request.gpu = &gpu;
  request.learned = learned;
  return fixed_costs_of(request);
}

TEST(FixedCosts, WhatWasLearnedOfWorkspacesIsDividedAmongTheHandles) {
  const GpuModel gpu = *GpuCatalog::built_in().find("A100-80GB");
  crds::LearnedBounds learned;
  learned.workspace = 65_MiB + 1_B;
  const FixedCosts costs = costs_on(gpu, learned);
  EXPECT_EQ(costs.forward_workspace + costs.backward_workspace, *learned.workspace);
  EXPECT_EQ(costs.backward_workspace, 32_MiB + 512_KiB);
  learned.workspace = Bytes{};
  EXPECT_EQ(costs_on(gpu, learned).forward_workspace, Bytes{});
  learned.workspace = Bytes::max();
  EXPECT_EQ(costs_on(gpu, learned).forward_workspace.count, Bytes::max().count / 2 + 1);
}

TEST(FixedCosts, ContextsAreTheProfilesElseTheModelsElseTheTables) {
  GpuModel gpu = *GpuCatalog::built_in().find("H100-80GB");
  TraceFile graph;
  EstimateRequest request;
  request.gpu = &gpu;
  EXPECT_EQ(fixed_costs_of(request).cuda_context, 1536_MiB) << "a spec does not tell the software";
  request.graph = &graph;
  graph.producer.torch = "2.15.0+cu130";
  graph.producer.version = 215;
  EXPECT_EQ(fixed_costs_of(request).cuda_context, 1_GiB);
  graph.producer.torch = "2.15.0+cpu";
  EXPECT_EQ(fixed_costs_of(request).cuda_context, 1536_MiB);
  request.runtime.lazy_modules = true;
  EXPECT_EQ(fixed_costs_of(request).cuda_context, 1_GiB) << "the job says so";
  graph.producer.torch = "2.15.0+cu130";
  request.runtime.lazy_modules = false;
  EXPECT_EQ(fixed_costs_of(request).cuda_context, 1536_MiB);
  gpu.cuda_context = 900_MiB;
  EXPECT_EQ(fixed_costs_of(request).cuda_context, 900_MiB);
  request.learned.cuda_context = 800_MiB;
  EXPECT_EQ(fixed_costs_of(request).cuda_context, 800_MiB);
}

// NVIDIA/nccl#964: each further group of trainers took 544 or 688 MiB on four A100 with NVLink.
TEST(FixedCosts, EveryGroupOfTrainersHasACommunicator) {
  const GpuModel gpu = *GpuCatalog::built_in().find("A100-80GB");
  crds::TrainingSpec training;
  EstimateRequest request;
  request.gpu = &gpu;
  request.training = &training;
  EXPECT_EQ(fixed_costs_of(request).communication, Bytes{});
  request.trainers = 16;
  EXPECT_EQ(fixed_costs_of(request).communication, 720_MiB);
  training.parallelism.tensor = 8;
  EXPECT_EQ(fixed_costs_of(request).communication, 2 * 720_MiB);
  training.parallelism.pipeline = 2;
  EXPECT_EQ(fixed_costs_of(request).communication, 2 * 720_MiB) << "no replicas are left";
  request.trainers = 64;
  EXPECT_EQ(fixed_costs_of(request).communication, 3 * 720_MiB);
  training.parallelism.context = 2;
  training.parallelism.expert = 2;
  EXPECT_EQ(fixed_costs_of(request).communication, 5 * 720_MiB);
  request.learned.communication = 1_GiB;
  EXPECT_EQ(fixed_costs_of(request).communication, 1_GiB);
}

// One convolution of a batch with 1 MiB per image; the result has the same size.
TraceFile convolution() {
  constexpr double kPixels = 512;
  Trace trace;
  trace.device = Device::kCuda;
  trace.precision = "FP32";
  trace.batch_sizes = {2, 4};
  trace.dtypes = {"float32"};
  trace.modules = {"conv"};
  trace.operator_names = {"aten::convolution", "aten::sum"};
  constexpr double kChannels = 8;
  trace.counts = {Count{{0, 1}},      Count{{kChannels}}, Count{{kPixels}}, Count{{kPixels / kChannels}},
                  Count{{kChannels}}, Count{{kChannels}}, Count{{3}},       Count{{3}}};
  trace.layouts = {{.shape = {0, 4}, .strides = {}, .contiguous = true},
                   {.shape = {4, 4}, .strides = {}, .contiguous = true}};
  const Count image{{0, kPixels * kPixels * 4}};
  trace.storages = {{.bytes = image, .role = StorageRole::kInput},
                    {.bytes = Count{{4 * kChannels * kChannels * 9}}, .role = StorageRole::kParameter},
                    {.bytes = image, .role = StorageRole::kActivation, .allocated_at = 0, .released_at = 1}};
  trace.tensors = {{.storage = 0, .layout = 0}, {.storage = 1, .layout = 1}, {.storage = 2, .layout = 0}};
  trace.operands = {0, 1, 2};
  trace.operators = {{.name = 0, .inputs = {0, 2}, .outputs = {2, 1}}};
  trace.forward_end = 1;
  trace.loss_end = 1;
  return {.name = "convolution",
          .producer = {.torch = "2.15.0", .version = 215, .threads = 0, .cpu_capability = ""},
          .embeddings = {},
          .traces = {trace}};
}

TEST(FixedCosts, WhatWasLearnedOfConvolutionsIsTakenForEach) {
  const TraceFile graph = convolution();
  const GpuModel gpu = *GpuCatalog::built_in().find("A100-80GB");
  crds::ModelSpec model;
  model.graph.emplace();
  crds::TrainingSpec training;
  training.batch_size_per_trainer = 4;
  EstimateRequest request{.model = &model, .training = &training, .graph = &graph, .gpu = &gpu};
  const auto reserved = [&](std::optional<Bytes> learned) {
    request.learned.convolution_workspace = learned;
    const Result<Estimate> estimate = estimate_memory(request);
    EXPECT_TRUE(estimate.ok()) << (estimate ? "" : estimate.error().message);
    return estimate ? estimate->peak.reserved : Bytes{};
  };
  // Input and output have 4 MiB each, and segments at least 20 MiB.
  const Bytes without = reserved(Bytes{});
  EXPECT_EQ(reserved({}), without + 20_MiB) << "the table's: input, output and filters once more";
  EXPECT_EQ(reserved(200_MiB), without + 200_MiB);
  EXPECT_EQ(reserved(Bytes::max()), Bytes::max()) << "an absurd bound is no crash";
}

}  // namespace
}  // namespace plimsoll::estimator
