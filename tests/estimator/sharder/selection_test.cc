#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "estimator/sharder/selection.h"
#include "tests/estimator/sharder_instances.h"
#include "tests/testing/random_seed.h"

namespace plimsoll::estimator {
namespace {

// What `select` does for every cap is what Choices must do for it, in bits: a plan must not depend on which
// of the two found it.
TEST(SharderSelection, ChoicesAreThoseOfSelectAtEveryCap) {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const ShardRequest request = random_request(random, {.all_features = true});
    const Options options(request);
    bool all_possible = true;
    double longest = 0;
    double largest = 0;
    for (std::size_t table = 0; table < options.tables(); ++table) {
      all_possible = all_possible && !options.of(table).empty();
      for (const Option& option : options.of(table)) {
        longest = std::max(longest, option.ms);
        largest = std::max(largest, option.bytes);
      }
    }
    if (!all_possible) {
      continue;
    }
    Caps caps{.ms = one_of<double>(random,
                                   {std::numeric_limits<double>::infinity(), longest * 0.5, longest * 0.01}),
              .prices = {.card = one_of<double>(random, {0, 1e-9, 1e-3}),
                         .host = one_of<double>(random, {0, 1e-9})}};
    if (random() % 2 == 0) {
      caps.compute_ms = longest * between(random, 0.01, 1);
    }
    const Choices choices(options, caps);
    for (const double share : {0.0, 1e-4, 0.01, 0.1, 0.3, 0.5, 0.9, 1.0, 2.0}) {
      caps.bytes = largest * share;
      const Selection one = select(options, caps);
      const Selection other = choices.select(caps.bytes);
      ASSERT_EQ(one.options, other.options) << share;
      ASSERT_EQ(one.total_ms, other.total_ms);
      ASSERT_EQ(one.total_bytes, other.total_bytes);
    }
  }
}

TEST(SharderSelection, SmallestCapIsAffordableAndAsksForNothingTwice) {
  std::mt19937_64 random(plimsoll::testing::random_seed());
  ShardRequest request = random_request(random, {.most_tables = 60, .trainers = {40}});
  request.budget = 1024_GiB;
  const Options options(request);
  Choices choices(options, {});
  double largest = 0;
  for (const Option* option : choices.select(std::numeric_limits<double>::infinity()).options) {
    largest = std::max(largest, option->bytes);
  }
  const Selection whole = choices.select(largest);
  const Choices::Totals allowed{.ms = whole.total_ms * 1.02, .bytes = whole.total_bytes * 1.02};
  const double cap = choices.smallest_cap(largest * 1e-3, largest, allowed);
  EXPECT_EQ(choices.smallest_cap(largest * 1e-3, largest, allowed), cap);
  const Selection capped = choices.select(cap);
  EXPECT_LE(cap, largest);
  EXPECT_LE(capped.total_ms, allowed.ms);
  EXPECT_LE(capped.total_bytes, allowed.bytes);
  EXPECT_EQ(choices.smallest_cap(largest * 1e-3, largest, {}), largest) << "nothing is affordable";
}

// Whatever a price of memory makes of a request, savings make of the bytes that this takes: no other
// selection of so few bytes takes less time.
TEST(SharderSelection, WithinSoManyBytesNoneIsFasterAtAnyPrice) {
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    ShardRequest request = random_request(random, {});
    request.budget = 1024_GiB;
    const Options options(request);
    double largest = 0;
    double least = 0;
    for (std::size_t table = 0; table < options.tables(); ++table) {
      const auto takes = [](const Option& a, const Option& b) { return a.total_bytes < b.total_bytes; };
      const auto [low, high] = std::minmax_element(options.of(table).begin(), options.of(table).end(), takes);
      least += low->total_bytes;
      largest = std::max(largest, high->bytes);
    }
    for (const double price : {0.0, 1e-12, 1e-9, 1e-6, 1.0}) {
      Caps caps{.prices = {.card = price}};
      const Selection priced = select(options, caps);
      const double slack = 1 + 1e-12;  // sums in another order
      const std::optional<Selection> within = Savings(options, caps).within(priced.total_bytes * slack);
      ASSERT_TRUE(within);
      EXPECT_LE(within->total_bytes, priced.total_bytes * slack);
      EXPECT_LE(within->total_ms, priced.total_ms * (1 + 1e-9)) << price;
      caps.bytes = largest * 0.1;
      if (const std::optional<Selection> finer = Savings(options, caps).within(priced.total_bytes)) {
        EXPECT_LE(finer->total_bytes, priced.total_bytes);
      }
      ++compared;
    }
    EXPECT_FALSE(Savings(options, {}).within(least * (1 - 1e-9) - 1)) << "no options take so little";
  }
  EXPECT_EQ(compared, 2000);
}

}  // namespace
}  // namespace plimsoll::estimator
