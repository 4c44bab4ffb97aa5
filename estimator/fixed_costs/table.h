// The table of what a trainer's card holds beside the tensors of its model: one home for every figure, each
// with its source. fixed_costs.h chooses among the rows; a MemoryProfile and a GPUModel replace what it
// chose.
//
//   Bytes context = context_row({.gpu = "H100-80GB", .family = "hopper", .cuda = 1208, .torch = 206}).bytes;
//
// All are upper bounds. Of several rows that fit, the first holds. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/bytes.h"

namespace plimsoll::estimator::inline fixed_costs {

// The software a trainer runs and the card it runs on. Versions are major * 100 + minor, 0 where not known.
struct Platform {
  std::string_view gpu;     // GpuModel::name
  std::string_view family;  // GpuModel::family; an empty or new one counts as the newest
  Bytes memory;
  std::int32_t cuda = 0;
  std::int32_t torch = 0;
};

struct FixedCostRow {
  std::string_view gpu;     // what the card's name begins with; empty: any
  std::string_view family;  // empty: any
  Bytes least_memory;       // of the card
  std::int32_t cuda = 0;    // from this version on; a row with one is not for a platform of unknown version
  std::int32_t torch = 0;
  Bytes bytes;
  const char* source;
};

std::span<const FixedCostRow> context_rows();    // outside the framework's allocator
std::span<const FixedCostRow> cublas_rows();     // of one handle, inside
std::span<const FixedCostRow> cublas_lt_rows();  // of a process, inside

const FixedCostRow& context_row(const Platform& platform);
const FixedCostRow& cublas_row(const Platform& platform);
const FixedCostRow& cublas_lt_row(const Platform& platform);

// "2.6.0+cu124" -> 1204. 0 where the version of PyTorch does not tell.
std::int32_t cuda_version_of(std::string_view torch);

// Lazily loaded kernels: CUDA has them from 11.7 on, and PyTorch asks for them from 1.13 on (pytorch#86509).
inline constexpr std::int32_t kCudaOfLazyLoading = 1107;
inline constexpr std::int32_t kTorchOfLazyLoading = 113;

// NCCL. A connection has buffers of 10 MiB for its three protocols; an all-to-all opens, to each peer on the
// node and for each of 32 channels, one of them and two of 2 MiB (nccl#1685, 8 x H100: 7 x 32 x 14 MiB is
// what the card's use grew by, 3.28 GB). A collective has a ring and a tree: three connections a channel at
// most, 24 channels over NVLink and 8 over PCIe ("8 coll channels" in nccl#1189). An upper bound: later NCCL
// connects only what is used; on four A100 with NVLink a communicator took 544 MiB for two and 688 MiB for
// more trainers (nccl#964), of 720 here.
inline constexpr Bytes kConnection = 10_MiB;
inline constexpr Bytes kExchangeConnection = 14_MiB;
inline constexpr std::int64_t kExchangeChannels = 32;
inline constexpr std::int64_t kConnectionsOfAChannel = 3;
inline constexpr std::int64_t kNvlinkChannels = 24;
inline constexpr std::int64_t kPcieChannels = 8;

// AMP, Finding 12: communication grows "from 1.5GB to 2GB" a trainer with the number of trainers, within a
// constant limit. 128 is the count most of the paper's jobs use (section 3), taken as where the limit is met.
inline constexpr Bytes kCommunicationOfTwo = 1536_MiB;
inline constexpr Bytes kCommunicationLimit = 2048_MiB;
inline constexpr double kTrainersAtLimit = 128;

// torch reports 250 MiB less than nvidia-smi for an RTX 3060 (12622168064 B in xMem's raw files). What a
// context takes at least: 256 to 426 MiB were seen (the rows of lazily loaded kernels).
inline constexpr Bytes kDriversShare = 250_MiB;
inline constexpr Bytes kUsualContext = 300_MiB;

}  // namespace plimsoll::estimator::fixed_costs
