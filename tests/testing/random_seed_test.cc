#include "tests/testing/random_seed.h"

#include <gtest/gtest.h>

namespace plimsoll::testing {
namespace {

TEST(RandomSeed, IsFixedUnlessAnotherIsRequested) {
  EXPECT_EQ(random_seed_of(nullptr), random_seed_of(nullptr));
  EXPECT_EQ(random_seed_of("0"), 0U);
  EXPECT_EQ(random_seed_of("4294967295"), 4'294'967'295U);
}

TEST(RandomSeed, DrawsAnother) {
  // Three draws that are all equal have a probability of 2^-64.
  const std::uint32_t first = random_seed_of("random");
  EXPECT_TRUE(random_seed_of("random") != first || random_seed_of("random") != first);
}

TEST(RandomSeed, RefusesWhatIsNoSeed) {
  for (const char* value : {"", "1x", "-1", "4294967296", "Random"}) {
    EXPECT_THROW(random_seed_of(value), std::invalid_argument) << value;
  }
}

TEST(RandomSeed, IsOneForTheProcess) {
  EXPECT_EQ(random_seed(), random_seed());
}

}  // namespace
}  // namespace plimsoll::testing
