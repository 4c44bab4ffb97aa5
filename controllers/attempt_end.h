// Why an attempt of a job ended, from what Kubernetes knows of its pods and what their containers said last.
//
//   AttemptEnd end = classify({pod_0, pod_1});
//   if (end.verdict == Verdict::kCudaOutOfMemory) expand(end.needed);
//
// The cause is one rank's; the others' ends follow from it. So each sign is weighed: what proves a cause by
// itself (a disruption, an out-of-memory text, a node that went) goes before an exception of the program,
// and both before what lost peers look like (NCCL, reset connections, signals). Among equals the earliest is
// the cause. What proves nothing, such as exit code 137 alone, is kUnknown. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/json.h"
#include "controllers/verdict.h"

namespace plimsoll::controllers {

struct Evidence {
  std::string pod;
  std::string container;  // empty: the pod as a whole
  std::string field;      // of the pod: "status.conditions[DisruptionTarget]", or "log"
  std::string text;
};

struct AttemptEnd {
  Verdict verdict = Verdict::kUnknown;
  Evidence evidence;
  // Of an out-of-memory, where its text says so.
  std::optional<Bytes> needed;
  std::optional<Bytes> capacity;
  std::optional<Bytes> fragmentation;
};

// The last lines of a container's log, where its termination message is not enough.
struct LogTail {
  std::string pod;        // empty: of any that failed
  std::string container;  // likewise
  std::string text;
};

// Of the pods of one attempt, as the API has them. Without any, their node took them along: that is the
// infrastructure's failure.
AttemptEnd classify(const std::vector<Json>& pods, const std::vector<LogTail>& logs = {});

}  // namespace plimsoll::controllers
