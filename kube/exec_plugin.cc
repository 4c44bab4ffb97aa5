#include "kube/exec_plugin.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <vector>

#include "base/json/edit.h"
#include "kube/transport.h"

namespace plimsoll::kube {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

constexpr std::size_t kOutputLimit = 1 << 20;  // certificates and tokens are a few KiB

Error refused(const ExecPlugin& plugin, const std::string& why) {
  std::string message = "the credential plugin " + plugin.command + " " + why;
  if (!plugin.install_hint.empty()) {
    message += "; " + plugin.install_hint.substr(0, 300);
  }
  return Error(ErrorCode::kUnauthorized, std::move(message));
}

std::vector<std::string> environment_for(const ExecPlugin& plugin) {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos) {
      variables.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  restore_tls_environment(variables);
  for (const auto& [name, value] : plugin.environment) {
    variables[name] = value;
  }
  JsonObject information;
  information["kind"] = "ExecCredential";
  information["apiVersion"] = plugin.api_version;
  information["spec"]["interactive"] = false;
  variables["KUBERNETES_EXEC_INFO"] = write_json(information);
  std::vector<std::string> entries;
  entries.reserve(variables.size());
  for (const auto& [name, value] : variables) {
    entries.push_back(std::string(name).append("=").append(value));
  }
  return entries;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (std::string& text : texts) {
    result.push_back(text.data());
  }
  result.push_back(nullptr);
  return result;
}

// Starts the plugin in a process group of its own. Its standard output is the pipe, its standard error ours.
int spawn(const ExecPlugin& plugin, int output, pid_t& child) {
  std::vector<std::string> command_line{plugin.command};
  command_line.insert(command_line.end(), plugin.arguments.begin(), plugin.arguments.end());
  std::vector<std::string> environment = environment_for(plugin);
  std::vector<char*> argv = pointers(command_line);
  std::vector<char*> envp = pointers(environment);

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  // This process blocks SIGTERM for sigwait and ignores SIGPIPE; the plugin must not inherit that.
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  sigset_t pipe_signal;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &pipe_signal);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const int problem = posix_spawnp(&child, argv[0], &actions, &attributes, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  return problem;
}

// True at end of file; false when the deadline or the size limit came first.
bool read_until_end(int input, SteadyTime deadline, std::string& output) {
  std::array<char, 4096> piece{};
  while (output.size() <= kOutputLimit) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd waiting{input, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&waiting, 1, static_cast<int>(left.count())) == 0) {
      return false;
    }
    const ssize_t got = ::read(input, piece.data(), piece.size());
    if (got == 0) {
      return true;
    }
    if (got > 0) {
      output.append(piece.data(), static_cast<std::size_t>(got));
    } else if (errno != EINTR) {
      return false;
    }
  }
  return false;
}

// The exit status, or nothing when the deadline came first.
std::optional<int> wait_until(pid_t child, SteadyTime deadline) {
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() >= deadline) {
      return std::nullopt;
    }
    const timespec pause{0, 5'000'000};
    ::nanosleep(&pause, nullptr);
  }
  return status;
}

// RFC 3339 with "Z" or with an offset such as "+01:00".
std::optional<Clock::WallTime> parse_time_with_offset(std::string text) {
  int hours = 0;
  int minutes = 0;
  if (const std::size_t sign = text.find_last_of("+-"); !text.ends_with('Z') && sign != std::string::npos) {
    if (std::sscanf(text.c_str() + sign + 1, "%2d:%2d", &hours, &minutes) != 2) {
      return std::nullopt;
    }
    const int direction = text[sign] == '-' ? -1 : 1;
    hours *= direction;
    minutes *= direction;
    text.replace(sign, std::string::npos, "Z");
  }
  const std::optional<Clock::WallTime> local = parse_time(text);
  return local ? std::optional(*local - std::chrono::hours(hours) - std::chrono::minutes(minutes)) : local;
}

}  // namespace

Result<ExecCredential> parse_exec_credential(std::string_view text, const std::string& api_version) {
  Result<Json> parsed = parse_json(text);
  if (!parsed) {
    return parsed.error();
  }
  if (text_member(*parsed, {"kind"}) != "ExecCredential" ||
      text_member(*parsed, {"apiVersion"}) != api_version) {
    return invalid("expected an ExecCredential of " + api_version);
  }
  ExecCredential credential;
  credential.token = text_member(*parsed, {"status", "token"});
  credential.client_certificate_pem = text_member(*parsed, {"status", "clientCertificateData"});
  credential.client_key_pem = text_member(*parsed, {"status", "clientKeyData"});
  if (credential.token.empty() && credential.client_certificate_pem.empty()) {
    return invalid("status holds neither a token nor a client certificate");
  }
  if (credential.token.find_first_of("\r\n") != std::string::npos) {
    return invalid("status.token must be one line");
  }
  if (credential.client_certificate_pem.empty() != credential.client_key_pem.empty()) {
    return invalid("status.clientCertificateData and clientKeyData must be given together");
  }
  const std::string expires = text_member(*parsed, {"status", "expirationTimestamp"});
  if (!expires.empty()) {
    credential.expires = parse_time_with_offset(expires);
    if (!credential.expires) {
      return invalid("status.expirationTimestamp is not RFC 3339", expires);
    }
  }
  return credential;
}

Result<ExecCredential> run_exec_plugin(const ExecPlugin& plugin, std::chrono::milliseconds deadline) {
  const SteadyTime end = std::chrono::steady_clock::now() + deadline;
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) {
    return refused(plugin, std::string("could not be started: ") + std::strerror(errno));
  }
  pid_t child = -1;
  const int problem = spawn(plugin, pipe[1], child);
  ::close(pipe[1]);
  if (problem != 0) {
    ::close(pipe[0]);
    return refused(plugin, std::string("could not be started: ") + std::strerror(problem));
  }
  std::string output;
  const bool complete = read_until_end(pipe[0], end, output);
  ::close(pipe[0]);
  const std::optional<int> status = complete ? wait_until(child, end) : std::nullopt;
  // Children of the plugin may still run in its process group.
  ::kill(-child, SIGKILL);
  if (!status) {
    ::waitpid(child, nullptr, 0);
    return refused(plugin, output.size() > kOutputLimit
                               ? "printed more than 1 MiB"
                               : "printed no credential within " + std::to_string(deadline.count()) + " ms");
  }
  if (!WIFEXITED(*status) || WEXITSTATUS(*status) != 0) {
    return refused(plugin, WIFEXITED(*status) ? "exited with " + std::to_string(WEXITSTATUS(*status))
                                              : "was killed by signal " + std::to_string(WTERMSIG(*status)));
  }
  Result<ExecCredential> credential = parse_exec_credential(output, plugin.api_version);
  if (!credential) {
    return refused(plugin, "printed no credential: " + credential.error().message);
  }
  return credential;
}

}  // namespace plimsoll::kube
