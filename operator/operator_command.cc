#include "operator/operator_command.h"

#include <prometheus/registry.h>

#include <boost/program_options.hpp>
#include <memory>

#include "base/log.h"
#include "controllers/gpu_inventory.h"
#include "operator/ops_server.h"
#include "operator/process.h"

namespace plimsoll::process {
namespace {

namespace po = boost::program_options;

constexpr ServerCommand kCommand{
    "operator",
    "usage: plimsoll operator [options]\n"
    "\n"
    "Runs the controllers until SIGTERM: keeps the GPUModel resources true to the nodes of the cluster. A\n"
    "second signal ends it at once.\n",
    "\n"
    "Examples:\n"
    "  plimsoll operator\n"
    "  plimsoll operator --kubeconfig ~/.kube/config --ops-port 0 --ops-port-file port --log-level debug\n"};

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

}  // namespace

int run_operator_command(const std::vector<std::string>& arguments) {
  ServerOptions options;
  po::options_description description("Options");
  description.add_options()("help,h", "print this");
  description.add(describe(options));
  if (const std::optional<int> code = read_command_line(kCommand, description, arguments)) {
    return *code;
  }
  if (const Result<void> prepared = prepare_server(options); !prepared) {
    return wrong_usage(kCommand, prepared.error().message);
  }
  return serve(options, [&](std::unique_ptr<kube::Client> client, estimator::GpuCatalog catalog) {
    return std::make_unique<OperatorProcess>(options, std::move(client), std::move(catalog));
  });
}

}  // namespace plimsoll::process
