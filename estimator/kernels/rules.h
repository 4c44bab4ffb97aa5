// The table of kernel temporaries: memory that an ATen operator allocates and frees before it returns, which
// a trace of operators cannot show (a transposed copy, a reordered weight, a sort's buffer).
//
//   const KernelRule* rule = find_kernel_rule("aten::convolution");
//   Bytes temporary = rule->cuda(call);      // beyond the operator's own results
//
// One row per operator (rules.csv). Operators without temporaries are listed too, so that unknown operators
// are detected. Each row names its source. Pure; any thread.
#pragma once

#include <span>
#include <string_view>

#include "base/bytes.h"
#include "estimator/kernels/call.h"

namespace plimsoll::estimator::inline kernels {

using KernelFormula = Bytes (*)(const KernelCall&);

struct KernelRule {
  std::string_view name;
  KernelFormula cpu;
  KernelFormula cuda;
  std::string_view
      split;  // how it passes on a split tensor (estimator/parallel/split_rules.h); empty: unknown
  std::string_view source;  // explained at the head of rules.csv
};

// Null if the operator has no row.
const KernelRule* find_kernel_rule(std::string_view name);

// All rows, by name.
std::span<const KernelRule> kernel_rules();

// The bound for an unknown operator, if the user accepts one: the size of all its inputs and outputs.
Bytes conservative_temporary(const KernelCall& call);

}  // namespace plimsoll::estimator::kernels
