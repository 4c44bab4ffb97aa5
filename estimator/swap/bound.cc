#include "estimator/swap/bound.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "estimator/swap/partition.h"
#include "estimator/swap/task_loads.h"

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

struct Computing {
  const PassCosts& forward;
  const PassCosts& repeated;  // the forward pass within `backward`
  const PassCosts& backward;
  double forward_runs;  // microbatches of a task
  double backward_runs;
};

// Of the last backward pack, layers run forward only once, but all on one GPU, which begins when a microbatch has come through the layers
// before, and after which a microbatch goes back through them. `earliest`: the first layer at which it may begin. `beside`: seconds of
// the GPUs together, whichever it is.
double least_computing(const Computing& pass, std::size_t earliest, std::size_t layers, double beside,
                       double workers) {
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t last = earliest; last < layers; ++last) {
    const double all = pass.backward_runs * pass.backward.seconds(0, layers) +
                       pass.forward_runs * pass.forward.seconds(0, last) + beside;
    const double back = std::max(0.0, pass.backward.seconds(0, last) - pass.repeated.seconds(0, last));
    const double chain =
        pass.forward.seconds(0, last) + pass.backward_runs * pass.backward.seconds(last, layers) + back;
    least = std::min(least, std::max(all / workers, chain));
  }
  return least;
}

// The most of `saved` that layers save which stay on a GPU, if they had `memory` for themselves: the best part by part, the last one
// in part.
template <class Saved>
double most_saved(const SwapProfile& profile, double memory, const Saved& saved) {
  std::vector<std::pair<double, double>> layers;  // saved for each byte, bytes
  for (std::size_t i = 0; i < profile.layers(); ++i) {
    const double bytes = count(resident_bytes(profile, i));
    layers.emplace_back(saved(i) / std::max(bytes, 1.0), bytes);
  }
  std::sort(layers.begin(), layers.end(), std::greater<>());
  double all = 0;
  for (const auto& [of_a_byte, bytes] : layers) {
    const double kept = std::min(bytes, memory);
    all += of_a_byte * std::max(kept, 1.0);
    memory -= kept;
    if (memory <= 0) {
      break;
    }
  }
  return all;
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

  Bytes smallest = layers > 1 ? costs.profile().input[1] : Bytes{};
  for (std::size_t i = 2; i < layers; ++i) {
    smallest = std::min(smallest, costs.profile().input[i]);
  }
  const double handed = count(smallest) * samples;
  // A GPU may keep the layers that it needs for its last forward and its first backward task.
  const double turn = count(costs.moved(0, least->last));
  const double kept = pipeline && !published ? std::min(turn, gpus * count(capacity)) : 0;
  const double all_gradients = count(costs.gradients(0, layers, machine.runtime));
  double stash = handed * std::max(0.0, least->backward_packs - 2);
  if (published && least->backward_packs > 1) {
    stash += count(costs.profile().input[0]) * samples;
  }
  if (stashes_may_stay(machine)) {  // in all the memory of the GPUs that share what is counted here
    stash = std::max(0.0, stash - workers * count(capacity));
  }
  const double all_weights = count(costs.moved(0, layers)) + turn - kept;
  const double room = !copies && layers_may_stay(machine) ? gpus * count(capacity) : 0;
  const auto least_with = [&](double all, const auto& of_layer) {
    return room > 0 ? std::max(0.0, all - most_saved(costs.profile(), room, of_layer)) : all;
  };
  const auto arrives = [&](std::size_t i) {
    return count(costs.profile().moved(i)) * (i < least->last ? 2 : 1);
  };
  const auto leaves = [&](std::size_t i) { return count(costs.gradients(i, i + 1, machine.runtime)); };
  const auto moves = [&](std::size_t i) { return arrives(i) + leaves(i); };
  const double weights = least_with(all_weights, arrives);
  const double gradients = least_with(all_gradients, leaves);
  const double borders = least->forward_packs + least->backward_packs - 1;
  const bool by_p2p = pipeline && hands_over_by_p2p(machine);
  const double tasks = (least->forward_packs + least->backward_packs) * machine.task_seconds;

  double busy = tasks;  // beside computation
  if (!kind.prefetch) {
    busy += (least_with(all_weights + all_gradients, moves) + 2 * stash) / rate;
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
  const double updates = least_with(costs.update_seconds(0, layers),
                                    [&](std::size_t i) { return costs.update_seconds(i, i + 1); }) /
                         (published ? workers : 1);
  const Computing computing{.forward = *forward,
                            .repeated = *costs.forward(kind.backward_microbatch),
                            .backward = *backward,
                            .forward_runs = samples / static_cast<double>(kind.forward_microbatch),
                            .backward_runs = samples / static_cast<double>(kind.backward_microbatch)};
  return LeastWork{.gpus = least_computing(computing, least->last, layers, busy, workers),
                   .links = transfers,
                   .updates = updates};
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
