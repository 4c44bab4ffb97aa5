// What the examples of crds/ leave open.
#pragma once

#include "base/json/edit.h"
#include "base/log.h"
#include "crds/checker.h"
#include "crds/cluster_policy.h"
#include "crds/decoder.h"
#include "crds/enums.h"
#include "crds/feature_gates.h"
#include "crds/gpu_model.h"
#include "crds/memory_profile.h"
#include "crds/training_job.h"
#include "tests/header_examples/anything.h"

namespace plimsoll::examples {
using namespace crds;

struct cluster_policy_example {
  TrainingJob job;
};
struct enums_example {
  std::string text;
};
struct feature_gates_example {
  void size();
};
struct global_batch_example {
  TrainingJob job;
  void estimate(const TrainingSpec& training);
};
struct pod_fields_example {
  JsonView pod_template;
  void warn(const std::string& text);
};
struct profile_samples_example {
  MemoryProfile profile;
  JsonObject object;
};
struct request_id_example {
  std::string key;
  Json object;
};
struct shared_memory_example {
  Json pod, container;
  std::int64_t gpus = 8;
  void warn(Bytes recommended);
};
struct training_job_example {
  Json object;
};
struct training_job_fields_example {
  JsonView json;
  FieldPath path{""};
  FieldErrors errors;
  TrainingJob job;
};
struct training_job_status_example {
  JsonObject object;
};

}  // namespace plimsoll::examples
