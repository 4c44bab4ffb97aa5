#include "estimator/fixed_costs/fixed_costs.h"

#include <algorithm>
#include <cmath>

#include "estimator/fixed_costs/table.h"

namespace plimsoll::estimator::inline fixed_costs {
namespace {

constexpr Bytes kSlowestNvlink{250'000'000'000};  // bytes a second; PCIe is slower

// Share of the transient memory. docs/estimation.md explains how it was chosen.
constexpr double kMargin = 0.05;

bool hopper_or_later(const std::string& family) {
  // An unknown GPU gets the larger workspace.
  return family != "kepler" && family != "maxwell" && family != "pascal" && family != "volta" &&
         family != "turing" && family != "ampere" && family != "ada-lovelace";
}

// Versions of the graph's recording, unless the job sets how kernels are loaded.
Platform platform_of(const EstimateRequest& request) {
  const GpuModel& gpu = *request.gpu;
  Platform platform{.gpu = gpu.name, .family = gpu.family, .memory = gpu.memory};
  if (request.runtime.lazy_modules.has_value()) {
    platform.cuda = *request.runtime.lazy_modules ? kCudaOfLazyLoading : 0;
    platform.torch = *request.runtime.lazy_modules ? kTorchOfLazyLoading : 0;
  } else if (request.graph != nullptr) {
    platform.cuda = cuda_version_of(request.graph->producer.torch);
    platform.torch = request.graph->producer.version;
  }
  return platform;
}

// The buffers of one communicator of a group of trainers.
Bytes collective_bytes(const GpuModel* gpu) {
  const bool nvlink = gpu == nullptr || gpu->intra_node_bandwidth >= kSlowestNvlink;
  return kConnection * kConnectionsPerChannel * (nvlink ? kNvlinkChannels : kPcieChannels);
}

// Each kind of parallelism has its own group, and NCCL connects a group when it is first used.
std::int64_t communicators(const EstimateRequest& request) {
  if (request.training == nullptr) {
    return 1;
  }
  const crds::Parallelism& parallelism = request.training->parallelism;
  std::int64_t groups = parallelism.expert > 1 ? 1 : 0;
  std::int64_t replicas = request.trainers;
  for (const std::int64_t size : {parallelism.tensor, parallelism.pipeline, parallelism.context}) {
    if (size > 1) {
      ++groups;
      replicas /= size;
    }
  }
  return std::max<std::int64_t>(1, groups + (replicas > 1 ? 1 : 0));
}

Bytes communication_of(const EstimateRequest& request) {
  if (request.trainers <= 1) {
    return {};
  }
  if (request.learned.communication) {
    return *request.learned.communication;
  }
  const bool exchanges =
      request.model != nullptr && request.model->dlrm && !request.model->dlrm->tables.empty();
  if (request.method == Method::kAmp) {
    return communication_bytes(request.trainers);
  }
  if (!exchanges) {
    return collective_bytes(request.gpu) * communicators(request);
  }
  // AMP's measurements are of Volta and Ampere GPUs.
  if (request.gpu == nullptr || !hopper_or_later(request.gpu->family)) {
    return communication_bytes(request.trainers);
  }
  const std::int64_t peers = std::min(request.per_node, request.trainers) - 1;
  return std::max(communication_bytes(request.trainers),
                  collective_bytes(request.gpu) + kExchangeConnection * kExchangeChannels * peers);
}

}  // namespace

Bytes communication_bytes(std::int64_t trainers) {
  if (trainers <= 1) {
    return Bytes{};
  }
  // Logarithmic between the paper's two figures. This is above linear interpolation, so it is the safer
  // choice for the counts in between, for which the paper has no figures.
  const double share =
      std::min(1.0, std::log2(static_cast<double>(trainers) / 2) / std::log2(kTrainersAtLimit / 2));
  return kCommunicationOfTwo +
         Bytes::ceil(static_cast<double>((kCommunicationLimit - kCommunicationOfTwo).count) * share);
}

FixedCosts fixed_costs_of(const EstimateRequest& request) {
  FixedCosts costs;
  if (request.device == Device::kCpu) {
    return costs;
  }
  costs.communication = communication_of(request);
  if (request.gpu == nullptr) {
    return costs;
  }
  // Forward runs in the caller's thread and backward in autograd's, each with its own handle.
  const Platform platform = platform_of(request);
  const Bytes cublas = request.runtime.cublas_workspace.value_or(cublas_row(platform).bytes);
  costs.forward_workspace = cublas + cublas_lt_row(platform).bytes;
  costs.backward_workspace = cublas;
  if (request.learned.workspace) {
    costs.backward_workspace = Bytes{request.learned.workspace->count / 2};
    costs.forward_workspace = *request.learned.workspace - costs.backward_workspace;
  }
  costs.cuda_context =
      request.learned.cuda_context.value_or(request.gpu->cuda_context.value_or(context_row(platform).bytes));
  costs.unavailable = kDriverMemory + std::min(kTypicalContext, costs.cuda_context);
  return costs;
}

Bytes safety_margin(Bytes transient) {
  return Bytes::ceil(static_cast<double>(transient.count) * kMargin);
}

}  // namespace plimsoll::estimator::fixed_costs
