#include "cli/answer_budget.h"

#include <string>
#include <string_view>

#include "base/number.h"

namespace plimsoll::cli {
namespace {

constexpr const char* kOption = "timeout";
constexpr std::int64_t kMaxSeconds = 24 * 3600;

// 0 for anything else than a whole number of seconds, minutes or hours.
std::int64_t seconds_of(std::string_view text) {
  std::int64_t unit = 1;
  for (const auto& [suffix, seconds] : {std::pair("s", 1), std::pair("m", 60), std::pair("h", 3600)}) {
    if (text.ends_with(suffix)) {
      unit = seconds;
      text.remove_suffix(1);
      break;
    }
  }
  const std::int64_t count = parse_number<std::int64_t>(text).value_or(0);
  return count < 0 || count > kMaxSeconds ? 0 : count * unit;
}

}  // namespace

void add_timeout_option(po::options_description& options) {
  options.add_options()(kOption,
                        po::value<std::string>()
                            ->default_value(std::to_string(kDefaultTimeout.count()) + "s")
                            ->value_name("TIME"),
                        "how long an answer may take, as 90s, 5m or 2h");
}

std::chrono::seconds read_timeout(OptionReader& options) {
  if (!options.given(kOption)) {
    return kDefaultTimeout;
  }
  const std::int64_t seconds = seconds_of(options.text(kOption));
  const bool right = seconds >= 1 && seconds <= kMaxSeconds;
  options.require(right, "--timeout must be a time from 1s to 24h, as 90s, 5m or 2h", options.text(kOption));
  return right ? std::chrono::seconds(seconds) : kDefaultTimeout;
}

}  // namespace plimsoll::cli
