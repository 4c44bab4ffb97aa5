#include "tests/e2e/plimsoll_process.h"

#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <thread>

#include "tests/checkout.h"
#include "tests/testing/loopback.h"

namespace plimsoll::testing {
namespace {

// A busy machine with sanitizers; an idle one takes a quarter of a second.
constexpr std::chrono::seconds kReadyLimit{60};
constexpr std::chrono::milliseconds kPollInterval{20};
constexpr const char* kServing = "webhook";  // the subcommand with a port of its own

// The number in a file that the process writes, 0 until it does.
int port_in(const std::string& path) {
  int port = 0;
  std::ifstream(path) >> port;
  return port;
}

}  // namespace

Result<std::unique_ptr<PlimsollProcess>> PlimsollProcess::start(const std::string& subcommand,
                                                                const std::vector<std::string>& options,
                                                                const std::string& kubeconfig,
                                                                const std::string& directory,
                                                                const std::string& name) {
  Result<std::unique_ptr<PlimsollProcess>> started = launch(subcommand, options, kubeconfig, directory, name);
  if (started) {
    if (const Result<void> ready = (*started)->wait_until_ready(); !ready) {
      return ready.error();
    }
  }
  return started;
}

Result<std::unique_ptr<PlimsollProcess>> PlimsollProcess::launch(const std::string& subcommand,
                                                                 const std::vector<std::string>& options,
                                                                 const std::string& kubeconfig,
                                                                 const std::string& directory,
                                                                 const std::string& name) {
  const std::string files = directory + "/" + (name.empty() ? subcommand : name);
  auto started = std::unique_ptr<PlimsollProcess>(new PlimsollProcess);
  started->subcommand_ = subcommand;
  started->log_file_ = files + ".log";
  started->port_file_ = files + ".port";
  started->ops_port_file_ = files + ".ops-port";
  for (const std::string& file : {started->port_file_, started->ops_port_file_}) {
    unlink(file.c_str());  // of an earlier process
  }
  SubprocessOptions process;
  process.log_file = started->log_file_;
  process.arguments = {
      PLIMSOLL_BINARY,           subcommand,     "--kubeconfig=" + kubeconfig,
      "--ops-address=127.0.0.1", "--ops-port=0", "--ops-port-file=" + started->ops_port_file_};
  process.arguments.insert(process.arguments.end(), options.begin(), options.end());
  // Tests read metrics on the ops port, except those of who may read them.
  if (std::ranges::none_of(options,
                           [](const std::string& option) { return option.starts_with("--metrics-"); })) {
    process.arguments.emplace_back("--metrics-secure=false");
  }
  if (subcommand == kServing) {
    process.arguments.insert(
        process.arguments.end(),
        {"--bind-address=127.0.0.1", "--port=0", "--port-file=" + started->port_file_, "--lame-duck=100ms"});
  }
  Result<std::unique_ptr<Subprocess>> child = Subprocess::start(process);
  if (!child) {
    return child.error();
  }
  started->process_ = *std::move(child);
  return started;
}

Result<void> PlimsollProcess::wait_until_ready() {
  const bool serves = subcommand_ == kServing;
  const auto deadline = std::chrono::steady_clock::now() + kReadyLimit;
  while (std::chrono::steady_clock::now() < deadline && process_->running()) {
    port_ = serves ? port_in(port_file_) : 0;
    ops_port_ = port_in(ops_port_file_);
    if (ops_port_ != 0 && (port_ != 0 || !serves) && !http_get(ops_port_, "/readyz").empty()) {
      return {};
    }
    std::this_thread::sleep_for(kPollInterval);
  }
  return Error(ErrorCode::kUnavailable, "plimsoll " + subcommand_ + " did not become ready: " + log());
}

void PlimsollProcess::kill() {
  process_->send_signal(SIGKILL);
  process_->wait_for_exit(kReadyLimit);
}

std::string http_get(int port, const std::string& path) {
  const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = loopback_address(port);
  const timeval patience{10, 0};
  setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
  std::string answer;
  if (connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      send(connection, request.data(), request.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(request.size())) {
    std::array<char, 65536> buffer;
    for (ssize_t count = 0; (count = recv(connection, buffer.data(), buffer.size(), 0)) > 0;) {
      answer.append(buffer.data(), static_cast<std::size_t>(count));
    }
  }
  close(connection);
  const std::size_t body = answer.find("\r\n\r\n");
  const bool good = answer.starts_with("HTTP/1.1 200") && body != std::string::npos;
  return good ? answer.substr(body + 4) : std::string();
}

}  // namespace plimsoll::testing
