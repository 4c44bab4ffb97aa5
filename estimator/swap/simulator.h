// simulate_swap(): how long an iteration of a plan takes, and what runs when. Each GPU has streams that run in order: weights and
// activations arrive, results leave, layers are computed, GPUs hand over to each other; the host updates layers. Transfers
// that share a root complex share its bandwidth. The events and what they wait for are those of the published simulator
// (github.com/msr-fiddle/harmony at 5fd838f, sim_data_struct.py), which published_machine() reproduces. Pure; any thread.
//
//   SwapCosts costs(profile);
//   Result<SwapTimes> times = simulate_swap(plan, costs, machine);
#pragma once

#include <cstdint>
#include <vector>

#include "base/budget.h"
#include "base/result.h"
#include "estimator/swap/costs.h"
#include "estimator/swap/machine.h"
#include "estimator/swap/packed_volumes.h"

namespace plimsoll::estimator::inline swap {

enum class SwapStream : std::uint8_t { kIn, kOut, kCompute, kP2PIn, kP2POut, kHost };
inline constexpr std::size_t kSwapStreams = 6;
const char* name_of(SwapStream stream);  // "swap in", "swap out", "compute", "P2P in", "P2P out", "host"

enum class SwapAction : std::uint8_t {
  kWeights,
  kInput,  // samples, or what the task before has handed over
  kStash,
  kGradientOfResult,
  kForward,
  kRecompute,
  kBackward,
  kResult,
  kGradientOfInput,
  kHostCopy,
  kAllReduce,
  kGradients,
  kFree,
  kUpdate,
};
inline constexpr std::size_t kSwapActions = static_cast<std::size_t>(SwapAction::kUpdate) + 1;
const char* name_of(SwapAction action);  // "weights", "input", ...

struct SwapEvent {
  SwapAction action = SwapAction::kWeights;
  SwapStream stream = SwapStream::kIn;
  std::int32_t gpu = 0;
  std::int32_t task = 0;  // of packed_tasks()
  std::int32_t microbatch = 0;
  double begin = 0;
  double end = 0;
};

struct SwapTimes {
  double seconds = 0;
  std::vector<double>
      compute_seconds;  // of each GPU: forward, recomputation and backward. Of vDP: of the first
};

// Of a layer that stays: its parameters and the optimizer's state are read and written, its gradients read, and where the host keeps
// parameters in another type, those that move written, at the bandwidth of the GPU's memory.
double resident_update_seconds(const SwapProfile& profile, std::size_t layer, const SwapMachine& machine);

// Of vDP, GPU 0 alone runs: the others do the same at the same time. `plan` as check_plan() wants it. `timeline`, if given,
// gets all events. Errors: kInvalid if the profile has no such microbatch, the machine has no bandwidth,
// or no layer stays under its runtime.
Result<SwapTimes> simulate_swap(const SwapPlan& plan, SwapCosts& costs, const SwapMachine& machine,
                                std::vector<SwapEvent>* timeline = nullptr, Budget* budget = nullptr);

}  // namespace plimsoll::estimator::swap
