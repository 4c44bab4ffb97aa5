#include "estimator/kernels/formulas.h"

#include <algorithm>

namespace plimsoll::estimator::inline kernels::formula {
namespace {

constexpr std::int64_t kFP32 = 4;
constexpr std::int64_t kInt64 = 8;

bool is_matrix_of_blas(const TensorView& tensor) {
  const std::int64_t rows = tensor.size(-2);
  const std::int64_t columns = tensor.size(-1);
  const std::int64_t row = tensor.stride(-2);
  const std::int64_t column = tensor.stride(-1);
  return (column == 1 && row >= std::max<std::int64_t>(1, columns)) ||
         (row == 1 && column >= std::max<std::int64_t>(1, rows)) || rows == 1 || columns == 1;
}

}  // namespace

Bytes elementwise(const KernelCall& call) {
  const TensorView result = call.output(0);
  if (!result.present) {
    return {};
  }
  // The result of a comparison is bool; its operands are cast to the widest of them.
  std::int64_t common = result.width;
  std::string_view dtype = result.dtype;
  if (dtype == "bool") {
    for (std::size_t i = 0; i < call.inputs(); ++i) {
      const TensorView input = call.input(i);
      if (input.present && input.rank() > 0 && (input.width > common || dtype == "bool")) {
        common = input.width;
        dtype = input.dtype;
      }
    }
  }
  Bytes cast;
  for (std::size_t i = 0; i < call.inputs(); ++i) {
    const TensorView input = call.input(i);
    if (input.present && input.rank() > 0 && input.dtype != dtype) {
      cast += Bytes{input.elements} * common;
    }
  }
  return cast;
}

Bytes matrix_copies(const KernelCall& call) {
  Bytes copies;
  const std::size_t first = call.inputs() > 2 ? 1 : 0;  // addmm's first operand is not a factor
  for (std::size_t i = first; i < call.inputs(); ++i) {
    const TensorView input = call.input(i);
    if (input.present && input.rank() >= 2 && !input.contiguous() && !is_matrix_of_blas(input)) {
      copies += input.bytes();
    }
  }
  return copies;
}

Bytes contiguous_inputs(const KernelCall& call) {
  Bytes copies;
  for (std::size_t i = 0; i < call.inputs(); ++i) {
    if (call.input(i).present && !call.input(i).contiguous()) {
      copies += call.input(i).bytes();
    }
  }
  return copies;
}

Bytes batch_statistics(const KernelCall& call) {
  return Bytes{call.input(0).size(1)} * (2 * kFP32);
}

Bytes batch_norm_backward(const KernelCall& call) {
  return call.input(0).bytes();
}

Bytes layer_norm_backward(const KernelCall& call) {
  // Partial sums of the gradients of weight and bias, per thread.
  return Bytes{call.output(1).elements} * (2 * kFP32 * std::max<std::int64_t>(1, call.threads()));
}

Bytes group_norm_backward(const KernelCall& call) {
  // Sums of the gradient, and of its product with the input, per sample and channel.
  return Bytes{call.input(0).size(0) * call.input(0).size(1)} * (2 * kFP32);
}

Bytes safe_softmax(const KernelCall& call) {
  // Which rows are fully masked: one boolean per element, and one per row.
  const TensorView result = call.output(0);
  return Bytes{result.elements} + Bytes{result.elements / std::max<std::int64_t>(1, result.size(-1))};
}

Bytes softmax_backward(const KernelCall& call) {
  return std::max(call.input(0).bytes(), call.input(1).bytes());
}

Bytes embedding_bag_backward(const KernelCall& call) {
  return Bytes{call.input(1).elements} * (3 * kInt64);
}

Bytes embedding_sort(const KernelCall& call) {
  // Indices are sorted with their positions: two buffers of each, and one of the sort (cub's radix sort).
  return Bytes{call.input(1).elements} * (5 * kInt64);
}

Bytes mkldnn_rnn(const KernelCall& call) {
  return call.output(3).bytes();
}

Bytes mkldnn_rnn_backward(const KernelCall& call) {
  return call.input(0).bytes() + call.output(0).bytes();
}

}  // namespace plimsoll::estimator::kernels::formula
