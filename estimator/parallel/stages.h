// Which operators of a recorded model belong to which stage of a pipeline. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/budget.h"
#include "base/result.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline parallel {

// By operator, the part of the model among `parts` that runs it. `blocks`: modules by their path, `*` is any
// one name; none: members of lists. Errors: kInvalid where there are fewer blocks than parts, or a pattern
// matches none.
Result<std::vector<std::int32_t>> parts_of_operators(const Trace& trace, std::int64_t parts,
                                                     const std::vector<std::string>& blocks,
                                                     Budget* budget = nullptr);

}  // namespace plimsoll::estimator::parallel
