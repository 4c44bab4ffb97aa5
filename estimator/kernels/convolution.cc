#include "estimator/kernels/convolution.h"

#include <algorithm>

#include "estimator/kernels/convolution_workspace.h"
#include "estimator/kernels/formulas.h"

namespace plimsoll::estimator::inline kernels::formula {
namespace {

// The peak inside a kernel minus its results. `moments`: live memory at each moment, results included.
Bytes above(std::initializer_list<Bytes> moments, Bytes results) {
  return std::max(Bytes{}, std::max(moments) - results);
}

}  // namespace

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

}  // namespace plimsoll::estimator::kernels::formula
