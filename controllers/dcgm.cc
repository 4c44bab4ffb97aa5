#include "controllers/dcgm.h"

#include <charconv>
#include <cmath>

#include "base/clock.h"
#include "base/json/edit.h"
#include "kube/resource.h"

namespace plimsoll::controllers {
namespace {

// The exporter's default interval is 30 s: a sample from just before the start may be the attempt's, too.
constexpr std::int64_t kSlack = 30;
// Prometheus keeps two weeks by default.
constexpr std::int64_t kMaxSeconds = std::int64_t{14} * 24 * 3600;

}  // namespace

std::string dcgm_query(const std::string& namespace_name, const std::string& job_name, std::int64_t attempt,
                       std::int64_t seconds) {
  // Pods of an Indexed Job: <Job>-<index>-<five characters>. Where the scrape does not honour the exporter's
  // labels, Prometheus renames them exported_*.
  const std::string pods = job_name + "-" + std::to_string(attempt) + "-[0-9]+-[a-z0-9]+";
  const std::string range = "[" + std::to_string(seconds) + "s]";
  const auto series = [&](const std::string& prefix) {
    return "max(max_over_time(DCGM_FI_DEV_FB_USED{" + prefix + "namespace=\"" + namespace_name + "\"," +
           prefix + "pod=~\"" + pods + "\"}" + range + "))";
  };
  return series("exported_") + " or " + series("");
}

Result<std::optional<Bytes>> read_dcgm_answer(const std::string& body) {
  const Result<Json> answer = parse_json(body);
  if (!answer || text_member(*answer, {"status"}) != "success") {
    return invalid("Prometheus did not answer the query for DCGM_FI_DEV_FB_USED: " +
                       (answer ? text_member(*answer, {"error"}, "no status") : answer.error().message),
                   body.substr(0, 200));
  }
  const Json& result = member(*answer, {"data", "result"});
  if (!result.isArray()) {
    return invalid("Prometheus' answer has no data.result", body.substr(0, 200));
  }
  std::optional<Bytes> peak;
  for (const Json& series : result) {
    const Json& value = member(series, {"value"});
    const std::string text = text_member(element(value, 1), {});
    if (value.size() != 2 || text.empty()) {
      continue;
    }
    double mib = 0;  // the gauge's unit (dcgm-exporter, etc/default-counters.csv)
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), mib);
    if (failure == std::errc() && end == text.data() + text.size() && std::isfinite(mib) && mib > 0) {
      const Bytes bytes = Bytes::ceil(mib * 1024 * 1024);
      peak = std::max(peak.value_or(Bytes{}), bytes);
    }
  }
  return peak;
}

Result<std::optional<Bytes>> dcgm_peak(kube::Client& prometheus, const std::string& namespace_name,
                                       const std::string& job_name, const crds::Attempt& attempt,
                                       const kube::CallOptions& options) {
  const std::optional<Clock::WallTime> began = parse_time(attempt.start_time);
  const std::optional<Clock::WallTime> ended = parse_time(attempt.completion_time);
  if (!began || !ended || *ended <= *began) {
    return std::optional<Bytes>();
  }
  const std::int64_t seconds = std::min(
      std::chrono::duration_cast<std::chrono::seconds>(*ended - *began).count() + kSlack, kMaxSeconds);
  const Result<std::string> body = prometheus.get_raw(
      "/api/v1/query?query=" +
          kube::percent_encode(dcgm_query(namespace_name, job_name, attempt.number, seconds)) +
          "&time=" + kube::percent_encode(attempt.completion_time),
      options);
  if (!body) {
    return body.error().within("query Prometheus for DCGM_FI_DEV_FB_USED");
  }
  return read_dcgm_answer(*body);
}

}  // namespace plimsoll::controllers
