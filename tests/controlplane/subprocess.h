// Programs that a test starts, and that do not outlive it: each runs in a process group of its own, which is
// killed by the destructor, and gets SIGKILL from the kernel when the thread that started it ends
// (PR_SET_PDEATHSIG), so that a test killed with SIGKILL leaves nothing running either.
//
//   SubprocessOptions options;
//   options.arguments = {"/usr/bin/etcd", "--name", "test"};
//   options.log_file = directory + "/etcd.log";
//   Result<std::unique_ptr<Subprocess>> etcd = Subprocess::start(options);
//
// Start from the test's main thread, or from one that lives as long as the program should. Methods are for
// one thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace plimsoll::testing {

// A root file system and a user of its own, as a container has them. Only root may start such a program.
struct Confinement {
  std::string root = {};  // the folder that the program sees as "/"; empty: not confined
  unsigned user = 0;      // its user and its only group
};

struct SubprocessOptions {
  std::vector<std::string> arguments;    // the first is the program, looked up on PATH
  std::vector<std::string> environment;  // "NAME=value", on top of this process's
  std::string log_file;                  // standard output and error are appended; empty: thrown away
  Confinement confinement;
};

class Subprocess {
 public:
  static Result<std::unique_ptr<Subprocess>> start(const SubprocessOptions& options);
  ~Subprocess();

  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  pid_t pid() const { return pid_; }
  bool running() { return !wait_for_exit(std::chrono::milliseconds(0)).has_value(); }
  // The exit code (128 + signal when it was killed), or nothing when it still runs after `limit`.
  std::optional<int> wait_for_exit(std::chrono::milliseconds limit);
  void send_signal(int signal);
  // SIGTERM, then SIGKILL to the whole group after `grace`; returns the exit code.
  int stop(std::chrono::milliseconds grace = std::chrono::seconds(10));

 private:
  explicit Subprocess(pid_t pid) : pid_(pid) {}

  pid_t pid_;
  std::optional<int> exit_code_;
};

// The descriptors a program gets as standard input, output and error.
struct StandardStreams {
  int input = -1;
  int output = -1;
  int errors = -1;
};

// Starts the program as described above and returns its process id. What `start` and `run_command` share.
Result<pid_t> spawn(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
                    const StandardStreams& streams, const Confinement& confinement = {});

// The exit code of a wait status: 128 + signal when the process was killed.
int exit_code_of(int wait_status);

// What a log file holds at its end, at most `limit` bytes; for messages about what went wrong.
std::string tail_of_file(const std::string& path, std::size_t limit = 4096);

}  // namespace plimsoll::testing
