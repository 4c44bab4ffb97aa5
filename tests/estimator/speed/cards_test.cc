#include "estimator/speed/cards.h"

#include <gtest/gtest.h>

#include "estimator/catalog/gpu_catalog.h"

namespace plimsoll::estimator {
namespace {

TEST(CardSpeed, IsThatOfTheDataSheet) {
  const CardSpeed* const card = find_card_speed("A100-80GB");
  ASSERT_NE(card, nullptr);
  EXPECT_DOUBLE_EQ(card->flops(Arithmetic::kBF16), 312e12);
  EXPECT_DOUBLE_EQ(card->flops(Arithmetic::kFP8), 0) << "Ampere has no 8-bit floats";
  EXPECT_DOUBLE_EQ(card->matrix_flops(Arithmetic::kFP32), 19.5e12);
  EXPECT_DOUBLE_EQ(card->matrix_flops(Arithmetic::kBF16), 312e12 * 0.84);
}

TEST(CardSpeed, IsNotGuessedWithoutFigures) {
  EXPECT_EQ(find_card_speed("K80"), nullptr);
  EXPECT_EQ(find_card_speed("no such card"), nullptr);
}

TEST(CardSpeed, CardsAreThoseOfTheCatalogue) {
  const GpuCatalog catalog = GpuCatalog::built_in();
  for (const CardSpeed& card : all_card_speeds()) {
    const GpuModel* const known = catalog.find(card.name);
    ASSERT_NE(known, nullptr) << card.name;
    EXPECT_EQ(known->name, card.name);
  }
}

}  // namespace
}  // namespace plimsoll::estimator
