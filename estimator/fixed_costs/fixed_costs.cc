#include "estimator/fixed_costs/fixed_costs.h"

#include <algorithm>
#include <cmath>

#include "estimator/fixed_costs/table.h"

namespace plimsoll::estimator::inline fixed_costs {
namespace {

constexpr Bytes kSlowestNvlink{250'000'000'000};  // bytes a second; PCIe is slower

bool hopper_or_later(const std::string& family) {
  // An unknown GPU gets the larger workspace.
  return family != "kepler" && family != "maxwell" && family != "pascal" && family != "volta" &&
         family != "turing" && family != "ampere" && family != "ada-lovelace";
}

// Versions of the graph's recording or of the training, unless the job sets how kernels are loaded.
Platform platform_of(const EstimateRequest& request) {
  const GpuModel& gpu = *request.gpu;
  Platform platform{.gpu = gpu.name, .family = gpu.family, .memory = gpu.memory};
  if (request.runtime.lazy_modules.has_value()) {
    platform.cuda = *request.runtime.lazy_modules ? kCudaOfLazyLoading : 0;
    platform.torch = *request.runtime.lazy_modules ? kTorchOfLazyLoading : 0;
  } else if (request.graph != nullptr) {
    platform.cuda = cuda_version_of(request.graph->producer.torch);
    platform.torch = request.graph->producer.version;
  } else if (request.training != nullptr && !request.training->torch_version.empty()) {
    platform.torch = torch_version_of(request.training->torch_version);
  }
  return platform;
}

// The buffers of one communicator of a group of trainers.
Bytes collective_bytes(const GpuModel* gpu) {
  const bool nvlink = gpu == nullptr || gpu->intra_node_bandwidth >= kSlowestNvlink;
  return kConnection * kConnectionsPerChannel * (nvlink ? kNvlinkChannels : kPcieChannels);
}

// What decides how much memory NCCL takes.
enum class CommunicationRule { kNone, kLearned, kPaper, kCollectives, kExchangeOfHopper };

CommunicationRule communication_rule(const EstimateRequest& request) {
  if (request.trainers <= 1) {
    return CommunicationRule::kNone;
  }
  if (request.learned.communication) {
    return CommunicationRule::kLearned;
  }
  if (request.method == Method::kAmp) {
    return CommunicationRule::kPaper;
  }
  const bool exchanges = request.model != nullptr && !request.model->tables().empty();
  if (!exchanges) {
    return CommunicationRule::kCollectives;
  }
  // AMP's measurements are of Volta and Ampere GPUs.
  const bool measured = request.gpu == nullptr || !hopper_or_later(request.gpu->family);
  return measured ? CommunicationRule::kPaper : CommunicationRule::kExchangeOfHopper;
}

Bytes communication_of(const EstimateRequest& request) {
  switch (communication_rule(request)) {
    case CommunicationRule::kNone: return {};
    case CommunicationRule::kLearned: return *request.learned.communication;
    case CommunicationRule::kPaper: return communication_bytes(request.trainers);
    case CommunicationRule::kCollectives: return collective_bytes(request.gpu) * communicators(request);
    case CommunicationRule::kExchangeOfHopper: break;
  }
  const std::int64_t peers = std::min(request.per_node, request.trainers) - 1;
  return std::max(communication_bytes(request.trainers),
                  collective_bytes(request.gpu) + kExchangeConnection * kExchangeChannels * peers);
}

FixedCostOrigin communication_origin(const EstimateRequest& request) {
  switch (communication_rule(request)) {
    case CommunicationRule::kNone: return {"one trainer does not communicate", "torch.distributed"};
    case CommunicationRule::kLearned: return {"what past jobs of the family took", "MemoryProfile"};
    case CommunicationRule::kPaper:
      return {"1.5 GiB + 0.5 GiB x log2(trainers / 2) / log2(64), at most 2 GiB", "AMP, Finding 12"};
    case CommunicationRule::kCollectives:
      return {
          "for each group of trainers 3 connections x 10 MiB on each channel: 24 channels with NVLink, 8 "
          "without",
          "nccl#1685, nccl#1189, nccl#964"};
    case CommunicationRule::kExchangeOfHopper: break;
  }
  return {
      "the collectives' buffers, and 32 channels x 14 MiB for each peer of the node for the exchange of "
      "embeddings; at least the paper's figure",
      "nccl#1685; AMP, Finding 12"};
}

}  // namespace

// Each kind of parallelism has its own group, and NCCL connects a group when it is first used.
std::int64_t communicators(const EstimateRequest& request) {
  if (request.training == nullptr) {
    return 1;
  }
  const crds::Parallelism& parallelism = request.training->parallelism;
  // Those that hold the same parameters are one group, across data and context parallelism.
  const std::int64_t holders = request.trainers / (parallelism.tensor * parallelism.pipeline);
  std::int64_t groups = holders > 1 ? 1 : 0;
  for (const std::int64_t size : {parallelism.tensor, parallelism.pipeline, parallelism.context,
                                  parallelism.expert, parallelism.replicate}) {
    groups += size > 1 ? 1 : 0;
  }
  return std::max<std::int64_t>(1, groups);
}

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
  if (request.before_iterations) {
    costs.forward_workspace = costs.backward_workspace = {};
  }
  costs.cuda_context =
      request.learned.cuda_context.value_or(request.gpu->cuda_context.value_or(context_row(platform).bytes));
  costs.unavailable = std::min(kTypicalContext, costs.cuda_context);
  return costs;
}

FixedCostOrigins fixed_cost_origins(const EstimateRequest& request) {
  if (request.device == Device::kCpu) {
    const FixedCostOrigin none = {"the CPU has no such memory", "docs/estimation.md, Fixed costs"};
    return {.communication = none, .cuda_context = none, .workspace = none};
  }
  FixedCostOrigins origins{
      .communication = communication_origin(request), .cuda_context = {}, .workspace = {}};
  if (request.gpu == nullptr) {
    origins.cuda_context = origins.workspace = {"no GPU is given", "docs/estimation.md, Fixed costs"};
    return origins;
  }
  const Platform platform = platform_of(request);
  if (request.learned.cuda_context) {
    origins.cuda_context = {"what past jobs of the family took", "MemoryProfile"};
  } else if (request.gpu->cuda_context) {
    origins.cuda_context = {"the GPU model's own figure", "GPUModel"};
  } else {
    origins.cuda_context = {
        "the first row of the table that matches the GPU and the versions of CUDA and PyTorch",
        context_row(platform).source};
  }
  if (request.learned.workspace) {
    origins.workspace = {"what past jobs of the family took", "MemoryProfile"};
    return origins;
  }
  origins.workspace = {
      request.runtime.cublas_workspace
          ? "cuBLAS: CUBLAS_WORKSPACE_CONFIG of the job for each of two handles; cuBLASLt: one"
          : "cuBLAS: one workspace for each of two handles (forward's thread and autograd's); cuBLASLt: one",
      std::string(cublas_row(platform).source) + "; " + cublas_lt_row(platform).source};
  return origins;
}

}  // namespace plimsoll::estimator::fixed_costs
