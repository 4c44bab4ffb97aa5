// run_command and run_kubectl of api_server.h: one poll loop feeds standard input and drains both outputs, so
// that no side waits for the other however much is said.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "tests/controlplane/api_server.h"
#include "tests/controlplane/binaries.h"
#include "tests/controlplane/subprocess.h"

namespace plimsoll::testing {
namespace {

using Steady = std::chrono::steady_clock;

constexpr std::size_t kOutputLimit = 64U << 20;  // a test that prints more is broken
constexpr int kPollMilliseconds = 20;
constexpr int kExitTimedOut = 124;  // as timeout(1)
// A program may leave a background child that holds its outputs; so long is waited for more from it.
constexpr std::chrono::milliseconds kDrainAfterExit{500};

struct Pipe {
  int read_end = -1;
  int write_end = -1;

  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) == 0) {
      read_end = ends[0];
      write_end = ends[1];
    }
  }
  ~Pipe() {
    close_read();
    close_write();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  void close_read() { close_end(read_end); }
  void close_write() { close_end(write_end); }

 private:
  static void close_end(int& end) {
    if (end >= 0) {
      close(end);
    }
    end = -1;
  }
};

// Takes what is there to read; closes the pipe at its end.
void drain(Pipe& pipe, std::string& text) {
  std::array<char, 65536> buffer;
  const ssize_t count = read(pipe.read_end, buffer.data(), buffer.size());
  if (count > 0) {
    const std::size_t room = kOutputLimit - std::min(kOutputLimit, text.size());
    text.append(buffer.data(), std::min(room, static_cast<std::size_t>(count)));
  } else if (count == 0 || (errno != EINTR && errno != EAGAIN)) {
    pipe.close_read();
  }
}

void feed(Pipe& pipe, const std::string& text, std::size_t& sent) {
  const ssize_t count = write(pipe.write_end, text.data() + sent, text.size() - sent);
  if (count > 0) {
    sent += static_cast<std::size_t>(count);
  }
  const bool refused = count < 0 && errno != EINTR && errno != EAGAIN;  // the reader is gone: not our concern
  if (refused || sent == text.size()) {
    pipe.close_write();
  }
}

// A write into a pipe whose reader is gone must be an error here, not the end of the test.
class IgnoreSigpipe {
 public:
  IgnoreSigpipe() : before_(signal(SIGPIPE, SIG_IGN)) {}
  ~IgnoreSigpipe() { signal(SIGPIPE, before_); }

 private:
  sighandler_t before_;
};

}  // namespace

CommandResult run_command(const std::vector<std::string>& arguments, const std::string& input,
                          std::chrono::seconds deadline) {
  const IgnoreSigpipe ignore_sigpipe;
  CommandResult result;
  Pipe to_child;
  Pipe output;
  Pipe errors;
  const Result<pid_t> child = spawn(arguments, {}, {to_child.read_end, output.write_end, errors.write_end});
  if (!child) {
    result.errors = to_string(child.error());
    return result;
  }
  to_child.close_read();
  output.close_write();
  errors.close_write();
  fcntl(to_child.write_end, F_SETFL, O_NONBLOCK);
  std::size_t sent = 0;
  if (input.empty()) {
    to_child.close_write();
  }

  Steady::time_point end = Steady::now() + deadline;
  bool timed_out = false;
  int status = 0;
  bool exited = false;
  while (!exited || output.read_end >= 0 || errors.read_end >= 0) {
    std::array<pollfd, 3> waiting = {pollfd{to_child.write_end, POLLOUT, 0},
                                     pollfd{output.read_end, POLLIN, 0}, pollfd{errors.read_end, POLLIN, 0}};
    poll(waiting.data(), waiting.size(), kPollMilliseconds);  // negative descriptors are left alone
    if (waiting[0].revents != 0) {
      feed(to_child, input, sent);
    }
    if (waiting[1].revents != 0) {
      drain(output, result.output);
    }
    if (waiting[2].revents != 0) {
      drain(errors, result.errors);
    }
    if (!exited && waitpid(*child, &status, WNOHANG) == *child) {
      exited = true;
      end = std::min(end, Steady::now() + kDrainAfterExit);
    }
    if (Steady::now() >= end) {
      if (exited) {
        break;
      }
      timed_out = true;
      kill(-*child, SIGKILL);
      waitpid(*child, &status, 0);
      exited = true;
      end = Steady::now() + kDrainAfterExit;
    }
  }
  kill(-*child, SIGKILL);  // what it left behind in its group
  result.exit_code = timed_out ? kExitTimedOut : exit_code_of(status);
  return result;
}

CommandResult run_kubectl(const ApiServer& server, std::vector<std::string> arguments,
                          const std::string& input) {
  const std::string kubectl = find_kubectl(server.kind());
  if (kubectl.empty()) {
    CommandResult none;
    none.errors = "no kubectl: set PLIMSOLL_KUBECTL, install kubernetes-client, or run scripts/controlplane";
    return none;
  }
  // Its discovery cache goes with the server: ports are used again, and a home directory is not ours to fill.
  arguments.insert(arguments.begin(), {kubectl, "--kubeconfig", server.kubeconfig(), "--cache-dir",
                                       server.directory() + "/kubectl-cache"});
  return run_command(arguments, input);
}

}  // namespace plimsoll::testing
