#include "tests/e2e/plimsoll_process.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <thread>

namespace plimsoll::testing {
namespace {

// A busy machine with sanitizers; an idle one takes a quarter of a second.
constexpr std::chrono::seconds kReadyLimit{60};
constexpr std::chrono::milliseconds kPollInterval{20};

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
                                                                const std::string& directory) {
  const std::string port_file = directory + "/" + subcommand + ".port";
  const std::string ops_port_file = directory + "/" + subcommand + ".ops-port";
  for (const std::string& file : {port_file, ops_port_file}) {
    unlink(file.c_str());  // of an earlier process
  }
  auto started = std::unique_ptr<PlimsollProcess>(new PlimsollProcess);
  started->log_file_ = directory + "/" + subcommand + ".log";
  SubprocessOptions process;
  process.log_file = started->log_file_;
  process.arguments = {PLIMSOLL_BINARY,           subcommand,     "--kubeconfig=" + kubeconfig,
                       "--ops-address=127.0.0.1", "--ops-port=0", "--ops-port-file=" + ops_port_file};
  process.arguments.insert(process.arguments.end(), options.begin(), options.end());
  const bool serves = subcommand == "webhook";
  if (serves) {
    process.arguments.insert(process.arguments.end(), {"--bind-address=127.0.0.1", "--port=0",
                                                       "--port-file=" + port_file, "--lame-duck=100ms"});
  }
  Result<std::unique_ptr<Subprocess>> child = Subprocess::start(process);
  if (!child) {
    return child.error();
  }
  started->process_ = *std::move(child);

  const auto deadline = std::chrono::steady_clock::now() + kReadyLimit;
  while (std::chrono::steady_clock::now() < deadline && started->process_->running()) {
    started->port_ = serves ? port_in(port_file) : 0;
    started->ops_port_ = port_in(ops_port_file);
    if (started->ops_port_ != 0 && (started->port_ != 0 || !serves) &&
        !http_get(started->ops_port_, "/readyz").empty()) {
      return started;
    }
    std::this_thread::sleep_for(kPollInterval);
  }
  return Error(ErrorCode::kUnavailable,
               "plimsoll " + subcommand + " did not become ready: " + started->log());
}

std::string http_get(int port, const std::string& path) {
  const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval patience{10, 0};
  setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
  std::string answer;
  if (connect(connection, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
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
