// What the two servers (`plimsoll operator`, `plimsoll webhook`) share as processes: their common options,
// and how they end.
//
//   ServerOptions options;
//   description.add(describe(options));              // Boost.Program_options
//   if (Result<void> ready = prepare_server(options); !ready) ...
//   ... start threads ...
//   wait_for_stop_signal();
//   ... stop them ...
#pragma once

#include <boost/program_options/options_description.hpp>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "estimator/catalog/gpu_catalog.h"

namespace plimsoll::process {

struct ServerOptions {
  std::string kubeconfig;               // empty: as kubectl finds it, at last the pod's service account
  std::string ops_address = "0.0.0.0";  // the kubelet and Prometheus come from outside the pod
  std::uint16_t ops_port = 8081;
  std::string ops_port_file;  // where to write the port that was taken; empty: nowhere
  std::string gpu_catalog;    // a file that extends the built-in catalogue
  std::string log_format = "text";
  std::string log_level = "info";
};

// The options that both servers take, to be added to a server's own.
boost::program_options::options_description describe(ServerOptions& options);

// Configures the log, ignores SIGPIPE, and blocks SIGTERM and SIGINT in this thread and those it starts from
// now on, so that they wait for wait_for_stop_signal. Call it before the first thread is started.
// Errors: kInvalid for an unknown log format or level.
Result<void> prepare_server(const ServerOptions& options);

// The built-in catalogue, extended by the file if one is named. Errors: those of reading and decoding it.
Result<estimator::GpuCatalog> load_gpu_catalog(const std::string& file);

// Returns at SIGTERM or SIGINT. A second one ends the process at once, whatever it is doing.
void wait_for_stop_signal();

}  // namespace plimsoll::process
