#include "operator/process.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <condition_variable>
#include <iostream>
#include <limits>
#include <mutex>

#include "base/allocator.h"
#include "base/cgroup.h"
#include "base/file.h"
#include "base/log.h"
#include "kube/http_client.h"
#include "kube/kubeconfig.h"

namespace plimsoll::process {
namespace {

namespace po = boost::program_options;

sigset_t stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

// The default of 1,024 is for programs that use select(2), as nothing here does.
void raise_file_limit() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
}

Result<LogLevel> parse_level(const std::string& name) {
  if (name == "debug") {
    return LogLevel::kDebug;
  }
  if (name == "info") {
    return LogLevel::kInfo;
  }
  if (name == "warning") {
    return LogLevel::kWarning;
  }
  if (name == "error") {
    return LogLevel::kError;
  }
  return invalid("--log-level must be debug, info, warning or error", name);
}

Result<LogFormat> parse_format(const std::string& name) {
  if (name == "text") {
    return LogFormat::kText;
  }
  if (name == "json") {
    return LogFormat::kJson;
  }
  return invalid("--log-format must be text or json", name);
}

}  // namespace

po::options_description describe(ServerOptions& options) {
  po::options_description description("Common options");
  description.add_options()  //
      ("kubeconfig", po::value(&options.kubeconfig)->value_name("FILE"),
       "how to reach the cluster; default: $KUBECONFIG, ~/.kube/config, then the pod's service account")  //
      ("ops-address", po::value(&options.ops_address)->default_value(options.ops_address)->value_name("IP"),
       "where health and metrics are served")  //
      ("ops-port",
       po::value<int>()->default_value(options.ops_port)->value_name("PORT")->notifier([&options](int port) {
         // Boost reads -1 into an unsigned as a large number.
         if (port < 0 || port > std::numeric_limits<std::uint16_t>::max()) {
           throw po::validation_error(po::validation_error::invalid_option_value, "ops-port",
                                      std::to_string(port));
         }
         options.ops_port = static_cast<std::uint16_t>(port);
       }),
       "port of /healthz, /readyz and /metrics; 0 takes a free one")  //
      ("ops-port-file", po::value(&options.ops_port_file)->value_name("FILE"),
       "where to write the port that was taken for health and metrics")  //
      ("gpu-catalog", po::value(&options.gpu_catalog)->value_name("FILE"),
       "GPUModel objects that extend or override the built-in catalogue")  //
      ("log-format", po::value(&options.log_format)->default_value(options.log_format)->value_name("FORMAT"),
       "text or json")  //
      ("log-level", po::value(&options.log_level)->default_value(options.log_level)->value_name("LEVEL"),
       "debug, info, warning or error");
  return description;
}

int wrong_usage(const ServerCommand& command, const std::string& problem) {
  std::cerr << "plimsoll " << command.name << ": " << problem << "\nRun `plimsoll " << command.name
            << " --help` for its options.\n";
  return kExitUsage;
}

std::optional<int> read_command_line(const ServerCommand& command, const po::options_description& description,
                                     const std::vector<std::string>& arguments) {
  po::variables_map values;
  try {
    po::store(po::command_line_parser(arguments).options(description).positional({}).run(), values);
    po::notify(values);
  } catch (const po::error& problem) {
    return wrong_usage(command, problem.what());
  }
  if (values.count("help") > 0) {
    std::cout << command.introduction << "\n" << description << command.examples;
    return kExitDone;
  }
  return std::nullopt;
}

Result<void> prepare_server(const ServerOptions& options) {
  const Result<LogLevel> level = parse_level(options.log_level);
  if (!level) {
    return level.error();
  }
  const Result<LogFormat> format = parse_format(options.log_format);
  if (!format) {
    return format.error();
  }
  configure_log(*level, *format);
  use_server_allocator(std::clamp(process_limits().whole_cpus(), 2, 8));
  raise_file_limit();
  ::signal(SIGPIPE, SIG_IGN);
  const sigset_t signals = stop_signals();
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return {};
}

Result<estimator::GpuCatalog> load_gpu_catalog(const std::string& file) {
  estimator::GpuCatalog catalog = estimator::GpuCatalog::built_in();
  if (file.empty()) {
    return catalog;
  }
  Result<std::string> text = read_file(file);
  if (!text) {
    return text.error();
  }
  if (Result<void> applied = catalog.apply_file(*text); !applied) {
    return applied.error().within(file);
  }
  return catalog;
}

int fail(const std::string& what, const Error& error) {
  log_error(what, {{"problem", to_string(error)}});
  return error.code == ErrorCode::kInvalid || error.code == ErrorCode::kNotFound ? kExitUsage : kExitFailed;
}

std::optional<ServerInputs> read_server_inputs(const ServerOptions& options, int& exit_code) {
  Result<estimator::GpuCatalog> catalog = load_gpu_catalog(options.gpu_catalog);
  if (!catalog) {
    exit_code = fail("Could not read the GPU catalogue", catalog.error());
    return std::nullopt;
  }
  const Result<kube::ClientConfig> config =
      kube::load_client_config(kube::sources_from_environment(options.kubeconfig));
  if (!config) {
    exit_code = fail("Found no cluster", config.error());
    return std::nullopt;
  }
  Result<std::unique_ptr<kube::Client>> client = kube::connect(*config);
  if (!client) {
    exit_code = fail("Could not use the kubeconfig", client.error());
    return std::nullopt;
  }
  return ServerInputs{*std::move(client), *std::move(catalog)};
}

void wait_for_stop_signal() {
  const sigset_t signals = stop_signals();
  int received = 0;
  ::sigwait(&signals, &received);
  log_info("Stopping", {{"signal", received == SIGTERM ? "SIGTERM" : "SIGINT"}});
  // The next one finds its default action in place.
  ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

StopLimit::StopLimit(std::chrono::milliseconds limit)
    : thread_([limit](const std::stop_token& stopped) {
        std::mutex mutex;
        std::condition_variable_any never;
        std::unique_lock lock(mutex);
        never.wait_for(lock, stopped, limit, [&] { return stopped.stop_requested(); });
        if (!stopped.stop_requested()) {
          log_error("Failed to stop in time: the process ends", {{"milliseconds", limit.count()}});
          ::_exit(kExitFailed);
        }
      }) {}

}  // namespace plimsoll::process
