#include "base/duration.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace plimsoll {
namespace {

constexpr std::array<std::pair<std::string_view, double>, 4> kUnits = {
    {{"ms", 1}, {"s", 1'000}, {"m", 60'000}, {"h", 3'600'000}}};

}  // namespace

std::optional<std::chrono::milliseconds> parse_duration(const std::string& text,
                                                        std::chrono::milliseconds limit) {
  double total = 0;
  const char* at = text.c_str();
  do {
    if (std::isdigit(static_cast<unsigned char>(*at)) == 0) {
      return std::nullopt;
    }
    char* end = nullptr;
    const double number = std::strtod(at, &end);
    const std::string_view rest(end);
    const auto* unit = std::find_if(kUnits.begin(), kUnits.end(), [&](const auto& candidate) {
      return rest.substr(0, candidate.first.size()) == candidate.first;
    });
    if (unit == kUnits.end()) {
      return std::nullopt;
    }
    total += number * unit->second;
    at = end + unit->first.size();
  } while (*at != '\0');
  if (!(total <= static_cast<double>(limit.count()))) {
    return std::nullopt;
  }
  return std::chrono::milliseconds(static_cast<std::int64_t>(total));
}

}  // namespace plimsoll
