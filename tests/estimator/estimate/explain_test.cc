#include "estimator/estimate/explain.h"

#include <gmock/gmock.h>

#include <map>

#include "crds/enums.h"
#include "estimator/estimate/estimate.h"

namespace plimsoll::estimator {
namespace {

using crds::ParallelStrategy;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::VariantWith;

class ExplanationOfParts : public ::testing::Test {
 protected:
  ExplanationOfParts() {
    crds::DlrmModel& dlrm = model_.dlrm.emplace();
    dlrm.dense_features = 8;
    dlrm.bottom_mlp = {16};
    dlrm.top_mlp = {1};
    dlrm.interaction = crds::Interaction::kCat;
    training_.batch_size_per_trainer = 4;
    crds::TransformerModel& decoder = decoder_.transformer.emplace();
    decoder.layers = 2;
    decoder.hidden = 64;
    decoder.heads = 4;
    decoder.ffn = 128;
    decoder.vocab = 1000;
    decoder.sequence_length = 16;
    request_.model = &model_;
    request_.training = &training_;
    request_.gpu = &gpu_;
  }

  std::vector<PartExplanation> parts() {
    const Result<Estimate> estimate = estimate_memory(request_);
    EXPECT_TRUE(estimate.ok()) << (estimate ? "" : to_string(estimate.error()));
    estimate_ = estimate ? *estimate : Estimate{};
    return explain(request_, estimate_);
  }
  PartExplanation part(const std::string& name) {
    for (PartExplanation& each : parts()) {
      if (each.part == name) {
        return std::move(each);
      }
    }
    ADD_FAILURE() << name;
    return {};
  }
  std::string source_of(const std::string& name) {
    std::string all;
    for (const std::string& source : part(name).sources) {
      all += source + "\n";
    }
    return all;
  }

  GpuModel gpu_ = *GpuCatalog::built_in().find("A100-80GB");
  crds::ModelSpec model_;
  crds::ModelSpec decoder_;
  crds::TrainingSpec training_;
  EstimateRequest request_;
  Estimate estimate_;
};

TEST_F(ExplanationOfParts, HasARuleAndASourceForEachOfTheTwelveParts) {
  for (const Method method : {Method::kPlimsoll, Method::kAmp}) {
    for (const Device device : {Device::kCuda, Device::kCpu}) {
      for (std::size_t i = 0; i < crds::kNames<ParallelStrategy>.size(); ++i) {
        request_.method = method;
        request_.device = device;
        request_.trainers = i == 0 ? 1 : 4;
        training_.parallelism.strategy = static_cast<ParallelStrategy>(i);
        // Megatron-LM trains transformers alone.
        request_.model = training_.parallelism.strategy == ParallelStrategy::kMegatron ? &decoder_ : &model_;
        const std::vector<PartExplanation> all = parts();
        ASSERT_EQ(all.size(), 12U);
        Bytes sum;
        for (const PartExplanation& each : all) {
          EXPECT_FALSE(each.rule.empty()) << each.part;
          EXPECT_FALSE(each.sources.empty()) << each.part;
          EXPECT_FALSE(each.figures.empty()) << each.part;
          sum += each.bytes;
        }
        EXPECT_EQ(sum, estimate_.peak.upper_bound);
      }
    }
  }
}

TEST_F(ExplanationOfParts, NamesThePartsAsTheBreakdownDoes) {
  std::vector<std::string> names;
  for (const PartExplanation& each : parts()) {
    names.push_back(each.part);
  }
  EXPECT_THAT(names, ElementsAre("parameters", "gradients", "optimizerState", "inputs", "activations",
                                 "temporaries", "ddpBuckets", "embeddings", "allocatorSlack", "workspace",
                                 "communication", "cudaContext"));
}

TEST_F(ExplanationOfParts, FollowsTheStrategy) {
  request_.trainers = 4;
  EXPECT_THAT(source_of("ddpBuckets"), HasSubstr("reducer.cpp"));
  training_.parallelism.strategy = ParallelStrategy::kFSDP;
  EXPECT_THAT(source_of("parameters"), HasSubstr("_flat_param.py"));
  training_.parallelism.strategy = ParallelStrategy::kFSDP2;
  EXPECT_THAT(source_of("parameters"), HasSubstr("_fsdp_param.py"));
  training_.parallelism.strategy = ParallelStrategy::kZeRO1;
  EXPECT_THAT(source_of("optimizerState"), HasSubstr("zero_redundancy_optimizer.py"));
  training_.parallelism.strategy = ParallelStrategy::kZeRO3;
  EXPECT_THAT(source_of("gradients"), HasSubstr("1910.02054"));
}

// Each option names the code that it follows; the bytes of all parts still sum up.
TEST_F(ExplanationOfParts, OptionsOfTrainingNameTheirSources) {
  request_.model = &decoder_;
  training_.precision = crds::Precision::kBF16;
  EXPECT_THAT(source_of("optimizerState"), HasSubstr("torch/optim"));
  crds::FineTuning& tuning = training_.fine_tuning.emplace();
  tuning.method = crds::FineTuningMethod::kLoRA;
  tuning.target_modules = {"all-linear"};
  tuning.quantization = crds::Quantization::kNF4;
  training_.optimizer = crds::Optimizer::kPagedAdamW8bit;
  EXPECT_THAT(source_of("parameters"), AllOf(HasSubstr("peft/"), HasSubstr("bitsandbytes/")));
  EXPECT_THAT(source_of("gradients"), HasSubstr("_mark_only_adapters_as_trainable"));
  EXPECT_THAT(source_of("optimizerState"), AllOf(HasSubstr("bitsandbytes"), Not(HasSubstr("torch/optim"))));
  EXPECT_THAT(source_of("temporaries"), HasSubstr("bitsandbytes/autograd"));
}

TEST_F(ExplanationOfParts, PipelinesAndMeshesNameTheirSources) {
  decoder_.transformer->layers = 4;
  request_.model = &decoder_;
  training_.precision = crds::Precision::kBF16Mixed;
  training_.float8 = crds::Float8::kLinear;
  training_.compile = crds::Compilation::kLayers;
  training_.torch_version = "2.6";
  training_.gradient_accumulation = 2;
  training_.parallelism.strategy = ParallelStrategy::kFSDP2;
  training_.parallelism.pipeline = 2;
  training_.parallelism.context = 2;
  training_.parallelism.replicate = 2;
  request_.trainers = 16;
  EXPECT_THAT(source_of("parameters"), AllOf(HasSubstr("HSDPMeshInfo"), HasSubstr("pipelining/stage.py")));
  EXPECT_THAT(
      part("parameters").figures,
      Contains(AllOf(Field(&Figure::name, "shards"), Field(&Figure::value, VariantWith<std::int64_t>(4)))));
  EXPECT_THAT(source_of("gradients"), HasSubstr("backward_maybe_with_nosync"));
  EXPECT_THAT(source_of("activations"), AllOf(HasSubstr("_context_parallel"), HasSubstr("partitioners.py"),
                                              HasSubstr("float8_linear.py")));
  EXPECT_THAT(
      part("cudaContext").figures,
      Contains(AllOf(Field(&Figure::name, "torch"), Field(&Figure::value, VariantWith<std::string>("2.6")))));
}

// Megatron-LM's pipeline is its own: torch.distributed.pipelining was named as the source of what its stages keep.
TEST_F(ExplanationOfParts, MegatronsPipelinesNameMegatron) {
  decoder_.transformer->layers = 4;
  request_.model = &decoder_;
  training_.gradient_accumulation = 2;
  training_.parallelism.strategy = ParallelStrategy::kMegatron;
  training_.parallelism.pipeline = 2;
  request_.trainers = 4;
  for (const char* name : {"parameters", "activations"}) {
    EXPECT_THAT(source_of(name),
                AllOf(HasSubstr("megatron/core/pipeline_parallel"), Not(HasSubstr("torch/distributed"))));
  }
}

TEST_F(ExplanationOfParts, WhatComesBeforeTheIterationsIsExplained) {
  request_.model = &decoder_;
  training_.parallelism.strategy = ParallelStrategy::kFSDP2;
  training_.initialisation = crds::Initialisation::kGPU;
  decoder_.transformer->layers = 8;  // the model takes more than its activations
  decoder_.transformer->hidden = 4096;
  decoder_.transformer->ffn = 16'384;
  training_.batch_size_per_trainer = 1;
  request_.trainers = 64;
  EXPECT_THAT(source_of("parameters"), HasSubstr("Before the first iteration"));
  EXPECT_THAT(source_of("temporaries"), HasSubstr("Before the first iteration"));
}

TEST_F(ExplanationOfParts, FiguresOfTheOptimizerAreThoseOfItsState) {
  training_.optimizer = crds::Optimizer::kAdam;
  const PartExplanation adam = part("optimizerState");
  const auto figure = [&](const std::string& name) {
    for (const Figure& each : adam.figures) {
      if (each.name == name) {
        return each.value;
      }
    }
    return std::variant<std::int64_t, std::string>("missing");
  };
  EXPECT_EQ(std::get<std::string>(figure("optimizer")), "Adam");
  EXPECT_NEAR(static_cast<double>(std::get<std::int64_t>(figure("stateBytesOfMatrix1024x1024"))),
              2 * 4 * 1024 * 1024, 1024);
}

TEST_F(ExplanationOfParts, FixedCostsNameTheRowThatTheyAreFrom) {
  EXPECT_THAT(source_of("cudaContext"), HasSubstr("GPUMemNet"));
  EXPECT_THAT(source_of("workspace"), HasSubstr("CublasHandlePool.cpp"));
  gpu_.cuda_context = 900_MiB;
  EXPECT_THAT(source_of("cudaContext"), HasSubstr("GPUModel"));
  request_.learned.cuda_context = 800_MiB;
  request_.learned.workspace = 8_MiB;
  request_.learned.communication = 1_GiB;
  request_.trainers = 2;
  EXPECT_THAT(source_of("cudaContext"), HasSubstr("MemoryProfile"));
  EXPECT_THAT(source_of("workspace"), HasSubstr("MemoryProfile"));
  EXPECT_THAT(source_of("communication"), HasSubstr("MemoryProfile"));
}

TEST_F(ExplanationOfParts, MarginsAreFiguresOfTheSlack) {
  const PartExplanation slack = part("allocatorSlack");
  ASSERT_FALSE(estimate_.margins.empty());
  Bytes sum;
  for (const Margin& margin : estimate_.margins) {
    EXPECT_FALSE(margin.source.empty()) << margin.name;
    sum += margin.bytes;
  }
  EXPECT_LE(sum, slack.bytes);
  std::map<std::string, std::int64_t> figures;
  for (const Figure& figure : slack.figures) {
    figures[figure.name] = std::get<std::int64_t>(figure.value);
  }
  EXPECT_EQ(figures["beyondTensorsBytes"], (slack.bytes - sum).count);
  EXPECT_EQ(figures[estimate_.margins.front().name + "MarginBytes"], estimate_.margins.front().bytes.count);
}

TEST(ExplanationJson, HasTheFieldsOfTheContract) {
  const PartExplanation part{.part = "inputs",
                             .bytes = 12_B,
                             .rule = "a rule",
                             .sources = {"a file"},
                             .figures = {{"batches", 3}, {"loader", "torch"}}};
  EXPECT_EQ(write_json(to_json(std::vector<PartExplanation>{part})),
            R"([{"bytes":12,"figures":{"batches":3,"loader":"torch"},"part":"inputs","rule":"a rule",)"
            R"("sources":["a file"]}])");
}

}  // namespace
}  // namespace plimsoll::estimator
