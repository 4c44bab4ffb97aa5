#include "estimator/speed/cards.h"

#include <algorithm>
#include <vector>

#include "estimator/speed/embedded_table.h"

namespace plimsoll::estimator::inline speed {

extern const char* const kCardsCsv;  // cards.csv

namespace {

constexpr double kTera = 1e12;

std::vector<CardSpeed> read_cards() {
  std::vector<CardSpeed> cards;
  for (const std::vector<std::string>& row : read_table(kCardsCsv)) {
    CardSpeed card{.name = row[0]};
    for (std::size_t i = 0; i < kArithmetics; ++i) {
      card.peak[i] = number_in(row[1 + i]) * kTera;
    }
    const double share = number_in(row[1 + kArithmetics]);
    const double share_8bit = number_in(row[2 + kArithmetics]);
    card.matrix_share = share > 0 ? share : kTypicalMatrixShare;
    card.matrix_share_8bit = share_8bit > 0 ? share_8bit : kTypicalMatrixShare8;
    if (card.flops(Arithmetic::kFP32) > 0) {
      cards.push_back(std::move(card));
    }
  }
  return cards;
}

}  // namespace

const char* name_of(Arithmetic arithmetic) {
  constexpr std::array<const char*, kArithmetics> kNames = {"FP32", "TF32", "BF16", "FP16", "FP8"};
  return kNames[static_cast<std::size_t>(arithmetic)];
}

double CardSpeed::matrix_flops(Arithmetic arithmetic) const {
  switch (arithmetic) {
    case Arithmetic::kFP32: return flops(arithmetic);
    case Arithmetic::kFP8: return flops(arithmetic) * matrix_share_8bit;
    default: return flops(arithmetic) * matrix_share;
  }
}

std::span<const CardSpeed> all_card_speeds() {
  static const std::vector<CardSpeed> cards = read_cards();
  return cards;
}

const CardSpeed* find_card_speed(std::string_view name) {
  const std::span<const CardSpeed> cards = all_card_speeds();
  const auto found =
      std::find_if(cards.begin(), cards.end(), [&](const CardSpeed& card) { return card.name == name; });
  return found == cards.end() ? nullptr : &*found;
}

}  // namespace plimsoll::estimator::speed
