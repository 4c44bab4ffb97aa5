// OpsServers: health, readiness and metrics of a server process, as its options want them: /healthz and /readyz on the ops
// port, /metrics over HTTPS on the metrics port for those who may get it, or without that on the ops port for everybody.
//
//   OpsServers ops(options, {{"caches", synced}}, {registry}, client);
//   if (auto started = ops.start(); !started) return started.error();
//   ...
//   ops.stop();   // last: it reports until the end that the process is stopping
//
// The client must outlive this. Thread-safe except for start and stop.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "kube/client.h"
#include "operator/metrics_page.h"
#include "operator/metrics_server.h"
#include "operator/ops_server.h"
#include "operator/process.h"

namespace plimsoll::process {

class OpsServers {
 public:
  OpsServers(const ServerOptions& options, std::vector<ReadyCheck> checks, Collectables metrics,
             kube::Client& client);

  // Errors: those of OpsServer::start and MetricsServer::start.
  Result<void> start();
  // The ports, where the options want them to be written; the ops port last. Errors: those of write_port_file.
  Result<void> write_port_files() const;
  std::uint16_t ops_port() const { return ops_.port(); }
  // Where /metrics is.
  std::uint16_t metrics_port() const { return metrics_ ? metrics_->port() : ops_.port(); }
  void stop();

 private:
  const ServerOptions& options_;
  OpsServer ops_;
  std::optional<MetricsServer> metrics_;  // nothing: the ops port has them
};

}  // namespace plimsoll::process
