// estimate_of_equal_layers(): the estimate of a transformer of very many equal layers, from estimates of the
// same model with fewer layers.
//
// What lives at any moment of an iteration grows along a straight line with the number of layers: at the end
// of forward by what a layer saves, at the end of backward by its gradients, in the optimizer's step by its
// state. So the highest moment of each of these sections (Section) is known for any number of layers from two
// others, and a third proves that the growth is straight. The peak and its parts are then those of a
// simulation of all layers, to the byte. What the allocator holds beyond them follows no exact line: it is
// taken to grow as it does between the first and the last of the three.
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "base/result.h"
#include "estimator/estimate/estimate.h"
#include "estimator/estimate/spec_run.h"
#include "estimator/spec/transformer_spec.h"

namespace plimsoll::estimator::inline estimate {

// Models of at most so many layers are simulated whole. The deepest published ones have 1,000 (DeepNet, arXiv
// 2203.00555) and 126 (Llama 3 405B).
inline constexpr std::int64_t kMaxSimulatedLayers = 1024;

// One simulated number of layers: its run, which the caller keeps, and the estimate that rests on it.
struct SimulatedLayers {
  const SpecRun* run = nullptr;  // never null
  Estimate estimate;
};
using SimulateLayers = std::function<Result<SimulatedLayers>(const TransformerSpec& spec)>;

// `simulate` is called with ever more layers. Nothing where the model must be simulated whole: it has few
// layers, is divided into stages, has other layers than equal ones, or grows along no straight line. Errors:
// simulate's.
Result<std::optional<Estimate>> estimate_of_equal_layers(const EstimateRequest& request,
                                                         const TransformerSpec& spec,
                                                         const SimulateLayers& simulate);

}  // namespace plimsoll::estimator::estimate
