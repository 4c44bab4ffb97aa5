// How an ATen operator propagates a split along one dimension of a tensor (tensor parallelism): a product
// with one split operand has a split result; a product that contracts a split dimension has a partial result,
// which must be summed over the trainers; element-wise operators keep the split.
//
//   Result<SplitResult> result = propagate_split("aten::mm", call, operands, /*in_backward=*/false);
//
// Column and row split of layers: Megatron-LM, arXiv 1909.08053, section 3. Pure; any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "estimator/kernels/rules.h"
#include "estimator/trace/shapes.h"

namespace plimsoll::estimator::inline parallel {

inline constexpr std::int64_t kPackedParts = 3;  // of a packed projection: query, key and value

// A split along `dim`: index / block % extent is a digit of an index along `dim`, and this trainer has `part`
// of the `extent` values of the digit.
struct ViewSplit {
  std::int32_t dim = -1;
  std::int64_t block = 1;
  std::int64_t extent = 0;
  std::int64_t part = 0;
  bool packed = false;  // query, key and value in one tensor: each of the three is split

  bool any() const { return dim >= 0; }
  bool same_share(const ViewSplit& other) const { return part * other.extent == other.part * extent; }
};

// The same for memory: the digit of an element's position is position / stride % extent. All views of a
// storage share it.
struct StorageSplit {
  std::int64_t stride = 0;
  std::int64_t extent = 0;
  std::int64_t part = 0;
  bool packed = false;

  bool any() const { return extent > 0; }
};

// Errors: kUnsupported if no dimension of the view can be split into equal parts.
Result<ViewSplit> split_of_view(const StorageSplit& split, const TensorView& view);
StorageSplit split_of_storage(const ViewSplit& split, const TensorView& view);

struct SplitOperand {
  TensorView view;
  ViewSplit split;
  bool constant = false;  // computed from constants only: each trainer computes the part that it needs
};

struct SplitResult {
  std::vector<ViewSplit> outputs;
  bool partial = false;  // the first output must be summed over the trainers
  // Constant operands that must be split.
  struct Adapted {
    std::size_t operand = 0;
    ViewSplit split;
  };
  std::vector<Adapted> adapted;
};

// For an operator with at least one split operand. Errors: kUnsupported, with what the operator does to the
// split dimension.
Result<SplitResult> propagate_split(std::string_view name, const KernelCall& call,
                                    const std::vector<SplitOperand>& operands, bool in_backward);

// The weight operand of a product or an embedding: its dimension of the result's columns, and the one that is
// contracted or looked up.
struct WeightOperand {
  std::size_t operand = 0;
  std::int32_t columns = 0;
  std::int32_t rows = 0;
};
// True if the operator multiplies by its operand `operand`, or looks rows up in it.
bool takes_weight(std::string_view name, std::size_t operand, WeightOperand& weight);

}  // namespace plimsoll::estimator::parallel
