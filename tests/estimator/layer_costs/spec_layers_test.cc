#include "estimator/layer_costs/spec_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "estimator/estimate/estimate.h"
#include "tests/estimator/layer_costs/measured_layers.h"

namespace plimsoll::estimator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Job {
  explicit Job(const std::string& config) {
    crds::TransformerModel& transformer = model.transformer.emplace();
    transformer.config = config;
    transformer.sequence_length = 128;
    training.batch_size_per_trainer = 1;
  }
  Result<ProfiledLayers> layers() const {
    const Result<OptimizerRun> run =
        optimizer_run(crds::Optimizer::kAdamW, crds::OptimizerImplementation::kDefault, Device::kCpu, 215);
    return layers_of_spec({.model = &model, .training = &training, .gpu = testing::gpu_named("A100-80GB")},
                          training, {.optimizer = *run});
  }
  crds::ModelSpec model;
  crds::TrainingSpec training;
};

constexpr const char* kLlama =
    R"({"model_type": "llama", "hidden_size": 128, "intermediate_size": 352, "num_attention_heads": 4,
        "num_hidden_layers": 3, "num_key_value_heads": 2, "vocab_size": 500})";
constexpr const char* kDeepSeek =
    R"({"model_type": "deepseek_v2", "hidden_size": 128, "intermediate_size": 352, "num_attention_heads": 4,
        "num_key_value_heads": 4, "num_hidden_layers": 3, "vocab_size": 500, "kv_lora_rank": 64, "q_lora_rank": 96,
        "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32, "n_routed_experts": 4, "n_shared_experts": 1,
        "num_experts_per_tok": 2, "moe_intermediate_size": 96, "first_k_dense_replace": 1, "topk_method": "greedy",
        "n_group": 1, "topk_group": 1})";

TEST(SpecLayers, AreTheEmbeddingTheBlocksAndTheHead) {
  const Job job(kLlama);
  const Result<ProfiledLayers> layers = job.layers();
  ASSERT_TRUE(layers.ok()) << to_string(layers.error());
  EXPECT_THAT(layers->kind_of, ElementsAre(0, 1, 1, 1, 2));
  EXPECT_EQ(layers->kinds[0].input, Bytes{128 * 8}) << "ids";
  EXPECT_EQ(layers->kinds[1].input, Bytes{128 * 128 * 4});
  EXPECT_EQ(layers->kinds[0].weights, Bytes{500 * 128 * 4});
}

TEST(SpecLayers, BlocksThatDifferAreLookedAtOnceEach) {
  const Job job(kDeepSeek);
  const Result<ProfiledLayers> layers = job.layers();
  ASSERT_TRUE(layers.ok()) << to_string(layers.error());
  EXPECT_THAT(layers->kind_of, ElementsAre(0, 1, 2, 2, 3));
  EXPECT_NE(layers->kinds[1].weights, layers->kinds[2].weights) << "the first has no experts";
}

// The parts have all of the model's parameters, and tied ones twice.
TEST(SpecLayers, HaveTheParametersOfTheWholeModel) {
  const Job job(kLlama);
  const Result<ProfiledLayers> layers = job.layers();
  const Result<Estimate> whole = estimate_memory({.model = &job.model, .training = &job.training});
  ASSERT_TRUE(layers.ok() && whole.ok());
  Bytes sum;
  for (const std::size_t kind : layers->kind_of) {
    sum += layers->kinds[kind].weights;
  }
  EXPECT_EQ(sum, whole->dense_parameters);
}

TEST(SpecLayers, TimesAndMemoryRiseWithTheMicrobatch) {
  const Job job(kLlama);
  const Result<ProfiledLayers> layers = job.layers();
  ASSERT_TRUE(layers.ok());
  for (std::size_t kind = 0; kind < layers->kinds.size(); ++kind) {
    const Result<LayerCosts> one = layers->costs(kind, 1);
    const Result<LayerCosts> many = layers->costs(kind, 4096);
    ASSERT_TRUE(one.ok() && many.ok());
    EXPECT_GT(many->memory.forward, one->memory.forward);
    EXPECT_GT(many->memory.backward, many->memory.forward);
    EXPECT_GT(many->forward_seconds, one->forward_seconds);
    EXPECT_GT(one->forward_seconds, 0);
    EXPECT_GT(one->backward_seconds, one->forward_seconds) << "with the forward pass that it repeats";
  }
}

TEST(SpecLayers, AModelThatIsNoChainIsRefused) {
  const std::string t5 =
      R"({"model_type": "t5", "d_model": 128, "d_ff": 512, "d_kv": 32, "num_heads": 4, "num_layers": 3, "vocab_size": 500})";
  const Job job(t5);
  const Result<ProfiledLayers> layers = job.layers();
  ASSERT_FALSE(layers.ok());
  EXPECT_EQ(layers.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(layers.error().message, HasSubstr("an encoder-decoder is not known as a list of layers"));
}

}  // namespace
}  // namespace plimsoll::estimator
