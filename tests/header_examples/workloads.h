// What the examples of workloads/ leave open.
#pragma once

#include "tests/header_examples/anything.h"
#include "workloads/arguments.h"
#include "workloads/description.h"
#include "workloads/pod_groups.h"
#include "workloads/references.h"
#include "workloads/sizing.h"
#include "workloads/train_job.h"
#include "workloads/workload.h"

namespace plimsoll::examples {
using namespace workloads;

struct arguments_example {
  JsonView container;
  Anything keep_the_size(const std::string& why);
  void replace(const std::string& pointer, const std::string& text);
};
struct description_example {
  JsonView object;
  const crds::MemoryProfile* profile = nullptr;
  estimator::ModelSource* source = nullptr;
  Budget budget{{}};
};
struct pod_groups_example {
  Place place;
};
struct references_example {
  const Kind* kind = nullptr;
  JsonView object;
  ObjectSource* source = nullptr;
  Budget budget{{}};
};
struct sizing_example {
  const Kind* kind = nullptr;
  JsonView object;
  References references;
  std::string namespace_name;
  Description description;
  std::vector<estimator::AvailableGpu> gpus;
};
struct train_job_example {
  JsonView object;
  References references;
};
struct workload_example {
  JsonView object;
};

}  // namespace plimsoll::examples
