// TrainingJobs at random, within the CRD's schema. Visitors of `describe` (crds/training_job_fields.h) change
// the fields and write them, so that a new field, or a new bound, is fuzzed from the day it is described.
//
//   Random random(seed);
//   crds::TrainingJobSpec spec = random_spec(random);
//   mutate(spec, random);                   // a few fields, often to the end of their range
//   Json job = job_of(spec);                // valid, or nearly always so: what fields demand of each other
//
// Pure; any thread, each with its own Random.
#pragma once

#include <cstdint>
#include <random>

#include "base/json/json.h"
#include "crds/training_job.h"

namespace plimsoll::testing {

using Random = std::mt19937_64;

crds::TrainingJobSpec random_spec(Random& random);

// Changes about one field in `of`, or what is below it.
void mutate(crds::TrainingJobSpec& spec, Random& random);

// A job of either's parts: model, training, provisioning, trainers.
crds::TrainingJobSpec crossed(const crds::TrainingJobSpec& one, const crds::TrainingJobSpec& other,
                              Random& random);

// The TrainingJob as its author would write it.
Json job_of(const crds::TrainingJobSpec& spec);

}  // namespace plimsoll::testing
