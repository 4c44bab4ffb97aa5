#include "base/budget.h"

#include <gtest/gtest.h>

#include <string>

namespace plimsoll {
namespace {

using std::chrono::steady_clock;

constexpr Budget::Cause kLayers{"spec.model.transformer.layers", 65536};
constexpr std::uint64_t kMuch = 1'000'000;

Result<int> spend(Budget& budget, std::uint64_t units) {
  return budget.run([&]() -> Result<int> {
    const BudgetCause cause(&budget, kLayers);
    for (std::uint64_t i = 0; i < units; ++i) {
      charge(&budget, 1);
    }
    return 7;
  });
}

TEST(Budget, WithoutLimitsAllWorkIsDone) {
  Budget budget;
  EXPECT_EQ(*spend(budget, kMuch), 7);
  EXPECT_EQ(budget.work_done(), kMuch);
}

TEST(Budget, TheErrorOfAPassedDeadlineNamesTheValue) {
  Budget budget({.deadline = steady_clock::now() - std::chrono::seconds(1)});
  const Result<int> result = spend(budget, kMuch);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kTimeout);
  EXPECT_NE(result.error().message.find("spec.model.transformer.layers = 65536"), std::string::npos)
      << result.error().message;
  EXPECT_TRUE(budget.expired());
}

TEST(Budget, AStopCancels) {
  std::stop_source stop;
  Budget budget({.stop = stop.get_token()});
  EXPECT_TRUE(spend(budget, kMuch));
  stop.request_stop();
  EXPECT_EQ(spend(budget, kMuch).error().code, ErrorCode::kCancelled);
  EXPECT_TRUE(budget.expired());
}

TEST(Budget, WorkIsLimitedInOneChargeAsInMany) {
  Budget many({.work = 100'000});
  EXPECT_EQ(spend(many, kMuch).error().code, ErrorCode::kTooLarge);
  EXPECT_LE(many.work_done(), 100'000);
  Budget one({.work = 100'000});
  EXPECT_THROW(one.charge(100'001), BudgetExceeded);
  EXPECT_NO_THROW(one.charge(90'000));
  EXPECT_THROW(one.charge(std::numeric_limits<std::uint64_t>::max()), BudgetExceeded);
}

TEST(Budget, BytesComeBackWhenTheirHolderGoes) {
  Budget budget({.memory = 100_MiB});
  {
    BudgetBytes first(&budget, 60_MiB);
    EXPECT_THROW(BudgetBytes(&budget, 41_MiB), BudgetExceeded);
    EXPECT_THROW(first.resize(101_MiB), BudgetExceeded);
    const BudgetBytes second(&budget, 40_MiB);
    const BudgetBytes moved = std::move(first);
    EXPECT_THROW(BudgetBytes(&budget, 1_B), BudgetExceeded);
  }
  const BudgetBytes all(&budget, 100_MiB);
  EXPECT_EQ(budget.most_held(), 100_MiB);
}

TEST(Budget, AVectorThatGrowsTakesItsOldMemoryAndItsNewUntilItHasMoved) {
  Budget budget({.memory = 100_KiB});
  {
    BudgetVector<char> grows(&budget);
    grows.resize(40 << 10);
    EXPECT_THROW(grows.reserve(61 << 10), BudgetExceeded);
    EXPECT_EQ(grows.size(), 40U << 10);
    grows.reserve(60 << 10);
    const BudgetVector<char> moved = std::move(grows);
    EXPECT_THROW(BudgetBytes(&budget, 41_KiB), BudgetExceeded);
    const BudgetBytes beside(&budget, 40_KiB);
  }
  const BudgetVector<char> all(100 << 10, 'x', &budget);
  EXPECT_EQ(budget.most_held(), 100_KiB);
}

TEST(Budget, AVectorIsChargedForTheTimeToFillIt) {
  Budget budget({.work = 1'000});
  EXPECT_THROW(BudgetVector<char>(4 << 20, 'x', &budget), BudgetExceeded);
  const BudgetVector<char> unlimited(4 << 20, 'x', nullptr);
  EXPECT_EQ(unlimited.get_allocator().budget(), nullptr);
}

TEST(Budget, TheInnermostCauseIsBlamed) {
  Budget budget({.memory = 1_MiB});
  const BudgetCause outer(&budget, {"spec.model"});
  { const BudgetCause inner(&budget, kLayers); }
  try {
    const BudgetBytes bytes(&budget, 2_MiB);
    FAIL() << "nothing was thrown";
  } catch (const BudgetExceeded& exceeded) {
    EXPECT_EQ(exceeded.error().code, ErrorCode::kTooLarge);
    EXPECT_EQ(exceeded.error().message.find("spec.model is too large"), 0U) << exceeded.what();
  }
}

TEST(Budget, WithoutABudgetNothingIsLimited) {
  charge(nullptr, kMuch);
  const BudgetCause cause(nullptr, kLayers);
  BudgetBytes bytes(nullptr, 1_GiB);
  bytes.resize(Bytes::max());
}

TEST(Budget, NoMemoryLeftIsAnErrorToo) {
  Budget budget;
  const Result<int> result = budget.run([]() -> Result<int> { throw std::bad_alloc(); });
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kTooLarge);
}

}  // namespace
}  // namespace plimsoll
