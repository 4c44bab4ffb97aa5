#include "tests/controlplane/subprocess.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <thread>

namespace plimsoll::testing {
namespace {

constexpr std::chrono::milliseconds kPollInterval{10};

Error system_error(const std::string& what) {
  return Error(ErrorCode::kInternal, what + ": " + std::strerror(errno));
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) {
    pointers.push_back(text.data());
  }
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> merged_environment(const std::vector<std::string>& additions) {
  std::vector<std::string> merged = additions;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    const std::string_view name = text.substr(0, text.find('='));
    bool replaced = false;
    for (const std::string& addition : additions) {
      replaced = replaced || (addition.size() > name.size() && addition.starts_with(name) &&
                              addition[name.size()] == '=');
    }
    if (!replaced) {
      merged.emplace_back(text);
    }
  }
  return merged;
}

// The parent learns why the program was not started.
[[noreturn]] void give_up(int report) {
  const int reason = errno;
  [[maybe_unused]] const ssize_t written = write(report, &reason, sizeof(reason));
  _exit(127);
}

bool confine(const Confinement& confinement) {
  return chroot(confinement.root.c_str()) == 0 && chdir("/") == 0 && setgroups(0, nullptr) == 0 &&
         setgid(confinement.user) == 0 && setuid(confinement.user) == 0;
}

// Runs in the child, between fork and exec: only calls that are safe there.
[[noreturn]] void become(char** arguments, char** environment, const StandardStreams& streams,
                         const Confinement& confinement, pid_t parent, int report) {
  // First: another user makes the kernel forget PR_SET_PDEATHSIG.
  if (!confinement.root.empty() && !confine(confinement)) {
    give_up(report);
  }
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) {
    _exit(127);  // the parent died before the kernel knew that we mind
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  if (dup2(streams.input, STDIN_FILENO) >= 0 && dup2(streams.output, STDOUT_FILENO) >= 0 &&
      dup2(streams.errors, STDERR_FILENO) >= 0) {
    close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
    execvpe(arguments[0], arguments, environment);
  }
  give_up(report);
}

}  // namespace

Result<pid_t> spawn(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
                    const StandardStreams& streams, const Confinement& confinement) {
  assert(!arguments.empty());
  std::vector<std::string> argument_texts = arguments;
  std::vector<std::string> environment_texts = merged_environment(environment);
  const std::vector<char*> argument_pointers = pointers_to(argument_texts);
  const std::vector<char*> environment_pointers = pointers_to(environment_texts);
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) {
    return system_error("open a pipe");
  }
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    become(const_cast<char**>(argument_pointers.data()), const_cast<char**>(environment_pointers.data()),
           streams, confinement, parent, report[1]);
  }
  const int fork_error = errno;
  close(report[1]);
  // Nothing comes through the pipe when the program was started: it closes on exec.
  int reason = 0;
  ssize_t received = 0;
  if (child > 0) {
    do {
      received = read(report[0], &reason, sizeof(reason));
    } while (received < 0 && errno == EINTR);
  }
  close(report[0]);
  if (child < 0) {
    errno = fork_error;
    return system_error("fork");
  }
  if (received > 0) {
    waitpid(child, nullptr, 0);
    errno = reason;
    return system_error("start " + arguments.front());
  }
  return child;
}

int exit_code_of(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

Result<std::unique_ptr<Subprocess>> Subprocess::start(const SubprocessOptions& options) {
  const std::string log = options.log_file.empty() ? "/dev/null" : options.log_file;
  StandardStreams streams;
  streams.input = open("/dev/null", O_RDONLY | O_CLOEXEC);
  streams.output = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  streams.errors = streams.output;
  if (streams.output < 0) {
    const Error error = system_error("open " + log);
    close(streams.input);
    return error;
  }
  const Result<pid_t> pid = spawn(options.arguments, options.environment, streams, options.confinement);
  close(streams.input);
  close(streams.output);
  if (!pid) {
    return pid.error();
  }
  return std::unique_ptr<Subprocess>(new Subprocess(*pid));
}

Subprocess::~Subprocess() {
  kill(-pid_, SIGKILL);  // also what it may have left behind in its group
  if (!exit_code_) {
    waitpid(pid_, nullptr, 0);
  }
}

std::optional<int> Subprocess::wait_for_exit(std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!exit_code_) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      exit_code_ = exit_code_of(status);
    } else if (std::chrono::steady_clock::now() >= deadline) {
      return std::nullopt;
    } else {
      std::this_thread::sleep_for(kPollInterval);
    }
  }
  return exit_code_;
}

void Subprocess::send_signal(int signal) {
  if (!exit_code_) {
    kill(pid_, signal);
  }
}

int Subprocess::stop(std::chrono::milliseconds grace) {
  send_signal(SIGTERM);
  if (!wait_for_exit(grace)) {
    kill(-pid_, SIGKILL);
    wait_for_exit(std::chrono::seconds(10));
  }
  return exit_code_.value_or(128 + SIGKILL);
}

std::string tail_of_file(const std::string& path, std::size_t limit) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) {
    return {};
  }
  const auto size = static_cast<std::size_t>(file.tellg());
  const std::size_t wanted = std::min(size, limit);
  std::string text(wanted, '\0');
  file.seekg(static_cast<std::streamoff>(size - wanted));
  file.read(text.data(), static_cast<std::streamsize>(wanted));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text;
}

}  // namespace plimsoll::testing
