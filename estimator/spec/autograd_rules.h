// What autograd keeps and allocates for one operator: the per-operator table behind the simulator. The rules
// follow PyTorch's derivative formulas; the figures that were measured against real PyTorch are told in
// docs/estimation.md. Pure; any thread.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "estimator/spec/forward_graph.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline spec {

// Where the gradient of an input comes from.
enum class InputGradient : std::uint8_t {
  kNone,     // the input wants none
  kNew,      // a new block of the input's size
  kNewView,  // the same, handed on as a view of itself: never added to in place
  kAlias,    // the output's gradient itself
  kPart,     // a view of it, or of a part of it
};

struct AutogradRule {
  // Instead of an input's place in AutogradRule::saved.
  static constexpr std::int16_t kResult = -1;

  // Kept from forward until this operator's backward has run: places of inputs, or kResult.
  SmallList<std::int16_t, 6> saved;
  SmallList<InputGradient, 8> gradients;  // of each input
  Bytes kept;                             // beside them: what the operator itself makes for its backward
  Bytes forward_temporary;                // held while the operator runs
  Bytes backward_temporary;               // held while its backward runs
  // A matrix product: what selective checkpointing keeps instead of computing it again.
  bool expensive = false;
};

AutogradRule rule_for(const ForwardGraph& graph, const Op& op, Device device, std::int64_t batch);

}  // namespace plimsoll::estimator::spec
