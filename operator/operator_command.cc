#include "operator/operator_command.h"

#include <prometheus/registry.h>

#include <boost/program_options.hpp>
#include <iostream>
#include <memory>

#include "base/log.h"
#include "controllers/gpu_inventory.h"
#include "kube/http_client.h"
#include "kube/kubeconfig.h"
#include "operator/ops_server.h"
#include "operator/process.h"

namespace plimsoll::process {
namespace {

namespace po = boost::program_options;

constexpr int kExitDone = 0;
constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

constexpr const char* kIntroduction =
    "usage: plimsoll operator [options]\n"
    "\n"
    "Runs the controllers until SIGTERM: keeps the GPUModel resources true to the nodes of the cluster. A\n"
    "second signal ends it at once.\n";

constexpr const char* kExamples =
    "\n"
    "Examples:\n"
    "  plimsoll operator\n"
    "  plimsoll operator --kubeconfig ~/.kube/config --ops-port 0 --ops-port-file port --log-level debug\n";

// The parts of the process, in the order they are started; stopped the other way round.
class OperatorProcess {
 public:
  OperatorProcess(const ServerOptions& options, std::unique_ptr<kube::Client> client,
                  estimator::GpuCatalog catalog)
      : options_(options),
        client_(std::move(client)),
        inventory_(*client_, std::move(catalog), inventory_options()),
        ops_({.address = options.ops_address,
              .port = options.ops_port,
              .checks = {{"inventory", [this] { return inventory_ready(); }}},
              .metrics = {registry_}}) {}

  Result<void> start() {
    // Health first: whoever waits for this process sees why it is not ready yet.
    if (Result<void> started = ops_.start(); !started) {
      return started;
    }
    inventory_.start();
    if (Result<void> written = write_port_file(options_.ops_port_file, ops_.port()); !written) {
      return written;
    }
    log_info("Started the operator",
             {{"opsPort", std::to_string(ops_.port())}, {"version", PLIMSOLL_VERSION}});
    return {};
  }

  void stop() {
    inventory_.stop();
    ops_.stop();
    log_info("Stopped the operator");
  }

 private:
  controllers::GpuInventoryController::Options inventory_options() const {
    controllers::GpuInventoryController::Options options;
    options.registry = registry_.get();
    return options;
  }

  Result<void> inventory_ready() const {
    if (inventory_.ready()) {
      return {};
    }
    return Error(ErrorCode::kUnavailable, "the cluster's GPUs are not counted yet");
  }

  const ServerOptions& options_;
  const std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  const std::unique_ptr<kube::Client> client_;
  controllers::GpuInventoryController inventory_;
  OpsServer ops_;
};

int run(const ServerOptions& options) {
  const auto fail = [](const std::string& what, const Error& error) {
    log_error(what, {{"problem", to_string(error)}});
    return error.code == ErrorCode::kInvalid || error.code == ErrorCode::kNotFound ? kExitUsage : kExitFailed;
  };
  Result<estimator::GpuCatalog> catalog = load_gpu_catalog(options.gpu_catalog);
  if (!catalog) {
    return fail("Could not read the GPU catalogue", catalog.error());
  }
  const Result<kube::ClientConfig> config =
      kube::load_client_config(kube::sources_from_environment(options.kubeconfig));
  if (!config) {
    return fail("Found no cluster", config.error());
  }
  Result<std::unique_ptr<kube::Client>> client = kube::connect(*config);
  if (!client) {
    return fail("Could not use the kubeconfig", client.error());
  }
  OperatorProcess process(options, *std::move(client), *std::move(catalog));
  if (const Result<void> started = process.start(); !started) {
    return fail("Could not start", started.error());
  }
  wait_for_stop_signal();
  process.stop();
  return kExitDone;
}

}  // namespace

int run_operator_command(const std::vector<std::string>& arguments) {
  ServerOptions options;
  po::options_description description("Options");
  description.add_options()("help,h", "print this");
  description.add(describe(options));
  const auto wrong_usage = [](const std::string& problem) {
    std::cerr << "plimsoll operator: " << problem << "\nRun `plimsoll operator --help` for its options.\n";
    return kExitUsage;
  };
  po::variables_map values;
  try {
    po::store(po::command_line_parser(arguments).options(description).positional({}).run(), values);
    po::notify(values);
  } catch (const po::error& problem) {
    return wrong_usage(problem.what());
  }
  if (values.count("help") > 0) {
    std::cout << kIntroduction << "\n" << description << kExamples;
    return kExitDone;
  }
  if (const Result<void> prepared = prepare_server(options); !prepared) {
    return wrong_usage(prepared.error().message);
  }
  return run(options);
}

}  // namespace plimsoll::process
