// GPU-hours of a job: what its attempts held, and what the requested trainers would have held for the same samples.
//
//   add_gpu_hours(status, ended_attempt);       // once, when the attempt has ended
//
// Pure; any thread.
#pragma once

#include <optional>
#include <string>

#include "crds/training_job_status.h"

namespace plimsoll::controllers {

// From the creation of the attempt's Job to its end; 0 for an attempt that has not started or not ended.
double gpu_hours_of(const crds::Attempt& attempt);

// Adds them to status.gpuHours, and, where the speed of the given and of the requested trainers is known, what the
// latter would have held besides to status.gpuHoursSaved (negative where they would have held less).
void add_gpu_hours(crds::JobStatus& status, const crds::Attempt& attempt);

// The number in one of these fields; nothing if it is not one.
std::optional<double> gpu_hours_in(const std::string& text);

}  // namespace plimsoll::controllers
