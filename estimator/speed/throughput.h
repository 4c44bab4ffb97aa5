// What a job requires of its throughput, and how the time of its iterations is reported.
//
//   const std::optional<MinThroughput> required = min_throughput_of(spec.provisioning);
//   if (required) rate = required->samples_per_second(requested);
//
// Times are those of speed/iteration_time.h. Values; const methods and functions on any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json/json.h"
#include "base/result.h"
#include "crds/training_job.h"
#include "estimator/speed/iteration_time.h"

namespace plimsoll::estimator::inline speed {

// provisioning.minThroughput.
struct MinThroughput {
  double value = 0;       // samples a second, or the share
  bool is_share = false;  // of the requested trainers' throughput

  // Samples a second. `requested`: of the requested trainers; where that is not known, a share has no value. Errors:
  // kUnsupported.
  Result<double> samples_per_second(const std::optional<double>& requested) const;
};

// Nothing: any throughput will do.
std::optional<MinThroughput> min_throughput_of(const crds::ProvisioningSpec& provisioning);

// The time of one iteration of a number of trainers of a GPU model.
struct Throughput {
  std::string gpu_model;
  std::int64_t trainers = 0;
  IterationTime iteration;

  double gpu_hours_per_million_samples() const;
};

// As in status.throughput: {"iterationSeconds", "samplesPerSecond", "gpuHoursPerMillionSamples", "uncertainty"} and,
// where it is known, "requested" with the first three of these. Fractions are text, as everywhere in the API.
Json to_json(const Throughput& given, const std::optional<Throughput>& requested);

// "0.412 s an iteration, 1553 samples a second, 11.4 GPU-hours for a million samples"
std::string text_of(const Throughput& throughput);

// Both, as one sentence.
std::string compared_text(const Throughput& given, const Throughput& requested);

// Three significant digits without an exponent: "0.0412", "1550".
std::string rounded_text(double value);

}  // namespace plimsoll::estimator::speed
