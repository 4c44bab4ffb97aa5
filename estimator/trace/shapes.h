// TraceShapes: the sizes of a trace at one batch size, evaluated once. Const access from any thread; must not
// outlive the trace.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/budget.h"
#include "base/bytes.h"
#include "base/result.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline trace {

struct TensorView {
  bool present = false;
  std::span<const std::int64_t> shape;
  std::span<const std::int64_t> strides;  // empty: contiguous
  std::int64_t elements = 0;
  std::int64_t width = 0;  // bytes of an element
  std::string_view dtype;

  Bytes bytes() const { return Bytes{elements} * width; }
  std::size_t rank() const { return shape.size(); }
  // Size of a dimension, counted from the end when negative; 1 when there is no such dimension.
  std::int64_t size(std::ptrdiff_t dimension) const;
  std::int64_t stride(std::ptrdiff_t dimension) const;
  bool contiguous() const { return strides.empty(); }
};

struct ShapeOptions {
  // fp32 values are held in 16 bits: a trace of FP32 read as pure BF16 or FP16.
  bool halve_floats = false;
  Budget* budget = nullptr;  // whose BudgetExceeded TraceShapes::at() throws
};

class TraceShapes {
 public:
  // Errors: kInvalid for a size that is negative at this batch, kTooLarge beyond any machine.
  static Result<TraceShapes> at(const Trace& trace, std::int64_t batch, const ShapeOptions& options = {});

  Bytes storage(std::int32_t id) const { return storages_[static_cast<std::size_t>(id)]; }
  TensorView tensor(std::int32_t id) const;
  TensorView tensor_of(std::int32_t layout, std::int16_t dtype) const;
  std::int64_t batch() const { return batch_; }

 private:
  explicit TraceShapes(Budget* budget) : memory_(budget) {}

  struct Layout {
    std::int32_t shape = 0;
    std::int32_t strides = 0;
    std::int32_t rank = 0;
    bool contiguous = true;
    std::int64_t elements = 1;
  };

  BudgetBytes memory_;
  const Trace* trace_ = nullptr;
  std::int64_t batch_ = 0;
  std::vector<Bytes> storages_;
  std::vector<std::int64_t> sizes_;  // by Trace::counts
  std::vector<Layout> layouts_;
  std::vector<std::int64_t> widths_;  // by dtype
};

// By storage: the dtype of the tensors that lie in it, -1 where none does.
std::vector<std::int16_t> dtypes_of_storages(const Trace& trace);

// Of all parameters, shared ones once.
Bytes parameter_bytes(const Trace& trace, const TraceShapes& shapes);

}  // namespace plimsoll::estimator::trace
