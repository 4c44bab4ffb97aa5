#include "estimator/layer_costs/layer_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <tuple>
#include <utility>

#include "base/file.h"
#include "estimator/swap/planner.h"
#include "tests/checkout.h"
#include "tests/estimator/layer_costs/measured_layers.h"
#include "tests/estimator/swap/published_profile.h"

namespace plimsoll::estimator {
namespace {

using testing::gpu_named;
using ::testing::HasSubstr;
using testing::measured_layers;
using testing::MeasuredLayers;

// W, B, K and x are those that were measured; no bound of a layer's memory is below. Above, the first layer of an exported model may
// be by what its code names until it returns, and convolutions by what oneDNN's kernels allocate, which virtual devices do not count.
double most_of(const MeasuredLayers& measured, const std::string& source, std::size_t layer) {
  constexpr double kMost = 1.06;
  constexpr double kMostOfFirst = 1.3;
  constexpr double kMostOfConvolution = 1.2;
  return measured.name == "convolutions"   ? kMostOfConvolution
         : source == "graph" && layer == 0 ? kMostOfFirst
                                           : kMost;
}

void expect_meets(const MeasuredLayers& measured, const SwapProfile& derived, const std::string& source) {
  ASSERT_EQ(derived.layers(), static_cast<std::size_t>(measured.profile["R"].asInt64()));
  // GPT-2's and BERT's head has the embedding's weights, but not where tie_word_embeddings is false (tests/accuracy/harmony_profiles.py).
  const auto is_a = [&](const char* family) { return measured.name.starts_with(family); };
  const bool is_tied = (is_a("gpt2") && measured.name != "gpt2-eager-dropout") || is_a("bert");
  EXPECT_EQ(derived.tied,
            is_tied ? std::vector<std::size_t>({0, derived.layers() - 1}) : std::vector<std::size_t>())
      << measured.name << " by its " << source;
  for (std::size_t i = 0; i < derived.layers(); ++i) {
    const std::string layer = measured.name + ", layer " + std::to_string(i);
    EXPECT_EQ(derived.weights[i], measured.bytes("W", i)) << layer;
    EXPECT_EQ(derived.buffers[i], measured.bytes("B", i)) << layer;
    EXPECT_EQ(derived.state[i], measured.bytes("K", i)) << layer;
    for (std::size_t pass = 0; pass < derived.forward.size(); ++pass) {
      const std::int64_t size = derived.forward[pass].microbatch;
      EXPECT_EQ(derived.input[i] * size, measured.bytes("x", size, i)) << layer;
      for (const auto& [member, bytes] : {std::pair{"mf", derived.forward[pass].memory[i]},
                                          std::pair{"mb", derived.backward[pass].memory[i]}}) {
        const Bytes real = measured.bytes(member, size, i);
        const double ratio = static_cast<double>(bytes.count) / static_cast<double>(real.count);
        std::printf("%-20s %-6s %s of %ld samples, layer %zu: measured %9ld  derived %9ld  %+6.2f %%\n",
                    measured.name.c_str(), source.c_str(), member, static_cast<long>(size), i,
                    static_cast<long>(real.count), static_cast<long>(bytes.count), 100 * (ratio - 1));
        EXPECT_GE(bytes, real) << layer << ", " << member << " of " << size << " samples";
        const bool small = bytes <= real + 4_KiB;
        EXPECT_TRUE(small || ratio <= most_of(measured, source, i))
            << layer << ", " << member << " of " << size << " samples";
      }
    }
  }
}

TEST(LayerProfile, BoundsWhatLayersTakeOnRealPyTorch) {
  for (const MeasuredLayers& each : measured_layers()) {
    if (!each.spec.model.transformer) {
      continue;
    }
    const Result<SwapProfile> profile = layer_profile({.job = {.model = &each.spec.model,
                                                               .training = &each.spec.training,
                                                               .gpu = gpu_named("A100-80GB"),
                                                               .device = Device::kCpu},
                                                       .microbatches = {1, 2, 4}});
    ASSERT_TRUE(profile.ok()) << (profile ? "" : to_string(profile.error()));
    expect_meets(each, *profile, "spec");
  }
}

TEST(LayerProfile, BoundsWhatTheLayersOfExportedModelsTakeOnRealPyTorch) {
  for (const MeasuredLayers& each : measured_layers()) {
    if (each.graph.empty()) {
      continue;
    }
    const TraceFile graph = testing::exported_model(each.name);
    const crds::ModelSpec none;
    const Result<SwapProfile> profile = layer_profile({.job = {.model = &none,
                                                               .training = &each.spec.training,
                                                               .graph = &graph,
                                                               .gpu = gpu_named("A100-80GB"),
                                                               .device = Device::kCpu},
                                                       .microbatches = {1, 2, 4}});
    ASSERT_TRUE(profile.ok()) << each.name << ": " << (profile ? "" : to_string(profile.error()));
    expect_meets(each, *profile, "graph");
  }
}

crds::TrainingJobSpec transformer(const std::string& config, std::int64_t tokens) {
  crds::TrainingJobSpec spec;
  crds::TransformerModel& model = spec.model.transformer.emplace();
  model.config = config;
  model.sequence_length = tokens;
  spec.training.optimizer = crds::Optimizer::kAdamW;
  return spec;
}

crds::TrainingJobSpec gpt2_xl() {
  const Result<std::string> config = read_file(PLIMSOLL_SOURCE_DIR "/examples/gpt2-xl-config.json");
  EXPECT_TRUE(config.ok());
  return transformer(config ? *config : "", 1024);
}

LayerProfileRequest request_for(const crds::TrainingJobSpec& spec,
                                std::vector<std::int64_t> microbatches = {1, 4}) {
  return {.job = {.model = &spec.model, .training = &spec.training, .gpu = gpu_named("A100-80GB")},
          .microbatches = std::move(microbatches)};
}

// Blocks of the profiles that Harmony's authors measured in 2020 on a GTX 1080 Ti, with eager attention and model code of their own.
TEST(LayerProfile, IsNearThePublishedProfiles) {
  constexpr std::size_t kBlock = 5;
  const std::string bert =
      R"({"model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 1024, "intermediate_size": 4096,
          "num_attention_heads": 16, "num_hidden_layers": 24, "max_position_embeddings": 512, "vocab_size": 30522})";
  const std::string gpt2_10b =
      R"({"model_type": "gpt2", "n_embd": 4096, "n_head": 32, "n_layer": 50, "n_positions": 1024, "vocab_size": 50257})";
  crds::TrainingJobSpec xl = gpt2_xl();
  xl.model.transformer->attention = crds::AttentionKind::kEager;
  crds::TrainingJobSpec large = transformer(bert, 512);
  large.model.transformer->attention = crds::AttentionKind::kEager;
  crds::TrainingJobSpec ten = transformer(gpt2_10b, 1024);
  ten.model.transformer->attention = crds::AttentionKind::kEager;
  for (const auto& [name, spec] :
       {std::pair{"gpt2_xl", &xl}, std::pair{"gpt2_10b", &ten}, std::pair{"bert_large", &large}}) {
    const Result<SwapProfile> derived = layer_profile(request_for(*spec, {1, 4}));
    ASSERT_TRUE(derived.ok()) << (derived ? "" : to_string(derived.error()));
    const SwapProfile published = testing::published_profile(name);
    EXPECT_EQ(derived->weights[kBlock], published.weights[kBlock]);
    EXPECT_EQ(derived->state[kBlock], published.state[kBlock]);
    // Theirs hands BERT's mask from block to block: 4 bytes a token.
    EXPECT_GE(derived->input[kBlock] + Bytes{4 * 512}, published.input[kBlock]);
    EXPECT_LE(derived->input[kBlock], published.input[kBlock]);
    for (const auto& [pass, ours, theirs] : {std::tuple{"mf", &derived->forward, &published.forward},
                                             std::tuple{"mb", &derived->backward, &published.backward}}) {
      for (const SwapPass& each : *ours) {
        const double bytes = static_cast<double>(pass_at(*theirs, each.microbatch)->memory[kBlock].count);
        const double error = 100 * (static_cast<double>(each.memory[kBlock].count) / bytes - 1);
        std::printf("%-10s %s of %ld samples: published %7.1f MB, derived %+.1f %%\n", name, pass,
                    static_cast<long>(each.microbatch), bytes / 1e6, error);
        EXPECT_LT(std::abs(error), 25) << name;
      }
    }
  }
}

TEST(LayerProfile, PlansGpt2XlOnFourGpusOfTenGiB) {
  const crds::TrainingJobSpec spec = gpt2_xl();
  const Result<SwapProfile> profile = layer_profile(request_for(spec, {1, 2, 4, 8}));
  ASSERT_TRUE(profile.ok()) << (profile ? "" : to_string(profile.error()));
  EXPECT_EQ(profile->layers(), 50U);
  SwapMachine machine;
  machine.host_bandwidth = 12e9;
  SwapRequest request;
  request.profile = &*profile;
  request.gpus = 4;
  request.samples = 64;
  request.capacity = 10_GiB;
  request.machine = machine;
  const Result<PlannedSwap> planned = plan_swap(request);
  ASSERT_TRUE(planned.ok()) << (planned ? "" : to_string(planned.error()));
  EXPECT_LE(planned->device_memory, 10_GiB);
  EXPECT_GE(planned->seconds, planned->bound_seconds);
}

// plimsoll.harmony's precision=torch.bfloat16.
TEST(LayerProfile, MovesHalfOfWhatTheHostKeepsInBf16Mixed) {
  crds::TrainingJobSpec spec = gpt2_xl();
  const Result<SwapProfile> full = layer_profile(request_for(spec));
  spec.training.precision = crds::Precision::kBF16Mixed;
  const Result<SwapProfile> mixed = layer_profile(request_for(spec));
  spec.training.precision = crds::Precision::kBF16;
  const Result<SwapProfile> half = layer_profile(request_for(spec));
  ASSERT_TRUE(full.ok() && mixed.ok() && half.ok());
  EXPECT_TRUE(full->host_weights.empty());
  EXPECT_TRUE(half->host_weights.empty());
  for (std::size_t i = 0; i < full->layers(); ++i) {
    EXPECT_EQ(mixed->weights[i] * 2, full->weights[i]);
    EXPECT_EQ(mixed->host_weights[i], full->weights[i]);
    EXPECT_EQ(mixed->state[i], full->state[i]);
    EXPECT_EQ(half->state[i] * 2, full->state[i]);
    EXPECT_EQ(half->weights[i], mixed->weights[i]);
    EXPECT_EQ(half->backward[0].memory[i], mixed->backward[0].memory[i]);
  }
}

TEST(LayerProfile, ChargesTheBudget) {
  const crds::TrainingJobSpec spec = gpt2_xl();
  Budget budget({.work = 1000});
  LayerProfileRequest request = request_for(spec);
  request.job.budget = &budget;
  const Result<SwapProfile> profile = budget.run([&] { return layer_profile(request); });
  ASSERT_FALSE(profile.ok());
  EXPECT_EQ(profile.error().code, ErrorCode::kTooLarge);
}

TEST(LayerProfile, WhatPlimsollHarmonyDoesNotDoIsRefusedByName) {
  const auto refusal = [](const std::function<void(crds::TrainingSpec&)>& change) {
    crds::TrainingJobSpec spec = gpt2_xl();
    change(spec.training);
    const Result<SwapProfile> profile = layer_profile(request_for(spec));
    return profile ? std::string() : to_string(profile.error());
  };
  EXPECT_EQ(refusal([](auto& training) {
              training.activation_checkpointing = crds::ActivationCheckpointing::kFull;
            }),
            "");
  EXPECT_EQ(refusal([](auto& training) { training.parallelism.strategy = crds::ParallelStrategy::kFSDP2; }),
            "");
  EXPECT_THAT(
      refusal([](auto& training) { training.parallelism.tensor = 2; }),
      HasSubstr(
          "Unsupported: training.parallelism.tensor is 2: a swap plan is for models whose layers are whole"));
  EXPECT_THAT(refusal([](auto& training) { training.parallelism.pipeline = 2; }),
              HasSubstr("parallelism.pipeline is 2"));
  EXPECT_THAT(refusal([](auto& training) { training.precision = crds::Precision::kFP16Mixed; }),
              HasSubstr("use BF16Mixed"));
  EXPECT_THAT(refusal([](auto& training) { training.fine_tuning.emplace(); }),
              HasSubstr("training.fineTuning is not modelled"));
  EXPECT_THAT(refusal([](auto& training) { training.compile = crds::Compilation::kModel; }),
              HasSubstr("training.compile"));
  EXPECT_THAT(refusal([](auto& training) { training.float8 = crds::Float8::kLinear; }),
              HasSubstr("training.float8"));
  EXPECT_THAT(refusal([](auto& training) { training.loss_chunks = 2; }), HasSubstr("training.lossChunks"));
  EXPECT_THAT(refusal([](auto& training) { training.averaged_model = true; }),
              HasSubstr("training.averagedModel"));
  EXPECT_THAT(refusal([](auto& training) { training.optimizer = crds::Optimizer::kPagedAdamW; }),
              HasSubstr("updates layers on the host: choose one of torch.optim, such as AdamW"));
  EXPECT_THAT(refusal([](auto& training) { training.torch_version = "two"; }),
              HasSubstr("Invalid: training.torchVersion"));
}

TEST(LayerProfile, AModelWithoutAListOfLayersIsRefused) {
  crds::TrainingJobSpec tables;
  tables.model.dlrm.emplace();
  const Result<SwapProfile> dlrm = layer_profile(request_for(tables));
  ASSERT_FALSE(dlrm.ok());
  EXPECT_THAT(to_string(dlrm.error()),
              HasSubstr("Unsupported: a model with embedding tables has no list of layers"));
  const crds::TrainingJobSpec nothing;
  EXPECT_THAT(to_string(layer_profile(request_for(nothing)).error()), HasSubstr("model is empty"));
  EXPECT_THAT(to_string(layer_profile({}).error()), HasSubstr("1 to 1024 microbatches"));
  EXPECT_THAT(to_string(layer_profile({.job = {}, .microbatches = {1}}).error()), HasSubstr("needs a model"));
}

TEST(LayerProfile, NeedsACardWithKnownTimes) {
  const crds::TrainingJobSpec spec = gpt2_xl();
  LayerProfileRequest request = request_for(spec);
  request.job.gpu = gpu_named("K80");
  EXPECT_THAT(to_string(layer_profile(request).error()), HasSubstr("the speed of K80 is not known"));
  request.job.gpu = nullptr;
  EXPECT_THAT(to_string(layer_profile(request).error()), HasSubstr("a profile needs a GPU model"));
}

TEST(LayerProfile, MicrobatchesMustRise) {
  const crds::TrainingJobSpec spec = gpt2_xl();
  for (const std::vector<std::int64_t>& sizes :
       std::vector<std::vector<std::int64_t>>{{}, {0}, {2, 1}, {1, 1}, {-1, 4}, {kMaxSwapSamples + 1}}) {
    const Result<SwapProfile> profile = layer_profile(request_for(spec, sizes));
    ASSERT_FALSE(profile.ok());
    EXPECT_EQ(profile.error().code, ErrorCode::kInvalid);
  }
}

TEST(LayerProfile, ACardLeavesLessThanItsMemoryForLayers) {
  const crds::TrainingJobSpec spec = gpt2_xl();
  const LayerProfileRequest request = request_for(spec);
  const Bytes left = swap_capacity(request.job, 70_GiB);
  EXPECT_LT(left, 70_GiB);
  EXPECT_GT(left, 66_GiB);
  EXPECT_EQ(swap_capacity(request.job, Bytes{1}), Bytes{});
}

}  // namespace
}  // namespace plimsoll::estimator
