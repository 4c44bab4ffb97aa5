#include "estimator/catalog/capabilities.h"

#include <algorithm>
#include <charconv>

namespace plimsoll::estimator::inline catalog {
namespace {

// The first toolkit with code for a capability: Kitware/CMake, Modules/CUDA/architectures.cmake, up to 8.7;
// bitsandbytes/CMakeLists.txt from 8.9 on. 10.3 and 12.1 with 12.9: unverified.
struct FirstToolkit {
  ComputeCapability capability;
  std::int32_t cuda;
};
constexpr FirstToolkit kFirstToolkits[] = {{{3, 0}, 0},    {{6, 0}, 800},   {{7, 0}, 900},   {{7, 5}, 1000},
                                           {{8, 0}, 1100}, {{8, 6}, 1101},  {{8, 7}, 1104},  {{8, 9}, 1108},
                                           {{9, 0}, 1108}, {{10, 0}, 1208}, {{10, 3}, 1209}, {{12, 0}, 1208},
                                           {{12, 1}, 1209}};

// The last toolkit with code for a major version or a part of it: CUDA Toolkit Release Notes, "Deprecated
// Architectures": Kepler ends with 11.x, Maxwell, Pascal and Volta with 12.x.
struct LastToolkit {
  ComputeCapability below;
  std::int32_t cuda;
};
constexpr LastToolkit kLastToolkits[] = {{{3, 5}, 1002}, {{5, 0}, 1108}, {{7, 5}, 1209}};

// TORCH_CUDA_ARCH_LIST of the builds on PyPI and download.pytorch.org for x86_64: pytorch/builder, release/1.12 to
// release/2.5, manywheel/build_cuda.sh; from 2.6 on pytorch/pytorch, .ci/manywheel/build_cuda.sh and RELEASE.md; 2.15's
// torch/cuda/__init__.py, PYTORCH_RELEASES_CODE_CC.
struct Builds {
  const char* capabilities;
  std::int32_t first_torch;
  std::int32_t last_torch;
  std::int32_t cuda;
  bool ptx;  // of the last of the capabilities
};
constexpr const char* kFrom3To8 = "3.7 5.0 6.0 7.0 7.5 8.0 8.6";
constexpr const char* kFrom3To9 = "3.7 5.0 6.0 7.0 7.5 8.0 8.6 9.0";
constexpr const char* kFrom5To9 = "5.0 6.0 7.0 7.5 8.0 8.6 9.0";
constexpr const char* kFrom7To12 = "7.0 7.5 8.0 8.6 9.0 10.0 12.0";
constexpr const char* kFrom75To12 = "7.5 8.0 8.6 9.0 10.0 12.0";
constexpr Builds kBuilds[] = {{"3.7 5.0 6.0 7.0", 112, 112, 1002, false}, {kFrom3To8, 112, 112, 1103, false},
                              {kFrom3To8, 112, 113, 1106, false},         {kFrom3To8, 113, 200, 1107, false},
                              {kFrom3To9, 200, 207, 1108, false},         {kFrom5To9, 201, 205, 1201, false},
                              {kFrom5To9, 204, 206, 1204, false},         {kFrom5To9, 206, 215, 1206, false},
                              {kFrom75To12, 207, 207, 1208, true},        {kFrom7To12, 208, 210, 1208, false},
                              {kFrom75To12, 211, 211, 1208, false},       {kFrom7To12, 208, 208, 1209, true},
                              {kFrom75To12, 209, 215, 1300, true},        {kFrom75To12, 214, 215, 1302, true},
                              {kFrom75To12, 215, 215, 1304, true}};

// CUDA Toolkit Release Notes, table 2, "minimum required driver version for CUDA minor version compatibility", Linux.
struct OldestDriver {
  std::int32_t cuda_major;
  DriverVersion driver;
};
constexpr OldestDriver kOldestDrivers[] = {
    {10, {{440, 33, 0}}}, {11, {{450, 80, 2}}}, {12, {{525, 60, 13}}}, {13, {{580, 65, 6}}}};

// Decimal digits up to `end`; moves `text` behind them. Nothing when there are none, or too many.
std::optional<std::int32_t> take_number(std::string_view& text) {
  std::int32_t number = 0;
  const auto [rest, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || rest == text.data() || number < 0) {
    return std::nullopt;
  }
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  return number;
}

bool take_point(std::string_view& text) {
  const bool point = text.starts_with('.');
  text.remove_prefix(point ? 1 : 0);
  return point;
}

bool runs(const Builds& build, ComputeCapability wanted) {
  ComputeCapability last;
  for (std::string_view rest = build.capabilities; !rest.empty();) {
    const std::size_t end = std::min(rest.find(' '), rest.size());
    last = *parse_compute_capability(rest.substr(0, end));
    if (last.major == wanted.major && last.minor <= wanted.minor) {
      return true;
    }
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return build.ptx && last < wanted;
}

std::string cuda_text(std::int32_t cuda) {
  return cuda == 0 ? std::string() : std::to_string(cuda / 100) + "." + std::to_string(cuda % 100);
}

}  // namespace

std::optional<ComputeCapability> parse_compute_capability(std::string_view text) {
  const std::optional<std::int32_t> major = take_number(text);
  if (!major || !take_point(text)) {
    return std::nullopt;
  }
  const std::optional<std::int32_t> minor = take_number(text);
  return minor && text.empty() ? std::optional(ComputeCapability{*major, *minor}) : std::nullopt;
}

std::string to_string(ComputeCapability capability) {
  return std::to_string(capability.major) + "." + std::to_string(capability.minor);
}

Capabilities capabilities_of(ComputeCapability capability) {
  Capabilities can;
  // CUDA C++ Programming Guide, "Arithmetic Instructions": half precision from 5.3 on, bfloat16 and TF32 from 8.0.
  can.fp16 = capability >= ComputeCapability{5, 3};
  can.bf16 = capability.major >= 8;
  can.tf32 = capability.major >= 8;
  // torch._scaled_mm (pytorch, aten/src/ATen/native/cuda/Blas.cpp): 8.9, or 9.0 and later.
  can.fp8 = capability >= ComputeCapability{8, 9};
  // flash-attention: csrc/flash_attn/flash_api.cpp demands major >= 8; README: version 3 for H100.
  can.flash_attention_2 = capability.major >= 8;
  can.flash_attention_3 = capability.major == 9;
  for (const FirstToolkit& first : kFirstToolkits) {
    if (first.capability <= capability) {
      can.oldest_cuda = first.cuda;
    }
  }
  for (const LastToolkit& last : kLastToolkits) {
    if (capability < last.below) {
      can.newest_cuda = last.cuda;
      break;
    }
  }
  return can;
}

crds::GpuCapabilities described(ComputeCapability capability) {
  const Capabilities can = capabilities_of(capability);
  crds::GpuCapabilities text;
  text.compute_capability = to_string(capability);
  const std::pair<bool, const char*> precisions[] = {
      {can.fp16, "FP16"}, {can.bf16, "BF16"}, {can.tf32, "TF32"}, {can.fp8, "FP8"}};
  for (const auto& [native, name] : precisions) {
    if (native) {
      text.native_precisions.emplace_back(name);
    }
  }
  if (can.flash_attention_2) {
    text.flash_attention.emplace_back("2");
  }
  if (can.flash_attention_3) {
    text.flash_attention.emplace_back("3");
  }
  text.oldest_cuda = cuda_text(can.oldest_cuda);
  text.newest_cuda = cuda_text(can.newest_cuda);
  return text;
}

std::optional<bool> build_has_code_for(TorchBuild build, ComputeCapability capability) {
  std::optional<bool> found;
  for (const Builds& known : kBuilds) {
    if (known.first_torch <= build.torch && build.torch <= known.last_torch &&
        (build.cuda == 0 || build.cuda == known.cuda)) {
      found = found.value_or(false) || runs(known, capability);
    }
  }
  return found;
}

std::optional<DriverVersion> parse_driver_version(std::string_view text) {
  DriverVersion driver;
  for (std::size_t part = 0; part < driver.parts.size(); ++part) {
    const std::optional<std::int32_t> number = take_number(text);
    if (!number) {
      return std::nullopt;
    }
    driver.parts[part] = *number;
    if (text.empty()) {
      return driver;
    }
    if (!take_point(text)) {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

std::string to_string(DriverVersion driver) {
  // NVIDIA writes the last two numbers with two digits: 450.80.02.
  std::string text = std::to_string(driver.parts[0]);
  for (const std::int32_t part : {driver.parts[1], driver.parts[2]}) {
    text += (part < 10 ? ".0" : ".") + std::to_string(part);
  }
  return text;
}

std::optional<DriverVersion> oldest_driver_for(std::int32_t cuda) {
  for (const OldestDriver& row : kOldestDrivers) {
    if (row.cuda_major == cuda / 100) {
      return row.driver;
    }
  }
  return std::nullopt;
}

}  // namespace plimsoll::estimator::catalog
