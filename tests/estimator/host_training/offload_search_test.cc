#include "estimator/host_training/offload_search.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdio>

#include "estimator/host_training/host_memory.h"
#include "tests/estimator/data_files.h"
#include "tests/estimator/provisioner_fixture.h"
#include "tests/estimator/transformer_sizes.h"

namespace plimsoll::estimator {
namespace {

using crds::Offload;
using crds::ParallelStrategy;
using plimsoll::testing::available;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kQwen30B = R"({
  "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 48,
  "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936,
  "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "norm_topk_prob": true,
  "decoder_sparse_step": 1, "mlp_only_layers": [], "max_position_embeddings": 40960, "rms_norm_eps": 1e-06,
  "rope_theta": 1000000.0, "tie_word_embeddings": false, "hidden_act": "silu"})";

// Of the published curve. Its batch is not printed: 4,096 tokens in micro-batches of one sample.
class OffloadSearchTest : public ::testing::Test {
 protected:
  OffloadSearchTest() {
    crds::TransformerModel& transformer = model_.transformer.emplace();
    transformer.config = kQwen30B;
    transformer.sequence_length = 4096;
    transformer.attention = crds::AttentionKind::kFlash;
    training_.batch_size_per_trainer = 4;
    training_.gradient_accumulation = 4;
    training_.optimizer = crds::Optimizer::kAdam;
    training_.precision = crds::Precision::kBF16Mixed;
    crds::Parallelism& parallelism = training_.parallelism;
    parallelism.strategy = ParallelStrategy::kMegatron;
    parallelism.tensor = 2;
    parallelism.sequence = true;
    parallelism.pipeline = 2;
    parallelism.expert = 4;
    search_.job = {.model = &model_, .training = &training_, .gpu = &gpu_, .trainers = 16};
    search_.capacity = 75_GiB;
  }

  OffloadAnswer answer() const {
    const Result<OffloadAnswer> found = search_offload(search_);
    EXPECT_TRUE(found.ok()) << (found ? "" : to_string(found.error()));
    return found ? *found : OffloadAnswer();
  }

  std::vector<std::int64_t> percents() const {
    std::vector<std::int64_t> percents;
    for (const OffloadPoint& point : answer().points) {
      percents.push_back(point.percent);
    }
    return percents;
  }

  // Of the rows of the published curve, in their order: the point with the row's percentage and overlap.
  std::vector<OffloadPoint> published_points() {
    std::vector<OffloadPoint> points;
    for (const testing::CsvRow& row : testing::csv_rows("host_training/offload_curve.csv")) {
      training_.parallelism.overlap_offload = row.integer("overlap") != 0;
      for (const OffloadPoint& point : answer().points) {
        if (point.percent == row.integer("percent")) {
          points.push_back(point);
        }
      }
    }
    return points;
  }

  crds::ModelSpec model_;
  crds::TrainingSpec training_;
  GpuModel gpu_ = available("H100-80GB", 1).model;
  OffloadSearch search_;
};

TEST_F(OffloadSearchTest, SavesAsMuchMemoryAsPublishedForEachShareOnTheHost) {
  const std::vector<testing::CsvRow> rows = testing::csv_rows("host_training/offload_curve.csv");
  const std::vector<OffloadPoint> points = published_points();
  ASSERT_EQ(points.size(), rows.size());
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const double published = rows.front().number("gigabytes") - rows[i].number("gigabytes");
    const double ours = static_cast<double>((points.front().device - points[i].device).count) / 1e9;
    std::printf("%3lld %%  saves %5.2f GB, published %5.2f (%+.1f %%)\n",
                static_cast<long long>(points[i].percent), ours, published, 100 * (ours / published - 1));
    EXPECT_NEAR(ours / published, 1, 0.02) << points[i].percent;
  }
}

// The published iteration without offloading is taken, as its batch is not known.
TEST_F(OffloadSearchTest, TakesAsLongAsPublishedWithoutCalibration) {
  const std::vector<testing::CsvRow> rows = testing::csv_rows("host_training/offload_curve.csv");
  search_.measured.none = rows.front().number("milliseconds") / 1e3;
  const std::vector<OffloadPoint> points = published_points();
  ASSERT_EQ(points.size(), rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double published = rows[i].number("milliseconds") / 1e3;
    std::printf("%3lld %%  %.3f s, published %.3f (%+.1f %%)\n", static_cast<long long>(points[i].percent),
                *points[i].seconds, published, 100 * (*points[i].seconds / published - 1));
    EXPECT_NEAR(*points[i].seconds / published, 1, 0.20) << points[i].percent;
  }
}

TEST_F(OffloadSearchTest, TakesAsLongAsPublishedOnceTheLastRowIsMeasured) {
  const std::vector<testing::CsvRow> rows = testing::csv_rows("host_training/offload_curve.csv");
  search_.measured = {.none = rows[0].number("milliseconds") / 1e3,
                      .all = rows[4].number("milliseconds") / 1e3};
  const std::vector<OffloadPoint> points = published_points();
  ASSERT_EQ(points.size(), rows.size());
  for (std::size_t i = 0; i < 5; ++i) {
    const double published = rows[i].number("milliseconds") / 1e3;
    std::printf("%3lld %%  %.3f s, published %.3f (%+.1f %%)\n", static_cast<long long>(points[i].percent),
                *points[i].seconds, published, 100 * (*points[i].seconds / published - 1));
    EXPECT_NEAR(*points[i].seconds / published, 1, 0.07) << points[i].percent;
    EXPECT_TRUE(i == 0 || *points[i].seconds > *points[i - 1].seconds);
  }
}

TEST_F(OffloadSearchTest, AllOnTheHostIsNoFasterThanNothing) {
  search_.measured.all = 0.1;
  const Result<OffloadAnswer> found = search_offload(search_);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(found.error().message, HasSubstr("as predicted: measure that, too"));
}

TEST_F(OffloadSearchTest, FindsTheLeastPercentageThatFits) {
  const OffloadAnswer all = answer();
  ASSERT_EQ(all.least, 0U) << "75 GiB hold it";
  search_.capacity = Bytes{(all.points[1].device.count + all.points[2].device.count) / 2};
  const OffloadAnswer found = answer();
  ASSERT_TRUE(found.least.has_value());
  const OffloadPoint& least = found.points[*found.least];
  EXPECT_TRUE(least.fits());
  EXPECT_THAT(percents(), ElementsAre(0, 25, least.percent, 50, 75, 100));
  EXPECT_NEAR(static_cast<double>(least.percent), 37.5, 1.5);
  EXPECT_LE(least.device, search_.capacity);
  // One percent less does not.
  training_.parallelism.offload = Offload::kOptimizer;
  training_.parallelism.offload_percent = least.percent - 1;
  EXPECT_GT(estimate_memory(search_.job)->peak.upper_bound, search_.capacity);
}

crds::TrainingSpec zero3() {
  crds::TrainingSpec training;
  training.batch_size_per_trainer = 1;
  training.precision = crds::Precision::kBF16Mixed;
  training.optimizer = crds::Optimizer::kAdamW;
  training.activation_checkpointing = crds::ActivationCheckpointing::kFull;
  training.parallelism.strategy = ParallelStrategy::kZeRO3;
  return training;
}

// SuperOffload (arXiv 2509.21271) trains these on as many GH200, each with 480 GB of its own host memory, and not on fewer.
TEST(OffloadFeasibility, IsThatOfPublishedSystems) {
  struct Published {
    const char* name;
    testing::TransformerSizes sizes;
    std::int64_t chips;
  };
  constexpr Published kPublished[] = {
      {"Qwen3-14B", {40, 5120, 17'408, 40, 8, 128, 151'936}, 1},
      {"Phi-4", {40, 5120, 17'920, 40, 10, 128, 100'352}, 1},
      {"GPT-OSS-20B", {24, 2880, 2880, 64, 8, 64, 201'088, 32, 4}, 1},
      {"Qwen3-30B-A3B", {48, 2048, 768, 32, 4, 128, 151'936, 128, 8}, 2},
      {"Seed-OSS-36B", {64, 5120, 27'648, 80, 8, 128, 155'136}, 2},
      {"Llama 70B", {80, 8192, 28'672, 64, 8, 128, 128'256}, 4},
  };
  const GpuModel gpu = available("GH200", 1).model;
  for (const Published& each : kPublished) {
    for (const std::int64_t chips : {1, 2, 4}) {
      const crds::ModelSpec model = testing::model_of(each.sizes, 2048);
      const crds::TrainingSpec training = zero3();
      OffloadSearch search{
          .job = {.model = &model, .training = &training, .gpu = &gpu, .trainers = chips, .per_node = 1},
          .capacity = gpu.memory,
          .node_memory = Bytes{480'000'000'000}};
      const Result<OffloadAnswer> answer = search_offload(search);
      ASSERT_TRUE(answer.ok()) << each.name << ": " << to_string(answer.error());
      std::printf("%-14s on %lld: %s\n", each.name, static_cast<long long>(chips),
                  answer->least ? "fits" : "does not fit");
      EXPECT_EQ(answer->least.has_value(), chips >= each.chips) << each.name << " on " << chips;
    }
  }
}

// ZeRO-Infinity takes 170 GB of the host for Llama 3 8B (Teraio, arXiv 2506.06472). Its 770 GB for 70B are 11 bytes a parameter, less than
// Adam's states and fp32 weights alone: there a part is on SSDs, which is not modelled.
TEST(OffloadFeasibility, HostMemoryIsThatOfZeroInfinity) {
  const crds::ModelSpec model = testing::model_of({32, 4096, 14'336, 32, 8, 128, 128'256}, 2048);
  const crds::TrainingSpec training = zero3();
  const GpuModel gpu = available("H100-80GB", 1).model;
  const Result<OffloadAnswer> answer = search_offload(
      {.job = {.model = &model, .training = &training, .gpu = &gpu, .trainers = 2, .per_node = 2},
       .capacity = gpu.memory});
  ASSERT_TRUE(answer.ok()) << to_string(answer.error());
  const OffloadPoint& all = answer->points.back();
  EXPECT_EQ(all.offload, Offload::kParameters);
  const Bytes host = container_memory(all.host * 2, 2);
  std::printf("ZeRO-3 with all of Llama 3 8B on the host: %.0f GB, published 170\n",
              static_cast<double>(host.count) / 1e9);
  EXPECT_NEAR(static_cast<double>(host.count), 170e9, 17e9);
}

TEST_F(OffloadSearchTest, SaysWhatAllTakesWhereNothingFits) {
  search_.capacity = 20_GiB;
  const OffloadAnswer found = answer();
  EXPECT_FALSE(found.least.has_value());
  EXPECT_EQ(found.points.back().percent, 100);
  EXPECT_GT(found.points.back().device, search_.capacity);
}

// 16 bytes of each of the 1.9e9 parameters that a trainer updates: fp32 copy, gradient and two states.
TEST_F(OffloadSearchTest, TheHostKeepsWhatItUpdates) {
  const std::vector<OffloadPoint> points = answer().points;
  EXPECT_EQ(points.front().host, Bytes{});
  EXPECT_NEAR(static_cast<double>(points.back().host.count), 16 * 30.532e9 / 16, 0.01 * 30.5e9);
  EXPECT_NEAR(static_cast<double>(points[2].host.count), static_cast<double>(points.back().host.count) / 2,
              0.02 * static_cast<double>(points.back().host.count));
}

TEST_F(OffloadSearchTest, DeepSpeedAndFsdpKeepAllOrNothing) {
  training_.parallelism = {.strategy = ParallelStrategy::kZeRO3};
  const OffloadAnswer zero = answer();
  ASSERT_EQ(zero.points.size(), 3U);
  EXPECT_EQ(zero.points[1].offload, Offload::kOptimizer);
  EXPECT_EQ(zero.points[2].offload, Offload::kParameters);
  EXPECT_GT(zero.points[0].device, zero.points[1].device);
  EXPECT_GT(zero.points[1].device, zero.points[2].device);
  training_.parallelism = {.strategy = ParallelStrategy::kFSDP2};
  EXPECT_EQ(answer().points.size(), 2U);
}

// Their estimate had no tables, and so too few bytes.
TEST_F(OffloadSearchTest, EmbeddingTablesAreRefused) {
  model_.embeddings.emplace().tables.emplace_back();
  const Result<OffloadAnswer> found = search_offload(search_);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(found.error().message, HasSubstr("the model has embedding tables"));
}

TEST_F(OffloadSearchTest, AnIterationThatWasMeasuredNeedsATimeOfOurs) {
  gpu_.name = "a card without figures";
  search_.measured = {.none = 1.0, .all = 4.0};
  const Result<OffloadAnswer> found = search_offload(search_);
  ASSERT_FALSE(found.ok());
  EXPECT_THAT(found.error().message, HasSubstr("the time of an iteration is not known"));
}

TEST_F(OffloadSearchTest, AStrategyThatKeepsNothingOnTheHostIsRefused) {
  training_.parallelism.strategy = ParallelStrategy::kDDP;
  const Result<OffloadAnswer> found = search_offload(search_);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(found.error().message, HasSubstr("strategy DDP keeps nothing in host memory"));
}

}  // namespace
}  // namespace plimsoll::estimator
