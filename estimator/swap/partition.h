// Ways to cut layers into packs. Packs are named by their first layers. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace plimsoll::estimator::inline swap {

using Packs = std::vector<std::size_t>;

enum class PackFit : std::uint8_t {
  kFits,
  kNotHere,   // the borders are wrong; more or fewer layers may fit
  kTooLarge,  // and so are these layers with others
};
using PackFits = std::function<PackFit(std::size_t first, std::size_t end)>;
using PackCost = std::function<double(std::size_t first, std::size_t end)>;  // rises with the layers

// Each pack is filled up, from the last one. As the two below that name one, a heuristic of Harmony's scheduler
// (github.com/msr-fiddle/harmony at 5fd838f, layer_packing.py). Nothing where one layer does not fit.
std::optional<Packs> filled_packs(std::size_t layers, const PackFits& fits);

// The fewest packs, at least `fewest`, that fit when they are cut where equal parts of the cost end (balanced_memory_packing,
// balanced_time_packing).
std::optional<Packs> equal_packs(std::size_t layers, const PackFits& fits, const PackCost& cost,
                                 std::size_t fewest);

// At most `packs`, so that the largest cost is the least.
std::optional<Packs> even_packs(std::size_t layers, const PackFits& fits, const PackCost& cost,
                                std::size_t packs);

// So that the sum of the costs is the least: by dynamic programming over the packs' ends.
std::optional<Packs> cheapest_packs(std::size_t layers, const PackFits& fits, const PackCost& cost);

}  // namespace plimsoll::estimator::swap
