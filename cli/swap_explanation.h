// `plimsoll swap --explain`: what bounds an iteration, and which kinds of plans the search considered. Pure; any thread.
#pragma once

#include <string>

#include "base/json/edit.h"
#include "estimator/swap/planner.h"

namespace plimsoll::cli {

// For people: the most promising kinds, one in each line.
std::string swap_explanation_text(const estimator::PlannedSwap& planned);

// For programs: all kinds. {leastSeconds: {gpus, links, updates}, considered: [{mode, microbatch: {forward, backward}, prefetch,
// lowerBoundSeconds, iterationSeconds}]}; iterationSeconds is null where no plan of the kind was simulated.
JsonObject swap_explanation_json(const estimator::PlannedSwap& planned);

}  // namespace plimsoll::cli
