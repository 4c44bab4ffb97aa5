#include "remediation/termination_message.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <utility>
#include <vector>

#include "remediation/log_lines.h"
#include "remediation/out_of_memory_patterns.h"

namespace plimsoll::remediation {
namespace {

using Patterns = std::initializer_list<std::string_view>;

// The offset of the first pattern, in their order, that the text has.
std::size_t find_any(std::string_view text, Patterns patterns) {
  for (const std::string_view pattern : patterns) {
    if (const std::size_t at = text.find(pattern); at != text.npos) {
      return at;
    }
  }
  return text.npos;
}

// All patterns for lines are in lower case.

// torchrec's planner found no placement of the embedding tables.
const Patterns kShardingErrors = {"plannererror", "insufficient_storage",
                                  "unable to find a plan for this model"};

// The card, its driver or links, or the storage failed: another node may work.
const Patterns kDeviceErrors = {"uncorrectable ecc error",
                                "uncorrectable nvlink error",
                                "cudaerroreccuncorrectable",
                                "cuda_error_ecc_uncorrectable",
                                "over nvlink or a hardware error",
                                "gpu is lost",
                                "has fallen off the bus",
                                "nvrm: xid",
                                "cuda error: device unavailable",
                                "cuda-capable device(s) is/are busy or unavailable",
                                "all cuda-capable devices are busy or unavailable",
                                "cuda driver version is insufficient",
                                "no cuda-capable device is detected",
                                "no cuda gpus are available",
                                "no hip gpus are available",
                                "found no nvidia driver on your system",
                                "cuda driver initialization failed",
                                "nvidia-container-cli: initialization error",
                                "failed to initialize nvml",
                                "system not yet initialized",
                                "unsupported display driver / cuda driver combination",
                                "stale file handle",
                                "transport endpoint is not connected",
                                "input/output error"};

// Errors of the other ranks when one is lost, and of any process when the network or a remote service fails.
const Patterns kLostPeer = {"ncclsystemerror",
                            "ncclremoteerror",
                            "ncclinternalerror",
                            "ncclunhandledcudaerror",
                            "nccl error",
                            "nccl communicator",
                            "net/ib",
                            "ibv_",
                            "watchdog caught collective operation timeout",
                            "heartbeat monitor timeout",
                            "terminated with exception: [",
                            "distbackenderror",
                            "monitoredbarrier",
                            "store based barrier",
                            "connection reset by peer",
                            "connection closed by peer",
                            "connection was reset",
                            "connection refused",
                            "connection aborted",
                            "connection timed out",
                            "broken pipe",
                            "socket timeout",
                            "the client socket has timed out",
                            "the client socket has failed to connect",
                            "rendezvoustimeouterror",
                            "rendezvousconnectionerror",
                            "rendezvousclosederror",
                            "diststoreerror",
                            "distnetworkerror",
                            "actordiederror",
                            "workercrashederror",
                            "nodediederror",
                            "name or service not known",
                            "temporary failure in name resolution",
                            "no route to host",
                            "network is unreachable",
                            "timed out waiting",
                            "read timed out",
                            "max retries exceeded with url",
                            "could not connect to the endpoint url",
                            "remote end closed connection",
                            "too many requests",
                            "service unavailable",
                            "signalexception: process",
                            "keyboardinterrupt"};

// Errors that the program, the card, or a lack of memory may cause.
const Patterns kUnclear = {"_status_not_initialized",    "_status_execution_failed",
                           "_status_internal_error",     "cuda error: unknown error",
                           "unspecified launch failure", "cudaerrorlaunchfailure",
                           "cudaerrorunknown",           "dataloader worker (pid"};

// The ends of names. Exceptions of process launchers: they report that a child failed, but not why.
const Patterns kLauncherExceptions = {"ChildFailedError",
                                      "CalledProcessError",
                                      "ProcessRaisedException",
                                      "ProcessExitedException",
                                      "BrokenProcessPool",
                                      "TrainingFailedError",
                                      "RayTaskError"};

// A launcher reports that its child died of SIGKILL, and was not killed itself: the kernel killed the child
// because memory ran out.
const Patterns kKilledChild = {"signal 9 (sigkill) received by pid", "(exitcode: -9)",
                               "exits with return code = -9",        "terminated with signal sigkill",
                               "died with <signals.sigkill: 9>",     "returned non-zero exit status 137"};

constexpr std::string_view kRootCause = "Root Cause (first observed failure)";

bool is_of_launcher(std::string_view exception) {
  return std::any_of(kLauncherExceptions.begin(), kLauncherExceptions.end(),
                     [&](std::string_view name) { return exception.ends_with(name); });
}

// "Killed" of a shell in its forms: alone, and "run.sh: line 3:    17 Killed      python train.py".
bool shell_reports_a_kill(std::string_view body) {
  if (body == "Killed") {
    return true;
  }
  const std::size_t at = body.find(" Killed");
  const std::string_view before = body.substr(0, at == body.npos ? 0 : at);
  return before.find("line ") != before.npos && before.back() >= '0' && before.back() <= '9';
}

class Message {
 public:
  explicit Message(std::string_view text)
      : text_(without_terminal_codes(text)), lines_(log_lines(text_)), exceptions_(exceptions_in(lines_)) {
    lower_.reserve(lines_.size());
    for (const LogLine& line : lines_) {
      lower_.push_back(lower_case(line.text));
    }
    for (std::size_t line = 0; line < lines_.size(); ++line) {
      add_claim(line);
    }
    sort_exceptions();
  }

  std::optional<Diagnosis> diagnose() const {
    if (const Claim* claim = first_claim()) {
      return diagnosis(*claim);
    }
    if (const std::optional<std::size_t> killed = killed_process()) {
      return diagnosis(Priority::kCause, Outcome::kHostOutOfMemory, *killed);
    }
    if (program_) {
      return diagnosis(Priority::kException, Outcome::kUserError, *program_);
    }
    if (unclear_) {
      return diagnosis(Priority::kException, Outcome::kUnknown, *unclear_);
    }
    if (const std::optional<int> code = exit_code_of_root_cause();
        code && (*code == 2 || *code == 126 || *code == 127)) {
      return Diagnosis{
          .priority = Priority::kException,
          .outcome = Outcome::kUserError,
          .line = "torchrun: the first process that failed has exit code " + std::to_string(*code)};
    }
    if (peer_) {
      return diagnosis(Priority::kConsequence, Outcome::kInfrastructureFailure, *peer_);
    }
    for (std::size_t i = 0; i < lower_.size(); ++i) {
      if (has_any(lower_[i], kLostPeer)) {
        return diagnosis(Priority::kConsequence, Outcome::kInfrastructureFailure, i);
      }
    }
    return std::nullopt;
  }

 private:
  // A line that names a cause.
  struct Claim {
    Outcome outcome = Outcome::kUnknown;
    std::size_t line = 0;
    std::size_t at = 0;  // in the line
    bool error = false;  // it ended a process, and is not only mentioned
  };

  // The line is part of an exception's message, or of what C++'s terminate() prints.
  bool is_error(std::size_t line) const {
    const auto after =
        std::upper_bound(exceptions_.begin(), exceptions_.end(), line,
                         [](std::size_t at, const LoggedException& one) { return at < one.line; });
    return (after != exceptions_.begin() && line < std::prev(after)->end) ||
           lines_[line].body.starts_with("what():");
  }

  // Whether the exhausted memory was pinned memory of the host: the driver has one error for both.
  bool is_pinned_memory(std::size_t line) const {
    if (lower_[line].find("tried to allocate") != std::string::npos) {
      return false;
    }
    if (has_any(lower_[line], {"cachinghost", "hostalloc", "mallochost", "host alloc"})) {
      return true;
    }
    // Up the traceback that ends here.
    constexpr std::size_t kFrames = 12;
    for (std::size_t i = line; i-- > 0 && line - i <= kFrames;) {
      if (lower_[i].find("traceback (most recent call last)") != std::string::npos) {
        return false;
      }
      if (has_any(lower_[i], {".pin_memory(", "in pin_memory", "pin_memory=true", "pin memory thread"})) {
        return true;
      }
    }
    return false;
  }

  void add(Outcome outcome, std::size_t line, std::size_t at) {
    claims_.push_back({.outcome = outcome, .line = line, .at = at, .error = is_error(line)});
  }

  void add_claim(std::size_t line) {
    const std::string& lower = lower_[line];
    if (const std::optional<OutOfMemoryMatch> memory = find_out_of_memory(lines_[line].text)) {
      const bool last =
          std::all_of(lower_.begin() + static_cast<std::ptrdiff_t>(line) + 1, lower_.end(),
                      [](const std::string& rest) { return rest.find_first_not_of(" \t\r") == rest.npos; });
      // A message that may only mention exhausted memory counts on the last line alone.
      const bool remark = !memory->exact && !last && !is_error(line) &&
                          !has_any(lower.substr(0, memory->at), {"error", "fail", "fatal", "critical"});
      if (!remark) {
        const bool of_gpu = memory->of_gpu && !is_pinned_memory(line);
        add(of_gpu ? Outcome::kCudaOutOfMemory : Outcome::kHostOutOfMemory, line, memory->at);
        return;
      }
    }
    if (const std::size_t sharding = find_any(lower, kShardingErrors); sharding != lower.npos) {
      add(Outcome::kShardingFailure, line, sharding);
    } else if (const std::size_t device = find_any(lower, kDeviceErrors); device != lower.npos) {
      add(Outcome::kInfrastructureFailure, line, device);
    }
  }

  void sort_exceptions() {
    for (const LoggedException& one : exceptions_) {
      const auto claim = std::lower_bound(claims_.begin(), claims_.end(), one.line,
                                          [](const Claim& a, std::size_t line) { return a.line < line; });
      if ((claim != claims_.end() && claim->line < one.end) || is_of_launcher(one.name)) {
        continue;
      }
      const auto says = [&](Patterns patterns) {
        return std::any_of(lower_.begin() + static_cast<std::ptrdiff_t>(one.line),
                           lower_.begin() + static_cast<std::ptrdiff_t>(one.end),
                           [&](const std::string& line) { return has_any(line, patterns); });
      };
      if (says(kLostPeer)) {
        peer_ = peer_ ? peer_ : one.line;
      } else {
        (says(kUnclear) ? unclear_ : program_) = one.line;
      }
    }
  }

  // The line that reports a killed process, unless an earlier exception explains the kill. torchrun kills the
  // others when one has failed: then only the process that it names as root cause counts.
  std::optional<std::size_t> killed_process() const {
    std::size_t root = 0;
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      root = lines_[i].body.starts_with(kRootCause) ? i : root;
    }
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      const bool other = lower_[i].find("received by pid") != std::string::npos && i < root;
      if ((has_any(lower_[i], kKilledChild) && !other) || shell_reports_a_kill(lines_[i].body)) {
        return program_ && *program_ < i ? std::nullopt : std::optional(i);
      }
    }
    return std::nullopt;
  }

  // "  exitcode  : 2 (pid: 118)" under torchrun's root cause.
  std::optional<int> exit_code_of_root_cause() const {
    bool in_root = false;
    for (const LogLine& line : lines_) {
      in_root = in_root || line.body.starts_with(kRootCause);
      const std::size_t colon = line.body.find(": ");
      if (in_root && line.body.starts_with("exitcode") && colon != line.body.npos) {
        int code = 0;
        const char* begin = line.body.data() + colon + 2;
        const char* end = line.body.data() + line.body.size();
        return std::from_chars(begin, end, code).ec == std::errc() ? std::optional(code) : std::nullopt;
      }
    }
    return std::nullopt;
  }

  Diagnosis diagnosis(Priority priority, Outcome outcome, std::size_t line, std::size_t at = 0) const {
    return {.priority = priority, .outcome = outcome, .line = line_at(lines_[line].text, at)};
  }

  Diagnosis diagnosis(const Claim& claim) const {
    Diagnosis found = diagnosis(Priority::kCause, claim.outcome, claim.line, claim.at);
    if (claim.outcome == Outcome::kCudaOutOfMemory) {
      const std::string_view text = text_;
      found.out_of_memory = parse_out_of_memory_figures(
          text.substr(static_cast<std::size_t>(lines_[claim.line].text.data() - text.data())));
    }
    return found;
  }

  // The first claim that ended a process; else the first that is mentioned, unless an exception of the
  // program follows it. An out-of-memory of the GPU may also print errors of host memory, so it comes first.
  const Claim* first_claim() const {
    const Claim* first = nullptr;
    for (const Claim& claim : claims_) {
      if (!claim.error && program_ && *program_ > claim.line) {
        continue;
      }
      const auto rank = [](const Claim& one) {
        return std::pair(!one.error, one.outcome != Outcome::kCudaOutOfMemory);
      };
      if (first == nullptr || rank(claim) < rank(*first)) {
        first = &claim;
      }
    }
    return first;
  }

  const std::string text_;
  const std::vector<LogLine> lines_;
  std::vector<std::string> lower_;  // the lines in lower case
  const std::vector<LoggedException> exceptions_;
  std::vector<Claim> claims_;  // by line
  // Lines of exceptions: the last of the program itself, the last that may be, and the first that a lost peer
  // causes.
  std::optional<std::size_t> program_, unclear_, peer_;
};

}  // namespace

std::optional<Diagnosis> read_termination_message(std::string_view text) {
  return Message(text).diagnose();
}

}  // namespace plimsoll::remediation
