#include "estimator/speed/kernel_time.h"

#include <gtest/gtest.h>

namespace plimsoll::estimator {
namespace {

KernelTimes times_of(const char* card, crds::Precision precision) {
  crds::TrainingSpec training;
  training.precision = precision;
  return *KernelTimes::of(*GpuCatalog::built_in().find(card), training);
}

// A product of [8192, k] and [k, n], without bytes.
OperatorWork product(double k, double n) {
  constexpr double kRows = 8192;
  const double flops = 2 * kRows * k * n;
  return {.kind = WorkKind::kMatrix,
          .type = ElementType::kBF16,
          .flops = flops,
          .backward_flops = 2 * flops,
          .bytes = 1,
          .result = kRows * n,
          .first_gradient = kRows * k,
          .second_gradient = k * n};
}

// ai-dynamo/aiconfigurator 095f58a5, systems/data/{a100_sxm,h100_sxm}/gemm/trtllm: milliseconds of 8,192 rows. Short ones run before the
// power limit takes hold, on an H100 about 10 % faster than they would for long.
TEST(KernelTime, ProductsTakeWhatWasMeasured) {
  struct Measured {
    const char* card;
    double k, n, milliseconds;
  };
  for (const auto& [card, k, n, milliseconds] :
       {Measured{"A100-80GB", 4096, 4096, 1.036}, Measured{"A100-80GB", 8192, 10240, 5.151},
        Measured{"A100-80GB", 1024, 4096, 0.276}, Measured{"H100-80GB", 4096, 4096, 0.344},
        Measured{"H100-80GB", 8192, 16384, 2.832}, Measured{"H100-80GB", 1024, 4096, 0.097}}) {
    const double predicted = 1e3 * times_of(card, crds::Precision::kBF16Mixed).forward(product(k, n));
    EXPECT_NEAR(predicted, milliseconds, 0.15 * milliseconds) << card << " " << k << " " << n;
  }
}

TEST(KernelTime, EachOperandsGradientIsAProduct) {
  const KernelTimes times = times_of("A100-80GB", crds::Precision::kBF16Mixed);
  const OperatorWork square = product(8192, 8192);
  EXPECT_DOUBLE_EQ(times.backward(square), 2 * times.forward(square));
  OperatorWork data = square;
  data.first_gradient = 0;
  EXPECT_DOUBLE_EQ(times.backward(data), times.forward(square)) << "data needs no gradient";
  EXPECT_TRUE(times.is_arithmetic(square));
}

TEST(KernelTime, ASmallProductReachesLess) {
  const KernelTimes times = times_of("A100-80GB", crds::Precision::kBF16Mixed);
  EXPECT_GT(64 * times.forward(product(128, 4096)), times.forward(product(8192, 4096)))
      << "a short inner loop";
  EXPECT_GT(1024 * times.forward(product(4096, 16)), times.forward(product(4096, 16384))) << "a small result";
}

TEST(KernelTime, OtherOperatorsTakeTheirBytes) {
  const KernelTimes times = times_of("A100-80GB", crds::Precision::kBF16Mixed);
  const OperatorWork sum{.kind = WorkKind::kMemory, .bytes = 1e9, .backward_bytes = 2e9};
  EXPECT_NEAR(times.forward(sum), 1e9 / (2039e9 * 0.9 * 0.67), 1e-9);
  EXPECT_FALSE(times.is_arithmetic(sum));
  OperatorWork norm = sum;
  norm.traffic = Traffic::kNorm;
  EXPECT_DOUBLE_EQ(times.forward(norm), 2 * times.forward(sum));
  OperatorWork biased = sum;
  biased.bias_bytes = 1e9;
  EXPECT_DOUBLE_EQ(times.backward(biased), times.backward(sum) + times.forward(sum));
}

TEST(KernelTime, AttentionIsSlowerBeforeFlashAttention2) {
  crds::TrainingSpec training;
  training.precision = crds::Precision::kBF16Mixed;
  const GpuModel card = *GpuCatalog::built_in().find("A100-80GB");
  const OperatorWork attention{.kind = WorkKind::kAttention,
                               .type = ElementType::kBF16,
                               .flops = 1e12,
                               .backward_flops = 2.5e12,
                               .head_dim = 128,
                               .tokens = 2048};
  const auto both = [&] {
    const KernelTimes times = *KernelTimes::of(card, training);
    return times.forward(attention) + times.backward(attention);
  };
  const double second = both();
  EXPECT_NEAR(second, 3.5e12 / 155e12, 1e-9);
  training.torch_version = "2.1";
  EXPECT_NEAR(both(), second * 155 / 69, 1e-9);
}

TEST(KernelTime, ACardWithoutItsBandwidthIsNotKnown) {
  GpuModel card = *GpuCatalog::built_in().find("A100-80GB");
  card.hbm_bandwidth = Bytes{0};
  const Result<KernelTimes> times = KernelTimes::of(card, crds::TrainingSpec());
  ASSERT_FALSE(times.ok());
  EXPECT_NE(times.error().message.find("hbmGBps"), std::string::npos);
}

TEST(KernelTime, IsNotGuessed) {
  const GpuCatalog catalog = GpuCatalog::built_in();
  crds::TrainingSpec training;
  const Result<KernelTimes> old = KernelTimes::of(*catalog.find("K80"), training);
  ASSERT_FALSE(old.ok());
  EXPECT_EQ(old.error().code, ErrorCode::kUnsupported);
  training.precision = crds::Precision::kBF16Mixed;
  const Result<KernelTimes> emulated = KernelTimes::of(*catalog.find("V100-16GB"), training);
  ASSERT_FALSE(emulated.ok());
  EXPECT_NE(emulated.error().message.find("V100-16GB in BF16"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll::estimator
