#include "estimator/estimate/margins.h"

#include <gtest/gtest.h>

#include <optional>

#include "estimator/catalog/gpu_catalog.h"

namespace plimsoll::estimator {
namespace {

class Margins : public ::testing::Test {
 protected:
  Margins() {
    request_.model = &model_;
    request_.training = &training_;
    request_.graph = &graph_;
    parts_.gradients = 100_MiB;
    parts_.activations = 700_MiB;
    parts_.temporaries = 200_MiB;
    parts_.inputs = 30_MiB;
    parts_.parameters = 500_MiB;
  }

  std::optional<Bytes> margin(const std::string& name, const ConvolutionTotals& convolutions = {}) {
    for (const Margin& each : margins_of(request_, ledger_, parts_, convolutions)) {
      EXPECT_FALSE(each.source.empty());
      if (each.name == name) {
        return each.bytes;
      }
    }
    return std::nullopt;
  }

  crds::ModelSpec model_;
  crds::TrainingSpec training_;
  TraceFile graph_;
  EstimateRequest request_;
  Breakdown parts_;
  Ledger ledger_{kCudaGranule};
};

TEST_F(Margins, OfTheSimulationAreAShareOfWhatAnIterationAllocates) {
  EXPECT_EQ(margin("simulation"), Bytes::ceil(1000 * 1024 * 1024 * kSimulationMargin));
}

TEST_F(Margins, OfAutocastsCopiesNeedExpertsAutocastAndCheckpointing) {
  model_.transformer.emplace();
  model_.transformer->config =
      R"({"model_type": "mixtral", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
          "num_hidden_layers": 2, "num_key_value_heads": 2, "vocab_size": 100, "num_local_experts": 4,
          "num_experts_per_tok": 2})";
  model_.transformer->sequence_length = 16;
  training_.precision = crds::Precision::kBF16Mixed;
  EXPECT_EQ(margin("keptCasts"), std::nullopt) << "backward needs the copies anyway";
  training_.activation_checkpointing = crds::ActivationCheckpointing::kFull;
  EXPECT_EQ(margin("keptCasts"), Bytes::ceil(1000 * 1024 * 1024 * kKeptCastsMargin));
  training_.parallelism.strategy = crds::ParallelStrategy::kFSDP;
  EXPECT_EQ(margin("keptCasts"), std::nullopt) << "computes in 16 bits throughout";
  training_.parallelism.strategy = crds::ParallelStrategy::kDDP;
  training_.precision = crds::Precision::kBF16;
  EXPECT_EQ(margin("keptCasts"), std::nullopt);
  training_.precision = crds::Precision::kFP16Mixed;
  EXPECT_NE(margin("keptCasts"), std::nullopt);
  training_.compile = crds::Compilation::kModel;
  EXPECT_EQ(margin("keptCasts"), std::nullopt);
  training_.compile = crds::Compilation::kNone;
  model_.transformer->config = R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
      "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2, "vocab_size": 100})";
  EXPECT_EQ(margin("keptCasts"), std::nullopt) << "no experts";
}

TEST_F(Margins, OfCudnnNeedConvolutions) {
  EXPECT_EQ(margin("cudnn"), std::nullopt);
  EXPECT_EQ(margin("cudnn", {.traffic = 400_MiB, .transforms = {}}),
            Bytes::ceil(400 * 1024 * 1024 * kCudnnMargin));
}

// VGG16 at batch 128 reserved 6.2 GiB more than is simulated on an A100, and 5.1 GiB on an H100; on an RTX 3060 VGGs reserved 0.7 GiB more.
TEST_F(Margins, OfWinogradsTransformsAreForTheA100AndTheH100) {
  const ConvolutionTotals convolutions = {.traffic = 1_GiB, .transforms = 700_MiB};
  EXPECT_EQ(margin("cudnnTransforms", convolutions), std::nullopt) << "no card";
  const GpuCatalog catalog = GpuCatalog::built_in();
  request_.gpu = catalog.find("RTX 3060");
  EXPECT_EQ(margin("cudnnTransforms", convolutions), std::nullopt);
  request_.gpu = catalog.find("A100-40GB");
  EXPECT_EQ(margin("cudnnTransforms", convolutions), 700_MiB);
  request_.gpu = catalog.find("H100-80GB");
  EXPECT_EQ(margin("cudnnTransforms", convolutions), 700_MiB);
  EXPECT_EQ(margin("cudnnTransforms"), std::nullopt);
}

TEST_F(Margins, OfTheNextBatchAreNotNeededWhereItIsCounted) {
  EXPECT_EQ(margin("nextBatch"), 30_MiB);
  request_.next_batch_early = true;
  EXPECT_EQ(margin("nextBatch"), std::nullopt);
}

TEST_F(Margins, OfStreamsAreTheLargestBlockOfAnother) {
  EXPECT_EQ(margin("streams"), std::nullopt);
  ledger_.allocate(Part::kParameters, 900_MiB);
  ledger_.allocate(Part::kTemporaries, 60_MiB, 1, kCommunicationStream);
  ledger_.allocate(Part::kTemporaries, 50_MiB, 1, kCommunicationStream);
  EXPECT_EQ(margin("streams"), 60_MiB);
}

TEST_F(Margins, AddUp) {
  EXPECT_EQ(total_of(margins_of(request_, ledger_, parts_, {})),
            Bytes::ceil(1000 * 1024 * 1024 * kSimulationMargin) + 22_MiB + 30_MiB);
  EXPECT_EQ(total_of({}), Bytes{});
}

}  // namespace
}  // namespace plimsoll::estimator
