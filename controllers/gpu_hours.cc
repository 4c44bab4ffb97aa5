#include "controllers/gpu_hours.h"

#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "base/clock.h"
#include "base/json/edit.h"

namespace plimsoll::controllers {
namespace {

std::string text_of(double hours) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", hours);
  return text;
}

}  // namespace

std::optional<double> gpu_hours_in(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

double gpu_hours_of(const crds::Attempt& attempt) {
  const std::optional<Clock::WallTime> begun = parse_time(attempt.start_time);
  const std::optional<Clock::WallTime> ended = parse_time(attempt.completion_time);
  if (!begun || !ended || *ended < *begun) {
    return 0;
  }
  const std::chrono::duration<double, std::ratio<3600>> hours = *ended - *begun;
  return hours.count() * static_cast<double>(attempt.trainers);
}

void add_gpu_hours(crds::JobStatus& status, const crds::Attempt& attempt) {
  const double held = gpu_hours_of(attempt);
  if (held <= 0) {
    return;
  }
  status.gpu_hours = text_of(gpu_hours_in(status.gpu_hours).value_or(0) + held);
  constexpr const char* kRate = "gpuHoursPerMillionSamples";
  const std::optional<double> given = gpu_hours_in(text_member(status.throughput, {kRate}));
  const std::optional<double> requested = gpu_hours_in(text_member(status.throughput, {"requested", kRate}));
  if (given && requested && *given > 0) {
    const double saved = held * (*requested / *given - 1);
    status.gpu_hours_saved = text_of(gpu_hours_in(status.gpu_hours_saved).value_or(0) + saved);
  }
}

}  // namespace plimsoll::controllers
