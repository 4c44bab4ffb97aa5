#include "estimator/swap/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace plimsoll::estimator {
namespace {

using ::testing::ElementsAre;

PackCost sum_of(const std::vector<double>& values) {
  return [values](std::size_t first, std::size_t end) {
    return std::accumulate(values.begin() + static_cast<std::ptrdiff_t>(first),
                           values.begin() + static_cast<std::ptrdiff_t>(end), 0.0);
  };
}

PackFits at_most(const std::vector<double>& values, double capacity) {
  return [cost = sum_of(values), capacity](std::size_t first, std::size_t end) {
    return cost(first, end) <= capacity ? PackFit::kFits : PackFit::kTooLarge;
  };
}

TEST(SwapPartition, PacksAreFilledFromTheLastLayer) {
  const std::vector<double> sizes = {3, 2, 2, 1, 4};
  EXPECT_THAT(*filled_packs(5, at_most(sizes, 5)), ElementsAre(0, 1, 3));
  EXPECT_THAT(*filled_packs(5, at_most(sizes, 100)), ElementsAre(0));
  EXPECT_FALSE(filled_packs(5, at_most(sizes, 3.5)).has_value());
}

TEST(SwapPartition, EqualPartsAreTriedWithMorePacksUntilTheyFit) {
  const std::vector<double> sizes(8, 1);
  EXPECT_THAT(*equal_packs(8, at_most(sizes, 4), sum_of(sizes), 1), ElementsAre(0, 2, 5))
      << "two would be of 3 and 5";
  EXPECT_FALSE(equal_packs(8, at_most(sizes, 0.5), sum_of(sizes), 1).has_value());
}

TEST(SwapPartition, TheLargestCostOfEvenPacksIsTheLeast) {
  const std::vector<double> sizes = {9, 1, 1, 1, 8, 2};
  EXPECT_THAT(*even_packs(6, at_most(sizes, 100), sum_of(sizes), 3), ElementsAre(0, 2, 5)) << "at most 10";
  EXPECT_FALSE(even_packs(6, at_most(sizes, 9), sum_of(sizes), 2).has_value()) << "three are needed";
}

TEST(SwapPartition, TheCheapestPacksHaveTheLeastSum) {
  const std::vector<double> sizes(6, 1);
  // Each pack costs 10 beside its layers, and one of three layers is free.
  const PackCost cost = [](std::size_t first, std::size_t end) { return end - first == 3 ? 0.0 : 10.0; };
  EXPECT_THAT(*cheapest_packs(6, at_most(sizes, 6), cost), ElementsAre(0, 3));
  EXPECT_FALSE(cheapest_packs(6, at_most(sizes, 0.5), cost).has_value());
}

// A border at an odd layer is not allowed, though more layers would fit.
TEST(SwapPartition, BordersThatDoNotFitArePassedOver) {
  const PackFits even_borders = [](std::size_t first, std::size_t end) {
    return end - first > 4 ? PackFit::kTooLarge
                           : (first % 2 + end % 2 > 0 ? PackFit::kNotHere : PackFit::kFits);
  };
  const PackCost layers = [](std::size_t first, std::size_t end) { return static_cast<double>(end - first); };
  EXPECT_THAT(*filled_packs(6, even_borders), ElementsAre(0, 2));
  EXPECT_THAT(*even_packs(6, even_borders, layers, 3), ElementsAre(0, 2, 4));
  EXPECT_TRUE(cheapest_packs(6, even_borders, layers).has_value());
}

}  // namespace
}  // namespace plimsoll::estimator
