// The table of what happens inside kernels: memory that an ATen operator takes and gives back before it
// returns, which no recording of operators can show (a transposed copy, a reordered weight, a sort's buffer).
//
//   const KernelRule* rule = find_kernel_rule("aten::convolution");
//   Bytes temporary = rule->cuda(call);      // beyond the operator's own results
//
// One row an operator (kernel_rules.cc); operators that take nothing are listed too, so that an unknown one
// is noticed. Each row names its source. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/bytes.h"
#include "estimator/graph/trace.h"
#include "estimator/memory/trace_shapes.h"

namespace plimsoll::estimator {

// One call of an operator, with the sizes it has at one batch size.
class KernelCall {
 public:
  KernelCall(const Trace& trace, const TraceShapes& shapes, const TraceProducer& producer, std::size_t op)
      : trace_(trace), shapes_(shapes), producer_(producer), op_(trace.operators[op]) {}

  std::size_t inputs() const { return static_cast<std::size_t>(op_.inputs.size); }
  std::size_t outputs() const { return static_cast<std::size_t>(op_.outputs.size); }
  // An absent argument, or an index past the end, is an empty tensor that is not `present`.
  TensorView input(std::size_t i) const { return operand(op_.inputs, i); }
  TensorView output(std::size_t i) const { return operand(op_.outputs, i); }

  bool has(std::string_view attribute) const { return find(attribute) != nullptr; }
  std::int64_t integer(std::string_view attribute, std::int64_t otherwise) const;
  // Element i of a list, or the one value where a single one stands for all (stride=2).
  std::int64_t element(std::string_view attribute, std::size_t i, std::int64_t otherwise) const;
  std::size_t length(std::string_view attribute) const;

  TorchVersion version() const { return producer_.version; }
  // Threads of the CPU's kernels; 0: not known.
  std::int64_t threads() const { return producer_.threads; }

 private:
  TensorView operand(Span span, std::size_t i) const;
  const AttributeValue* find(std::string_view attribute) const;

  const Trace& trace_;
  const TraceShapes& shapes_;
  const TraceProducer& producer_;
  const TraceOperator& op_;
};

using KernelFormula = Bytes (*)(const KernelCall&);

struct KernelRule {
  std::string_view name;
  KernelFormula cpu;
  KernelFormula cuda;
  const char* source;
};

// Null: the operator is in no row.
const KernelRule* find_kernel_rule(std::string_view name);

// All rows, by name.
std::span<const KernelRule> kernel_rules();

// What an unknown operator is charged when the user accepts a bound: all it reads and all it writes once
// more.
Bytes conservative_temporary(const KernelCall& call);

}  // namespace plimsoll::estimator
