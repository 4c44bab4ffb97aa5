#include "remediation/signposts.h"

#include <algorithm>
#include <string_view>

#include "base/json/view.h"

namespace plimsoll::remediation {
namespace {

// A kubelet keeps 12 KiB of a pod's messages (core/v1, terminationMessagePath).
constexpr std::size_t kMaxMessage = 12'288;

// No card has more.
constexpr Bytes kMaxMemory = 4096_GiB;

// A second. No host's memory and no link is faster.
constexpr Bytes kMaxBandwidth = 100'000_GiB;

constexpr std::string_view kBegin = "{\"plimsoll\":";

std::optional<Bytes> bytes_of(const Json& signpost, const char* name) {
  const std::optional<std::int64_t> value = JsonView(member(signpost, {name})).integer();
  if (!value || *value < 0 || Bytes{*value} > kMaxMemory) {
    return std::nullopt;
  }
  return Bytes{*value};
}

std::optional<Bytes> bandwidth_of(const Json& signpost, const char* name) {
  const std::optional<std::int64_t> value = JsonView(member(signpost, {name})).integer();
  return value && *value > 0 && Bytes{*value} <= kMaxBandwidth ? std::optional(Bytes{*value}) : std::nullopt;
}

void read_line(std::string_view line, Signposts& seen) {
  if (!line.starts_with(kBegin)) {
    return;
  }
  const Result<Json> parsed = parse_json(line);
  if (!parsed || member(*parsed, {"plimsoll"}) != Json(1)) {
    return;
  }
  const std::optional<Bytes> capacity = bytes_of(*parsed, "capacityBytes");
  const auto figure = [&](const char* name) {
    const std::optional<Bytes> bytes = bytes_of(*parsed, name);
    // A figure above the capacity cannot be true.
    return bytes && capacity && *bytes > *capacity ? std::nullopt : bytes;
  };
  const std::optional<Bytes> reserved = figure("reservedBytes");
  const std::optional<Bytes> context = figure("contextBytes");
  std::optional<Bytes> used = figure("deviceUsedBytes");
  if (text_member(*parsed, {"stage"}) == "peak" && used && reserved && context) {
    seen.communication =
        std::max(seen.communication, std::optional(std::max(Bytes{}, *used - *reserved - *context)));
  }
  if (reserved && context) {
    used = std::max(used, std::optional(*reserved + *context));
  }
  const std::optional<Bytes> in = bandwidth_of(*parsed, "hostToDeviceBytesPerSecond");
  const std::optional<Bytes> out = bandwidth_of(*parsed, "deviceToHostBytesPerSecond");
  seen.host_bandwidth = std::max(seen.host_bandwidth, in && out ? std::min(in, out) : std::max(in, out));
  seen.host_update_bandwidth =
      std::max(seen.host_update_bandwidth, bandwidth_of(*parsed, "hostUpdateBytesPerSecond"));
  const Json& training = member(*parsed, {"training"});
  seen.in_training += training == Json(true) ? 1 : 0;
  if (training == Json(false)) {
    ++seen.in_startup;
    seen.startup = std::max(seen.startup, used);
  }
  seen.peak = std::max(seen.peak, used);
  seen.allocated = std::max(seen.allocated, figure("allocatedBytes"));
  seen.reserved = std::max(seen.reserved, reserved);
  seen.context = std::max(seen.context, context);
  seen.lines += used || reserved || context ? 1 : 0;
}

void read_message(const std::string& text, Signposts& seen) {
  std::string_view rest = std::string_view(text).substr(0, kMaxMessage);
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    read_line(rest.substr(0, end), seen);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
}

}  // namespace

Signposts read_signposts(const std::vector<Json>& pods) {
  Signposts seen;
  for (const Json& pod : pods) {
    for (const Json& status : member(pod, {"status", "containerStatuses"})) {
      read_message(text_member(status, {"lastState", "terminated", "message"}), seen);
      read_message(text_member(status, {"state", "terminated", "message"}), seen);
    }
  }
  return seen;
}

}  // namespace plimsoll::remediation
