#include "remediation/attempt_end.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/json/edit.h"
#include "base/json/view.h"
#include "crds/training_job.h"
#include "remediation/log_lines.h"
#include "remediation/termination_message.h"

namespace plimsoll::remediation {
namespace {

struct Sign {
  Priority priority = Priority::kNothing;
  std::string time{};  // RFC 3339, so it compares as text; empty: not known
  AttemptEnd end{};
  bool decides = true;  // false: its container has another sign, which counts
};

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

std::string with_message(const std::string& reason, const std::string& message) {
  return message.empty() ? reason : reason + ": " + message;
}

// What read the containers' output, and with what.
struct OutputReader {
  const std::vector<LogTail>& logs;
  const Patterns& patterns;
};

Sign sign(Priority priority, Outcome outcome, Evidence evidence, std::string time = {}) {
  return {.priority = priority,
          .time = std::move(time),
          .end = {.outcome = outcome, .evidence = std::move(evidence)}};
}

// A part of the place, and what it says.
Evidence part_of(Evidence where, const std::string& part, std::string text) {
  where.field += part;
  where.text = std::move(text);
  return where;
}

// A node was low on memory, or the pod used too much of the node's memory or of its own disk.
Outcome outcome_of_eviction(std::string_view message) {
  if (has_any(message, {"low on resource: memory", "memory usage exceeds"})) {
    return Outcome::kHostOutOfMemory;
  }
  if (has_any(message, {"exceeds the total limit of containers", "ephemeral local storage usage exceeds",
                        "exceeded its local ephemeral storage limit", "Usage of EmptyDir volume"})) {
    return Outcome::kUserError;
  }
  return has_any(message, {"low on resource", "node had condition"}) ? Outcome::kInfrastructureFailure
                                                                     : Outcome::kPreempted;
}

// Why Kueue evicted a workload (kueue.x-k8s.io, WorkloadEvictedBy...): mostly for others.
Outcome outcome_of_kueue(std::string_view reason) {
  if (has_any(reason, {"NodeFailures"})) {
    return Outcome::kInfrastructureFailure;
  }
  return has_any(reason, {"MaximumExecutionTimeExceeded"}) ? Outcome::kUserError : Outcome::kPreempted;
}

// By the condition that says who evicted the pod.
std::optional<Sign> sign_of_disruption(const Json& pod, const std::string& name) {
  for (const Json& condition : member(pod, {"status", "conditions"})) {
    const std::string type = text_member(condition, {"type"});
    if ((type != "DisruptionTarget" && type != "TerminationTarget") ||
        text_member(condition, {"status"}) != "True") {
      continue;
    }
    const std::string reason = text_member(condition, {"reason"});
    const std::string message = text_member(condition, {"message"});
    Outcome outcome = outcome_of_kueue(reason);  // the scheduler and evictions, too
    if (reason.starts_with("DeletionBy")) {
      // PodGC, TaintManager: the node, or its device, is gone or unhealthy.
      outcome = Outcome::kInfrastructureFailure;
    } else if (reason == "TerminationByKubelet") {
      const std::string text = with_message(message, text_member(pod, {"status", "message"}));
      outcome = has_any(text, {"shutdown"}) ? Outcome::kInfrastructureFailure : outcome_of_eviction(text);
    }
    return sign(
        Priority::kCause, outcome,
        {.pod = name, .field = "status.conditions[" + type + "]", .text = with_message(reason, message)},
        text_member(condition, {"lastTransitionTime"}));
  }
  return std::nullopt;
}

// When the pod's first container ended, since the pod's own reason has no time.
std::string first_end_of(const Json& pod) {
  std::string first;
  for (const Json& status : member(pod, {"status", "containerStatuses"})) {
    const std::string time = text_member(status, {"state", "terminated", "finishedAt"});
    first = first.empty() || (!time.empty() && time < first) ? time : first;
  }
  return first;
}

// The node failed, or did not accept the pod (pkg/kubelet: lifecycle, cm, nodeshutdown;
// pkg/controller/nodelifecycle).
bool is_infrastructure(std::string_view reason, std::string_view message) {
  return reason.starts_with("OutOf") ||  // memory, a device: at admission to the node, which was full
         is_one_of(reason, {"NodeShutdown", "Terminated", "Shutdown", "NodeLost", "NodeAffinity", "NodeName",
                            "NodePorts", "TaintToleration", "InvalidNodeInfo", "UnexpectedAdmissionError",
                            "TopologyAffinityError", "SMTAlignmentError", "ContainerStatusUnknown"}) ||
         has_any(message,
                 {"Pod was rejected", "Allocate failed due to", "requested number of devices unavailable"});
}

// The pod's own reason is written by the kubelet or the node's controller.
std::optional<Sign> sign_of_reason(const Json& pod, const std::string& name) {
  const std::string reason = text_member(pod, {"status", "reason"});
  const std::string message = text_member(pod, {"status", "message"});
  std::optional<Outcome> outcome;
  if (reason == "Preempting") {
    outcome = Outcome::kPreempted;
  } else if (reason == "SysctlForbidden" || reason == "DeadlineExceeded") {
    outcome = Outcome::kUserError;  // the latter is the job's own activeDeadlineSeconds
  } else if (reason == "Evicted") {
    outcome = outcome_of_eviction(message);
  } else if (is_infrastructure(reason, message) || text_member(pod, {"status", "phase"}) == "Unknown") {
    outcome = Outcome::kInfrastructureFailure;
  }
  if (!outcome) {
    return std::nullopt;
  }
  return sign(Priority::kCause, *outcome,
              {.pod = name,
               .field = reason.empty() ? "status.phase" : "status.reason",
               .text = with_message(reason, message)},
              first_end_of(pod));
}

// The registry has no such image, or not for this cluster or node.
bool is_wrong_image(std::string_view message) {
  return has_any(message, {"not found", "manifest unknown", "pull access denied", "denied:", "nauthorized",
                           "403 Forbidden", "no basic auth credentials", "authorization failed",
                           "insufficient_scope", "no match for platform", "repository does not exist"});
}

// A container that waits for what will never be there.
std::optional<Sign> sign_of_waiting(const Json& waiting, const Evidence& where) {
  const std::string reason = text_member(waiting, {"reason"});
  const std::string message = text_member(waiting, {"message"});
  const bool pulling = reason == "ErrImagePull" || reason == "ImagePullBackOff";
  const bool creating = reason == "CreateContainerError" || reason == "RunContainerError";
  if (is_one_of(reason, {"InvalidImageName", "CreateContainerConfigError", "ErrImageNeverPull",
                         "SignatureValidationFailed"}) ||
      (pulling && is_wrong_image(message)) ||
      (creating && has_any(message, {"no command specified", "executable file not found", "no such file"}))) {
    return sign(Priority::kCause, Outcome::kUserError,
                part_of(where, ".state.waiting.reason", with_message(reason, message)));
  }
  return std::nullopt;
}

// What a container's output proves, and after it what else is in it.
std::vector<Sign> signs_of_text(std::string_view text, const Evidence& where, const std::string& time,
                                const Patterns& patterns) {
  std::vector<Sign> signs;
  for (Diagnosis& one : read_termination_message(text, patterns)) {
    Evidence evidence = part_of(where, "", std::move(one.line));
    evidence.because = std::move(one.because);
    signs.push_back(sign(one.priority, one.outcome, std::move(evidence), time));
    signs.back().end.shared_memory = one.shared_memory;
    signs.back().end.out_of_memory = one.out_of_memory;
    signs.back().decides = signs.size() == 1;
  }
  return signs;
}

// What an exit code proves when there is no output.
Sign sign_of_exit_code(int code, const Evidence& where, const std::string& time, bool deleted) {
  constexpr int kBusError = 128 + 7;
  Priority priority = Priority::kNothing;
  Outcome outcome = Outcome::kUnknown;
  const char* because = "no known text, and an exit code of many causes";
  if (code == 2 || code == 126 || code == 127) {
    priority = Priority::kException;
    outcome = Outcome::kUserError;
    because = "a shell's exit code for wrong usage, what is not executable, or what is not found";
  } else if (code == 247) {
    priority = Priority::kCause;
    outcome = Outcome::kHostOutOfMemory;
    because = "a launcher passes on -9: its child was killed, and it was not";
  } else if (code == kBusError) {
    priority = Priority::kCause;
    outcome = Outcome::kHostOutOfMemory;
    because = "SIGBUS: a mapped page could not be had, as of a full /dev/shm";
  } else if ((code == 137 || code == 143) && deleted) {
    priority = Priority::kConsequence;
    outcome = Outcome::kInfrastructureFailure;
    because = "killed because the pod was deleted";
  }
  Sign found =
      sign(priority, outcome, part_of(where, ".exitCode", "exit code " + std::to_string(code)), time);
  found.end.evidence.because = because;
  found.end.shared_memory = code == kBusError;
  return found;
}

std::string log_of(const std::vector<LogTail>& logs, const Evidence& where) {
  std::string text;
  for (const LogTail& log : logs) {
    if ((log.pod.empty() || log.pod == where.pod) &&
        (log.container.empty() || log.container == where.container)) {
      text += log.text + "\n";
    }
  }
  return text;
}

// Why the runtime could not start a container: for its command, or for the node.
Outcome outcome_of_start(std::string_view message) {
  if (has_any(message, {"container init was OOM-killed"})) {  // runc
    return Outcome::kHostOutOfMemory;
  }
  const bool program = has_any(message, {"no such file", "not found", "permission denied", "exec format"}) &&
                       !has_any(message, {"nvidia-container"});
  return program ? Outcome::kUserError : Outcome::kInfrastructureFailure;
}

std::optional<int> exit_code_of(const Json& terminated) {
  const std::optional<std::int64_t> code = JsonView(member(terminated, {"exitCode"})).integer();
  const bool fits = code && *code == static_cast<int>(*code);
  return fits ? std::optional(static_cast<int>(*code)) : std::nullopt;
}

// A container that ended without success: what counts, and after it what does not.
std::vector<Sign> signs_of_end(const Json& terminated, const Evidence& where, bool deleted,
                               const OutputReader& reader) {
  const std::string time = text_member(terminated, {"finishedAt"});
  const std::string reason = text_member(terminated, {"reason"});
  const std::string message = text_member(terminated, {"message"});
  const int exit_code = exit_code_of(terminated).value_or(0);
  std::vector<Sign> signs = signs_of_text(message, part_of(where, ".message", ""), time, reader.patterns);
  const Evidence logged{.pod = where.pod, .container = where.container, .field = "log"};
  std::vector<Sign> from_log = signs_of_text(log_of(reader.logs, where), logged, time, reader.patterns);
  const bool log_first =
      !from_log.empty() && (signs.empty() || from_log.front().priority < signs.front().priority);
  std::vector<Sign>& first = log_first ? from_log : signs;
  std::vector<Sign>& second = log_first ? signs : from_log;
  std::move(second.begin(), second.end(), std::back_inserter(first));
  const auto by_reason = [&](Outcome outcome, std::string text, const char* because) {
    Sign found = sign(Priority::kCause, outcome, part_of(where, ".reason", std::move(text)), time);
    found.end.evidence.because = because;
    first.insert(first.begin(), std::move(found));
  };
  if (reason == "OOMKilled") {
    by_reason(Outcome::kHostOutOfMemory, "OOMKilled, exit code " + std::to_string(exit_code),
              "the kernel killed it at the container's memory limit");
  } else if (reason == "ContainerStatusUnknown" || (reason == "Unknown" && exit_code == 255)) {
    // containerd writes this for a container that was lost when it, or the node, restarted.
    by_reason(Outcome::kInfrastructureFailure, with_message(reason, message),
              "the runtime lost the container");
  } else if (reason == "ContainerCannotRun" || reason == "StartError") {
    by_reason(outcome_of_start(message), with_message(reason, message), "the runtime could not start it");
  } else if (first.empty()) {
    first.push_back(sign_of_exit_code(exit_code, where, time, deleted));
  }
  for (std::size_t i = 1; i < first.size(); ++i) {
    first[i].decides = false;
  }
  return std::move(first);
}

// The container that trains: the one named `trainer`, else the one with a device (a mesh may have put its
// proxy first), else the first. Empty where it cannot be identified.
std::string trainer_of(const Json& pod) {
  const Json& containers = member(pod, {"spec", "containers"});
  const Json& known =
      containers.isArray() && !containers.empty() ? containers : member(pod, {"status", "containerStatuses"});
  const int index = crds::trainer_container(known);
  if (index < 0) {
    return {};
  }
  std::string first = text_member(element(known, static_cast<std::size_t>(index)), {"name"});
  if (first == "trainer" || known.size() == 1) {
    return first;
  }
  for (const Json& container : containers) {
    for (const auto& [name, amount] : JsonView(member(container, {"resources", "limits"})).members()) {
      if (name.find('/') != name.npos) {
        return text_member(container, {"name"});
      }
    }
  }
  return &known == &containers ? first : std::string();
}

// The priority of the end of another container than the trainer, whose own end is known. An exception of a
// sidecar does not end training; a kill for memory or a lost node may, unless the trainer's end says
// otherwise.
Priority priority_of_sidecar(const Sign& sign, const Sign& trainer) {
  const bool may =
      sign.priority == Priority::kCause && trainer.priority > Priority::kException &&
      (sign.end.outcome == Outcome::kHostOutOfMemory || sign.end.outcome == Outcome::kInfrastructureFailure);
  return may ? sign.priority : std::max(sign.priority, Priority::kSidecar);
}

std::vector<Sign> signs_of_containers(const Json& pod, const std::string& name, bool deleted,
                                      const OutputReader& reader) {
  std::vector<Sign> signs;
  for (const char* list : {"containerStatuses", "initContainerStatuses"}) {
    for (const Json& status : member(pod, {"status", list})) {
      const std::string container = text_member(status, {"name"});
      const Evidence where{.pod = name,
                           .container = container,
                           .field = std::string("status.") + list + "[" + container + "]"};
      const Json& waiting = member(status, {"state", "waiting"});
      if (std::optional<Sign> stuck = sign_of_waiting(waiting, where)) {
        signs.push_back(*std::move(stuck));
      }
      // A container in a crash loop waits between its runs.
      const bool crashing = text_member(waiting, {"reason"}) == "CrashLoopBackOff";
      const char* state = crashing ? "lastState" : "state";
      const Json& terminated = member(status, {state, "terminated"});
      if (terminated.isObject() && exit_code_of(terminated) != 0) {
        const Evidence end = part_of(where, std::string(".") + state + ".terminated", "");
        std::vector<Sign> ends = signs_of_end(terminated, end, deleted, reader);
        std::move(ends.begin(), ends.end(), std::back_inserter(signs));
      }
    }
  }
  return signs;
}

std::vector<Sign> signs_of_pod(const Json& pod, const OutputReader& reader) {
  const std::string name = text_member(pod, {"metadata", "name"});
  const bool deleted = !member(pod, {"metadata", "deletionTimestamp"}).isNull();
  std::vector<Sign> signs = signs_of_containers(pod, name, deleted, reader);
  const std::string trainer = trainer_of(pod);
  const auto of_trainer = std::find_if(signs.begin(), signs.end(), [&](const Sign& one) {
    return !trainer.empty() && one.end.evidence.container == trainer;
  });
  if (of_trainer != signs.end()) {
    for (Sign& one : signs) {
      if (one.end.evidence.container != trainer) {
        one.priority = priority_of_sidecar(one, *of_trainer);
      }
    }
  }
  // Deleted before any of its containers ran.
  if (signs.empty() && deleted && text_member(pod, {"status", "phase"}) == "Failed") {
    signs.push_back(
        sign(Priority::kConsequence, Outcome::kInfrastructureFailure,
             {.pod = name, .field = "metadata.deletionTimestamp", .text = "the pod was deleted"}));
  }
  std::optional<Sign> of_pod = sign_of_disruption(pod, name);
  if (!of_pod) {
    of_pod = sign_of_reason(pod, name);
  }
  if (of_pod) {
    signs.insert(signs.begin(), *std::move(of_pod));
  }
  return signs;
}

// What counts; by priority, then by time; a sign without a time comes last.
bool comes_first(const Sign& a, const Sign& b) {
  if (a.decides != b.decides) {
    return a.decides;
  }
  if (a.priority != b.priority) {
    return a.priority < b.priority;
  }
  if (a.time.empty() || b.time.empty()) {
    return !a.time.empty() && b.time.empty();
  }
  return a.time < b.time;
}

// Of pods that show no sign.
AttemptEnd end_by_phase(const std::vector<Json>& pods, std::size_t succeeded, std::size_t failed) {
  AttemptEnd end;
  if (pods.empty()) {
    end.outcome = Outcome::kInfrastructureFailure;
    end.evidence.text = "no pod is left";
    end.evidence.because = "pods that are gone were on nodes that were lost";
  } else if (succeeded == pods.size()) {
    end.outcome = Outcome::kSucceeded;
  } else if (failed == 0) {
    end.outcome = Outcome::kRunning;
  }
  return end;
}

}  // namespace

ExplainedEnd explain(const std::vector<Json>& pods, const std::vector<LogTail>& logs,
                     const Patterns& patterns) {
  const OutputReader reader{.logs = logs, .patterns = patterns};
  std::vector<Sign> signs;
  std::size_t succeeded = 0;
  std::size_t failed = 0;
  for (const Json& pod : pods) {
    const std::string phase = text_member(pod, {"status", "phase"});
    succeeded += phase == "Succeeded" ? 1 : 0;
    failed += phase == "Failed" ? 1 : 0;
    if (phase != "Succeeded") {
      std::vector<Sign> found = signs_of_pod(pod, reader);
      std::move(found.begin(), found.end(), std::back_inserter(signs));
    }
  }
  if (failed > 0 || pods.empty()) {
    // No status shows which container ended, but there is a log.
    const bool read = std::any_of(signs.begin(), signs.end(),
                                  [](const Sign& sign) { return !sign.end.evidence.container.empty(); });
    if (const Evidence unknown{.field = "log"}; !read) {
      std::vector<Sign> said = signs_of_text(log_of(logs, unknown), unknown, "", patterns);
      std::move(said.begin(), said.end(), std::back_inserter(signs));
    }
  }
  if (signs.empty()) {
    return {.end = end_by_phase(pods, succeeded, failed)};
  }
  std::stable_sort(signs.begin(), signs.end(), comes_first);
  ExplainedEnd explained{.end = std::move(signs.front().end), .priority = signs.front().priority};
  for (std::size_t i = 1; i < signs.size() && i <= kMostDiagnoses; ++i) {
    explained.others.emplace_back(signs[i].priority, std::move(signs[i].end));
  }
  return explained;
}

AttemptEnd classify(const std::vector<Json>& pods, const std::vector<LogTail>& logs,
                    const Patterns& patterns) {
  return explain(pods, logs, patterns).end;
}

}  // namespace plimsoll::remediation
