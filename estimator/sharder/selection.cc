#include "estimator/sharder/selection.h"

#include <algorithm>
#include <cmath>

namespace plimsoll::estimator {

namespace {

// Work that is the same on every trainer is level already, however much it is.
bool level_by_nature(const Option& option) {
  return option.type == ShardingType::kDataParallel || option.type == ShardingType::kRowWise;
}

const Option& cheapest(std::span<const Option> options, const Caps& caps) {
  const Option* best = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const Option& option : options) {
    const double value = option.total_ms + caps.price * option.total_bytes;
    if (value < least && (level_by_nature(option) || (option.ms <= caps.ms && option.bytes <= caps.bytes))) {
      least = value;
      best = &option;
    }
  }
  if (best != nullptr) {
    return *best;
  }
  for (const Option& option : options) {
    const double excess = std::max(option.ms / caps.ms, option.bytes / caps.bytes);
    if (best == nullptr || excess < least) {
      least = excess;
      best = &option;
    }
  }
  return *best;
}

}  // namespace

Selection select(const Options& options, const Caps& caps) {
  Selection selection;
  selection.options.reserve(options.tables());
  for (std::size_t table = 0; table < options.tables(); ++table) {
    const Option& option = cheapest(options.of(table), caps);
    selection.options.push_back(&option);
    selection.total_ms += option.total_ms;
    selection.total_bytes += option.total_bytes;
  }
  return selection;
}

double smallest_cap(const Options& options, Caps caps, double least, double most, double allowed) {
  const auto affordable = [&](double bytes) {
    caps.bytes = bytes;
    return select(options, caps).total_ms <= allowed;
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
