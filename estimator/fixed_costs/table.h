// The table of GPU memory besides the tensors of a model; every figure has its source here. fixed_costs.h
// chooses the rows; a MemoryProfile and a GPUModel override them.
//
//   Bytes context = context_row({.gpu = "H100-80GB", .family = "hopper", .cuda = 1208, .torch = 206}).bytes;
//
// All figures are upper bounds. If several rows match, the first one is used. Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/bytes.h"

namespace plimsoll::estimator::inline fixed_costs {

// Software and GPU of a trainer. Versions are major * 100 + minor, 0 if unknown.
struct Platform {
  std::string_view gpu;     // GpuModel::name
  std::string_view family;  // GpuModel::family; an empty or unknown one counts as the newest
  Bytes memory;
  std::int32_t cuda = 0;
  std::int32_t torch = 0;
};

struct FixedCostRow {
  std::string_view gpu{};     // prefix of the GPU's name; empty: any
  std::string_view family{};  // empty: any
  Bytes least_memory{};       // minimum memory of the GPU
  std::int32_t cuda = 0;      // minimum version; a row with one does not match an unknown version
  std::int32_t torch = 0;
  Bytes bytes{};
  const char* source = nullptr;
};

// The contexts, outside the framework's allocator; inside it cuBLAS's workspaces of a handle, and cuBLASLt's of a process.
std::array<std::span<const FixedCostRow>, 3> fixed_cost_tables();

const FixedCostRow& context_row(const Platform& platform);
const FixedCostRow& cublas_row(const Platform& platform);
const FixedCostRow& cublas_lt_row(const Platform& platform);

// "2.6.0+cu124" -> 1204. 0 if PyTorch's version does not contain it.
std::int32_t cuda_version_of(std::string_view torch);

// Lazy loading of kernels: available in CUDA from 11.7 on, enabled by PyTorch from 1.13 on (pytorch#86509).
inline constexpr std::int32_t kCudaOfLazyLoading = 1107;
inline constexpr std::int32_t kTorchOfLazyLoading = 113;

// NCCL. A connection has buffers of 10 MiB for its three protocols. An all-to-all opens one connection and
// two buffers of 2 MiB to each peer on the node, for each of 32 channels (nccl#1685, 8 x H100: memory use
// grew by 7 x 32 x 14 MiB, 3.28 GB). A collective has a ring and a tree: at most three connections per
// channel, 24 channels over NVLink and 8 over PCIe ("8 coll channels" in nccl#1189). This is an upper bound,
// because later NCCL versions connect only what is used: on four A100 with NVLink, a communicator took 544
// MiB for two and 688 MiB for more trainers (nccl#964), of the 720 here.
inline constexpr Bytes kConnection = 10_MiB;
inline constexpr Bytes kExchangeConnection = 14_MiB;
inline constexpr std::int64_t kExchangeChannels = 32;
inline constexpr std::int64_t kConnectionsPerChannel = 3;
inline constexpr std::int64_t kNvlinkChannels = 24;
inline constexpr std::int64_t kPcieChannels = 8;

// AMP, Finding 12: the communication memory of a trainer grows "from 1.5GB to 2GB" with the number of
// trainers, up to a constant limit. Most of the paper's jobs have 128 trainers (section 3); the limit is
// assumed to be reached there.
inline constexpr Bytes kCommunicationOfTwo = 1536_MiB;
inline constexpr Bytes kCommunicationLimit = 2048_MiB;
inline constexpr double kTrainersAtLimit = 128;

// The smallest contexts measured are 256 to 426 MiB (the rows of lazily loaded kernels).
inline constexpr Bytes kTypicalContext = 300_MiB;

}  // namespace plimsoll::estimator::fixed_costs
