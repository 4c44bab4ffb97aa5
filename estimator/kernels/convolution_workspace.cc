#include "estimator/kernels/convolution_workspace.h"

#include <algorithm>
#include <array>

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

}  // namespace plimsoll::estimator::kernels
