// estimate_of_equal_layers(): the estimate of a transformer with very many equal layers, from estimates of
// the same model with fewer layers.
//
// The live memory at any moment of an iteration is linear in the number of layers: at the end of forward each
// layer adds its saved tensors, at the end of backward its gradients, in the optimizer step its state. So the
// peak of each of these sections (Section) is extrapolated from two numbers of layers, and a third one
// verifies that the growth is linear. The peak and its parts are then those of a simulation of all layers, to
// the byte. The memory that the allocator reserves beyond them is not exactly linear: it is assumed to grow
// as it does between the first and the last of the three.
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "base/result.h"
#include "estimator/estimate/estimate.h"
#include "estimator/estimate/initialisation.h"
#include "estimator/estimate/spec_run.h"
#include "estimator/spec/transformer_spec.h"

namespace plimsoll::estimator::inline estimate {

// Models with at most this many layers are simulated completely. The deepest published ones have 1,000
// (DeepNet, arXiv 2203.00555) and 126 (Llama 3 405B).
inline constexpr std::int64_t kMaxSimulatedLayers = 1024;

// The run for one number of layers, which the caller owns, and its estimate.
struct SimulatedLayers {
  const SpecRun* run = nullptr;  // never null
  Estimate estimate;             // of the iterations alone
  InitialEstimates initial{};
};
using SimulateLayers = std::function<Result<SimulatedLayers>(const TransformerSpec& spec)>;

// False for a model that is simulated completely whatever its growth: it has few layers, is a pipeline, or has
// unequal layers.
bool may_be_extrapolated(const EstimateRequest& request, const TransformerSpec& spec);

// Calls `simulate` with increasing numbers of layers. Returns nothing if the model must be simulated
// completely: it may not be extrapolated, or does not grow linearly. Errors: those
// of `simulate`.
Result<std::optional<Estimate>> estimate_of_equal_layers(const EstimateRequest& request,
                                                         const TransformerSpec& spec,
                                                         const SimulateLayers& simulate);

}  // namespace plimsoll::estimator::estimate
