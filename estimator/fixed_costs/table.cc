#include "estimator/fixed_costs/table.h"

#include <algorithm>
#include <cassert>
#include <charconv>

namespace plimsoll::estimator::inline fixed_costs {
namespace {

constexpr const char* kLazySource =
    "Lazily loaded kernels: 274 MiB against 636 (pytorch#86509), 256 (RTX 3090, torch 2.7, CUDA 12.8: "
    "InvokeAI#9413), 300 to 400 (pytorch#107667, #109888), 426 (RTX 6000 Ada, torch 2.10, CUDA 13.0: "
    "unsloth-zoo#1053), 484 with a communicator of NCCL (RTX 3090, CUDA 13.0: nccl#2366), 1011 with NCCL's "
    "collectives over 8 (H100: nccl#1685). Rounded up";

constexpr FixedCostRow lazy(std::string_view family) {
  return {.family = family,
          .cuda = kCudaOfLazyLoading,
          .torch = kTorchOfLazyLoading,
          .bytes = 1_GiB,
          .source = kLazySource};
}

constexpr std::array<FixedCostRow, 7> kContexts = {{
    {.gpu = "A100",
     .bytes = 1463_MiB,
     .source =
         "95th percentile of 592 published runs of perceptrons, the whole GPU by nvidia-smi, versions not "
         "given (GPUMemNet); 1435 MiB fit them"},
    lazy("volta"),
    lazy("turing"),
    lazy("ampere"),
    lazy("ada-lovelace"),
    lazy("hopper"),
    {.bytes = 1536_MiB,
     .source =
         "All kernels loaded, or unknown: 1486 MiB (RTX 3090, torch 1.7, CUDA 11.0) and 877 (RTX 2080 Ti, "
         "torch 1.6, CUDA 10.1: pytorch#49877), 1005 (Titan V, torch 1.3: pytorch#28394), 843 (torch 1.12, "
         "CUDA 11.3: pytorch#86493). The largest, rounded up; no newer family was measured"},
}};

constexpr FixedCostRow workspace(std::string_view family, Bytes least_memory, Bytes bytes,
                                 const char* source) {
  return {.family = family, .least_memory = least_memory, .bytes = bytes, .source = source};
}

constexpr const char* kCublasSource =
    "CublasHandlePool.cpp: 2 x 4096 KiB + 8 x 16 KiB a handle and stream; an 8519680 B block in memory "
    "snapshots (discuss.pytorch.org 178671)";
constexpr Bytes kCublas = 8192_KiB + 128_KiB;
constexpr std::array<FixedCostRow, 8> kCublasRows = {{
    workspace("kepler", {}, kCublas, kCublasSource),
    workspace("maxwell", {}, kCublas, kCublasSource),
    workspace("pascal", {}, kCublas, kCublasSource),
    workspace("volta", {}, kCublas, kCublasSource),
    workspace("turing", {}, kCublas, kCublasSource),
    workspace("ampere", {}, kCublas, kCublasSource),
    workspace("ada-lovelace", {}, kCublas, kCublasSource),
    workspace("", {}, 32_MiB, "CublasHandlePool.cpp: 32 MiB from Hopper on"),
}};

// Later releases share cuBLAS's workspace (CUDABlas.cpp: CublasLtWorkspace), for which the figures without a version
// are an upper bound.
constexpr std::int32_t kTorchOfSharedWorkspace = 211;  // as measured
constexpr const char* kCublasLtSource = "CUDABlas.cpp: 1 MiB unless CUBLASLT_WORKSPACE_SIZE is set";
constexpr const char* kCublasLtLarge = "pytorch#120925: 4 MiB on GPUs of 24 GiB";
constexpr Bytes kNominal24 = 21_GiB;  // 24 GiB minus the driver's part, with ECC
constexpr std::array<FixedCostRow, 11> kCublasLtRows = {{
    {.family = "hopper",
     .torch = kTorchOfSharedWorkspace,
     .bytes = {},
     .source = "shares cuBLAS's workspace: two blocks of 32 MiB are all there is (H100, torch 2.11; "
               "tests/accuracy/transformers_on_gpu.py)"},
    workspace("kepler", {}, 1_MiB, kCublasLtSource),
    workspace("maxwell", {}, 1_MiB, kCublasLtSource),
    workspace("pascal", {}, 1_MiB, kCublasLtSource),
    workspace("volta", {}, 1_MiB, kCublasLtSource),
    workspace("turing", {}, 1_MiB, kCublasLtSource),
    workspace("ampere", kNominal24, 4_MiB, kCublasLtLarge),
    workspace("ampere", {}, 1_MiB, kCublasLtSource),
    workspace("ada-lovelace", kNominal24, 4_MiB, kCublasLtLarge),
    workspace("ada-lovelace", {}, 1_MiB, kCublasLtSource),
    workspace("", {}, 32_MiB, "pytorch#120925: 32 MiB from Hopper on"),
}};

bool matches(const FixedCostRow& row, const Platform& platform) {
  return platform.gpu.starts_with(row.gpu) && (row.family.empty() || row.family == platform.family) &&
         platform.memory >= row.least_memory && platform.cuda >= row.cuda && platform.torch >= row.torch;
}

const FixedCostRow& first_match(std::span<const FixedCostRow> rows, const Platform& platform) {
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const FixedCostRow& row) { return matches(row, platform); });
  assert(found != rows.end());  // the last row of each table matches every platform
  return *found;
}

}  // namespace

std::array<std::span<const FixedCostRow>, 3> fixed_cost_tables() {
  return {kContexts, kCublasRows, kCublasLtRows};
}

const FixedCostRow& context_row(const Platform& platform) {
  return first_match(kContexts, platform);
}
const FixedCostRow& cublas_row(const Platform& platform) {
  return first_match(kCublasRows, platform);
}
const FixedCostRow& cublas_lt_row(const Platform& platform) {
  return first_match(kCublasLtRows, platform);
}

std::int32_t cuda_version_of(std::string_view torch) {
  constexpr std::string_view kMark = "+cu";
  const std::size_t mark = torch.find(kMark);
  if (mark == std::string_view::npos) {
    return 0;
  }
  // cu92, cu118, cu132: the last digit is the minor version.
  const std::string_view digits = torch.substr(mark + kMark.size());
  std::int32_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool valid =
      error == std::errc{} && end - digits.data() >= 2 && end - digits.data() <= 3 && number > 0;
  return valid ? number / 10 * 100 + number % 10 : 0;
}

}  // namespace plimsoll::estimator::fixed_costs
