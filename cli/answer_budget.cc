#include "cli/answer_budget.h"

#include <optional>
#include <string>

#include "base/duration.h"

namespace plimsoll::cli {
namespace {

constexpr const char* kOption = "timeout";

}  // namespace

void add_timeout_option(po::options_description& options) {
  options.add_options()(kOption,
                        po::value<std::string>()
                            ->default_value(std::to_string(kDefaultTimeout.count()) + "s")
                            ->value_name("TIME"),
                        "how long an answer may take, as 90s, 5m or 2h");
}

std::chrono::milliseconds read_timeout(OptionReader& options) {
  if (!options.given(kOption)) {
    return kDefaultTimeout;
  }
  const std::optional<std::chrono::milliseconds> timeout = parse_duration(options.text(kOption));
  const bool right = timeout && *timeout >= std::chrono::seconds(1);
  options.require(right, "--timeout must be a duration from 1s to 24h, as 90s, 5m or 2h",
                  options.text(kOption));
  return right ? *timeout : kDefaultTimeout;
}

}  // namespace plimsoll::cli
