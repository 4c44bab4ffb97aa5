// How attempts end: endings.yaml and public_endings.yaml, read; and what builds pods that have ended.
#pragma once

#include <string>
#include <vector>

#include "base/json/json.h"
#include "crds/training_job_status.h"

namespace plimsoll::remediation {

struct Ending {
  std::string name;
  std::string outcome;
  std::vector<Json> pods;
  bool shared_memory = false;
};

std::vector<Ending> read_endings(const std::string& file);

inline constexpr const char* kTime = "2026-11-21T08:30:00Z";

extern const char* const kOutOfMemory;  // torch 2.1 to 2.9
extern const char* const kNccl;         // of a rank whose peer was lost

Json pod(const std::string& name = "job-0", const std::string& phase = "Failed");

struct End {
  int code = 1;
  std::string message = {};
  std::string reason = "Error";
  std::string time = kTime;
  std::string container = "trainer";
};

// With a container that ended so.
Json with(Json made, const End& end, const char* list = "containerStatuses");
Json ended(const End& end, const std::string& name = "job-0");

}  // namespace plimsoll::remediation
