// The least time that an iteration can take under any plan: what a report of a plan is held against. Pure; any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "estimator/swap/costs.h"
#include "estimator/swap/machine.h"
#include "estimator/swap/packed_volumes.h"
#include "estimator/swap/schedule.h"

namespace plimsoll::estimator::inline swap {

// What all plans of one kind have in common. Their packs are free.
struct SwapKind {
  SwapMode mode = SwapMode::kVPP;
  std::int64_t gpus = 1;
  std::int64_t samples = 1;
  std::int64_t forward_microbatch = 1;
  std::int64_t backward_microbatch = 1;
  bool prefetch = false;
};

// What an iteration needs of each resource at least: seconds.
struct LeastWork {
  double gpus = 0;     // of each GPU: it computes and, without prefetch, waits for its transfers
  double links = 0;    // between the host and the GPUs
  double updates = 0;  // of the optimizer on the host
  double seconds() const { return std::max({gpus, links, updates}); }
};

// No packs that fit into `capacity` are faster than its seconds(): it counts the least that each GPU's streams have to do one after
// the other (without prefetch: all that its tasks do; with it, each stream for itself), spread evenly, and each link's least
// bytes. Nothing where a layer alone exceeds `capacity`, or the profile has no such microbatch.
std::optional<LeastWork> least_work(const SwapKind& kind, SwapCosts& costs, const SwapMachine& machine,
                                    Bytes capacity);

// An iteration of the plan's samples on its GPUs if their memory held the model: forward and backward with the plan's
// microbatches, without recomputation and transfers. 0 where the profile has no such microbatch.
double resident_seconds(const SwapPlan& plan, SwapCosts& costs);

}  // namespace plimsoll::estimator::swap
