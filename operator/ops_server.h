// OpsServer: health and readiness of a server process, plain HTTP on a port of their own, and metrics for everybody who
// reaches it, if it is given them.
//
//   OpsServer ops({.address = "0.0.0.0", .port = 8081, .checks = {{"caches", synced}}});
//   if (auto started = ops.start(); !started) return started.error();
//   ...
//   ops.stop();   // last: it reports until the end that the process is stopping
//
// - GET /healthz: 200 while the process answers
// - GET /readyz: 200 when every check passes, else 503; a line for each, "[+]caches ok" or "[-]caches: reason"
// - GET /metrics: metrics_page.h; 404 without metrics
//
// Checks run on the server's worker threads for each probe, several at the same time; they must return within
// one or two seconds. Thread-safe except for start and stop.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "http/server.h"
#include "operator/metrics_page.h"

namespace plimsoll::process {

struct ReadyCheck {
  std::string name;
  std::function<Result<void>()> check;
};

struct OpsServerOptions {
  std::string address = "0.0.0.0";
  std::uint16_t port = 8081;  // 0: any free one, see port()
  std::vector<ReadyCheck> checks;
  std::optional<Collectables> metrics = {};  // nothing: another server has them
};

class OpsServer {
 public:
  explicit OpsServer(OpsServerOptions options);

  // Errors: those of http::Server::start.
  Result<void> start() { return server_.start(); }
  std::uint16_t port() const { return server_.port(); }
  void stop() { server_.stop(std::chrono::milliseconds(0)); }

 private:
  http::Response handle(const http::Request& request) const;
  http::Response ready() const;

  const OpsServerOptions options_;
  http::Server server_;
};

// Writes a port number to a file, atomically, for the one who started the process with port 0. No effect for
// an empty path. Errors: kUnavailable.
Result<void> write_port_file(const std::string& path, std::uint16_t port);

}  // namespace plimsoll::process
