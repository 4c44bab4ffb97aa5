// What autograd saves and allocates for one operator: the per-operator table of the simulation. The rules
// follow PyTorch's derivative formulas; docs/estimation.md lists the figures that were measured with real
// PyTorch. Pure; any thread.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "estimator/spec/forward_graph.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline spec {

// How the gradient of an input is allocated.
enum class InputGradient : std::uint8_t {
  kNone,     // the input needs no gradient
  kNew,      // a new block of the input's size
  kNewView,  // a new block, passed on as a view of itself: never added to in place
  kAlias,    // the output's gradient itself
  kPart,     // a view of the output's gradient, or of a part of it
};

struct AutogradRule {
  // Stands for the result in `saved`.
  static constexpr std::int16_t kResult = -1;

  // Kept from forward until this operator's backward has run: indices of inputs, or kResult.
  SmallList<std::int16_t, 6> saved;
  // Inputs that the node of a Python function has as attributes: no saved-tensor hook of checkpointing sees them, and
  // they live as long as the node.
  SmallList<std::int16_t, 6> attributes;
  SmallList<InputGradient, 8> gradients;  // by input
  Bytes auxiliary;                        // saved besides: computed by the operator only for its backward
  Bytes forward_temporary;                // allocated while the operator runs
  Bytes backward_temporary;               // allocated while its backward runs
  // Backward makes the gradient of the last input first. PyTorch's generated code takes operands in the alphabetical order
  // of their names in derivatives.yaml: mat2 of mm and bmm, and other of mul, come before self.
  bool last_input_first = false;
  bool expensive = false;  // a matrix product: selective checkpointing keeps its result
};

AutogradRule rule_for(const ForwardGraph& graph, const Op& op, Device device, std::int64_t batch);

}  // namespace plimsoll::estimator::spec
