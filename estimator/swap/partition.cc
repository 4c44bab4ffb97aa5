#include "estimator/swap/partition.h"

#include <algorithm>
#include <limits>

namespace plimsoll::estimator::inline swap {
namespace {

constexpr int kHalvings = 40;  // of the interval in which the largest cost is looked for

bool all_fit(const Packs& packs, std::size_t layers, const PackFits& fits) {
  for (std::size_t i = 0; i < packs.size(); ++i) {
    if (fits(packs[i], i + 1 < packs.size() ? packs[i + 1] : layers) != PackFit::kFits) {
      return false;
    }
  }
  return true;
}

// Each pack is filled up to `most`, from the first one. Nothing where one layer exceeds it.
std::optional<Packs> packs_below(std::size_t layers, const PackFits& fits, const PackCost& cost,
                                 double most) {
  Packs packs;
  std::size_t first = 0;
  while (first < layers) {
    std::size_t longest = first;
    for (std::size_t end = first + 1; end <= layers && cost(first, end) <= most; ++end) {
      const PackFit fit = fits(first, end);
      if (fit == PackFit::kTooLarge) {
        break;
      }
      longest = fit == PackFit::kFits ? end : longest;
    }
    if (longest == first) {
      return std::nullopt;
    }
    packs.push_back(first);
    first = longest;
  }
  return packs;
}

}  // namespace

std::optional<Packs> filled_packs(std::size_t layers, const PackFits& fits) {
  Packs packs;
  std::size_t end = layers;
  while (end > 0) {
    std::size_t longest = end;
    for (std::size_t first = end; first-- > 0;) {
      const PackFit fit = fits(first, end);
      if (fit == PackFit::kTooLarge) {
        break;
      }
      longest = fit == PackFit::kFits ? first : longest;
    }
    if (longest == end) {
      return std::nullopt;
    }
    packs.push_back(longest);
    end = longest;
  }
  std::reverse(packs.begin(), packs.end());
  return packs;
}

std::optional<Packs> equal_packs(std::size_t layers, const PackFits& fits, const PackCost& cost,
                                 std::size_t fewest) {
  for (std::size_t count = std::max<std::size_t>(1, fewest); count <= layers; ++count) {
    Packs packs{0};
    const double part = cost(0, layers) / static_cast<double>(count);
    for (std::size_t layer = 0; layer < layers && packs.size() < count; ++layer) {
      if (cost(0, layer + 1) >= part * static_cast<double>(packs.size())) {
        packs.push_back(layer);
      }
    }
    const bool rising = std::adjacent_find(packs.begin(), packs.end(), std::greater_equal<>()) == packs.end();
    if (rising && packs.size() == count && all_fit(packs, layers, fits)) {
      return packs;
    }
  }
  return std::nullopt;
}

std::optional<Packs> even_packs(std::size_t layers, const PackFits& fits, const PackCost& cost,
                                std::size_t packs) {
  double low = 0;
  double high = cost(0, layers);
  std::optional<Packs> best = packs_below(layers, fits, cost, high);
  if (!best || best->size() > packs) {
    return std::nullopt;
  }
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    std::optional<Packs> found = packs_below(layers, fits, cost, middle);
    if (found && found->size() <= packs) {
      best = std::move(found);
      high = middle;
    } else {
      low = middle;
    }
  }
  return best;
}

std::optional<Packs> cheapest_packs(std::size_t layers, const PackFits& fits, const PackCost& cost) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<double> least(layers + 1, kNever);
  std::vector<std::size_t> from(layers + 1);
  least[0] = 0;
  for (std::size_t end = 1; end <= layers; ++end) {
    for (std::size_t first = end; first-- > 0;) {
      const PackFit fit = fits(first, end);
      if (fit == PackFit::kTooLarge) {
        break;
      }
      const double sum = least[first] + cost(first, end);
      if (fit == PackFit::kFits && sum < least[end]) {
        least[end] = sum;
        from[end] = first;
      }
    }
  }
  if (least[layers] == kNever) {
    return std::nullopt;
  }
  Packs packs;
  for (std::size_t end = layers; end > 0; end = from[end]) {
    packs.push_back(from[end]);
  }
  std::reverse(packs.begin(), packs.end());
  return packs;
}

}  // namespace plimsoll::estimator::swap
