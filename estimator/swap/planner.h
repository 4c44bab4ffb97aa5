// plan_swap(): how a model that exceeds the GPUs' memory trains fastest through host memory. It tries all pairs of microbatches,
// cuts packs by Harmony's heuristics, by even times and by dynamic programming, and improves the best ones step by step; each is
// simulated. Deterministic: it gives up after a number of events, not of seconds. Pure; any thread.
//
//   Result<PlannedSwap> planned = plan_swap({.profile = &profile, .gpus = 4, .samples = 64, .capacity = 10_GiB, .machine = machine});
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "base/budget.h"
#include "base/bytes.h"
#include "base/result.h"
#include "estimator/swap/bound.h"
#include "estimator/swap/machine.h"
#include "estimator/swap/memory.h"
#include "estimator/swap/packed_volumes.h"
#include "estimator/swap/profile.h"

namespace plimsoll::estimator::inline swap {

struct SwapRequest {
  const SwapProfile* profile = nullptr;  // with times
  std::int64_t gpus = 1;
  std::int64_t samples = 1;          // of an iteration, of all GPUs together
  Bytes capacity{};                  // of a GPU
  Bytes host_memory = Bytes::max();  // that the plan's tensors may take of the host
  SwapMachine machine;
  std::optional<SwapMode> mode;  // kVDP or kVPP; nothing: the faster one
  std::optional<bool> prefetch;  // nothing: the faster one
  double seconds_to_beat =
      std::numeric_limits<double>::infinity();  // of an iteration; plans that take as long are of no use
  Budget* budget = nullptr;
  // Called now and then with the share of the search that is done, and the best time so far.
  std::function<void(double, double)> progress;
};

// The plans of one kind: what bounds them, and how far the search came.
struct ConsideredKind {
  SwapKind kind;
  LeastWork least;
  double seconds = std::numeric_limits<double>::infinity();  // of its best plan; infinity: none was simulated
};

struct PlannedSwap {
  SwapPlan plan;
  double seconds = 0;        // of an iteration
  double bound_seconds = 0;  // no plan for this request takes less
  Bytes device_memory{};
  SwapHostMemory host;
  PackedVolumes volumes;
  // Of each layer: what a model's layers are compared with before and while they are trained.
  std::vector<Bytes> weights;
  std::vector<Bytes> inputs;   // for one sample
  std::int64_t simulated = 0;  // plans
  std::vector<ConsideredKind>
      considered;  // by their bounds; of those above `seconds` none needs to be simulated
};

inline constexpr std::size_t kMaxPlannedLayers = 2000;
inline constexpr std::int64_t kMaxSwapGpus = 64;  // of a node

// Errors: kInvalid for a request that is wrong; kUnfittable where one layer exceeds a GPU, with the layer and its bytes, where all
// plans exceed the host, with the bytes of the one that takes least, or where no plan is faster than seconds_to_beat.
Result<PlannedSwap> plan_swap(const SwapRequest& request);

}  // namespace plimsoll::estimator::swap
