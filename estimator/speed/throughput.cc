#include "estimator/speed/throughput.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/json/edit.h"
#include "estimator/catalog/gpu_catalog.h"

namespace plimsoll::estimator::inline speed {
namespace {

constexpr double kSecondsPerHour = 3600;
constexpr double kMillion = 1e6;

JsonObject figures_of(const Throughput& throughput) {
  JsonObject json;
  json["iterationSeconds"] = rounded_text(throughput.iteration.seconds);
  json["samplesPerSecond"] = rounded_text(throughput.iteration.samples_per_second);
  json["gpuHoursPerMillionSamples"] = rounded_text(throughput.gpu_hours_per_million_samples());
  return json;
}

}  // namespace

Result<double> MinThroughput::samples_per_second(const std::optional<double>& requested) const {
  if (!is_share) {
    return value;
  }
  if (!requested) {
    return Error(
        ErrorCode::kUnsupported,
        "provisioning.minThroughput is a share of the throughput of the requested trainers, which is not "
        "known; give it in samples a second, or trainers.replicas and a GPU model of the cluster");
  }
  return value * *requested;
}

std::optional<MinThroughput> min_throughput_of(const crds::ProvisioningSpec& provisioning) {
  const std::string& text = provisioning.min_throughput;
  if (text.empty()) {
    return std::nullopt;
  }
  constexpr double kPercent = 100;
  double number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);  // the schema allows decimals alone
  const bool is_share = text.ends_with('%');
  return MinThroughput{.value = is_share ? number / kPercent : number, .is_share = is_share};
}

double Throughput::gpu_hours_per_million_samples() const {
  const double rate = iteration.samples_per_second;
  return rate > 0 ? static_cast<double>(trainers) * kMillion / rate / kSecondsPerHour : 0;
}

Json to_json(const Throughput& given, const std::optional<Throughput>& requested) {
  JsonObject json = figures_of(given);
  json["uncertainty"] = rounded_text(given.iteration.uncertainty);
  if (requested) {
    json["requested"] = figures_of(*requested).take();
  }
  return json;
}

std::string text_of(const Throughput& throughput) {
  return rounded_text(throughput.iteration.seconds) + " s an iteration, " +
         rounded_text(throughput.iteration.samples_per_second) + " samples a second, " +
         rounded_text(throughput.gpu_hours_per_million_samples()) + " GPU-hours for a million samples";
}

std::string compared_text(const Throughput& given, const Throughput& requested) {
  return gpus_text(given.trainers, given.gpu_model) + " take about " + text_of(given) +
         " (within a factor of " + rounded_text(given.iteration.uncertainty) + "); the requested " +
         gpus_text(requested.trainers, requested.gpu_model) + ": " +
         rounded_text(requested.iteration.seconds) + " s, " +
         rounded_text(requested.iteration.samples_per_second) + " samples a second, " +
         rounded_text(requested.gpu_hours_per_million_samples()) + " GPU-hours";
}

std::string rounded_text(double value) {
  constexpr double kMost = 1e18;
  if (!(value > 0 && value < kMost)) {
    return "0";
  }
  constexpr int kDigits = 3;
  constexpr int kMostDecimals = 9;
  const int decimals = kDigits - 1 - static_cast<int>(std::floor(std::log10(value)));
  const double unit = decimals < 0 ? std::pow(10, -decimals) : 0;  // what a large number is rounded to
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", std::clamp(decimals, 0, kMostDecimals),
                unit > 0 ? std::round(value / unit) * unit : value);
  return text;
}

}  // namespace plimsoll::estimator::speed
