// Memory bounds of a model family, from the attempts of its jobs: the arithmetic of the calibration
// controller, without I/O.
//
//   if (std::optional<crds::ProfileSample> sample = sample_of(job, known, gpus)) {  // one for each job
//     samples = with_sample(std::move(samples), *sample);
//     status["bounds"] = encode(bounds_of(samples));
//   }
//
// Any user may write the name of any family into a job, so the effect of one job is bounded; the constants in
// learning.cc are the bounds, docs/learning.md lists them. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/json/json.h"
#include "crds/memory_profile.h"
#include "crds/profile_samples.h"
#include "crds/training_job.h"
#include "crds/training_job_status.h"
#include "estimator/catalog/inventory.h"

namespace plimsoll::controllers {

struct LearnedJob {
  std::string uid;
  std::string namespace_name{};
  std::string name;
  std::string family{};
  std::string request_id{};  // crds/request_id.h
  crds::FailurePolicy failure_policy;
  crds::JobStatus status;
};

// The job's sample with its attempts up to the last that has ended; each counts once, by its number. Nothing
// when `known` (the job's sample so far, or null) has them all.
std::optional<crds::ProfileSample> sample_of(const LearnedJob& job, const crds::ProfileSample* known,
                                             const std::vector<estimator::AvailableGpu>& gpus);

// The samples with this one instead of an earlier one of its job; the latest kMaxSamples, latest first.
std::vector<crds::ProfileSample> with_sample(std::vector<crds::ProfileSample> samples,
                                             crds::ProfileSample sample);

// Of all GPU models that were seen, and "" for the others. By name.
std::vector<crds::LearnedBounds> bounds_of(const std::vector<crds::ProfileSample>& samples);
Json encode(const std::vector<crds::LearnedBounds>& bounds);

// status.statistics of a MemoryProfile.
Json statistics_of(const std::vector<crds::ProfileSample>& samples);

// The estimate's error of an attempt, as a share of what it needed; nothing where one of the two is unknown.
std::optional<double> relative_error(const crds::Attempt& attempt);

// The name of a family's MemoryProfile: the family's where that is a valid name; else, or when the name is
// taken, with a hash of it.
std::string profile_name(const std::string& family, bool taken = false);

}  // namespace plimsoll::controllers
