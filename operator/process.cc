#include "operator/process.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <iostream>
#include <limits>
#include <set>
#include <string_view>
#include <utility>  // before asio's headers, which need it under C++20

#include <boost/asio/ip/host_name.hpp>

#include "base/allocator.h"
#include "base/cgroup.h"
#include "base/duration.h"
#include "base/file.h"
#include "base/log.h"
#include "kube/http_client.h"
#include "kube/kubeconfig.h"
#include "kube/sleeper.h"
#include "metrics/kubernetes_metrics.h"

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

// The default of 1,024 is for programs that use select(2); this one does not.
void raise_file_limit() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
}

constexpr std::pair<std::string_view, LogLevel> kLogLevels[] = {{"debug", LogLevel::kDebug},
                                                                {"info", LogLevel::kInfo},
                                                                {"warning", LogLevel::kWarning},
                                                                {"error", LogLevel::kError}};
constexpr std::pair<std::string_view, LogFormat> kLogFormats[] = {{"text", LogFormat::kText},
                                                                  {"json", LogFormat::kJson}};

// Each takes six watches, and so six connections of the operator.
constexpr std::size_t kMaxNamespaces = 100;

// A label of RFC 1123.
bool is_namespace(const std::string& name) {
  constexpr std::size_t kLongest = 63;
  return !name.empty() && name.size() <= kLongest && name.front() != '-' && name.back() != '-' &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string::npos;
}

po::typed_value<int>* port_option(const char* name, std::function<void(std::uint16_t)> take) {
  // Boost reads -1 into an unsigned as a large number.
  return po::value<int>()->value_name("PORT")->notifier([name, take = std::move(take)](int port) {
    if (port < 0 || port > std::numeric_limits<std::uint16_t>::max()) {
      throw po::validation_error(po::validation_error::invalid_option_value, name, std::to_string(port));
    }
    take(static_cast<std::uint16_t>(port));
  });
}

// Of start_heap_trimmer.
constexpr std::chrono::seconds kTrimInterval{1};
constexpr Bytes kMinGrowth = 16_MiB;

// Logs the problem. The exit code is kExitUsage where the configuration is wrong, else kExitFailed.
int fail(const char* what, const Error& error) {
  log_error(what, {{"problem", to_string(error)}});
  return error.code == ErrorCode::kInvalid || error.code == ErrorCode::kNotFound ? kExitUsage : kExitFailed;
}

}  // namespace

po::typed_value<std::vector<std::string>>* namespaces_value(const char* option,
                                                            std::vector<std::string>& names,
                                                            std::size_t most) {
  const auto store = [option = std::string("--") + option, &names,
                      most](const std::vector<std::string>& given) {
    const std::set<std::string> once(given.begin(), given.end());
    const auto wrong = std::find_if_not(once.begin(), once.end(), is_namespace);
    if (wrong != once.end()) {
      throw po::error(option +
                      " must be the name of one namespace: up to 63 lower-case letters, digits and '-', " +
                      "with a letter or digit at both ends; is \"" + *wrong + "\"");
    }
    if (once.size() > most) {
      throw po::error(option + " may be given " + std::to_string(most) + " times, is given " +
                      std::to_string(once.size()) + " times");
    }
    names.assign(once.begin(), once.end());
  };
  return po::value<std::vector<std::string>>()->value_name("NAME")->notifier(store);
}

po::options_description describe(ServerOptions& options) {
  po::options_description description("Common options");
  description.add_options()  //
      ("kubeconfig", po::value(&options.kubeconfig)->value_name("FILE"),
       "how to reach the cluster; default: $KUBECONFIG, ~/.kube/config, then the pod's service account")  //
      ("ops-address", po::value(&options.ops_address)->default_value(options.ops_address)->value_name("IP"),
       "where health and metrics are served")  //
      ("ops-port",
       port_option("ops-port", [&options](std::uint16_t port) { options.ops_port = port; })
           ->default_value(options.ops_port),
       "port of /healthz and /readyz; 0 takes a free one")  //
      ("ops-port-file", po::value(&options.ops_port_file)->value_name("FILE"),
       "where to write the port that was taken for health")  //
      ("metrics-secure",
       po::value(&options.metrics_secure)->default_value(options.metrics_secure, "true")->value_name("BOOL"),
       "serve /metrics over HTTPS on a port of its own, for tokens whose user may get that path; false: on the "
       "port of health, over HTTP, for everybody who reaches it")  //
      ("metrics-port",
       port_option("metrics-port", [&options](std::uint16_t port) { options.metrics_port = port; }),
       "port of /metrics with --metrics-secure; 0 takes a free one. Default: 8443")  //
      ("metrics-port-file", po::value(&options.metrics_port_file)->value_name("FILE"),
       "where to write the port that was taken for /metrics")  //
      ("namespace", namespaces_value("namespace", options.namespaces, kMaxNamespaces),
       "the only namespace whose jobs are looked after; may be repeated, up to 100 times. Default: all")  //
      ("gpu-catalog", po::value(&options.gpu_catalog)->value_name("FILE"),
       "GPUModel objects that extend or override the built-in catalogue")  //
      ("log-format", po::value(&options.log_format)->default_value(options.log_format)->value_name("FORMAT"),
       "text or json")  //
      ("log-level", po::value(&options.log_level)->default_value(options.log_level)->value_name("LEVEL"),
       "debug, info, warning or error");
  return description;
}

Result<std::chrono::milliseconds> duration_option(const char* name, const std::string& text,
                                                  std::chrono::milliseconds limit) {
  const std::optional<std::chrono::milliseconds> time = parse_duration(text, limit);
  if (!time) {
    return invalid(std::string("--") + name + " must be a duration such as 15s, is " + text.substr(0, 64));
  }
  return *time;
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
  const auto* level =
      std::ranges::find(kLogLevels, options.log_level, &std::pair<std::string_view, LogLevel>::first);
  if (level == std::end(kLogLevels)) {
    return invalid("--log-level must be debug, info, warning or error", options.log_level);
  }
  const auto* format =
      std::ranges::find(kLogFormats, options.log_format, &std::pair<std::string_view, LogFormat>::first);
  if (format == std::end(kLogFormats)) {
    return invalid("--log-format must be text or json", options.log_format);
  }
  if (!options.metrics_secure && (options.metrics_port || !options.metrics_port_file.empty())) {
    return invalid(
        "--metrics-port and --metrics-port-file are for --metrics-secure=true; with false, /metrics is on --ops-port");
  }
  configure_log(level->second, format->second);
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

void wait_for_stop_signal() {
  const sigset_t signals = stop_signals();
  int received = 0;
  ::sigwait(&signals, &received);
  log_info("Stopping", {{"signal", received == SIGTERM ? "SIGTERM" : "SIGINT"}});
  // The next signal has its default action.
  ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

std::jthread exit_after(std::chrono::milliseconds limit) {
  return std::jthread([limit](const std::stop_token& stop) {
    if (kube::system_sleeper().sleep_for(limit, stop)) {
      log_error("Failed to stop in time: the process ends", {{"milliseconds", limit.count()}});
      ::_exit(kExitFailed);
    }
  });
}

std::jthread start_heap_trimmer(Bytes memory_limit) {
  return std::jthread([threshold = Bytes{memory_limit.count / 4}](const std::stop_token& stop) {
    Bytes after_last;
    while (kube::system_sleeper().sleep_for(kTrimInterval, stop)) {
      if (resident_memory() > std::max(threshold, after_last + kMinGrowth)) {
        return_free_memory();
        after_last = resident_memory();
      } else {
        after_last = std::min(after_last, resident_memory());
      }
    }
  });
}

std::string host_name() {
  boost::system::error_code problem;
  const std::string name = boost::asio::ip::host_name(problem);
  return problem ? "unknown" : name;
}

int serve(const ServerOptions& options,
          const std::function<std::unique_ptr<ServerProcess>(ServerParts)>& make) {
  Result<estimator::GpuCatalog> catalog = load_gpu_catalog(options.gpu_catalog);
  if (!catalog) {
    return fail("Failed to read the GPU catalogue", catalog.error());
  }
  const Result<kube::ClientConfig> config =
      kube::load_client_config(kube::sources_from_environment(options.kubeconfig));
  if (!config) {
    return fail("Found no cluster", config.error());
  }
  const auto registry = std::make_shared<prometheus::Registry>();
  metrics::RestClientMetrics requests(*registry, config->server);
  Result<std::unique_ptr<kube::Client>> client = kube::connect(*config, &requests);
  if (!client) {
    return fail("Failed to use the kubeconfig", client.error());
  }
  const std::unique_ptr<ServerProcess> server = make({registry, *std::move(client), *std::move(catalog)});
  if (const Result<void> started = server->start(); !started) {
    return fail("Failed to start", started.error());
  }
  wait_for_stop_signal();
  const std::jthread limit = exit_after(server->stop_limit());
  server->stop();
  return server->exit_code();
}

}  // namespace plimsoll::process
