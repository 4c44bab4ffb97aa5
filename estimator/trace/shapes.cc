#include "estimator/trace/shapes.h"

#include <algorithm>

namespace plimsoll::estimator::inline trace {
namespace {

// More than any machine has, and far enough from 2^63 that sums of it do not saturate.
constexpr Bytes kBeyondAnyMachine{std::int64_t{1} << 55};

std::size_t from_end(std::ptrdiff_t dimension, std::size_t rank) {
  return static_cast<std::size_t>(dimension < 0 ? dimension + static_cast<std::ptrdiff_t>(rank) : dimension);
}

}  // namespace

std::int64_t TensorView::size(std::ptrdiff_t dimension) const {
  const std::size_t at = from_end(dimension, rank());
  return at < rank() ? shape[at] : 1;
}

std::int64_t TensorView::stride(std::ptrdiff_t dimension) const {
  const std::size_t at = from_end(dimension, rank());
  if (at >= rank()) {
    return 1;
  }
  if (!contiguous()) {
    return strides[at];
  }
  std::int64_t stride = 1;
  for (std::size_t i = at + 1; i < rank(); ++i) {
    stride *= shape[i];
  }
  return stride;
}

std::vector<std::int16_t> dtypes_of_storages(const Trace& trace) {
  std::vector<std::int16_t> dtypes(trace.storages.size(), -1);
  for (const TraceTensor& tensor : trace.tensors) {
    if (tensor.storage >= 0 && dtypes[index(tensor.storage)] < 0) {
      dtypes[index(tensor.storage)] = tensor.dtype;
    }
  }
  for (const TraceParameter& parameter : trace.parameters) {
    dtypes[index(parameter.storage)] = parameter.dtype;
  }
  return dtypes;
}

Result<TraceShapes> TraceShapes::at(const Trace& trace, std::int64_t batch, const ShapeOptions& options) {
  TraceShapes shapes(options.budget);
  const std::size_t rows = trace.storages.size() + trace.counts.size() + trace.layouts.size();
  charge(options.budget, rows + trace.tensors.size());
  shapes.memory_.resize(Bytes{sizeof(Layout)} * static_cast<std::int64_t>(rows));
  shapes.trace_ = &trace;
  shapes.batch_ = batch;
  std::vector<bool> halved(trace.dtypes.size(), false);
  for (std::size_t i = 0; i < trace.dtypes.size(); ++i) {
    const std::string& name = trace.dtypes[i];
    halved[i] = options.halve_floats && name == "float32";
    shapes.widths_.push_back(halved[i] ? 2 : width_of_dtype(name));
  }
  const std::vector<std::int16_t> dtypes =
      options.halve_floats ? dtypes_of_storages(trace) : std::vector<std::int16_t>();
  Bytes total;
  shapes.storages_.reserve(trace.storages.size());
  for (std::size_t i = 0; i < trace.storages.size(); ++i) {
    std::int64_t bytes = trace.storages[i].bytes.at(batch);
    if (bytes < 0) {
      return invalid("storages[" + std::to_string(i) + "] has a negative size of " + std::to_string(bytes) +
                     " bytes at batch " + std::to_string(batch));
    }
    if (!dtypes.empty() && dtypes[i] >= 0 && halved[static_cast<std::size_t>(dtypes[i])]) {
      bytes = bytes / 2 + bytes % 2;
    }
    shapes.storages_.push_back(Bytes{bytes});
    total += Bytes{bytes} * trace.storages[i].count;
  }
  if (total > kBeyondAnyMachine) {
    return Error(ErrorCode::kTooLarge, "the tensors of an iteration at batch " + std::to_string(batch) +
                                           " exceed any machine's memory");
  }
  shapes.sizes_.reserve(trace.counts.size());
  for (const Count& count : trace.counts) {
    shapes.sizes_.push_back(std::clamp(count.at(batch), std::int64_t{0}, kBeyondAnyMachine.count));
  }
  shapes.layouts_.reserve(trace.layouts.size());
  for (const TraceLayout& layout : trace.layouts) {
    charge(options.budget, index(layout.shape.size));
    Layout at{.shape = layout.shape.begin,
              .strides = layout.strides.begin,
              .rank = layout.shape.size,
              .contiguous = layout.contiguous,
              .elements = 1};
    for (std::int32_t i = 0; i < at.rank; ++i) {
      // A view may be larger than its storage (expand), but not larger than this limit.
      at.elements =
          std::min((Bytes{at.elements} * shapes.sizes_[index(at.shape + i)]).count, kBeyondAnyMachine.count);
    }
    shapes.layouts_.push_back(at);
  }
  return shapes;
}

TensorView TraceShapes::tensor(std::int32_t id) const {
  const TraceTensor& tensor = trace_->tensors[index(id)];
  return tensor_of(tensor.layout, tensor.dtype);
}

TensorView TraceShapes::tensor_of(std::int32_t layout, std::int16_t dtype) const {
  const Layout& at = layouts_[index(layout)];
  TensorView view;
  view.present = true;
  view.shape = {sizes_.data() + at.shape, index(at.rank)};
  if (!at.contiguous) {
    view.strides = {sizes_.data() + at.strides, index(at.rank)};
  }
  view.elements = at.elements;
  view.width = widths_[static_cast<std::size_t>(dtype)];
  view.dtype = trace_->dtypes[static_cast<std::size_t>(dtype)];
  return view;
}

Bytes parameter_bytes(const Trace& trace, const TraceShapes& shapes) {
  std::vector<bool> seen(trace.storages.size(), false);
  Bytes sum;
  for (const TraceParameter& parameter : trace.parameters) {
    if (!seen[index(parameter.storage)]) {
      seen[index(parameter.storage)] = true;
      sum += shapes.storage(parameter.storage) * trace.storages[index(parameter.storage)].count;
    }
  }
  return sum;
}

}  // namespace plimsoll::estimator::trace
