#include "controllers/attempt_end.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/json_edit.h"
#include "base/json_view.h"
#include "controllers/last_words.h"
#include "crds/training_job.h"

namespace plimsoll::controllers {
namespace {

struct Sign {
  Weight weight = Weight::kNothing;
  std::string time;  // RFC 3339, so it compares as text; empty: not known
  AttemptEnd end;
};

bool has_any(std::string_view text, std::initializer_list<std::string_view> needles) {
  return std::any_of(needles.begin(), needles.end(),
                     [&](std::string_view needle) { return text.find(needle) != text.npos; });
}

Sign sign(Weight weight, Verdict verdict, Evidence evidence, std::string time) {
  Sign made{.weight = weight, .time = std::move(time), .end = {}};
  made.end.verdict = verdict;
  made.end.evidence = std::move(evidence);
  return made;
}

// A node low on memory, or a pod that took too much of the node's memory or of its own disk.
Verdict verdict_of_eviction(std::string_view message) {
  if (has_any(message, {"low on resource: memory", "memory usage exceeds"})) {
    return Verdict::kHostOutOfMemory;
  }
  if (has_any(message, {"exceeds the total limit of containers", "ephemeral local storage usage exceeds",
                        "exceeded its local ephemeral storage limit", "Usage of EmptyDir volume"})) {
    return Verdict::kUserError;
  }
  return has_any(message, {"low on resource", "node had condition"}) ? Verdict::kInfrastructureFailure
                                                                     : Verdict::kPreempted;
}

// Why Kueue took a workload away (kueue.x-k8s.io, WorkloadEvictedBy...): mostly to serve others.
Verdict verdict_of_kueue(std::string_view reason) {
  if (has_any(reason, {"NodeFailures"})) {
    return Verdict::kInfrastructureFailure;
  }
  return has_any(reason, {"MaximumExecutionTimeExceeded"}) ? Verdict::kUserError : Verdict::kPreempted;
}

// Conditions: who took the pod away.
std::optional<Sign> sign_of_disruption(const Json& pod, const std::string& name) {
  for (const Json& condition : member(pod, {"status", "conditions"})) {
    const std::string type = text_member(condition, {"type"});
    if ((type != "DisruptionTarget" && type != "TerminationTarget") ||
        text_member(condition, {"status"}) != "True") {
      continue;
    }
    const std::string reason = text_member(condition, {"reason"});
    const std::string message = text_member(condition, {"message"});
    Verdict verdict = verdict_of_kueue(reason);  // the scheduler and evictions, too
    if (reason.starts_with("DeletionBy")) {
      verdict =
          Verdict::kInfrastructureFailure;  // PodGC, TaintManager: the node, or its device, is gone or ill
    } else if (reason == "TerminationByKubelet") {
      const std::string of_pod = text_member(pod, {"status", "message"});
      const std::string of_all = message + "\n" + of_pod;
      verdict = has_any(of_all, {"shutdown"}) ? Verdict::kInfrastructureFailure : verdict_of_eviction(of_all);
    }
    return sign(Weight::kCause, verdict,
                {.pod = name,
                 .container = "",
                 .field = "status.conditions[" + type + "]",
                 .text = message.empty() ? reason : reason + ": " + message},
                text_member(condition, {"lastTransitionTime"}));
  }
  return std::nullopt;
}

// When the first of its containers ended; the pod's own reason has no time.
std::string first_end_of(const Json& pod) {
  std::string first;
  for (const Json& status : member(pod, {"status", "containerStatuses"})) {
    const std::string time = text_member(status, {"state", "terminated", "finishedAt"});
    first = first.empty() || (!time.empty() && time < first) ? time : first;
  }
  return first;
}

// The pod's own reason: the kubelet or the node's controller speaks.
std::optional<Sign> sign_of_reason(const Json& pod, const std::string& name) {
  const std::string reason = text_member(pod, {"status", "reason"});
  const std::string message = text_member(pod, {"status", "message"});
  // pkg/kubelet: lifecycle, cm, nodeshutdown; pkg/controller/nodelifecycle.
  static constexpr std::array<std::pair<std::string_view, Verdict>, 16> kReasons = {
      {{"Preempting", Verdict::kPreempted},
       {"NodeShutdown", Verdict::kInfrastructureFailure},
       {"Terminated", Verdict::kInfrastructureFailure},
       {"Shutdown", Verdict::kInfrastructureFailure},
       {"NodeLost", Verdict::kInfrastructureFailure},
       {"NodeAffinity", Verdict::kInfrastructureFailure},
       {"NodeName", Verdict::kInfrastructureFailure},
       {"NodePorts", Verdict::kInfrastructureFailure},
       {"TaintToleration", Verdict::kInfrastructureFailure},
       {"InvalidNodeInfo", Verdict::kInfrastructureFailure},
       {"UnexpectedAdmissionError", Verdict::kInfrastructureFailure},
       {"TopologyAffinityError", Verdict::kInfrastructureFailure},
       {"SMTAlignmentError", Verdict::kInfrastructureFailure},
       {"ContainerStatusUnknown", Verdict::kInfrastructureFailure},
       {"SysctlForbidden", Verdict::kUserError},
       {"DeadlineExceeded", Verdict::kUserError}}};  // the job's own activeDeadlineSeconds
  const auto* known = std::find_if(kReasons.begin(), kReasons.end(),
                                   [&](const auto& entry) { return entry.first == reason; });
  std::optional<Verdict> verdict;
  if (known != kReasons.end()) {
    verdict = known->second;
  } else if (reason == "Evicted") {
    verdict = verdict_of_eviction(message);
  } else if (reason.starts_with("OutOf") ||  // memory, a device: at admission to the node, which was full
             has_any(message, {"Pod was rejected", "Allocate failed due to",
                               "requested number of devices unavailable"})) {
    verdict = Verdict::kInfrastructureFailure;
  } else if (text_member(pod, {"status", "phase"}) == "Unknown") {
    verdict = Verdict::kInfrastructureFailure;  // nobody hears from its node
  }
  if (!verdict) {
    return std::nullopt;
  }
  return sign(Weight::kCause, *verdict,
              {.pod = name,
               .container = "",
               .field = reason.empty() ? "status.phase" : "status.reason",
               .text = message.empty() ? reason : reason + ": " + message},
              first_end_of(pod));
}

// What a registry says of an image that is not there, or not for this cluster or node.
bool is_wrong_image(std::string_view message) {
  return has_any(message, {"not found", "manifest unknown", "pull access denied", "denied:", "nauthorized",
                           "403 Forbidden", "no basic auth credentials", "authorization failed",
                           "insufficient_scope", "no match for platform", "repository does not exist"});
}

// What a container was waiting for that will not come by waiting.
std::optional<Sign> sign_of_waiting(const Json& waiting, Evidence evidence) {
  const std::string reason = text_member(waiting, {"reason"});
  const std::string message = text_member(waiting, {"message"});
  evidence.field += ".state.waiting.reason";
  evidence.text = message.empty() ? reason : reason + ": " + message;
  const bool pulling = reason == "ErrImagePull" || reason == "ImagePullBackOff";
  const bool creating = reason == "CreateContainerError" || reason == "RunContainerError";
  if (reason == "InvalidImageName" || reason == "CreateContainerConfigError" ||
      reason == "ErrImageNeverPull" || reason == "SignatureValidationFailed" ||
      (pulling && is_wrong_image(message)) ||
      (creating && has_any(message, {"no command specified", "executable file not found", "no such file"}))) {
    return sign(Weight::kCause, Verdict::kUserError, std::move(evidence), "");
  }
  return std::nullopt;
}

// What a container's last words prove.
std::optional<Sign> sign_of_text(std::string_view text, const Evidence& where, const std::string& time) {
  std::optional<LastWords> said = read_last_words(text);
  if (!said) {
    return std::nullopt;
  }
  Evidence evidence = where;
  evidence.text = std::move(said->line);
  Sign found = sign(said->weight, said->verdict, std::move(evidence), time);
  found.end.needed = said->figures.needed;
  found.end.capacity = said->figures.capacity;
  found.end.fragmentation = said->figures.fragmentation;
  return found;
}

// What an exit code proves when nothing was said.
Sign sign_of_exit_code(int code, Evidence where, const std::string& time, bool deleted) {
  where.field += ".exitCode";
  where.text = "exit code " + std::to_string(code);
  switch (code) {
    case 2:    // wrong usage, by the convention of shells and of Python's argparse
    case 126:  // cannot be executed
    case 127:  // not found
      return sign(Weight::kProgram, Verdict::kUserError, std::move(where), time);
    case 247:  // a launcher passes on -9: its child was killed, and it was not
      return sign(Weight::kCause, Verdict::kHostOutOfMemory, std::move(where), time);
    case 137:
    case 143:
      if (deleted) {  // somebody deleted the pod under it
        return sign(Weight::kConsequence, Verdict::kInfrastructureFailure, std::move(where), time);
      }
      break;
    default: break;
  }
  return sign(Weight::kNothing, Verdict::kUnknown, std::move(where), time);
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

// Why the runtime could not start a container: for what is asked of it, or for the node.
Verdict verdict_of_start(std::string_view message) {
  if (has_any(message, {"container init was OOM-killed"})) {  // runc
    return Verdict::kHostOutOfMemory;
  }
  const bool program = has_any(message, {"no such file", "not found", "permission denied", "exec format"}) &&
                       !has_any(message, {"nvidia-container"});
  return program ? Verdict::kUserError : Verdict::kInfrastructureFailure;
}

std::optional<int> exit_code_of(const Json& terminated) {
  const std::optional<std::int64_t> code = JsonView(member(terminated, {"exitCode"})).integer();
  const bool fits = code && *code == static_cast<int>(*code);
  return fits ? std::optional(static_cast<int>(*code)) : std::nullopt;
}

// A container that ended, and not well.
Sign sign_of_end(const Json& terminated, Evidence where, bool deleted, const std::vector<LogTail>& logs) {
  const std::string time = text_member(terminated, {"finishedAt"});
  const std::string reason = text_member(terminated, {"reason"});
  const std::string message = text_member(terminated, {"message"});
  const int exit_code = exit_code_of(terminated).value_or(0);
  Evidence said = where;
  said.field += ".message";
  if (reason == "OOMKilled") {
    where.field += ".reason";
    where.text = "OOMKilled, exit code " + std::to_string(exit_code);
    return sign(Weight::kCause, Verdict::kHostOutOfMemory, std::move(where), time);
  }
  // containerd's words for a container that was not there any more when it, or the node, had started again.
  const bool lost = reason == "ContainerStatusUnknown" || (reason == "Unknown" && exit_code == 255);
  if (lost) {
    where.field += ".reason";
    where.text = message.empty() ? reason : reason + ": " + message;
    return sign(Weight::kCause, Verdict::kInfrastructureFailure, std::move(where), time);
  }
  if (reason == "ContainerCannotRun" || reason == "StartError") {
    where.field += ".reason";
    where.text = message.empty() ? reason : reason + ": " + message;
    return sign(Weight::kCause, verdict_of_start(message), std::move(where), time);
  }
  std::optional<Sign> best = sign_of_text(message, said, time);
  Evidence logged = where;
  logged.field = "log";
  if (std::optional<Sign> from_log = sign_of_text(log_of(logs, where), logged, time);
      from_log && (!best || from_log->weight < best->weight)) {
    best = std::move(from_log);
  }
  if (best) {
    return *std::move(best);
  }
  return sign_of_exit_code(exit_code, std::move(where), time, deleted);
}

// The container that trains, empty where nothing tells it from the others: the one of that name, else the one
// with a device (a mesh may have put its proxy first), else the first.
std::string trainer_of(const Json& pod) {
  const Json& containers = member(pod, {"spec", "containers"});
  const Json& known =
      containers.isArray() && !containers.empty() ? containers : member(pod, {"status", "containerStatuses"});
  const int index = crds::trainer_container(known);
  if (index < 0) {
    return {};
  }
  const std::string first = text_member(element(known, static_cast<std::size_t>(index)), {"name"});
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

// How much the end of a container proves that is not the trainer, whose own end is known. Nobody's exception
// beside it ends training; a kill for memory or a lost node may, if the trainer does not say otherwise.
Weight weight_beside(const Sign& sign, const Sign& trainer) {
  const bool may =
      sign.weight == Weight::kCause && trainer.weight > Weight::kProgram &&
      (sign.end.verdict == Verdict::kHostOutOfMemory || sign.end.verdict == Verdict::kInfrastructureFailure);
  return may ? sign.weight : std::max(sign.weight, Weight::kBeside);
}

class PodSigns {
 public:
  PodSigns(const Json& pod, const std::vector<LogTail>& logs)
      : pod_(pod),
        logs_(logs),
        name_(text_member(pod, {"metadata", "name"})),
        trainer_(trainer_of(pod)),
        deleted_(!member(pod, {"metadata", "deletionTimestamp"}).isNull()) {}

  void add_to(std::vector<Sign>& signs) {
    if (std::optional<Sign> disruption = sign_of_disruption(pod_, name_)) {
      signs.push_back(*std::move(disruption));
    } else if (std::optional<Sign> reason = sign_of_reason(pod_, name_)) {
      signs.push_back(*std::move(reason));
    }
    for (const char* list : {"containerStatuses", "initContainerStatuses"}) {
      for (const Json& status : member(pod_, {"status", list})) {
        add_container(status, list);
      }
    }
    const auto of_trainer = std::find_if(ends_.begin(), ends_.end(), [&](const Sign& end) {
      return !trainer_.empty() && end.end.evidence.container == trainer_;
    });
    if (of_trainer != ends_.end()) {
      const Sign trainer = *of_trainer;
      for (Sign& end : ends_) {
        if (end.end.evidence.container != trainer_) {
          end.weight = weight_beside(end, trainer);
        }
      }
    }
    const bool failed = text_member(pod_, {"status", "phase"}) == "Failed";
    if (ends_.empty() && failed && deleted_) {  // before any of its containers ran
      ends_.push_back(sign(Weight::kConsequence, Verdict::kInfrastructureFailure,
                           {.pod = name_,
                            .container = "",
                            .field = "metadata.deletionTimestamp",
                            .text = "the pod was deleted"},
                           ""));
    }
    std::move(ends_.begin(), ends_.end(), std::back_inserter(signs));
  }

 private:
  void add_container(const Json& status, const char* list) {
    const std::string container = text_member(status, {"name"});
    const Evidence where{.pod = name_,
                         .container = container,
                         .field = std::string("status.") + list + "[" + container + "]",
                         .text = ""};
    const Json& waiting = member(status, {"state", "waiting"});
    if (!waiting.isNull()) {
      if (std::optional<Sign> stuck = sign_of_waiting(waiting, where)) {
        ends_.push_back(*std::move(stuck));
      }
    }
    // A container that crashes again and again waits in between.
    const bool crashing = text_member(waiting, {"reason"}) == "CrashLoopBackOff";
    const char* state = crashing ? "lastState" : "state";
    const Json& terminated = member(status, {state, "terminated"});
    if (terminated.isObject() && exit_code_of(terminated) != 0) {
      Evidence end = where;
      end.field += std::string(".") + state + ".terminated";
      ends_.push_back(sign_of_end(terminated, std::move(end), deleted_, logs_));
    }
  }

  const Json& pod_;
  const std::vector<LogTail>& logs_;
  const std::string name_;
  const std::string trainer_;
  const bool deleted_;
  std::vector<Sign> ends_;  // of its containers
};

// Before: it proves more; or as much, and earlier. What has no time goes behind what has.
bool goes_before(const Sign& a, const Sign& b) {
  if (a.weight != b.weight) {
    return a.weight < b.weight;
  }
  if (a.time.empty() || b.time.empty()) {
    return !a.time.empty() && b.time.empty();
  }
  return a.time < b.time;
}

}  // namespace

AttemptEnd classify(const std::vector<Json>& pods, const std::vector<LogTail>& logs) {
  std::vector<Sign> signs;
  std::size_t succeeded = 0;
  std::size_t failed = 0;
  for (const Json& pod : pods) {
    const std::string phase = text_member(pod, {"status", "phase"});
    succeeded += phase == "Succeeded" ? 1 : 0;
    failed += phase == "Failed" ? 1 : 0;
    if (phase != "Succeeded") {
      PodSigns(pod, logs).add_to(signs);
    }
  }
  if (failed > 0 || pods.empty()) {
    // No status says which container ended, but somebody kept what one of them wrote.
    const bool read = std::any_of(signs.begin(), signs.end(),
                                  [](const Sign& sign) { return !sign.end.evidence.container.empty(); });
    const Evidence nobody{.pod = "", .container = "", .field = "log", .text = ""};
    if (std::optional<Sign> said = sign_of_text(log_of(logs, nobody), nobody, ""); said && !read) {
      signs.push_back(*std::move(said));
    }
  }
  if (!signs.empty()) {
    return std::min_element(signs.begin(), signs.end(), goes_before)->end;
  }
  AttemptEnd end;
  if (pods.empty()) {
    end.verdict = Verdict::kInfrastructureFailure;
    end.evidence.text = "no pod is left";
  } else if (succeeded == pods.size()) {
    end.verdict = Verdict::kSucceeded;
  } else if (failed == 0) {
    end.verdict = Verdict::kRunning;
  }
  return end;
}

}  // namespace plimsoll::controllers
