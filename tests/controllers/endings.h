// How attempts end: pod statuses and last words as clusters show them, each with the verdict that a person
// who knows the case would give; and what builds such pods. The sentences are those of the Kubernetes and
// framework versions that the comments name.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "controllers/verdict.h"

namespace plimsoll::controllers {

struct Ending {
  const char* name;
  Verdict verdict;
  std::vector<Json> pods;
};

std::vector<Ending> endings_of_memory();
std::vector<Ending> endings_of_the_cluster();
std::vector<Ending> endings_of_programs();

inline constexpr const char* kTime = "2026-11-21T08:30:00Z";

extern const char* const kOutOfMemory;  // torch 2.1 to 2.9
extern const char* const kNccl;         // of a rank whose peer went

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

// A pod whose trainer said this and exited with 1.
std::vector<Json> said(const std::string& message);
std::vector<Json> exited(int code, const std::string& reason = "Error");

Json conditioned(Json made, const std::string& type, const std::string& reason, const std::string& message,
                 const std::string& time = kTime);
std::vector<Json> disrupted(const std::string& reason, const std::string& message);
std::vector<Json> because(const std::string& reason, const std::string& message);  // the pod's own reason
std::vector<Json> waits(const std::string& reason, const std::string& message);
std::vector<Json> deleted(int code);
std::vector<Json> crashing(const std::string& message);

}  // namespace plimsoll::controllers
