// What convolutions take inside: on the CPU oneDNN's blocked copies of input, weight and result, on CUDA
// cuDNN's workspace. Pure.
#pragma once

#include <optional>
#include <string_view>

#include "estimator/kernels/call.h"

namespace plimsoll::estimator::inline kernels::formula {

Bytes cpu_convolution(const KernelCall& call);
Bytes cpu_convolution_backward(const KernelCall& call);
Bytes cuda_convolution(const KernelCall& call);
// What cuDNN takes for an operator on a family of cards, and does without where it cannot be had; nothing for
// operators that are no convolutions. `learned` replaces it. The rows of the table hold for all cards, so it
// is none of them.
Bytes cuda_convolution_workspace(std::string_view name, const KernelCall& call, std::string_view family,
                                 std::optional<Bytes> learned);
Bytes cuda_convolution_backward(const KernelCall& call);

}  // namespace plimsoll::estimator::kernels::formula
