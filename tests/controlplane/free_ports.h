// Ports of 127.0.0.1 for servers that cannot choose one themselves.
#pragma once

#include <cstddef>
#include <vector>

namespace plimsoll::testing {

// Ports that nobody listens on now, all different; fewer where the machine has no more. Free when chosen, not
// when bound: another process may come first. Any thread.
std::vector<int> free_ports(std::size_t count);

// Whether a server takes connections there. Any thread.
bool is_listening(int port);

}  // namespace plimsoll::testing
