// The part of kubectl's JSONPath that printer columns use: .spec.a['b\.c'][0].d[*].e[?(@.type=="Ready")].f,
// with \. for a dot inside a name. Pure function; any thread.
#pragma once

#include <string>
#include <vector>

#include "base/json/json.h"

namespace plimsoll::testing::fake {

// All values at the path; none when nothing matches or the syntax is not supported.
std::vector<const Json*> values_at(const Json& object, const std::string& path);

}  // namespace plimsoll::testing::fake
