// How an ATen operator passes on that a tensor is divided along one of its dimensions among trainers (tensor
// parallelism): a product with one divided operand has a divided result, a product that contracts a divided
// dimension has a whole one that must still be summed over the trainers, element-wise operators keep the
// division.
//
//   Result<SplitResult> result = propagate_split("aten::mm", call, operands, /*in_backward=*/false);
//
// Column and row division of layers: Megatron-LM, arXiv 1909.08053, section 3. Pure; any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "estimator/kernels/rules.h"
#include "estimator/trace/shapes.h"

namespace plimsoll::estimator::inline parallel {

// `part` of `extent` digits stay here, where index / block % extent is the digit of an index along `dim`.
struct ViewSplit {
  std::int32_t dim = -1;
  std::int64_t block = 1;
  std::int64_t extent = 0;
  std::int64_t part = 0;
  bool packed = false;  // of query, key and value in one: each of the three is divided

  bool any() const { return dim >= 0; }
  bool same_share(const ViewSplit& other) const { return part * other.extent == other.part * extent; }
};

// The same of memory: the digit of an element's position is position / stride % extent. Views of a storage
// share it.
struct StorageSplit {
  std::int64_t stride = 0;
  std::int64_t extent = 0;
  std::int64_t part = 0;
  bool packed = false;

  bool any() const { return extent > 0; }
};

// Errors: kUnsupported where no dimension of the view carries the division in equal parts.
Result<ViewSplit> split_of_view(const StorageSplit& split, const TensorView& view);
StorageSplit split_of_storage(const ViewSplit& split, const TensorView& view);

struct SplitOperand {
  TensorView view;
  ViewSplit split;
  bool free = false;  // made of nothing but constants: each trainer makes as much of it as it needs
};

struct SplitResult {
  std::vector<ViewSplit> outputs;
  bool partial = false;  // the first output is a summand of the whole one
  // Free operands that turn out to be divided.
  struct Adapted {
    std::size_t operand = 0;
    ViewSplit split;
  };
  std::vector<Adapted> adapted;
};

// For an operator with at least one divided operand. Errors: kUnsupported, saying what the operator does to
// the divided dimension.
Result<SplitResult> propagate_split(std::string_view name, const KernelCall& call,
                                    const std::vector<SplitOperand>& operands, bool in_backward);

// The operand of a product by a weight (or of a lookup in one), and the dimensions of it that the result's
// columns and the contraction go along.
struct WeightPlace {
  std::size_t operand = 0;
  std::int32_t columns = 0;
  std::int32_t rows = 0;
};
// Whether the operator multiplies by, or looks up in, its operand `operand`.
bool takes_weight(std::string_view name, std::size_t operand, WeightPlace& place);

}  // namespace plimsoll::estimator::parallel
