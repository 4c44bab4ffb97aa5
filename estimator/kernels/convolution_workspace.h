// convolution_workspace(): memory that cuDNN allocates from the framework's allocator during a convolution.
// It affects reserved memory more than allocated memory, because large blocks are allocated and freed between
// the tensors.
//
//   Bytes workspace = convolution_workspace({.input = x, .output = y, .channels_last = false}, "ampere");
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/bytes.h"

namespace plimsoll::estimator::inline kernels {

struct ConvolutionCall {
  Bytes input;   // of forward; the gradient has the same size
  Bytes output;  // of forward; the gradient has the same size
  std::int64_t element_bytes = 4;
  std::int64_t groups = 1;
  std::int64_t input_channels = 1;
  bool channels_last = false;
};

// The workspace is the same for forward, the input's gradient and the weight's gradient: each reads one of
// the two large tensors and reads or writes the other. `family`: GpuModel::family; unknown families count as
// the newest.
Bytes convolution_workspace(const ConvolutionCall& call, std::string_view family);

}  // namespace plimsoll::estimator::kernels
