// What the two servers (`plimsoll operator`, `plimsoll webhook`) share as processes: how they read their
// command line, begin, run until they are told to stop, and end.
//
//   ServerOptions options;
//   description.add(describe(options));              // Boost.Program_options
//   if (std::optional<int> code = read_command_line(command, description, arguments)) return *code;
//   if (Result<void> ready = prepare_server(options); !ready) {
//     return wrong_usage(command, ready.error().message);
//   }
//   return serve(options, [&](std::unique_ptr<kube::Client> client, estimator::GpuCatalog catalog) {
//     return std::make_unique<Server>(std::move(client), std::move(catalog));
//   });
#pragma once

#include <boost/program_options/options_description.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

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

// Stores `arguments` into what `description` points to. Nothing: go on. Else the exit code to end with;
// --help, or what is wrong with the arguments, has been printed.
std::optional<int> read_command_line(const ServerCommand& command,
                                     const boost::program_options::options_description& description,
                                     const std::vector<std::string>& arguments);

// Prints the problem to stderr, and gives kExitUsage.
int wrong_usage(const ServerCommand& command, const std::string& problem);

// Configures the log and malloc, allows as many open files as the system does, ignores SIGPIPE, and blocks
// SIGTERM and SIGINT in this thread and those it starts from now on, so that they wait for
// wait_for_stop_signal. Call it before the first thread is started. Errors: kInvalid for an unknown log
// format or level.
Result<void> prepare_server(const ServerOptions& options);

// The built-in catalogue, extended by the file if one is named. Errors: those of reading and decoding it.
Result<estimator::GpuCatalog> load_gpu_catalog(const std::string& file);

// What a server needs before it can start: the GPU catalogue, extended by the options' file, and the cluster.
// Nothing: it has been logged why, and `exit_code` is set.
struct ServerInputs {
  std::unique_ptr<kube::Client> client;
  estimator::GpuCatalog catalog;
};
std::optional<ServerInputs> read_server_inputs(const ServerOptions& options, int& exit_code);

// Logs the problem and gives the exit code: kExitUsage where what people wrote is wrong, else kExitFailed.
int fail(const std::string& what, const Error& error);

// Returns at SIGTERM or SIGINT. A second one ends the process at once, whatever it is doing.
void wait_for_stop_signal();

// Ends the process, with kExitFailed, unless it is destroyed within the limit: a server must not outlive its
// grace period, whatever hangs.
class StopLimit {
 public:
  explicit StopLimit(std::chrono::milliseconds limit);

 private:
  std::jthread thread_;
};

// Runs the server that `make` gives (with `Result<void> start()`, `void stop()`, `stop_limit()`, which is how
// long that may take, and `int exit_code()` for after the stop) until it is told to stop.
template <class Make>
int serve(const ServerOptions& options, Make make) {
  int exit_code = kExitDone;
  std::optional<ServerInputs> inputs = read_server_inputs(options, exit_code);
  if (!inputs) {
    return exit_code;
  }
  const auto server = make(std::move(inputs->client), std::move(inputs->catalog));
  if (const Result<void> started = server->start(); !started) {
    return fail("Could not start", started.error());
  }
  wait_for_stop_signal();
  const StopLimit limit(server->stop_limit());
  server->stop();
  return server->exit_code();
}

}  // namespace plimsoll::process
