// The part of kubectl's JSONPath that printer columns use: .spec.a['b\.c'][0].d[*].e[?(@.type=="Ready")].f,
// with \. for a dot inside a name. Pure function; any thread.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace plimsoll::testing::fake {

// All values at the path; none when it leads nowhere or is not understood.
std::vector<const Json*> values_at(const Json& object, const std::string& path);

}  // namespace plimsoll::testing::fake
