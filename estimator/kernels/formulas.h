// The formulas of rules.csv: bytes that a kernel allocates internally, from the shapes of the call. Pure.
#pragma once

#include "estimator/kernels/call.h"

namespace plimsoll::estimator::inline kernels::formula {

inline Bytes none(const KernelCall& /*call*/) {
  return {};
}

// TensorIterator on the CPU first casts whole operands that have another type than the result.
Bytes elementwise(const KernelCall& call);
// BLAS needs matrices with contiguous rows or columns; others are copied.
Bytes matrix_copies(const KernelCall& call);
// Operands that are not row-major are copied.
Bytes contiguous_inputs(const KernelCall& call);

Bytes batch_statistics(const KernelCall& call);
Bytes batch_norm_backward(const KernelCall& call);
Bytes layer_norm_backward(const KernelCall& call);
Bytes group_norm_backward(const KernelCall& call);
Bytes safe_softmax(const KernelCall& call);
Bytes softmax_backward(const KernelCall& call);
Bytes embedding_bag_backward(const KernelCall& call);
Bytes embedding_sort(const KernelCall& call);
Bytes mkldnn_rnn(const KernelCall& call);
Bytes mkldnn_rnn_backward(const KernelCall& call);

}  // namespace plimsoll::estimator::kernels::formula
