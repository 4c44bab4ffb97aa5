// The formulas behind kernel_rules.cc: bytes that a kernel takes inside, from the call's shapes. Pure.
#pragma once

#include <optional>
#include <string_view>

#include "estimator/memory/kernel_rules.h"

namespace plimsoll::estimator::kernels {

inline Bytes none(const KernelCall& /*call*/) {
  return {};
}

// TensorIterator on the CPU: operands of another type than the result are cast first, whole.
Bytes elementwise(const KernelCall& call);
// BLAS takes matrices whose rows or columns lie close together; others are copied.
Bytes matrix_copies(const KernelCall& call);
// Operands that are not row-major are copied.
Bytes contiguous_inputs(const KernelCall& call);

Bytes batch_statistics(const KernelCall& call);
Bytes batch_norm_backward(const KernelCall& call);
Bytes layer_norm_backward(const KernelCall& call);
Bytes group_norm_backward(const KernelCall& call);
Bytes safe_softmax(const KernelCall& call);
Bytes embedding_bag_backward(const KernelCall& call);
Bytes embedding_sort(const KernelCall& call);
Bytes mkldnn_rnn(const KernelCall& call);
Bytes mkldnn_rnn_backward(const KernelCall& call);

Bytes cpu_convolution(const KernelCall& call);
Bytes cpu_convolution_backward(const KernelCall& call);
Bytes cuda_convolution(const KernelCall& call);
// What cuDNN takes for an operator on a family of cards, and does without where it cannot be had; nothing for
// operators that are no convolutions. `learned` replaces it. The rows of the table hold for all cards, so it
// is none of them.
Bytes cuda_convolution_workspace(std::string_view name, const KernelCall& call, std::string_view family,
                                 std::optional<Bytes> learned);
Bytes cuda_convolution_backward(const KernelCall& call);

}  // namespace plimsoll::estimator::kernels
