// A trace of a few operators, for tests of what looks at single calls. Each tensor has a storage of its own unless it is
// an alias. One thread.
//
//   OperatorTrace built;
//   const std::int32_t x = built.tensor({OperatorTrace::kBatch, 8});
//   built.add("aten::relu", {x}, {built.tensor({OperatorTrace::kBatch, 8})});
//   built.call(0, 4).input(0).bytes();   // at batch 4; valid until the next call()
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "estimator/kernels/call.h"
#include "estimator/trace/shapes.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::testing {

class OperatorTrace {
 public:
  static constexpr std::int64_t kBatch = -1;  // a dimension as large as the batch; one in a shape

  explicit OperatorTrace(Device device = Device::kCpu) { trace.device = device; }

  Trace trace;
  TraceProducer producer{.torch = "2.15.0", .version = 215, .threads = 4, .cpu_capability = {}};

  // Without strides it is row-major.
  std::int32_t tensor(const std::vector<std::int64_t>& shape, const std::string& dtype = "float32",
                      const std::vector<std::int64_t>& strides = {}) {
    std::int64_t fixed = width_of_dtype(dtype);
    bool grows = false;
    for (const std::int64_t size : shape) {
      fixed *= size == kBatch ? 1 : size;
      grows |= size == kBatch;
    }
    const auto bytes = static_cast<double>(fixed);
    trace.storages.push_back({.bytes = grows ? Count{{0, bytes, 0, 0}} : Count{{bytes, 0, 0, 0}}});
    trace.layouts.push_back(
        {.shape = counts(shape), .strides = counts(strides), .contiguous = strides.empty()});
    trace.tensors.push_back({last(trace.storages), last(trace.layouts), index_of(trace.dtypes, dtype)});
    return last(trace.tensors);
  }
  // A tensor with the same sizes in the same storage.
  std::int32_t alias(std::int32_t tensor) {
    trace.tensors.push_back(TraceTensor(trace.tensors[index(tensor)]));
    return last(trace.tensors);
  }
  // The tensor of a trainable parameter that receives a gradient.
  std::int32_t parameter(const std::string& name, const std::vector<std::int64_t>& shape) {
    const std::int32_t id = tensor(shape);
    const TraceTensor made = trace.tensors[index(id)];
    trace.storages[index(made.storage)].role = StorageRole::kParameter;
    const Count bytes = trace.storages[index(made.storage)].bytes;
    trace.storages.push_back({.bytes = bytes, .role = StorageRole::kGradient});
    trace.parameters.push_back({.name = name,
                                .storage = made.storage,
                                .layout = made.layout,
                                .dtype = made.dtype,
                                .trainable = true,
                                .gradient = {last(trace.storages)}});
    return id;
  }
  // -1 is an absent argument. Returns the index of the operator.
  std::size_t add(const std::string& name, const std::vector<std::int32_t>& inputs,
                  const std::vector<std::int32_t>& outputs, Attributes attributes = {},
                  const std::string& module = "") {
    TraceOperator op;
    op.name = index_of(trace.operator_names, name);
    op.module = index_of(trace.modules, module);
    op.inputs = operands(inputs);
    op.outputs = operands(outputs);
    if (!attributes.empty()) {
      trace.attributes.push_back(std::move(attributes));
      op.attributes = last(trace.attributes);
    }
    trace.operators.push_back(op);
    return trace.operators.size() - 1;
  }

  TraceShapes& shapes(std::int64_t batch = 4) {
    Result<TraceShapes> at = TraceShapes::at(trace, batch);
    EXPECT_TRUE(at.ok()) << (at ? "" : at.error().message);
    shapes_ = std::make_unique<TraceShapes>(*std::move(at));
    return *shapes_;
  }
  KernelCall call(std::size_t op = 0, std::int64_t batch = 4) {
    return KernelCall(trace, shapes(batch), producer, op);
  }

 private:
  template <class Table>
  static std::int32_t last(const Table& table) {
    return static_cast<std::int32_t>(table.size()) - 1;
  }
  static std::int16_t index_of(std::vector<std::string>& names, const std::string& name) {
    const auto found = std::find(names.begin(), names.end(), name);
    const auto at = static_cast<std::int16_t>(found - names.begin());
    if (found == names.end()) {
      names.push_back(name);
    }
    return at;
  }
  Span counts(const std::vector<std::int64_t>& values) {
    const Span span{static_cast<std::int32_t>(trace.counts.size()), static_cast<std::int32_t>(values.size())};
    for (const std::int64_t value : values) {
      trace.counts.push_back(value == kBatch ? Count{{0, 1, 0, 0}} : Count::constant(value));
    }
    return span;
  }
  Span operands(const std::vector<std::int32_t>& tensors) {
    const Span span{static_cast<std::int32_t>(trace.operands.size()),
                    static_cast<std::int32_t>(tensors.size())};
    trace.operands.insert(trace.operands.end(), tensors.begin(), tensors.end());
    return span;
  }

  std::unique_ptr<TraceShapes> shapes_;
};

inline Attribute number(const std::string& name, std::int64_t value) {
  return {name, Count::constant(value)};
}

inline Attribute numbers(const std::string& name, const std::vector<std::int64_t>& values) {
  std::vector<Count> counts;
  for (const std::int64_t value : values) {
    counts.push_back(Count::constant(value));
  }
  return {name, std::move(counts)};
}

}  // namespace plimsoll::estimator::testing
