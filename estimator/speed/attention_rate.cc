#include "estimator/speed/attention_rate.h"

#include <cmath>
#include <map>
#include <tuple>
#include <vector>

#include "estimator/speed/cards.h"
#include "estimator/speed/embedded_table.h"

namespace plimsoll::estimator::inline speed {

extern const char* const kAttentionCsv;  // attention.csv

namespace {

// Tokens -> share of the peak, by (algorithm, measured on Hopper, causal, wide heads).
using Curve = std::map<std::int64_t, double>;
using Curves = std::map<std::tuple<FlashAttention, bool, bool, bool>, Curve>;

constexpr std::int64_t kHopper = 90;
constexpr std::int64_t kWide = 96;  // heads of 64 and 128 were measured
constexpr double kTera = 1e12;

Curves read_curves() {
  Curves curves;
  for (const std::vector<std::string>& row : read_table(kAttentionCsv)) {
    const bool hopper = row[0] == "H100";
    const double peak = find_card_speed(hopper ? "H100-80GB" : "A100-80GB")->flops(Arithmetic::kBF16);
    const bool wide = number_in(row[2]) >= kWide;
    const std::int64_t tokens = std::llround(number_in(row[3]));
    curves[{FlashAttention::kFirst, hopper, row[1] == "yes", wide}][tokens] =
        number_in(row[4]) * kTera / peak;
    curves[{FlashAttention::kSecond, hopper, row[1] == "yes", wide}][tokens] =
        number_in(row[5]) * kTera / peak;
  }
  return curves;
}

}  // namespace

FlashAttention flash_attention_of(TorchVersion version) {
  constexpr TorchVersion kSecondSince = 202;
  return version < kSecondSince ? FlashAttention::kFirst : FlashAttention::kSecond;
}

AttentionPasses attention_passes(FlashAttention flash) {
  constexpr double kFirst = (30.0 + 50) / (25 + 35);
  constexpr double kSecond = 73.0 / 63;
  constexpr double kBackward = 2.5;  // FLOPs of backward for each of forward
  const double faster = flash == FlashAttention::kFirst ? kFirst : kSecond;
  const double forward = (1 + kBackward * faster) / (1 + kBackward);
  return {.forward = forward, .backward = forward / faster};
}

double attention_share(FlashAttention flash, std::int64_t capability, std::int64_t head_dim,
                       std::int64_t tokens, bool causal) {
  static const Curves known = read_curves();
  const Curve& curve = known.at({flash, capability >= kHopper, causal, head_dim >= kWide});
  const auto above = curve.lower_bound(tokens);
  if (above == curve.begin()) {
    return above->second;
  }
  if (above == curve.end()) {
    return curve.rbegin()->second;
  }
  const auto below = std::prev(above);
  const auto log = [](std::int64_t value) { return std::log2(static_cast<double>(value)); };
  const double part = (log(tokens) - log(below->first)) / (log(above->first) - log(below->first));
  return std::lerp(below->second, above->second, part);
}

}  // namespace plimsoll::estimator::speed
