// Capabilities: what a GPU can run, by its compute capability: native precisions, FlashAttention, CUDA toolkits,
// builds of PyTorch. And which driver a CUDA version needs.
//
//   const ComputeCapability t4 = *parse_compute_capability("7.5");
//   capabilities_of(t4).bf16;                                   // false: emulated
//   build_has_code_for({.torch = 215, .cuda = 1300}, {7, 0});   // false: no V100 in a build for CUDA 13
//
// Versions are major * 100 + minor: CUDA 12.8 is 1208, PyTorch 2.15 is 215. NVIDIA only. Pure; any thread.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "crds/gpu_model.h"

namespace plimsoll::estimator::inline catalog {

struct ComputeCapability {
  std::int32_t major = 0;
  std::int32_t minor = 0;
  auto operator<=>(const ComputeCapability&) const = default;
};

// "8.6"; nothing for any other form.
std::optional<ComputeCapability> parse_compute_capability(std::string_view text);
std::string to_string(ComputeCapability capability);

struct Capabilities {
  // Native: in hardware. The rest is emulated or falls back to FP32.
  bool fp16 = false;
  bool bf16 = false;
  bool tf32 = false;
  bool fp8 = false;
  bool flash_attention_2 = false;  // the package flash_attn, and PyTorch's own flash kernels
  bool flash_attention_3 = false;
  std::int32_t oldest_cuda = 0;  // the first toolkit that compiles for it; 0: older than CUDA 7
  std::int32_t newest_cuda = 0;  // the last toolkit that compiles for it; 0: none has dropped it yet
};
Capabilities capabilities_of(ComputeCapability capability);

// The same as a GPUModel's status has it.
crds::GpuCapabilities described(ComputeCapability capability);

struct TorchBuild {
  std::int32_t torch = 0;
  std::int32_t cuda = 0;  // 0: any
};

// Whether PyTorch's own build for this CUDA version, or for any, has code that the card runs: of the same major
// version and of no higher minor one (torch/cuda/__init__.py, _check_capability), or PTX that its driver compiles.
// Nothing for builds that the table does not have.
std::optional<bool> build_has_code_for(TorchBuild build, ComputeCapability capability);

// Of three numbers, as drivers have them.
struct DriverVersion {
  std::array<std::int32_t, 3> parts{};
  auto operator<=>(const DriverVersion&) const = default;
};
// "535.104.12", "550"; nothing for any other form.
std::optional<DriverVersion> parse_driver_version(std::string_view text);
std::string to_string(DriverVersion driver);

// The oldest driver that runs programs made for this CUDA version. Nothing where it is not known.
std::optional<DriverVersion> oldest_driver_for(std::int32_t cuda);

}  // namespace plimsoll::estimator::catalog
