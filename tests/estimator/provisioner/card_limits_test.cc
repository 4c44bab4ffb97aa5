#include "estimator/provisioner/card_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/estimator/provisioner_fixture.h"

namespace plimsoll::estimator {
namespace {

using plimsoll::testing::available;
using ::testing::AllOf;
using ::testing::HasSubstr;

crds::TrainingJobSpec spec_of(crds::Precision precision, bool allow_emulation = false) {
  crds::TrainingJobSpec spec;
  spec.training.precision = precision;
  spec.provisioning.allow_emulation = allow_emulation;
  return spec;
}

std::string why_not(const crds::TrainingJobSpec& spec, const AvailableGpu& gpu,
                    const TraceFile* graph = nullptr) {
  return why_it_cannot_run(demands_of(spec, graph), gpu);
}

TraceFile graph_of(const std::string& torch, std::int32_t version) {
  TraceFile graph;
  graph.producer.torch = torch;
  graph.producer.version = version;
  Trace trace;
  trace.device = Device::kCuda;
  trace.precision = "FP32";
  graph.traces.push_back(std::move(trace));
  return graph;
}

TEST(CardLimits, ThePrecisionIsInHardwareOrEmulationIsAllowed) {
  const AvailableGpu v100 = available("V100-32GB", 1);
  EXPECT_EQ(why_not(spec_of(crds::Precision::kFP32), v100), "");
  EXPECT_EQ(why_not(spec_of(crds::Precision::kFP16Mixed), v100), "");
  for (const auto precision : {crds::Precision::kBF16, crds::Precision::kBF16Mixed, crds::Precision::kTF32}) {
    EXPECT_THAT(why_not(spec_of(precision), v100),
                AllOf(HasSubstr(crds::name_of(precision)), HasSubstr("compute capability is 7.0"),
                      HasSubstr("allowEmulation")));
    EXPECT_EQ(why_not(spec_of(precision, true), v100), "");
    EXPECT_EQ(why_not(spec_of(precision), available("A10", 1)), "");
  }
  EXPECT_THAT(why_not(spec_of(crds::Precision::kFP16Mixed), available("K80", 1)), HasSubstr("5.3"));
}

TEST(CardLimits, Float8TrainingNeedsItsTensorCores) {
  crds::TrainingJobSpec spec = spec_of(crds::Precision::kBF16Mixed, true);
  spec.training.float8 = crds::Float8::kLinear;
  EXPECT_THAT(why_not(spec, available("A100-40GB", 1)), HasSubstr("spec.training.float8 needs FP8"));
  EXPECT_EQ(why_not(spec, available("H100-80GB", 1)), "");
}

TEST(CardLimits, FlashAttentionHasNoEmulation) {
  crds::TrainingJobSpec spec = spec_of(crds::Precision::kFP16Mixed, true);
  spec.model.transformer.emplace();
  spec.model.transformer->attention = crds::AttentionKind::kFlash;
  for (const char* gpu : {"T4", "V100-32GB", "K80"}) {
    EXPECT_THAT(why_not(spec, available(gpu, 1)), HasSubstr("FlashAttention 2")) << gpu;
  }
  EXPECT_EQ(why_not(spec, available("A100-40GB", 1)), "");
  spec.model.transformer->attention = crds::AttentionKind::kSDPA;
  EXPECT_EQ(why_not(spec, available("T4", 1)), "");
}

TEST(CardLimits, OperatorsAndTypesOfTheGraphAreDemandsToo) {
  TraceFile graph = graph_of("", 0);
  const crds::TrainingJobSpec spec = spec_of(crds::Precision::kFP32, true);
  EXPECT_EQ(why_not(spec, available("K80", 1), &graph), "");
  graph.traces[0].operator_names = {"aten::mm", "flash_attn_3::fwd"};
  EXPECT_THAT(why_not(spec, available("B200", 1), &graph), HasSubstr("flash_attn_3::fwd"));
  EXPECT_EQ(why_not(spec, available("H200", 1), &graph), "");
  graph.traces[0].operator_names = {"flash_attn::_flash_attn_forward"};
  EXPECT_THAT(why_not(spec, available("T4", 1), &graph), HasSubstr("FlashAttention 2"));
  EXPECT_EQ(why_not(spec, available("B200", 1), &graph), "");
  graph.traces[0].operator_names = {"aten::_scaled_mm"};
  EXPECT_THAT(why_not(spec, available("A100-80GB", 1), &graph), HasSubstr("FP8 (8.9 or later)"));
  EXPECT_EQ(why_not(spec, available("L4", 1), &graph), "");
  graph.traces[0].operator_names.clear();
  graph.traces[0].dtypes = {"float32", "float8_e4m3fn"};
  EXPECT_THAT(why_not(spec, available("A100-80GB", 1), &graph), HasSubstr("float8_e4m3fn"));
  graph.traces[0].dtypes = {"float32", "bfloat16"};
  EXPECT_THAT(why_not(spec_of(crds::Precision::kFP32), available("V100-32GB", 1), &graph),
              HasSubstr("tensors of bfloat16"));
  EXPECT_EQ(why_not(spec, available("V100-32GB", 1), &graph), "") << "emulated";
  graph.traces[0].precision = "BF16Mixed";
  EXPECT_EQ(why_not(spec_of(crds::Precision::kFP32), available("V100-32GB", 1), &graph), "")
      << "another trace is estimated";
}

TEST(CardLimits, TheGraphsPyTorchHasCodeForTheCard) {
  const crds::TrainingJobSpec spec = spec_of(crds::Precision::kFP32);
  const TraceFile newest = graph_of("2.15.0+cu130", 215);
  EXPECT_THAT(why_not(spec, available("V100-32GB", 1), &newest),
              AllOf(HasSubstr("PyTorch 2.15 with CUDA 13.0"), HasSubstr("7.0")));
  EXPECT_EQ(why_not(spec, available("T4", 1), &newest), "");
  const TraceFile old = graph_of("2.5.1+cu124", 205);
  EXPECT_EQ(why_not(spec, available("V100-32GB", 1), &old), "");
  EXPECT_THAT(why_not(spec, available("B200", 1), &old), HasSubstr("CUDA 12.4"));
  const TraceFile cpu = graph_of("2.15.0+cpu", 215);
  EXPECT_EQ(why_not(spec, available("V100-32GB", 1), &cpu), "") << "one of its builds has";
  EXPECT_THAT(why_not(spec, available("K80", 1), &cpu), HasSubstr("no build of the graph's PyTorch 2.15"));
  // Not one of PyTorch's own builds: the toolkit decides.
  const TraceFile own = graph_of("2.99.0+cu130", 299);
  EXPECT_THAT(why_not(spec, available("V100-32GB", 1), &own), HasSubstr("CUDA 12.9 is the last"));
  const TraceFile older = graph_of("1.9.0+cu111", 109);
  EXPECT_THAT(why_not(spec, available("H100-80GB", 1), &older), HasSubstr("CUDA 11.8 is the first"));
  EXPECT_EQ(why_not(spec, available("L4", 1), &older), "") << "it runs the code of 8.6";
}

TEST(CardLimits, TheVersionThatASpecNamesHasCodeForTheCard) {
  crds::TrainingJobSpec spec = spec_of(crds::Precision::kFP32);
  EXPECT_EQ(why_not(spec, available("B200", 1)), "");
  spec.training.torch_version = "2.5";
  EXPECT_THAT(why_not(spec, available("B200", 1)),
              HasSubstr("no build of spec.training.torchVersion's PyTorch 2.5 has code"));
  EXPECT_EQ(why_not(spec, available("V100-32GB", 1)), "");
  spec.training.torch_version = "2.15";
  EXPECT_THAT(why_not(spec, available("K80", 1)), HasSubstr("PyTorch 2.15"));
  const TraceFile graph = graph_of("2.5.1+cu124", 205);  // what was recorded is known better
  EXPECT_THAT(why_not(spec, available("B200", 1), &graph), HasSubstr("the graph's PyTorch 2.5"));
}

TEST(CardLimits, TheOldestDriverRunsTheGraphsCuda) {
  const crds::TrainingJobSpec spec = spec_of(crds::Precision::kFP32);
  const TraceFile graph = graph_of("2.6.0+cu124", 206);
  AvailableGpu gpu = available("A100-80GB", 1);
  EXPECT_EQ(why_not(spec, gpu, &graph), "");
  gpu.oldest_driver = parse_driver_version("470.82.01");
  EXPECT_THAT(why_not(spec, gpu, &graph), AllOf(HasSubstr("470.82.01"), HasSubstr("525.60.13 or newer")));
  gpu.oldest_driver = parse_driver_version("525.60.13");
  EXPECT_EQ(why_not(spec, gpu, &graph), "");
}

TEST(CardLimits, WhatIsNotKnownExcludesNoCard) {
  AvailableGpu own = available("K80", 1);
  own.model.compute_capability.reset();
  const TraceFile graph = graph_of("2.15.0+cu130", 215);
  EXPECT_EQ(why_not(spec_of(crds::Precision::kBF16), own, &graph), "");
}

}  // namespace
}  // namespace plimsoll::estimator
