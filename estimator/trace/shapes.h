// TraceShapes: the sizes of a trace at one batch size, evaluated once. Const access is thread-safe; it must
// not outlive the trace.
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
  std::int64_t width = 0;  // bytes per element
  std::string_view dtype;

  Bytes bytes() const { return Bytes{elements} * width; }
  std::size_t rank() const { return shape.size(); }
  // Size of a dimension, which is counted from the end if negative; 1 if there is no such dimension.
  std::int64_t size(std::ptrdiff_t dimension) const;
  std::int64_t stride(std::ptrdiff_t dimension) const;
  bool contiguous() const { return strides.empty(); }
};

struct ShapeOptions {
  // Count fp32 values as 16 bits: treats a trace of FP32 as pure BF16 or FP16.
  bool halve_floats = false;
  Budget* budget = nullptr;  // TraceShapes::at() throws its BudgetExceeded
};

class TraceShapes {
 public:
  // Errors: kInvalid for a size that is negative at this batch, kTooLarge for more than any machine has.
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
  std::vector<std::int64_t> sizes_;  // indexed as Trace::counts
  std::vector<Layout> layouts_;
  std::vector<std::int64_t> widths_;  // indexed by dtype
};

// By storage: the dtype of the tensors in it, -1 if there is none.
std::vector<std::int16_t> dtypes_of_storages(const Trace& trace);

// Bytes of all parameters; shared parameters count once.
Bytes parameter_bytes(const Trace& trace, const TraceShapes& shapes);

}  // namespace plimsoll::estimator::trace
