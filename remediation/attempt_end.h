// Classifies how an attempt of a job ended, from its pods' statuses and their containers' output.
//
//   AttemptEnd end = classify({pod_0, pod_1});
//   if (end.outcome == Outcome::kCudaOutOfMemory) resize(end.out_of_memory.needed);
//
// One rank fails first, and the others fail because of it. So every sign has a priority. A sign that proves a
// cause (a disruption, an out-of-memory message, a lost node) comes before an exception of the program, and
// both come before the signs of lost peers (NCCL errors, reset connections, signals). Of signs with the same
// priority, the earliest is the cause. A sign that proves nothing, such as exit code 137 alone, is kUnknown.
// Pure; any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/json/json.h"
#include "crds/training_job_status.h"
#include "remediation/termination_message.h"

namespace plimsoll::remediation {

struct Evidence {
  std::string pod{};
  std::string container{};  // empty: the pod as a whole
  std::string field{};      // of the pod: "status.conditions[DisruptionTarget]", or "log"
  std::string text{};
  std::string because{};  // the pattern or the rule by which the text means the outcome
};

struct AttemptEnd {
  Outcome outcome = Outcome::kUnknown;  // never kSuspended: pods do not show it
  Evidence evidence{};
  bool shared_memory = false;  // of kHostOutOfMemory: /dev/shm was full
  crds::OutOfMemoryFigures out_of_memory{};
};

// Why an attempt ended, and what was seen beside it.
struct ExplainedEnd {
  AttemptEnd end{};
  Priority priority = Priority::kNothing;
  // The other signs, the strongest first: at most kMostDiagnoses. One that proves as much as the end came later.
  std::vector<std::pair<Priority, AttemptEnd>> others{};
};

// The last lines of a container's log, for containers whose termination message does not hold them.
struct LogTail {
  std::string pod;        // empty: any pod that failed
  std::string container;  // likewise
  std::string text;
};

// `pods`: of one attempt, as the API server has them. If there are none, their nodes were lost, which is a
// failure of the infrastructure.
AttemptEnd classify(const std::vector<Json>& pods, const std::vector<LogTail>& logs = {},
                    const Patterns& patterns = Patterns::built_in());
ExplainedEnd explain(const std::vector<Json>& pods, const std::vector<LogTail>& logs = {},
                     const Patterns& patterns = Patterns::built_in());

}  // namespace plimsoll::remediation
