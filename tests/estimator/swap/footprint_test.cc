#include "estimator/swap/footprint.h"

#include <gtest/gtest.h>

namespace plimsoll::estimator {
namespace {

constexpr double kGigabyte = 1e9;

// The talk's GPT-2 with 1.5 billion parameters and 32 samples: 90 GB of 128, the rest is fragmentation.
TEST(Footprint, Gpt2Takes128GigabytesWithItsFragmentation) {
  const Footprint gpt2 = footprint_of(
      {.parameters = 1'500'000'000, .hidden = 1600, .layers = 48, .tokens = 1024, .samples = 32});
  EXPECT_EQ(gpt2.weights, 3'000'000'000_B);
  EXPECT_EQ(gpt2.gradients, 3'000'000'000_B);
  EXPECT_EQ(gpt2.optimizer, 18'000'000'000_B);
  EXPECT_NEAR(static_cast<double>(gpt2.stash.count) / kGigabyte, 60, 0.5);
  EXPECT_EQ(gpt2.buffer, 6'000'000'000_B);
  const double total = static_cast<double>(gpt2.total().count) / kGigabyte;
  EXPECT_NEAR(total, 90, 0.5);
  EXPECT_NEAR((128 - total) / 128, 0.297, 0.005) << "ZeRO: 30 % fragmentation";
}

// The talk's days on one GTX 1080 Ti: pre-training, and fine-tuning on WikiText and GLUE.
TEST(TrainingDays, AreThoseOfTheTalksTable) {
  struct Row {
    double operations, days;
  };
  for (const Row& row : {Row{5.33e20, 581}, Row{2.376e21, 2592}, Row{3.30e22, 36002}, Row{3.14e23, 342564}}) {
    EXPECT_NEAR(training_days(row.operations, kPeak1080Ti), row.days, 1e-4 * row.days + 0.5);
  }
}

}  // namespace
}  // namespace plimsoll::estimator
