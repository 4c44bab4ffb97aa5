#include "estimator/kernels/convolution.h"

#include <algorithm>
#include <array>
#include <initializer_list>

namespace plimsoll::estimator::inline kernels {
namespace {

template <std::size_t N>
bool one_of(std::string_view family, const std::array<std::string_view, N>& families) {
  return std::find(families.begin(), families.end(), family) != families.end();
}

// Tensor cores support half precision from Volta on, and TF32 (the default for FP32 convolutions,
// torch.backends.cudnn.allow_tf32) from Ampere on.
bool on_tensor_cores(std::int64_t element_bytes, std::string_view family) {
  constexpr std::array<std::string_view, 3> kNone = {"kepler", "maxwell", "pascal"};
  constexpr std::array<std::string_view, 2> kHalfOnly = {"volta", "turing"};
  if (one_of(family, kNone)) {
    return false;
  }
  return element_bytes <= 2 || (element_bytes == 4 && !one_of(family, kHalfOnly));
}

// The peak inside a kernel minus its results. `moments`: live memory at each moment, results included.
Bytes above(std::initializer_list<Bytes> moments, Bytes results) {
  return std::max(Bytes{}, std::max(moments) - results);
}

}  // namespace

// cuDNN's tensor core kernels use the NHWC layout. NCHW tensors, PyTorch's default, are converted before and
// after (nchwToNhwcKernel and nhwcToNchwKernel in profiles, pytorch#54324; "Tensor Layouts In Memory" in
// NVIDIA's convolution guide), so the workspace holds a copy of both large tensors; filters are small in
// comparison. Depthwise FP32 convolutions are PyTorch's own kernels
// (aten/src/ATen/native/cuda/DepthwiseConv2d.cu). The workspaces of older algorithms are not modelled:
// usually they need none, sometimes one for a Winograd transform.
Bytes convolution_workspace(const ConvolutionCall& call, std::string_view family) {
  const bool depthwise = call.groups > 1 && call.groups == call.input_channels;
  if (call.channels_last || depthwise || !on_tensor_cores(call.element_bytes, family)) {
    return {};
  }
  return call.input + call.output;
}

void ConvolutionTotals::add(const ConvolutionTotals& other) {
  traffic += other.traffic;
  transforms = std::max(transforms, other.transforms);
}

ConvolutionTotals convolution_totals(std::string_view name, const KernelCall& call) {
  if (name != "aten::convolution" && name != "aten::cudnn_convolution") {
    return {};
  }
  return {.traffic = call.input(0).bytes() + call.output(0).bytes(), .transforms = winograd_transforms(call)};
}

Bytes winograd_transforms(const KernelCall& call) {
  constexpr std::int64_t kResults = 4;  // of a tile, along each dimension
  constexpr std::int64_t kNumbers = kResults + 2;
  const TensorView weight = call.input(1);
  const TensorView output = call.output(0);
  const bool plain = weight.rank() == 4 && output.rank() == 4 && weight.size(2) == 3 && weight.size(3) == 3 &&
                     call.integer("groups", 1) == 1 && call.element("stride", 0, 1) == 1 &&
                     call.element("stride", 1, 1) == 1 && call.element("dilation", 0, 1) == 1 &&
                     call.element("dilation", 1, 1) == 1;
  if (!plain) {
    return {};
  }
  const auto tiles = [](std::int64_t size) { return size / kResults + (size % kResults > 0 ? 1 : 0); };
  const Bytes channels = Bytes{weight.size(0)} + Bytes{weight.size(1)};
  return channels * output.size(0) * tiles(output.size(2)) * tiles(output.size(3)) * (kNumbers * kNumbers) *
         output.width;
}

Bytes cuda_convolution_workspace(std::string_view name, const KernelCall& call, std::string_view family,
                                 std::optional<Bytes> learned) {
  const bool backward = name == "aten::convolution_backward";
  if (!backward && name != "aten::convolution" && name != "aten::cudnn_convolution") {
    return {};
  }
  if (learned) {
    return *learned;
  }
  // (input, weight[, bias]) -> output; backward (gradient, input, weight).
  const TensorView input = call.input(backward ? 1 : 0);
  const TensorView output = backward ? call.input(0) : call.output(0);
  return convolution_workspace({.input = input.bytes(),
                                .output = output.bytes(),
                                .element_bytes = input.width,
                                .groups = call.integer("groups", 1),
                                .input_channels = input.size(1),
                                .channels_last = !input.contiguous() && input.stride(1) == 1},
                               family);
}

namespace formula {

Bytes cpu_convolution(const KernelCall& call) {
  const Bytes input = call.input(0).bytes();
  const Bytes weight = call.input(1).bytes();
  const Bytes output = call.output(0).bytes();
  return above({input + weight + output, output * 2}, output);
}

Bytes cpu_convolution_backward(const KernelCall& call) {
  const Bytes gradient = call.input(0).bytes();
  const Bytes input = call.input(1).bytes();
  const Bytes weight = call.input(2).bytes();
  const Bytes results = call.output(0).bytes() + call.output(1).bytes() + call.output(2).bytes();
  return above({gradient + weight + input, input * 2, call.output(0).bytes() + gradient + input + weight * 2},
               results);
}

}  // namespace formula
}  // namespace plimsoll::estimator::kernels
