// Assigns the operators of a trace to the stages of a pipeline. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/budget.h"
#include "base/result.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline parallel {

// By operator: the part, of `parts` parts of the model, that runs it. `blocks`: module paths, `*` matches any
// one name; empty: blocks are the members of lists. Errors: kInvalid if there are fewer blocks than parts, or
// a pattern matches nothing.
Result<std::vector<std::int32_t>> parts_of_operators(const Trace& trace, std::int64_t parts,
                                                     const std::vector<std::string>& blocks,
                                                     Budget* budget = nullptr);

}  // namespace plimsoll::estimator::parallel
