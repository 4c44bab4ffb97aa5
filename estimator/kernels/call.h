// KernelCall: one call of an operator, with its sizes at one batch size. Const access is thread-safe; it must
// not outlive the trace.
#pragma once

#include <cstdint>
#include <string_view>

#include "estimator/trace/shapes.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline kernels {

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
  // Element i of a list. A single value stands for all elements (stride=2).
  std::int64_t element(std::string_view attribute, std::size_t i, std::int64_t otherwise) const;
  std::size_t length(std::string_view attribute) const;

  TorchVersion version() const { return producer_.version; }
  // Threads of the CPU's kernels; 0: unknown.
  std::int64_t threads() const { return producer_.threads; }

 private:
  TensorView operand(Span span, std::size_t i) const;
  const AttributeValue* find(std::string_view attribute) const;

  const Trace& trace_;
  const TraceShapes& shapes_;
  const TraceProducer& producer_;
  const TraceOperator& op_;
};

}  // namespace plimsoll::estimator::kernels
