#include "estimator/swap/bound.h"

#include <algorithm>

#include "estimator/swap/partition.h"

namespace plimsoll::estimator::inline swap {
namespace {

double count(Bytes bytes) {
  return static_cast<double>(bytes.count);
}

// The fewest packs, and the longest last backward pack, whose layers run forward only once.
struct Least {
  std::size_t last = 0;  // no plan's last backward pack begins before this layer
  double forward_packs = 0;
  double backward_packs = 0;
};

std::optional<Least> least_packs(const PassCosts& forward, const PassCosts& backward, std::size_t layers,
                                 Bytes capacity) {
  const auto fits = [&](const PassCosts& pass) {
    return [&pass, capacity](std::size_t first, std::size_t end) {
      return pass.memory(first, end) <= capacity ? PackFit::kFits : PackFit::kTooLarge;
    };
  };
  const std::optional<Packs> backwards = filled_packs(layers, fits(backward));
  if (!backwards) {
    return std::nullopt;
  }
  Least least{.last = backwards->back(), .backward_packs = static_cast<double>(backwards->size())};
  if (least.last > 0) {
    const std::optional<Packs> forwards = filled_packs(least.last, fits(forward));
    if (!forwards) {
      return std::nullopt;
    }
    least.forward_packs = static_cast<double>(forwards->size());
  }
  return least;
}

}  // namespace

std::optional<LeastWork> least_work(const SwapKind& kind, SwapCosts& costs, const SwapMachine& machine,
                                    Bytes capacity) {
  const PassCosts* const forward = costs.forward(kind.forward_microbatch);
  const PassCosts* const backward = costs.backward(kind.backward_microbatch);
  const std::size_t layers = costs.layers();
  if (forward == nullptr || backward == nullptr || costs.forward(kind.backward_microbatch) == nullptr) {
    return std::nullopt;
  }
  const std::optional<Least> least = least_packs(*forward, *backward, layers, capacity);
  if (!least) {
    return std::nullopt;
  }
  const bool copies = kind.mode == SwapMode::kVDP;
  const bool pipeline = !copies && kind.gpus > 1;
  const bool published = machine.runtime == SwapRuntime::kPublished;
  const double gpus = static_cast<double>(kind.gpus);
  const double workers = copies ? 1 : gpus;  // that share what is counted below
  const double samples = static_cast<double>(kind.samples) / (copies ? gpus : 1);
  const double of_a_root = static_cast<double>(
      machine.gpus_per_root == 0 ? kind.gpus : std::min(machine.gpus_per_root, kind.gpus));
  const bool fixed = machine.fixed_shares || copies;
  const double rate = machine.host_bandwidth / (fixed ? of_a_root : 1);  // at most, of one GPU

  const double compute =
      samples / static_cast<double>(kind.backward_microbatch) * backward->seconds(0, layers) +
      samples / static_cast<double>(kind.forward_microbatch) * forward->seconds(0, least->last);
  Bytes smallest = layers > 1 ? costs.profile().input[1] : Bytes{};
  for (std::size_t i = 2; i < layers; ++i) {
    smallest = std::min(smallest, costs.profile().input[i]);
  }
  const double handed = count(smallest) * samples;
  // A GPU may keep the layers that it needs for its last forward and its first backward task.
  const double turn = count(costs.moved(0, least->last));
  const double kept = pipeline && !published ? std::min(turn, gpus * count(capacity)) : 0;
  const double gradients = count(costs.gradients(0, layers, machine.runtime));
  double stash = handed * std::max(0.0, least->backward_packs - 2);
  if (published && least->backward_packs > 1) {
    stash += count(costs.profile().input[0]) * samples;
  }
  const double weights = count(costs.moved(0, layers)) + turn - kept;
  const double borders = least->forward_packs + least->backward_packs - 1;
  const bool by_p2p = pipeline && hands_over_by_p2p(machine);
  const double tasks = (least->forward_packs + least->backward_packs) * machine.task_seconds;

  double busy = compute + tasks;
  if (!kind.prefetch) {
    busy += (weights + gradients + 2 * stash) / rate;
    if (pipeline) {
      busy += borders * handed / std::max(rate, by_p2p ? machine.p2p_bandwidth : 0);
    } else {
      busy += 2 * borders * handed / rate;
    }
  }
  if (copies && kind.gpus > 1) {
    const double bandwidth = machine.p2p_bandwidth > 0 ? machine.p2p_bandwidth : machine.host_bandwidth / 2;
    busy += (published ? 2 * (gpus - 1) / gpus : gpus - 1) * gradients / bandwidth;
  }
  const double roots = fixed ? 1 : std::max(1.0, gpus / of_a_root);
  const double link = fixed ? rate * workers : machine.host_bandwidth * roots;
  const double through_host = by_p2p ? 0 : borders * handed;
  const double transfers = std::max(weights + stash + through_host, gradients + stash + through_host) / link;
  const double updates = costs.update_seconds(0, layers) / (published ? workers : 1);
  return LeastWork{.gpus = busy / workers, .links = transfers, .updates = updates};
}

double resident_seconds(const SwapPlan& plan, SwapCosts& costs) {
  const PassCosts* const forward = costs.forward(plan.forward_microbatch);
  const PassCosts* const repeated = costs.forward(plan.backward_microbatch);
  const PassCosts* const backward = costs.backward(plan.backward_microbatch);
  if (forward == nullptr || repeated == nullptr || backward == nullptr) {
    return 0;
  }
  const std::size_t layers = costs.layers();
  const double samples = static_cast<double>(plan.samples) / static_cast<double>(plan.gpus);
  return samples / static_cast<double>(plan.forward_microbatch) * forward->seconds(0, layers) +
         samples / static_cast<double>(plan.backward_microbatch) *
             (backward->seconds(0, layers) - repeated->seconds(0, layers));
}

}  // namespace plimsoll::estimator::swap
