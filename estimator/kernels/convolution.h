// Kernel temporaries of convolutions: on the CPU, oneDNN's blocked copies of input, weight and result; on
// CUDA, cuDNN's workspace. Pure.
#pragma once

#include <optional>
#include <string_view>

#include "estimator/kernels/call.h"

namespace plimsoll::estimator::inline kernels::formula {

Bytes cpu_convolution(const KernelCall& call);
Bytes cpu_convolution_backward(const KernelCall& call);
// cuDNN's workspace for an operator on a GPU family; zero for other operators than convolutions. `learned`
// replaces it. It is not a formula of the rule table, because those do not depend on the GPU, and because a
// convolution can run without it.
Bytes cuda_convolution_workspace(std::string_view name, const KernelCall& call, std::string_view family,
                                 std::optional<Bytes> learned);

}  // namespace plimsoll::estimator::kernels::formula
