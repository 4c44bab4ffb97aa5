#include "controllers/last_words.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>
#include <vector>

#include "controllers/log_lines.h"

namespace plimsoll::controllers {
namespace {

// All of these in small letters.

// The placement of embedding tables found no room: torchrec's planner.
constexpr std::array kShardingTexts = {"plannererror", "insufficient_storage",
                                       "unable to find a plan for this model"};

// The card, its driver or its links, or the storage: another node may do.
constexpr std::array kDeviceTexts = {"uncorrectable ecc error",
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

// What the other ranks say when one is gone, and anybody when the network or a service beyond it fails.
constexpr std::array kPeerTexts = {"ncclsystemerror",
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

// Errors behind which may be the program, the card, or memory that is short.
constexpr std::array kUnclearTexts = {"_status_not_initialized",    "_status_execution_failed",
                                      "_status_internal_error",     "cuda error: unknown error",
                                      "unspecified launch failure", "cudaerrorlaunchfailure",
                                      "cudaerrorunknown",           "dataloader worker (pid"};

// Exceptions of what starts the processes: they say that a child failed, and not why.
constexpr std::array kLaunchers = {"ChildFailedError",
                                   "CalledProcessError",
                                   "ProcessRaisedException",
                                   "ProcessExitedException",
                                   "BrokenProcessPool",
                                   "TrainingFailedError",
                                   "RayTaskError"};

// A process that another saw die of SIGKILL, and that other was left alone: the kernel had no memory.
constexpr std::array kKilledTexts = {
    "signal 9 (sigkill) received by pid", "(exitcode: -9)",
    "exits with return code = -9",        "terminated with signal sigkill",
    "died with <signals.sigkill: 9>",     "returned non-zero exit status 137"};

constexpr std::string_view kRootCause = "Root Cause (first observed failure)";

template <std::size_t kCount>
bool has_any(std::string_view text, const std::array<const char*, kCount>& needles) {
  return std::any_of(needles.begin(), needles.end(),
                     [&](std::string_view needle) { return text.find(needle) != text.npos; });
}

// "Killed" of a shell in its forms: alone, and "run.sh: line 3:    17 Killed      python train.py".
bool shell_saw_a_kill(std::string_view body) {
  if (body == "Killed") {
    return true;
  }
  const std::size_t at = body.find(" Killed");
  const std::string_view before = body.substr(0, at == body.npos ? 0 : at);
  return before.find("line ") != before.npos && before.back() >= '0' && before.back() <= '9';
}

class Reading {
 public:
  explicit Reading(std::string_view text);

  std::optional<LastWords> judge() const;

 private:
  enum class Kind { kGpuMemory, kHostMemory, kSharding, kDevice };
  // A line that names a cause.
  struct Claim {
    Kind kind = Kind::kDevice;
    std::size_t line = 0;
    std::size_t at = 0;  // in the line
    bool error = false;  // it is what a process ended with, and no mention
  };

  void find_claims();
  void add_claim(std::size_t line);
  void add(Kind kind, std::size_t line, std::size_t at);
  bool is_error(std::size_t line) const;
  bool is_pinned_memory(std::size_t line) const;
  void judge_exceptions();
  std::optional<std::size_t> killed_process() const;
  std::optional<int> exit_code_of_the_first() const;

  const LoggedException* exception_around(std::size_t line) const;
  const Claim* first_claim() const;
  std::string shown(std::size_t line, std::size_t at = 0) const;
  LastWords words(Weight weight, Verdict verdict, std::size_t line, std::size_t at = 0) const;
  LastWords words(const Claim& claim) const;

  const std::string text_;
  const std::vector<LogLine> lines_;
  std::vector<std::string> small_;  // the lines in small letters
  const std::vector<LoggedException> exceptions_;
  std::vector<Claim> claims_;  // by line
  // Of the exceptions: the last that is the program's own, the last that may be, and the first that a lost
  // peer causes.
  std::optional<std::size_t> program_, unclear_, peer_;
};

Reading::Reading(std::string_view text)
    : text_(without_terminal_codes(text)), lines_(log_lines(text_)), exceptions_(exceptions_in(lines_)) {
  small_.reserve(lines_.size());
  for (const LogLine& line : lines_) {
    small_.push_back(in_small_letters(line.text));
  }
  find_claims();
  judge_exceptions();
}

const LoggedException* Reading::exception_around(std::size_t line) const {
  const auto after =
      std::upper_bound(exceptions_.begin(), exceptions_.end(), line,
                       [](std::size_t at, const LoggedException& one) { return at < one.line; });
  if (after == exceptions_.begin()) {
    return nullptr;
  }
  return line < (after - 1)->end ? &*(after - 1) : nullptr;
}

// What an exception says, or C++'s terminate() of one.
bool Reading::is_error(std::size_t line) const {
  return exception_around(line) != nullptr || lines_[line].body.starts_with("what():");
}

// Memory of the host that the card may read, when it was this that ran out: the driver has one error for
// both.
bool Reading::is_pinned_memory(std::size_t line) const {
  if (small_[line].find("tried to allocate") != std::string::npos) {
    return false;
  }
  if (has_any(small_[line], std::array{"cachinghost", "hostalloc", "mallochost", "host alloc"})) {
    return true;
  }
  // Up the traceback that ends here.
  constexpr std::size_t kFrames = 12;
  for (std::size_t i = line; i-- > 0 && line - i <= kFrames;) {
    if (small_[i].find("traceback (most recent call last)") != std::string::npos) {
      return false;
    }
    if (has_any(small_[i],
                std::array{".pin_memory(", "in pin_memory", "pin_memory=true", "pin memory thread"})) {
      return true;
    }
  }
  return false;
}

void Reading::add(Kind kind, std::size_t line, std::size_t at) {
  claims_.push_back({.kind = kind, .line = line, .at = at, .error = is_error(line)});
}

void Reading::add_claim(std::size_t line) {
  const std::string& small = small_[line];
  if (const std::optional<MemoryWords> memory = find_memory_words(lines_[line].text)) {
    const bool last =
        std::all_of(small_.begin() + static_cast<std::ptrdiff_t>(line) + 1, small_.end(),
                    [](const std::string& rest) { return rest.find_first_not_of(" \t\r") == rest.npos; });
    // A remark in words that anybody may use counts when it is the last word.
    const bool remark =
        !memory->exact && !last && !is_error(line) &&
        !has_any(small.substr(0, memory->at), std::array{"error", "fail", "fatal", "critical"});
    if (!remark) {
      const bool of_gpu = memory->of_gpu && !is_pinned_memory(line);
      add(of_gpu ? Kind::kGpuMemory : Kind::kHostMemory, line, memory->at);
      return;
    }
  }
  const auto find = [&](Kind kind, const auto& needles) {
    for (const std::string_view needle : needles) {
      if (const std::size_t at = small.find(needle); at != small.npos) {
        add(kind, line, at);
        return true;
      }
    }
    return false;
  };
  find(Kind::kSharding, kShardingTexts) || find(Kind::kDevice, kDeviceTexts);
}

void Reading::find_claims() {
  for (std::size_t line = 0; line < lines_.size(); ++line) {
    add_claim(line);
  }
}

void Reading::judge_exceptions() {
  for (const LoggedException& one : exceptions_) {
    const auto claim = std::lower_bound(claims_.begin(), claims_.end(), one.line,
                                        [](const Claim& a, std::size_t line) { return a.line < line; });
    if (claim != claims_.end() && claim->line < one.end) {
      continue;
    }
    if (std::any_of(kLaunchers.begin(), kLaunchers.end(),
                    [&](std::string_view launcher) { return one.name.ends_with(launcher); })) {
      continue;
    }
    const auto says = [&](const auto& needles) {
      return std::any_of(small_.begin() + static_cast<std::ptrdiff_t>(one.line),
                         small_.begin() + static_cast<std::ptrdiff_t>(one.end),
                         [&](const std::string& line) { return has_any(line, needles); });
    };
    if (says(kPeerTexts)) {
      peer_ = peer_ ? peer_ : one.line;
    } else {
      (says(kUnclearTexts) ? unclear_ : program_) = one.line;
    }
  }
}

// The first cause that ended a process; else the first that is mentioned, when no exception of the program
// comes after it. What ran out of the GPU's memory may say so in words of the host's, too.
const Reading::Claim* Reading::first_claim() const {
  const Claim* first = nullptr;
  for (const Claim& claim : claims_) {
    if (!claim.error && program_ && *program_ > claim.line) {
      continue;
    }
    const auto rank = [](const Claim& one) { return std::pair(!one.error, one.kind != Kind::kGpuMemory); };
    if (first == nullptr || rank(claim) < rank(*first)) {
      first = &claim;
    }
  }
  return first;
}

// The line that tells of a process that was killed, and of no exception before it that explains the kill.
// torchrun kills the others when one has failed: then only its root cause tells.
std::optional<std::size_t> Reading::killed_process() const {
  std::size_t root = 0;
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    root = lines_[i].body.starts_with(kRootCause) ? i : root;
  }
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    const bool other = small_[i].find("received by pid") != std::string::npos && i < root;
    if ((has_any(small_[i], kKilledTexts) && !other) || shell_saw_a_kill(lines_[i].body)) {
      return program_ && *program_ < i ? std::nullopt : std::optional(i);
    }
  }
  return std::nullopt;
}

// "  exitcode  : 2 (pid: 118)" under torchrun's root cause.
std::optional<int> Reading::exit_code_of_the_first() const {
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

std::string Reading::shown(std::size_t line, std::size_t at) const {
  return line_at(lines_[line].text, at);
}

LastWords Reading::words(Weight weight, Verdict verdict, std::size_t line, std::size_t at) const {
  return {.weight = weight, .verdict = verdict, .line = shown(line, at), .figures = {}};
}

LastWords Reading::words(const Claim& claim) const {
  Verdict verdict = Verdict::kInfrastructureFailure;
  switch (claim.kind) {
    case Kind::kGpuMemory: verdict = Verdict::kCudaOutOfMemory; break;
    case Kind::kHostMemory: verdict = Verdict::kHostOutOfMemory; break;
    case Kind::kSharding: verdict = Verdict::kShardingFailure; break;
    case Kind::kDevice: break;
  }
  LastWords said = words(Weight::kCause, verdict, claim.line, claim.at);
  if (claim.kind == Kind::kGpuMemory) {
    const std::string_view text = text_;
    said.figures =
        read_figures(text.substr(static_cast<std::size_t>(lines_[claim.line].text.data() - text.data())));
  }
  return said;
}

std::optional<LastWords> Reading::judge() const {
  if (const Claim* claim = first_claim()) {
    return words(*claim);
  }
  if (const std::optional<std::size_t> killed = killed_process()) {
    return words(Weight::kCause, Verdict::kHostOutOfMemory, *killed);
  }
  if (program_) {
    return words(Weight::kProgram, Verdict::kUserError, *program_);
  }
  if (unclear_) {
    return words(Weight::kProgram, Verdict::kUnknown, *unclear_);
  }
  if (const std::optional<int> code = exit_code_of_the_first();
      code && (*code == 2 || *code == 126 || *code == 127)) {
    LastWords said{.weight = Weight::kProgram, .verdict = Verdict::kUserError, .line = "", .figures = {}};
    said.line = "torchrun: the first process that failed has exit code " + std::to_string(*code);
    return said;
  }
  if (peer_) {
    return words(Weight::kConsequence, Verdict::kInfrastructureFailure, *peer_);
  }
  for (std::size_t i = 0; i < small_.size(); ++i) {
    if (has_any(small_[i], kPeerTexts)) {
      return words(Weight::kConsequence, Verdict::kInfrastructureFailure, i);
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<LastWords> read_last_words(std::string_view text) {
  return Reading(text).judge();
}

}  // namespace plimsoll::controllers
