#include "estimator/sharder/selection.h"

#include <algorithm>
#include <cmath>

namespace plimsoll::estimator {

namespace {

const Option& cheapest(std::span<const Option> options, const Caps& caps) {
  const Option* best = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const Option& option : options) {
    const double value = caps.prices.of(option);
    // Work that is everywhere is level already, however much it is.
    if (value < least && (option.everywhere() || (option.ms <= caps.ms && option.bytes <= caps.bytes &&
                                                  option.compute_ms <= caps.compute_ms))) {
      least = value;
      best = &option;
    }
  }
  if (best != nullptr) {
    return *best;
  }
  for (const Option& option : options) {
    const double excess =
        std::max({option.ms / caps.ms, option.bytes / caps.bytes, option.compute_ms / caps.compute_ms});
    if (best == nullptr || excess < least) {
      least = excess;
      best = &option;
    }
  }
  return *best;
}

}  // namespace

void Selection::add(const Option& option, double sign) {
  total_ms += sign * option.total_ms;
  total_bytes += sign * option.total_bytes;
  total_compute += sign * option.compute_ms * (option.total_ms / std::max(option.ms, 1e-300));
  total_host += sign * option.total_host;
}

Selection select(const Options& options, const Caps& caps) {
  Selection selection;
  selection.options.reserve(options.tables());
  for (std::size_t table = 0; table < options.tables(); ++table) {
    const Option& option = cheapest(options.of(table), caps);
    selection.options.push_back(&option);
    selection.add(option);
  }
  return selection;
}

double smallest_cap(const Options& options, Caps caps, double least, double most, const Allowed& allowed) {
  const auto affordable = [&](double bytes) {
    caps.bytes = bytes;
    const Selection selection = select(options, caps);
    return selection.total_ms <= allowed.ms && selection.total_bytes <= allowed.bytes;
  };
  if (least >= most || affordable(least)) {
    return least;
  }
  constexpr int kHalvings = 7;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = std::sqrt(least * most);
    (affordable(middle) ? most : least) = middle;
  }
  return most;
}

}  // namespace plimsoll::estimator
