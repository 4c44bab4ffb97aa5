#include "controllers/attempt_end.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <span>
#include <string_view>
#include <utility>

#include "controllers/out_of_memory_text.h"

namespace plimsoll::controllers {
namespace {

// How much a sign proves: lower goes first.
enum class Weight {
  kCause,        // by itself
  kProgram,      // the program's own exception
  kConsequence,  // of a peer that went; the infrastructure's when there is nothing else
  kNothing       // it ended, and nobody says why
};

struct Sign {
  Weight weight = Weight::kNothing;
  std::string time;  // RFC 3339, so it compares as text; empty: not known
  AttemptEnd end;
};

using Texts = std::span<const std::string_view>;

// The first place of any of them.
std::size_t find_any(std::string_view text, Texts needles) {
  std::size_t first = text.npos;
  for (const std::string_view needle : needles) {
    first = std::min(first, text.find(needle));
  }
  return first;
}

bool has_any(std::string_view text, std::initializer_list<std::string_view> needles) {
  return find_any(text, {needles.begin(), needles.size()}) != text.npos;
}

// The placement of embedding tables found no room: torchrec's planner, and Plimsoll's plan.
constexpr std::string_view kShardingTexts[] = {"PlannerError", "PlannerErrorType.INSUFFICIENT_STORAGE",
                                               "Unable to find a plan for this model",
                                               "plimsoll: the plan does not fit"};

// The card, its driver or its links: another node may do.
constexpr std::string_view kDeviceTexts[] = {"uncorrectable ECC error",
                                             "uncorrectable NVLink error",
                                             "cudaErrorECCUncorrectable",
                                             "GPU is lost",
                                             "has fallen off the bus",
                                             "NVRM: Xid",
                                             "CUDA error: device unavailable",
                                             "all CUDA-capable devices are busy or unavailable",
                                             "CUDA driver version is insufficient",
                                             "no CUDA-capable device is detected",
                                             "Found no NVIDIA driver on your system",
                                             "CUDA driver initialization failed",
                                             "nvidia-container-cli: initialization error",
                                             "Failed to initialize NVML",
                                             "CUDA error: system not yet initialized",
                                             "Stale file handle",
                                             "Transport endpoint is not connected",
                                             "Input/output error"};

// What the other ranks say when one is gone, or the network between them.
constexpr std::string_view kPeerTexts[] = {"ncclSystemError",
                                           "ncclRemoteError",
                                           "ncclInternalError",
                                           "ncclUnhandledCudaError",
                                           "NCCL error",
                                           "NCCL communicator was aborted",
                                           "Watchdog caught collective operation timeout",
                                           "DistBackendError",
                                           "Connection reset by peer",
                                           "Connection closed by peer",
                                           "Connection refused",
                                           "Broken pipe",
                                           "Socket Timeout",
                                           "The client socket has timed out",
                                           "The client socket has failed to connect",
                                           "RendezvousTimeoutError",
                                           "RendezvousConnectionError",
                                           "RendezvousClosedError",
                                           "DistStoreError",
                                           "DistNetworkError",
                                           "Name or service not known",
                                           "Temporary failure in name resolution",
                                           "No route to host",
                                           "Timed out waiting",
                                           "SignalException: Process"};

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
  return has_any(message, {"low on resource", "node condition"}) ? Verdict::kInfrastructureFailure
                                                                 : Verdict::kPreempted;
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
    Verdict verdict = Verdict::kPreempted;  // the scheduler, an eviction, Kueue
    if (reason == "DeletionByPodGC" || reason == "DeletionByTaintManager") {
      verdict = Verdict::kInfrastructureFailure;  // the node is gone, or not ready
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
  static constexpr std::array<std::pair<std::string_view, Verdict>, 14> kReasons = {
      {{"Preempting", Verdict::kPreempted},
       {"NodeShutdown", Verdict::kInfrastructureFailure},
       {"Terminated", Verdict::kInfrastructureFailure},
       {"Shutdown", Verdict::kInfrastructureFailure},
       {"NodeLost", Verdict::kInfrastructureFailure},
       {"NodeAffinity", Verdict::kInfrastructureFailure},
       {"UnexpectedAdmissionError", Verdict::kInfrastructureFailure},
       {"TopologyAffinityError", Verdict::kInfrastructureFailure},
       {"ContainerStatusUnknown", Verdict::kInfrastructureFailure},
       {"OutOfmemory", Verdict::kInfrastructureFailure},  // at admission to the node: it was full
       {"OutOfcpu", Verdict::kInfrastructureFailure},
       {"OutOfpods", Verdict::kInfrastructureFailure},
       {"OutOfnvidia.com/gpu", Verdict::kInfrastructureFailure},
       {"DeadlineExceeded", Verdict::kUserError}}};  // the job's own activeDeadlineSeconds
  const auto* known = std::find_if(kReasons.begin(), kReasons.end(),
                                   [&](const auto& entry) { return entry.first == reason; });
  std::optional<Verdict> verdict;
  if (known != kReasons.end()) {
    verdict = known->second;
  } else if (reason == "Evicted") {
    verdict = verdict_of_eviction(message);
  } else if (has_any(message, {"Allocate failed due to", "requested number of devices unavailable"})) {
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

// What a container was waiting for that will not come by waiting.
std::optional<Sign> sign_of_waiting(const Json& waiting, Evidence evidence) {
  const std::string reason = text_member(waiting, {"reason"});
  const std::string message = text_member(waiting, {"message"});
  evidence.field += ".state.waiting.reason";
  evidence.text = message.empty() ? reason : reason + ": " + message;
  const bool pulling = reason == "ErrImagePull" || reason == "ImagePullBackOff";
  const bool wrong_image = has_any(message, {"not found", "manifest unknown", "pull access denied",
                                             "denied:", "unauthorized", "repository does not exist"});
  if (reason == "InvalidImageName" || reason == "CreateContainerConfigError" ||
      reason == "ErrImageNeverPull" || (pulling && wrong_image)) {
    return sign(Weight::kCause, Verdict::kUserError, std::move(evidence), "");
  }
  return std::nullopt;
}

// The line with the exception that ended a Python program: the last that begins with "SomeError:".
std::optional<std::string> exception_of(std::string_view text) {
  std::optional<std::string> last;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.starts_with("[rank")) {  // torchrun's prefix "[rank3]: "
      const std::size_t colon = line.find("]: ");
      line.remove_prefix(colon == line.npos ? 0 : colon + 3);
    }
    const std::size_t length =
        line.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.");
    const std::string_view name = line.substr(0, length);
    const bool is_exception = name.ends_with("Error") || name.ends_with("Exception") ||
                              name.ends_with("Interrupt") || name.ends_with("NotFound") ||
                              name.ends_with("OutOfResources");
    if (is_exception && (length == line.npos || line[length] == ':')) {
      last = line_at(line, 0);
    }
  }
  return last;
}

// What a container's last words prove.
std::optional<Sign> sign_of_text(std::string_view text, const Evidence& where, const std::string& time) {
  const auto with = [&](std::size_t at) {
    Evidence evidence = where;
    evidence.text = line_at(text, at);
    return evidence;
  };
  if (const std::optional<OutOfMemoryText> memory = find_out_of_memory(text)) {
    Evidence evidence = where;
    evidence.text = memory->line;
    Sign found = sign(Weight::kCause, memory->of_gpu ? Verdict::kCudaOutOfMemory : Verdict::kHostOutOfMemory,
                      std::move(evidence), time);
    found.end.needed = memory->needed;
    found.end.capacity = memory->capacity;
    found.end.fragmentation = memory->fragmentation;
    return found;
  }
  if (const std::size_t at = find_any(text, kShardingTexts); at != text.npos) {
    return sign(Weight::kCause, Verdict::kShardingFailure, with(at), time);
  }
  if (const std::size_t at = find_any(text, kDeviceTexts); at != text.npos) {
    return sign(Weight::kCause, Verdict::kInfrastructureFailure, with(at), time);
  }
  if (const std::size_t at = find_any(text, kPeerTexts); at != text.npos) {
    return sign(Weight::kConsequence, Verdict::kInfrastructureFailure, with(at), time);
  }
  if (const std::optional<std::string> exception = exception_of(text)) {
    Evidence evidence = where;
    evidence.text = *exception;
    return sign(Weight::kProgram, Verdict::kUserError, std::move(evidence), time);
  }
  return std::nullopt;
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

// A container that ended, and not well.
Sign sign_of_end(const Json& terminated, Evidence where, bool deleted, const std::vector<LogTail>& logs) {
  const std::string time = text_member(terminated, {"finishedAt"});
  const std::string reason = text_member(terminated, {"reason"});
  const std::string message = text_member(terminated, {"message"});
  const Json& code = member(terminated, {"exitCode"});
  const int exit_code = code.isInt() ? code.asInt() : 0;
  Evidence said = where;
  said.field += ".message";
  if (reason == "OOMKilled") {
    where.field += ".reason";
    where.text = "OOMKilled, exit code " + std::to_string(exit_code);
    return sign(Weight::kCause, Verdict::kHostOutOfMemory, std::move(where), time);
  }
  if (reason == "ContainerStatusUnknown") {
    where.field += ".reason";
    where.text = message.empty() ? reason : reason + ": " + message;
    return sign(Weight::kCause, Verdict::kInfrastructureFailure, std::move(where), time);
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
  if (reason == "ContainerCannotRun" || reason == "StartError") {
    where.field += ".reason";
    where.text = message.empty() ? reason : reason + ": " + message;
    const bool program = has_any(message, {"no such file", "not found", "permission denied", "exec format"});
    return sign(Weight::kCause, program ? Verdict::kUserError : Verdict::kInfrastructureFailure,
                std::move(where), time);
  }
  return sign_of_exit_code(exit_code, std::move(where), time, deleted);
}

void add_signs_of(const Json& pod, const std::vector<LogTail>& logs, std::vector<Sign>& signs) {
  const std::string name = text_member(pod, {"metadata", "name"});
  const bool deleted = !member(pod, {"metadata", "deletionTimestamp"}).isNull();
  if (std::optional<Sign> disruption = sign_of_disruption(pod, name)) {
    signs.push_back(*std::move(disruption));
  } else if (std::optional<Sign> reason = sign_of_reason(pod, name)) {
    signs.push_back(*std::move(reason));
  }
  for (const char* list : {"containerStatuses", "initContainerStatuses"}) {
    for (const Json& status : member(pod, {"status", list})) {
      const std::string container = text_member(status, {"name"});
      const Evidence where{.pod = name,
                           .container = container,
                           .field = std::string("status.") + list + "[" + container + "]",
                           .text = ""};
      const Json& waiting = member(status, {"state", "waiting"});
      if (!waiting.isNull()) {
        if (std::optional<Sign> stuck = sign_of_waiting(waiting, where)) {
          signs.push_back(*std::move(stuck));
        }
      }
      // A container that crashes again and again waits in between.
      const bool crashing = text_member(waiting, {"reason"}) == "CrashLoopBackOff";
      const char* state = crashing ? "lastState" : "state";
      const Json& terminated = member(status, {state, "terminated"});
      const Json& code = member(terminated, {"exitCode"});
      if (terminated.isObject() && (!code.isInt() || code.asInt() != 0)) {
        Evidence end = where;
        end.field += std::string(".") + state + ".terminated";
        signs.push_back(sign_of_end(terminated, std::move(end), deleted, logs));
      }
    }
  }
}

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

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kCudaOutOfMemory: return "CUDAOutOfMemory";
    case Verdict::kHostOutOfMemory: return "HostOutOfMemory";
    case Verdict::kPreempted: return "Preempted";
    case Verdict::kInfrastructureFailure: return "InfrastructureFailure";
    case Verdict::kShardingFailure: return "ShardingFailure";
    case Verdict::kUserError: return "UserError";
    case Verdict::kSucceeded: return "Succeeded";
    case Verdict::kRunning: return "Running";
    case Verdict::kUnknown: return "Unknown";
  }
  return "";
}

AttemptEnd classify(const std::vector<Json>& pods, const std::vector<LogTail>& logs) {
  std::vector<Sign> signs;
  std::size_t succeeded = 0;
  std::size_t failed = 0;
  for (const Json& pod : pods) {
    const std::string phase = text_member(pod, {"status", "phase"});
    succeeded += phase == "Succeeded" ? 1 : 0;
    failed += phase == "Failed" ? 1 : 0;
    if (phase != "Succeeded") {
      add_signs_of(pod, logs, signs);
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
