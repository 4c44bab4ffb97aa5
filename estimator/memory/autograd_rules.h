// What autograd keeps and allocates for one operator: the per-operator table behind the simulator. The rules
// follow PyTorch's derivative formulas; the figures that were measured against real PyTorch are told in
// docs/estimation.md. Pure; any thread.
#pragma once

#include <vector>

#include "base/bytes.h"
#include "estimator/graph/operator_graph.h"
#include "estimator/memory/estimate.h"

namespace plimsoll::estimator {

// Where the gradient of an input comes from.
enum class InputGradient {
  kNone,   // the input wants none
  kNew,    // a new block of the input's size
  kAlias,  // the output's gradient itself
  kPart,   // a view of a part of the output's gradient
};

struct AutogradRule {
  std::vector<TensorId> saved;           // kept from forward until this operator's backward has run
  std::vector<InputGradient> gradients;  // of each input
  Bytes backward_temporary;              // held while the backward runs
  // A matrix product: what selective checkpointing keeps instead of computing it again.
  bool expensive = false;
};

AutogradRule rule_for(const OperatorGraph& graph, const Op& op, Device device, std::int64_t batch);

}  // namespace plimsoll::estimator
