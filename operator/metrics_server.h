// MetricsServer: /metrics over HTTPS on a port of its own, for those who may get it (metrics_access.h).
//
//   MetricsServer metrics({.address = "0.0.0.0", .port = 8443, .metrics = {registry}}, client);
//   if (auto started = metrics.start(); !started) return started.error();
//   ...
//   metrics.stop();
//
// Its certificate is made when it starts, as controller-runtime does, and signed by nobody: it keeps tokens from those who
// listen on the network, and clients must be told not to verify it. The client must outlive this. Thread-safe except for
// start and stop.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "http/server.h"
#include "kube/client.h"
#include "operator/metrics_access.h"
#include "operator/metrics_page.h"

namespace plimsoll::process {

struct MetricsServerOptions {
  std::string address = "0.0.0.0";
  std::uint16_t port = 8443;  // 0: any free one, see port()
  Collectables metrics;
  MetricsAccessOptions access = {};
};

class MetricsServer {
 public:
  MetricsServer(MetricsServerOptions options, kube::Client& client);
  ~MetricsServer();

  // Errors: those of http::Server::start, and kInternal where no certificate can be made.
  Result<void> start();
  std::uint16_t port() const { return server_.port(); }
  void stop() { server_.stop(std::chrono::milliseconds(0)); }

 private:
  class Certificate;

  http::Response handle(const http::Request& request);

  const MetricsServerOptions options_;
  MetricsAccess access_;
  const std::shared_ptr<Certificate> certificate_;
  http::Server server_;
};

}  // namespace plimsoll::process
