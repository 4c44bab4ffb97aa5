// What the two servers (`plimsoll operator`, `plimsoll webhook`) share as processes: how they read their
// command line, start, run until a stop signal, and end.
//
//   ServerOptions options;
//   description.add(describe(options));              // Boost.Program_options
//   if (std::optional<int> code = read_command_line(command, description, arguments)) return *code;
//   if (Result<void> ready = prepare_server(options); !ready) {
//     return wrong_usage(command, ready.error().message);
//   }
//   return serve(options, [&](ServerParts parts) {
//     return std::make_unique<Server>(std::move(parts));
//   });
#pragma once

#include <prometheus/registry.h>

#include <boost/program_options/options_description.hpp>
#include <boost/program_options/value_semantic.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "estimator/catalog/gpu_catalog.h"
#include "kube/client.h"

namespace plimsoll::process {

// Exit codes, as of every plimsoll command.
inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

// A server's name and the text of its --help around the options.
struct ServerCommand {
  const char* name = "";
  const char* introduction = "";
  const char* examples = "";
};

struct ServerOptions {
  std::string kubeconfig;               // empty: as kubectl finds it, then the pod's service account
  std::string ops_address = "0.0.0.0";  // the kubelet and Prometheus connect from outside the pod
  std::uint16_t ops_port = 8081;
  std::string ops_port_file;  // where to write the ops port; empty: nowhere
  bool metrics_secure = true;
  std::optional<std::uint16_t> metrics_port;  // nothing: MetricsServer's own
  std::string metrics_port_file;              // where to write the metrics port; empty: nowhere
  std::vector<std::string> namespaces;        // that are looked after; none: all
  std::string gpu_catalog;                    // a file that extends the built-in catalogue
  std::string log_format = "text";
  std::string log_level = "info";
};

// The value of an option that names namespaces and may be repeated, up to `most` times; `names` gets each once. A name that
// is none makes boost::program_options::notify throw an error that says what one is.
boost::program_options::typed_value<std::vector<std::string>>* namespaces_value(
    const char* option, std::vector<std::string>& names, std::size_t most);

// The options of both servers, to be added to those of one.
boost::program_options::options_description describe(ServerOptions& options);

// Stores `arguments` in the variables of `description`. Nothing: go on. Else the exit code, after --help or
// the problem has been printed.
std::optional<int> read_command_line(const ServerCommand& command,
                                     const boost::program_options::options_description& description,
                                     const std::vector<std::string>& arguments);

// Prints the problem to stderr, and gives kExitUsage.
int wrong_usage(const ServerCommand& command, const std::string& problem);

// The duration that an option gives as text. Errors: kInvalid, naming the option.
Result<std::chrono::milliseconds> duration_option(const char* name, const std::string& text,
                                                  std::chrono::milliseconds limit = std::chrono::hours(24));

// Configures the log and malloc, raises the limit of open files, ignores SIGPIPE, and blocks SIGTERM and
// SIGINT in this thread and those that it starts, until wait_for_stop_signal receives them. Call it before
// the first thread is started. Errors: kInvalid for an unknown log format or level, and for options that contradict each
// other.
Result<void> prepare_server(const ServerOptions& options);

// The built-in catalogue, extended by the file if one is named. Errors: those of reading and decoding it.
Result<estimator::GpuCatalog> load_gpu_catalog(const std::string& file);

// Returns at SIGTERM or SIGINT. A second one ends the process at once.
void wait_for_stop_signal();

// Ends the process with kExitFailed after `limit`, unless the thread is destroyed before: a server must not
// outlive its grace period.
std::jthread exit_after(std::chrono::milliseconds limit);

// Returns memory that malloc keeps after a burst to the system, until the thread is destroyed. Once a second
// it checks the resident memory: if that is above a quarter of the limit and has grown since the last time,
// it trims.
std::jthread start_heap_trimmer(Bytes memory_limit);

// The host's name, which in a cluster is the pod's.
std::string host_name();

// What serve() runs.
class ServerProcess {
 public:
  virtual ~ServerProcess() = default;
  virtual Result<void> start() = 0;
  virtual void stop() = 0;
  virtual std::chrono::milliseconds stop_limit() const = 0;  // of stop()
  virtual int exit_code() const { return kExitDone; }        // after stop()
};

// What a server is made from.
struct ServerParts {
  std::shared_ptr<prometheus::Registry> registry;  // has the metrics of the client's requests
  std::unique_ptr<kube::Client> client;
  estimator::GpuCatalog catalog;
};

// Reads the GPU catalogue, connects to the cluster, and runs the server that `make` returns until a stop
// signal. Returns the exit code: kExitUsage where the configuration is wrong; failures are logged.
int serve(const ServerOptions& options,
          const std::function<std::unique_ptr<ServerProcess>(ServerParts)>& make);

}  // namespace plimsoll::process
