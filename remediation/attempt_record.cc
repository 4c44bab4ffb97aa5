#include "remediation/attempt_record.h"

#include <algorithm>

#include "base/json/view.h"
#include "base/utf8.h"
#include "crds/shared_memory.h"
#include "remediation/attempt_end.h"
#include "remediation/signposts.h"

namespace plimsoll::remediation {
namespace {

using crds::Attempt;
using crds::Outcome;

const Json* condition_of(const Json& job, const char* type) {
  for (const Json& condition : member(job, {"status", "conditions"})) {
    if (text_member(condition, {"type"}) == type && text_member(condition, {"status"}) == "True") {
      return &condition;
    }
  }
  return nullptr;
}

// Under the rule of job_children.h for disruptions.
bool failed_by_disruption(const Json& failed) {
  return text_member(failed, {"reason"}) == "PodFailurePolicy" &&
         text_member(failed, {"message"}).find("DisruptionTarget") != std::string::npos;
}

// For an attempt whose pods are deleted: only the Job's own condition shows why it failed.
void judge_by_job(crds::Attempt& attempt, const Json& failed) {
  const std::string message = text_member(failed, {"message"});
  attempt.message = "Job: " + text_member(failed, {"reason"}) + (message.empty() ? "" : ": " + message);
  if (failed_by_disruption(failed)) {
    attempt.outcome = Outcome::kPreempted;
  }
}

std::optional<std::int64_t> exit_code_of(const std::vector<Json>& pods, const Evidence& evidence) {
  for (const Json& pod : pods) {
    if (text_member(pod, {"metadata", "name"}) != evidence.pod) {
      continue;
    }
    for (const char* list : {"containerStatuses", "initContainerStatuses"}) {
      for (const Json& status : member(pod, {"status", list})) {
        const std::optional<std::int64_t> code =
            JsonView(member(status, {"state", "terminated", "exitCode"})).integer();
        const bool matches =
            evidence.container.empty() || text_member(status, {"name"}) == evidence.container;
        if (matches && code && *code != 0) {
          return *code;
        }
      }
    }
  }
  return std::nullopt;
}

std::string node_of(const std::vector<Json>& pods, const Evidence& evidence) {
  for (const Json& pod : pods) {
    if (text_member(pod, {"metadata", "name"}) == evidence.pod) {
      return text_member(pod, {"spec", "nodeName"});
    }
  }
  return {};
}

// Where others filled the card, later attempts avoid its node. Where they cannot avoid it (it is not known, the pods are bound to it,
// or there are many such nodes, so that the others are rather the job's own processes), the attempt ran out of memory as any other.
void avoid_others(Attempt& attempt, const std::string& node) {
  std::vector<std::string>& avoided = attempt.avoid_nodes;
  crds::OutOfMemoryFigures& figures = attempt.out_of_memory;
  const bool known = std::find(avoided.begin(), avoided.end(), node) != avoided.end();
  if (!figures.others_filled_card() || node.empty() || known || avoided.size() >= crds::kMaxAvoidedNodes) {
    figures.held_by_others.reset();
    return;
  }
  avoided.push_back(node);
  attempt.message = "others held " + to_string(*figures.held_by_others) + " of the card's " +
                    to_string(*figures.capacity) + " on node " + node + ", where " +
                    to_string(*figures.needed) + " were needed: " + attempt.message;
}

std::string message_of(const Evidence& evidence) {
  const std::string container = evidence.container.empty() ? "" : ", container " + evidence.container;
  return evidence.pod.empty() ? evidence.text : "pod " + evidence.pod + container + ": " + evidence.text;
}

}  // namespace

JobEnd end_of(const Json& job) {
  if (condition_of(job, "Complete") != nullptr) {
    return JobEnd::kComplete;
  }
  return condition_of(job, "Failed") != nullptr ? JobEnd::kFailed : JobEnd::kNone;
}

std::string unschedulable(const std::vector<Json>& pods) {
  for (const Json& pod : pods) {
    for (const Json& condition : member(pod, {"status", "conditions"})) {
      if (text_member(condition, {"type"}) == "PodScheduled" &&
          text_member(condition, {"status"}) == "False") {
        return text_member(condition, {"message"}, text_member(condition, {"reason"}));
      }
    }
  }
  return {};
}

void record_end(crds::Attempt& attempt, Outcome outcome, const std::string& message, const std::string& now) {
  attempt.outcome = outcome;
  attempt.completion_time = now;
  attempt.message = utf8_prefix(message, crds::kMaxAttemptMessage);
}

void record_end(crds::Attempt& attempt, const Json& job, const std::vector<Json>& pods,
                const std::string& now, const Patterns& patterns) {
  const Signposts seen = read_signposts(pods);
  attempt.observed_peak = seen.peak;
  attempt.observed_startup = seen.startup;
  attempt.observed_allocated = seen.allocated;
  attempt.observed_reserved = seen.reserved;
  attempt.observed_context = seen.context;
  attempt.observed_communication = seen.communication;
  if (attempt.swap_plan) {
    attempt.observed_host_bandwidth = seen.host_bandwidth;
    attempt.observed_host_update_bandwidth = seen.host_update_bandwidth;
  }
  const Json* failed = condition_of(job, "Failed");
  if (end_of(job) == JobEnd::kComplete) {
    attempt.outcome = Outcome::kSucceeded;
  } else {
    const AttemptEnd end = classify(pods, {}, patterns);
    attempt.outcome = end.outcome == Outcome::kRunning ? Outcome::kUnknown : end.outcome;
    attempt.message = message_of(end.evidence);
    attempt.out_of_memory = end.out_of_memory;
    avoid_others(attempt, node_of(pods, end.evidence));
    attempt.exit_code = exit_code_of(pods, end.evidence);
    attempt.container = end.evidence.container;
    attempt.shared_memory_full = end.shared_memory;
    if (end.shared_memory) {
      attempt.message =
          "/dev/shm was full; " +
          to_string(crds::shared_memory_of(member(job, {"spec", "template", "spec"}), attempt.container)) +
          ": " + attempt.message;
    }
    const bool proves_nothing = pods.empty() || attempt.outcome == Outcome::kUnknown ||
                                attempt.outcome == Outcome::kSucceeded;  // a failed Job did not
    // The disrupted pod may be deleted already; then the other containers failed because of it.
    const bool consequence = attempt.outcome == Outcome::kInfrastructureFailure &&
                             !end.evidence.container.empty() && failed != nullptr &&
                             failed_by_disruption(*failed);
    if ((proves_nothing || consequence) && failed != nullptr) {
      judge_by_job(attempt, *failed);
      if (attempt.outcome == Outcome::kSucceeded) {
        attempt.outcome = Outcome::kUnknown;
      }
    }
  }
  // Of several trainers, one may have come further.
  attempt.ended_in_startup =
      attempt.outcome != Outcome::kSucceeded && seen.in_startup > 0 && seen.in_training == 0;
  if (attempt.ended_in_startup && attempt.outcome == Outcome::kCudaOutOfMemory) {
    attempt.message = "during start-up, before the first forward pass: " + attempt.message;
  }
  record_end(attempt, attempt.outcome, attempt.message, now);
}

}  // namespace plimsoll::remediation
