#include "estimator/kernels/convolution.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>

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

bool depthwise(const ConvolutionCall& call) {
  return call.groups > 1 && call.groups == call.channels;
}

// Not measured. Of the published networks on an A100 (docs/estimation.md), those of 1 x 1 convolutions take what copies of input
// and output would, without exception for matrix products or few channels.
constexpr std::string_view kSm80 = "ampere 8.0";

Bytes sm80_workspace(const ConvolutionCall& call) {
  if (call.channels_last) {
    return {};
  }
  return Bytes{call.batch} * (call.channels * call.pixels + call.results * call.result_pixels) *
         call.element_bytes;
}

// A matrix product for each sample, which NCHW suits as it is.
bool is_matrix_product(const ConvolutionCall& call) {
  return call.kernel == 1 && call.groups == 1 && !call.strided && !call.padded;
}

// One product for each sample, in fp32, which are summed up then (cudnn::cnn::reduce_wgrad_nchw_helper in profiles), unless
// that takes more than copies of both tensors.
Bytes matrix_product_workspace(const ConvolutionCall& call) {
  if (call.pass != ConvolutionPass::kWeightGradient || call.channels_last || call.pixels == 1) {
    return {};
  }
  constexpr std::int64_t kPartialBytes = 4;
  const Bytes partial = Bytes{call.batch} * call.channels * call.results * kPartialBytes;
  const Bytes copies = Bytes{call.batch} * (call.channels + call.results) * call.pixels * call.element_bytes;
  return std::min(partial, copies);
}

// Where few channels leave tensor cores little to do, fp32 kernels without them read NCHW: measured on an H100.
bool stays_off_tensor_cores(const ConvolutionCall& call) {
  constexpr std::int64_t kFewChannels = 4;  // an image's
  constexpr std::int64_t kFewOfStrided = 100;
  if (call.element_bytes != 4 || call.channels_last || call.groups > 1) {
    return false;
  }
  return call.kernel == 1 ? std::min(call.channels, call.results) <= kFewOfStrided
                          : call.channels <= kFewChannels && call.pass != ConvolutionPass::kWeightGradient;
}

}  // namespace

std::string convolution_family(std::string_view family, bool is_sm80) {
  return std::string(is_sm80 ? kSm80 : family);
}

// cuDNN's tensor core kernels use the NHWC layout. NCHW tensors, PyTorch's default, are converted before and
// after (nchwToNhwcKernel and nhwcToNchwKernel in profiles, pytorch#54324; "Tensor Layouts In Memory" in
// NVIDIA's convolution guide), so the workspace holds a copy of both tensors and of the filters; the filters of 1 x 1 kernels
// are the same in both. Channels are padded to whole vectors of 16 bytes, also where tensors are in NHWC.
// Depthwise convolutions of NCHW are PyTorch's own kernels (aten/src/ATen/native/cuda/DepthwiseConv2d.cu). Measured on an
// H100: tests/accuracy/measure_convolutions.py. The workspaces of older algorithms are not modelled, nor partial sums of
// weight gradients, at most one tile a multiprocessor.
Bytes convolution_workspace(const ConvolutionCall& call, std::string_view family) {
  if (depthwise(call) || !on_tensor_cores(call.element_bytes, family)) {
    return {};
  }
  if (family == kSm80) {
    return sm80_workspace(call);
  }
  if (is_matrix_product(call)) {
    return matrix_product_workspace(call);
  }
  if (stays_off_tensor_cores(call)) {
    return {};
  }
  constexpr std::int64_t kVectorBytes = 16;
  const auto whole = [&](std::int64_t channels) {
    const std::int64_t vector = kVectorBytes / call.element_bytes;
    return call.groups > 1 ? channels : (channels + vector - 1) / vector * vector;
  };
  const std::int64_t channels = whole(call.channels);
  const std::int64_t results = whole(call.results);
  const bool pads = channels != call.channels || results != call.results;
  Bytes copies;
  if (!call.channels_last || channels != call.channels) {
    copies += Bytes{call.batch} * channels * call.pixels * call.element_bytes;
  }
  if (!call.channels_last || results != call.results) {
    copies += Bytes{call.batch} * results * call.result_pixels * call.element_bytes;
  }
  if (pads || (!call.channels_last && call.kernel > 1)) {
    copies += Bytes{channels} * (results / call.groups) * call.kernel * call.element_bytes;
  }
  return copies;
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
  // (input, weight[, bias]) -> output; backward (gradient, input, weight) -> the gradients that are asked for.
  const TensorView input = call.input(backward ? 1 : 0);
  const TensorView weight = call.input(backward ? 2 : 1);
  const TensorView output = backward ? call.input(0) : call.output(0);
  const auto a_pixel = [](const TensorView& tensor) {
    return std::max<std::int64_t>(1, tensor.size(0) * tensor.size(1));
  };
  ConvolutionCall one = {.batch = input.size(0),
                         .channels = input.size(1),
                         .results = output.size(1),
                         .groups = std::max<std::int64_t>(1, call.integer("groups", 1)),
                         .pixels = input.elements / a_pixel(input),
                         .result_pixels = output.elements / a_pixel(output),
                         .kernel = weight.elements / a_pixel(weight),
                         .element_bytes = input.width,
                         .channels_last = !input.contiguous() && input.stride(1) == 1};
  for (std::size_t i = 0; i + 2 < input.rank(); ++i) {
    one.strided = one.strided || call.element("stride", i, 1) > 1;
    one.padded = one.padded || call.element("padding", i, 0) > 0;
  }
  if (!backward) {
    return convolution_workspace(one, family);
  }
  Bytes most;
  for (const auto& [pass, output_index] : {std::pair{ConvolutionPass::kInputGradient, std::size_t{0}},
                                           std::pair{ConvolutionPass::kWeightGradient, std::size_t{1}}}) {
    if (call.output(output_index).present) {
      one.pass = pass;
      most = std::max(most, convolution_workspace(one, family));
    }
  }
  return most;
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
