// More of the host's memory for the container that ran out of it. Pure; any thread.
#pragma once

#include <string>

#include "base/bytes.h"
#include "base/json.h"
#include "crds/training_job.h"

namespace plimsoll::controllers {

struct HostMemory {
  enum class Change {
    kRaised,
    kAtMost,     // it has what a node can give
    kUnlimited,  // the container has neither limit nor request
  };
  Change change = Change::kUnlimited;
  Bytes before;  // the limit, else the request
  Bytes now;
  Json patch{::Json::arrayValue};
};

// By failurePolicy.oomBumpUpRatio, and oomMinBumpUp at least; to `most` at most, 0 being no bound. Limit and
// request keep their ratio.
// `container`: of the template, be it the trainer, one beside it or one before it; empty: the trainer. One
// that the template does not have (a mesh's proxy) has nothing here that could be raised.
HostMemory raise_host_memory(const crds::TrainingJob& job, Bytes most, const std::string& container = {});

}  // namespace plimsoll::controllers
