// The table of what happens inside kernels: memory that an ATen operator takes and gives back before it
// returns, which no recording of operators can show (a transposed copy, a reordered weight, a sort's buffer).
//
//   const KernelRule* rule = find_kernel_rule("aten::convolution");
//   Bytes temporary = rule->cuda(call);      // beyond the operator's own results
//
// One row an operator (rules.csv); operators that take nothing are listed too, so that an unknown one
// is noticed. Each row names its source. Pure; any thread.
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
  std::string_view source;  // explained at the head of rules.csv
};

// Null: the operator is in no row.
const KernelRule* find_kernel_rule(std::string_view name);

// All rows, by name.
std::span<const KernelRule> kernel_rules();

// What an unknown operator is charged when the user accepts a bound: all it reads and all it writes once
// more.
Bytes conservative_temporary(const KernelCall& call);

}  // namespace plimsoll::estimator::kernels
