// Learning: what the attempts of a job teach about its model family, and what the jobs of a family teach
// together. The arithmetic of the calibration controller, without I/O.
//
//   std::optional<ProfileSample> sample = sample_of(job, known, gpus);   // one a job; nothing: nothing new
//   samples = remembered(std::move(samples), *sample);
//   status["bounds"] = encode(bounds_of(samples));
//
// A family is a name that anybody may write into a job, so that what one job can do is bounded; each constant
// in learning.cc says by how much, docs/learning.md lists them. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/json.h"
#include "crds/memory_profile.h"
#include "crds/profile_samples.h"
#include "crds/training_job.h"
#include "crds/training_job_status.h"
#include "estimator/catalog/inventory.h"

namespace plimsoll::controllers {

struct TaughtJob {
  std::string uid;
  std::string name;
  crds::FailurePolicy failure_policy;
  crds::JobStatus status;
};

// The job's sample with its attempts up to the last that has ended; each counts once, by its number. Nothing
// when `known` (what is remembered of the job, or null) has them all.
std::optional<crds::ProfileSample> sample_of(const TaughtJob& job, const crds::ProfileSample* known,
                                             const std::vector<estimator::AvailableGpu>& gpus);

// With the sample in the place of an earlier one of its job; the latest kMaxSamples, latest first.
std::vector<crds::ProfileSample> remembered(std::vector<crds::ProfileSample> samples,
                                            crds::ProfileSample sample);

// Of all GPU models that were seen, and "" for the others. By name.
std::vector<crds::LearnedBounds> bounds_of(const std::vector<crds::ProfileSample>& samples);
Json encode(const std::vector<crds::LearnedBounds>& bounds);

// status.statistics of a MemoryProfile.
Json statistics_of(const std::vector<crds::ProfileSample>& samples);

// The estimate's error of an attempt, as a share of what it needed; nothing where one of the two is unknown.
std::optional<double> relative_error(const crds::Attempt& attempt);

// What the MemoryProfile of a family is called: as the family, where a name can be that; else, or when the
// name is taken, with a hash of it.
std::string profile_name(const std::string& family, bool taken = false);

}  // namespace plimsoll::controllers
