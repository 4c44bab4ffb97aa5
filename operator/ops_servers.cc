#include "operator/ops_servers.h"

#include <utility>

namespace plimsoll::process {

OpsServers::OpsServers(const ServerOptions& options, std::vector<ReadyCheck> checks, Collectables metrics,
                       kube::Client& client)
    : options_(options),
      ops_({.address = options.ops_address,
            .port = options.ops_port,
            .checks = std::move(checks),
            .metrics = options.metrics_secure ? std::nullopt : std::optional(metrics)}) {
  if (options.metrics_secure) {
    metrics_.emplace(MetricsServerOptions{.address = options.ops_address,
                                          .port = options.metrics_port.value_or(MetricsServerOptions().port),
                                          .metrics = std::move(metrics)},
                     client);
  }
}

Result<void> OpsServers::start() {
  if (Result<void> started = ops_.start(); !started || !metrics_) {
    return started;
  }
  return metrics_->start();
}

Result<void> OpsServers::write_port_files() const {
  if (metrics_) {
    if (Result<void> written = write_port_file(options_.metrics_port_file, metrics_->port()); !written) {
      return written;
    }
  }
  return write_port_file(options_.ops_port_file, ops_.port());
}

void OpsServers::stop() {
  if (metrics_) {
    metrics_->stop();
  }
  ops_.stop();
}

}  // namespace plimsoll::process
