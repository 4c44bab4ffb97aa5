// Durations as Go and Kubernetes write them: "10s", "1m30s", "1.5s", "250ms", "0s". Pure; any thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace plimsoll {

// Nothing for what is not a duration in the units h, m, s and ms, is negative, or exceeds the limit.
std::optional<std::chrono::milliseconds> parse_duration(
    const std::string& text, std::chrono::milliseconds limit = std::chrono::hours(24));

}  // namespace plimsoll
