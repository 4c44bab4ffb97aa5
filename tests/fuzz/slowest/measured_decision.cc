#include "tests/fuzz/slowest/measured_decision.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "base/json/view.h"
#include "base/log.h"
#include "estimator/provisioner/patch.h"
#include "estimator/provisioner/provisioner.h"
#include "tests/fuzz/heap_meter.h"
#include "tests/fuzz/world.h"

namespace plimsoll::testing {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kReasonLimit = 1024;

// What a child tells, in one write.
struct Outcome {
  Measured::End end;
  std::int64_t processor_ms;
  std::int64_t overrun_ms;
  std::int64_t peak_heap;
  char reason[kReasonLimit];
};

std::int64_t processor_ms() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<std::int64_t>(time.tv_sec) * 1000 + time.tv_nsec / 1'000'000;
}

// Set when the deadline passes, by its signal; -1: it has not.
volatile std::int64_t processor_ms_at_deadline = -1;

void note_deadline(int /*signal*/) {
  processor_ms_at_deadline = processor_ms();
}

void announce_deadline(milliseconds deadline) {
  struct sigaction action {};
  action.sa_handler = note_deadline;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGALRM, &action, nullptr);
  itimerval timer{};
  timer.it_value.tv_sec = deadline.count() / 1000;
  timer.it_value.tv_usec = deadline.count() % 1000 * 1000;
  ::setitimer(ITIMER_REAL, &timer, nullptr);
}

Outcome decide_here(const std::string& text, const DecisionLimits& limits) {
  Outcome outcome{};
  const std::int64_t begin = processor_ms();
  announce_deadline(limits.deadline);
  HeapMeter::start();
  {
    const Result<JsonText> object = JsonText::parse(text);
    Budget budget(decision_limits(limits.deadline));
    const Result<DecidedJob> decided =
        object ? decide(object->root(), budget) : Result<DecidedJob>(object.error());
    if (decided) {
      (void)estimator::patch_for(decided->job, decided->provision);
    }
    HeapMeter::stop();
    outcome.end = decided ? Measured::End::kDecided : Measured::End::kRefused;
    std::snprintf(outcome.reason, sizeof outcome.reason, "%s",
                  decided ? decided->provision.event_reason.c_str() : decided.error().message.c_str());
  }
  const std::int64_t end = processor_ms();
  outcome.processor_ms = end - begin;
  outcome.overrun_ms = processor_ms_at_deadline < 0 ? 0 : end - processor_ms_at_deadline;
  outcome.peak_heap = HeapMeter::peak().count;
  return outcome;
}

// Waits until the child has written or ended: so long as it has not had more processor time than it may, and
// within a wall time for children that sleep.
bool wait_for_answer(int pipe, pid_t child, const DecisionLimits& limits) {
  constexpr int kLook = 20;  // ms
  const milliseconds most = limits.deadline + limits.grace;
  const auto last = std::chrono::steady_clock::now() + 20 * most;
  clockid_t clock{};
  const bool has_clock = ::clock_getcpuclockid(child, &clock) == 0;
  pollfd ready{.fd = pipe, .events = POLLIN, .revents = 0};
  while (::poll(&ready, 1, kLook) == 0) {
    timespec used{};
    const bool read = has_clock && ::clock_gettime(clock, &used) == 0;
    const milliseconds processor_time{read ? used.tv_sec * 1000 + used.tv_nsec / 1'000'000 : 0};
    if (processor_time > most || std::chrono::steady_clock::now() > last) {
      return false;
    }
  }
  return true;
}

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::exit(1);
}

}  // namespace

const char* name_of(Measured::End end) {
  switch (end) {
    case Measured::End::kDecided: return "decided";
    case Measured::End::kRefused: return "refused";
    case Measured::End::kKilled: return "killed";
    case Measured::End::kCrashed: return "crashed";
  }
  return "";
}

Measured measure_decision(const Json& job, const DecisionLimits& limits) {
  (void)fuzz_cluster();
  (void)fuzz_models();
  const std::string text = write_json(job);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    die("pipe2");
  }
  const pid_t child = ::fork();
  if (child < 0) {
    die("fork");
  }
  if (child == 0) {
    ::close(ends[0]);
    const Outcome outcome = decide_here(text, limits);
    [[maybe_unused]] const auto written = ::write(ends[1], &outcome, sizeof outcome);
    ::_exit(0);
  }
  ::close(ends[1]);
  const bool ended = wait_for_answer(ends[0], child, limits);
  Outcome outcome{};
  const bool answered =
      ended && ::read(ends[0], &outcome, sizeof outcome) == static_cast<ssize_t>(sizeof outcome);
  ::close(ends[0]);
  if (!ended) {
    ::kill(child, SIGKILL);
  }
  int status = 0;
  rusage used{};
  ::wait4(child, &status, 0, &used);
  if (answered) {
    return {outcome.end, outcome.reason, milliseconds(outcome.processor_ms), Bytes{outcome.peak_heap},
            milliseconds(outcome.overrun_ms)};
  }
  if (!ended) {
    const milliseconds took{(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000 +
                            (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1000};
    return {Measured::End::kKilled, "no decision after its deadline and grace", took, used.ru_maxrss * 1_KiB};
  }
  const std::string how = WIFSIGNALED(status) ? std::string("signal ") + ::strsignal(WTERMSIG(status))
                                              : "exit code " + std::to_string(WEXITSTATUS(status));
  return {Measured::End::kCrashed, how, milliseconds(0), Bytes{}, milliseconds(0)};
}

}  // namespace plimsoll::testing
