// convolution_workspace(): what cuDNN takes from the framework's allocator while it computes a convolution,
// and gives back afterwards. It shows in reserved memory more than in allocated: large blocks come and go
// between the tensors.
//
//   Bytes taken = convolution_workspace({.input = x, .output = y, .channels_last = false}, "ampere");
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/bytes.h"

namespace plimsoll::estimator::inline kernels {

struct ConvolutionCall {
  Bytes input;   // forward's; its gradient has the same size
  Bytes output;  // likewise
  std::int64_t element_bytes = 4;
  std::int64_t groups = 1;
  std::int64_t input_channels = 1;
  bool channels_last = false;
};

// The same for forward, the input's gradient and the weight's: each reads one of the two large tensors and
// reads or writes the other. `family`: as GpuModel::family; an unknown one counts as the newest.
Bytes convolution_workspace(const ConvolutionCall& call, std::string_view family);

}  // namespace plimsoll::estimator::kernels
