// CardSpeed: how fast a GPU computes, by its catalogue name. Bandwidths are in GpuModel itself, where a GPUModel resource can
// override them.
//
//   const CardSpeed* card = find_card_speed("A100-80GB");   // null: no figures are known
//   card->flops(Arithmetic::kBF16) * card->matrix_share;    // what large products of matrices reach
//
// The table is cards.csv; each figure has its source there. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace plimsoll::estimator::inline speed {

enum class Arithmetic : std::uint8_t { kFP32, kTF32, kBF16, kFP16, kFP8 };
inline constexpr std::size_t kArithmetics = static_cast<std::size_t>(Arithmetic::kFP8) + 1;
const char* name_of(Arithmetic arithmetic);

// The median of the measured shares in cards.csv, for a card that was not measured.
inline constexpr double kTypicalMatrixShare = 0.66;
inline constexpr double kTypicalMatrixShare8 = 0.63;

struct CardSpeed {
  std::string name;
  std::array<double, kArithmetics> peak{};  // FLOP/s, dense; 0: no such units
  double matrix_share = kTypicalMatrixShare;
  double matrix_share_8bit = kTypicalMatrixShare8;

  double flops(Arithmetic arithmetic) const { return peak[static_cast<std::size_t>(arithmetic)]; }
  // What large products of matrices reach for long; without tensor cores, all of the peak.
  double matrix_flops(Arithmetic arithmetic) const;
};

// Null: the card is not in the table, or without figures.
const CardSpeed* find_card_speed(std::string_view name);
// The cards with figures.
std::span<const CardSpeed> all_card_speeds();

}  // namespace plimsoll::estimator::speed
