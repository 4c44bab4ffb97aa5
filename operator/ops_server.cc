#include "operator/ops_server.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>

namespace plimsoll::process {
namespace {

constexpr const char* kPlainText = "text/plain; charset=utf-8";

http::ServerOptions server_options(const OpsServerOptions& options) {
  http::ServerOptions server;
  server.bind_address = options.address;
  server.port = options.port;
  server.body_limit = 4096;  // probes and scrapes have no body
  server.max_connections = 128;
  server.max_in_flight = 16;
  return server;
}

http::Response text(int status, std::string body) {
  return {status, kPlainText, std::move(body)};
}

}  // namespace

OpsServer::OpsServer(OpsServerOptions options)
    : options_(std::move(options)),
      server_(server_options(options_), [this](const http::Request& request) { return handle(request); }) {}

http::Response OpsServer::handle(const http::Request& request) const {
  const bool asks_for_metrics = request.path == "/metrics";
  if (asks_for_metrics && !options_.metrics) {
    return text(404, "metrics are served over HTTPS on another port: --metrics-port, 8443 by default\n");
  }
  if (request.path != "/healthz" && request.path != "/readyz" && !asks_for_metrics) {
    return text(404, "not found; the paths are /healthz, /readyz and /metrics\n");
  }
  if (request.method != "GET" && request.method != "HEAD") {
    return text(405, "only GET and HEAD are allowed\n");
  }
  if (request.path == "/healthz") {
    return text(200, "ok\n");
  }
  return asks_for_metrics ? metrics_page(*options_.metrics) : ready();
}

http::Response OpsServer::ready() const {
  std::string report;
  bool all = true;
  for (const ReadyCheck& check : options_.checks) {
    const Result<void> passed = check.check();
    all = all && passed.ok();
    report +=
        passed ? "[+]" + check.name + " ok\n" : "[-]" + check.name + ": " + passed.error().message + "\n";
  }
  return text(all ? 200 : 503, report + (all ? "ready\n" : "not ready\n"));
}

Result<void> write_port_file(const std::string& path, std::uint16_t port) {
  if (path.empty()) {
    return {};
  }
  const std::string draft = path + ".new";
  std::ofstream file(draft);
  file << port << '\n';
  file.close();
  if (!file || std::rename(draft.c_str(), path.c_str()) != 0) {
    return Error(ErrorCode::kUnavailable, "cannot write " + path + ": " + std::strerror(errno));
  }
  return {};
}

}  // namespace plimsoll::process
