#include "estimator/memory/fixed_costs.h"

#include <algorithm>
#include <cmath>

namespace plimsoll::estimator {
namespace {

// PyTorch sets one cuBLAS workspace a handle and stream, 2 x 4096 KiB + 8 x 16 KiB by default and 32 MiB from
// Hopper on (CublasHandlePool.cpp; an 8519680 B block in memory snapshots: discuss.pytorch.org 178671;
// CUBLAS_WORKSPACE_CONFIG changes it). Forward runs on the caller's thread and backward on autograd's, each
// with a handle of its own.
constexpr Bytes kCublasWorkspace = 8192_KiB + 128_KiB;
constexpr Bytes kCublasWorkspaceHopper = 32_MiB;

// cuBLASLt, for products with a bias: 1 MiB; 4 MiB on Ampere and Ada cards of 24 GiB or more; 32 MiB from
// Hopper on (pytorch#120925). Later releases share cuBLAS's, which this bounds.
constexpr Bytes kCublasLtSmall = 1_MiB;
constexpr Bytes kCublasLtAmpere = 4_MiB;
constexpr Bytes kCublasLtHopper = 32_MiB;
constexpr Bytes kLargeAmpere = 22_GiB;  // nominal 24, less what the driver keeps

// AMP, Finding 12: communication grows "from 1.5GB to 2GB" a trainer with the number of trainers, within a
// constant limit. 128 is the count most of the paper's jobs use (section 3), taken as where the limit is met.
constexpr Bytes kCommunicationOfTwo = 1536_MiB;
constexpr Bytes kCommunicationLimit = 2048_MiB;
constexpr double kTrainersAtLimit = 128;

// NCCL. A connection has buffers of 10 MiB for its three protocols; an all-to-all opens, to each peer on the
// node and for each of 32 channels, one of them and two of 2 MiB (nccl#1685, 8 x H100: 7 x 32 x 14 MiB is
// what the card's use grew by, 3.28 GB). A collective has a ring and a tree: three connections a channel at
// most, 24 channels over NVLink and 8 over PCIe ("8 coll channels" in nccl#1189). An upper bound: later NCCL
// connects only what is used.
constexpr Bytes kConnection = 10_MiB;
constexpr Bytes kExchangeConnection = 14_MiB;
constexpr std::int64_t kExchangeChannels = 32;
constexpr std::int64_t kConnectionsOfAChannel = 3;
constexpr std::int64_t kNvlinkChannels = 24;
constexpr std::int64_t kPcieChannels = 8;
constexpr Bytes kSlowestNvlink{250'000'000'000};  // bytes a second; PCIe is slower

// torch reports 250 MiB less than nvidia-smi for an RTX 3060 (12622168064 B in xMem's raw files); a context
// with lazily loaded kernels takes 256 to 426 MiB (pytorch#107667, #109888, InvokeAI#9413, unsloth-zoo#1053).
constexpr Bytes kDriversShare = 250_MiB;
constexpr Bytes kUsualContext = 300_MiB;

// Of what comes and goes within an iteration. docs/estimation.md tells how it was chosen.
constexpr double kMargin = 0.05;

bool hopper_or_later(const std::string& family) {
  // An unknown card gets the larger workspace.
  return family != "kepler" && family != "maxwell" && family != "pascal" && family != "volta" &&
         family != "turing" && family != "ampere" && family != "ada-lovelace";
}

Bytes cublas_lt_workspace(const GpuModel& gpu) {
  if (hopper_or_later(gpu.family)) {
    return kCublasLtHopper;
  }
  const bool ampere = gpu.family == "ampere" || gpu.family == "ada-lovelace";
  return ampere && gpu.memory >= kLargeAmpere ? kCublasLtAmpere : kCublasLtSmall;
}

// One communicator over all trainers.
Bytes collective_bytes(const GpuModel* gpu) {
  const bool nvlink = gpu == nullptr || gpu->intra_node_bandwidth >= kSlowestNvlink;
  return kConnection * kConnectionsOfAChannel * (nvlink ? kNvlinkChannels : kPcieChannels);
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
    return collective_bytes(request.gpu);
  }
  // AMP measured Volta and Ampere cards.
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
  // Logarithmic between the paper's two figures: it lies above a straight line, so it is the safer of the two
  // for the counts between, which the paper does not tell.
  const double share =
      std::min(1.0, std::log2(static_cast<double>(trainers) / 2) / std::log2(kTrainersAtLimit / 2));
  return kCommunicationOfTwo +
         Bytes::ceil(static_cast<double>((kCommunicationLimit - kCommunicationOfTwo).count) * share);
}

FixedCosts fixed_costs(const EstimateRequest& request) {
  FixedCosts costs;
  if (request.device == Device::kCpu) {
    return costs;
  }
  costs.communication = communication_of(request);
  if (request.gpu == nullptr) {
    return costs;
  }
  const Bytes cublas = request.runtime.cublas_workspace.value_or(
      hopper_or_later(request.gpu->family) ? kCublasWorkspaceHopper : kCublasWorkspace);
  costs.forward_workspace = cublas + cublas_lt_workspace(*request.gpu);
  costs.backward_workspace = cublas;
  if (request.learned.workspace) {
    costs.backward_workspace = Bytes{request.learned.workspace->count / 2};
    costs.forward_workspace = *request.learned.workspace - costs.backward_workspace;
  }
  costs.cuda_context = request.learned.cuda_context.value_or(request.gpu->cuda_context);
  costs.out_of_reach = kDriversShare + std::min(kUsualContext, costs.cuda_context);
  return costs;
}

Bytes safety_margin(Bytes transient) {
  return Bytes::ceil(static_cast<double>(transient.count) * kMargin);
}

}  // namespace plimsoll::estimator
