// An exported graph (docs/graph.md) of many equal blocks, Linear(64, 64) each, called "blocks.0" and so on.
#pragma once

#include <string>

namespace plimsoll::testing {

std::string long_graph(int blocks);

}  // namespace plimsoll::testing
