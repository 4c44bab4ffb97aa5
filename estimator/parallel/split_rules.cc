#include "estimator/parallel/split_rules.h"

#include <algorithm>
#include <array>
#include <string>

namespace plimsoll::estimator::inline parallel {
namespace {

struct Call {
  const KernelCall& kernel;
  const std::vector<SplitOperand>& operands;
  bool in_backward;

  std::size_t outputs() const { return kernel.outputs(); }
  TensorView output(std::size_t i) const { return kernel.output(i); }
};

std::int32_t rank_of(const TensorView& view) {
  return static_cast<std::int32_t>(view.rank());
}

Error refused(std::string text) {
  return Error(ErrorCode::kUnsupported, std::move(text));
}

SplitResult nothing(const Call& call) {
  SplitResult result;
  result.outputs.resize(call.outputs());
  return result;
}

ViewSplit moved(ViewSplit split, std::int32_t dim) {
  split.dim = dim;
  return split;
}

// The same share of a dimension of another size, as one contiguous run.
ViewSplit share_of(const ViewSplit& split, std::int32_t dim, std::int64_t size) {
  return {.dim = dim,
          .block = 1,
          .extent = size,
          .part = size * split.part / split.extent,
          .packed = split.packed};
}

// Merges the split that one operand requires of an output; all operands must agree.
Result<void> merge(ViewSplit& known, const ViewSplit& other) {
  if (!known.any()) {
    known = other;
    return {};
  }
  if (known.dim != other.dim || !known.same_share(other)) {
    return refused("its operands are split along different dimensions");
  }
  return {};
}

// An operand with the split dimension must be split there too; a constant one is adapted.
Result<void> check_whole(const SplitOperand& operand, std::int32_t dim, const ViewSplit& split,
                         std::int64_t size, std::size_t at, SplitResult& result) {
  if (operand.split.any() || dim < 0 || dim >= rank_of(operand.view) || size <= 1 ||
      operand.view.size(dim) != size) {
    return {};
  }
  if (!operand.constant) {
    return refused("it combines a split operand with one that is whole");
  }
  result.adapted.push_back({at, moved(split, dim)});
  return {};
}

// The results are split as the operands; dimensions are aligned at the end (broadcasting) or at the
// beginning.
Result<SplitResult> aligned(const Call& call, bool at_end) {
  SplitResult result = nothing(call);
  const auto mapped = [at_end](std::int32_t dim, std::int32_t from, std::int32_t to) {
    return at_end ? dim + to - from : dim;
  };
  bool found = false;
  for (std::size_t o = 0; o < call.outputs(); ++o) {
    const TensorView output = call.output(o);
    const std::int32_t rank = rank_of(output);
    for (const SplitOperand& operand : call.operands) {
      const std::int32_t dim = mapped(operand.split.dim, rank_of(operand.view), rank);
      if (!operand.split.any() || dim < 0 || dim >= rank ||
          output.size(dim) != operand.view.size(operand.split.dim)) {
        continue;
      }
      if (Result<void> agreed = merge(result.outputs[o], moved(operand.split, dim)); !agreed) {
        return agreed.error();
      }
    }
    const ViewSplit& split = result.outputs[o];
    found |= split.any();
    for (std::size_t i = 0; split.any() && i < call.operands.size(); ++i) {
      const SplitOperand& operand = call.operands[i];
      if (Result<void> whole = check_whole(operand, mapped(split.dim, rank, rank_of(operand.view)), split,
                                           output.size(split.dim), i, result);
          !whole) {
        return whole.error();
      }
    }
  }
  if (!found) {
    return refused("its result does not have the dimension that is split");
  }
  return result;
}

Result<SplitResult> pointwise(const Call& call) {
  return aligned(call, true);
}

// ---- products ----

struct Product {
  std::string_view name;
  std::size_t left;
  std::size_t right;
  bool transposed;  // the right operand is [columns, contraction]
};
constexpr std::array kProducts = {
    Product{"aten::_addmm_activation", 1, 2, false},
    Product{"aten::addmm", 1, 2, false},
    Product{"aten::baddbmm", 1, 2, false},
    Product{"aten::baddbmm_", 1, 2, false},
    Product{"aten::bmm", 0, 1, false},
    Product{"aten::linear", 0, 1, true},
    Product{"aten::mm", 0, 1, false},
};

const Product* find_product(std::string_view name) {
  const auto* const found = std::find_if(kProducts.begin(), kProducts.end(),
                                         [&](const Product& each) { return each.name == name; });
  return found == kProducts.end() ? nullptr : found;
}

Result<SplitResult> multiply(const Call& call, const Product& product) {
  const SplitOperand& left = call.operands[product.left];
  const SplitOperand& right = call.operands[product.right];
  const std::int32_t left_inner = rank_of(left.view) - 1;
  const std::int32_t right_inner = rank_of(right.view) - (product.transposed ? 1 : 2);
  const std::int32_t right_outer = rank_of(right.view) - (product.transposed ? 2 : 1);
  const bool batched = !product.transposed && rank_of(right.view) == 3;
  SplitResult result = nothing(call);
  ViewSplit& out = result.outputs.front();
  const std::int32_t out_rank = rank_of(call.output(0));

  const bool contracts_left = left.split.any() && left.split.dim == left_inner;
  const bool contracts_right = right.split.any() && right.split.dim == right_inner;
  if (contracts_left || contracts_right) {
    if (contracts_left != contracts_right || !left.split.same_share(right.split)) {
      return refused(contracts_left ? "it multiplies a split input by a weight that is not split by rows"
                                    : "its weight is split by rows, but its input is not split");
    }
    if (batched) {
      return refused("it sums over the split dimension");
    }
    result.partial = true;
    return result;
  }
  if (batched && (left.split.dim == 0 || right.split.dim == 0)) {
    const ViewSplit& split = left.split.dim == 0 ? left.split : right.split;
    for (const std::size_t each : {product.left, product.right}) {
      if (Result<void> whole =
              check_whole(call.operands[each], 0, split, call.output(0).size(0), each, result);
          !whole) {
        return whole.error();
      }
    }
    out = moved(split, 0);
  } else if (left.split.any() && right.split.any()) {
    return refused("both its operands are split, but not along the contracted dimension");
  } else if (left.split.any()) {
    out = left.split;
  } else if (right.split.any() && right.split.dim == right_outer) {
    out = moved(right.split, out_rank - 1);
  }
  for (std::size_t i = 0; out.any() && i < call.operands.size(); ++i) {  // operands added to the product
    const SplitOperand& added = call.operands[i];
    if (i == product.left || i == product.right) {
      continue;
    }
    if (Result<void> whole = check_whole(added, out.dim + rank_of(added.view) - out_rank, out,
                                         call.output(0).size(out.dim), i, result);
        !whole) {
      return whole.error();
    }
  }
  return result;
}

Result<SplitResult> embedding(const Call& call) {
  SplitResult result = nothing(call);
  const ViewSplit& weight = call.operands.front().split;
  if (weight.any() && weight.dim == 0) {
    result.partial = true;  // rows of other trainers are zero here
  } else if (weight.any()) {
    result.outputs.front() = moved(weight, rank_of(call.output(0)) - 1);
  }
  return result;
}

Result<SplitResult> embedding_backward(const Call& call) {
  SplitResult result = nothing(call);
  const SplitOperand& gradient = call.operands.front();
  if (gradient.split.any() && gradient.split.dim == rank_of(gradient.view) - 1) {
    result.outputs.front() = moved(gradient.split, 1);
  } else if (gradient.split.any()) {
    return refused("it sums over the split dimension");
  }
  return result;
}

// Heads are dimension 1 of all operands and results with heads.
Result<SplitResult> attention(const Call& call) {
  SplitResult result = nothing(call);
  for (std::size_t i = 0; i < call.operands.size(); ++i) {
    const SplitOperand& operand = call.operands[i];
    if (operand.split.any() && operand.split.dim != 1) {
      return refused("its operands are split along another dimension than the attention heads");
    }
    for (std::size_t o = 0; operand.split.any() && o < call.outputs(); ++o) {
      const TensorView output = call.output(o);
      if (output.rank() >= 3 && output.size(1) == operand.view.size(1)) {
        result.outputs[o] = operand.split;
      }
    }
  }
  for (std::size_t i = 0; i < call.operands.size(); ++i) {
    const TensorView output = call.output(0);
    const SplitOperand& operand = call.operands[i];
    if (result.outputs.front().any() && operand.view.rank() == 4) {
      if (Result<void> whole = check_whole(operand, 1, result.outputs.front(), output.size(1), i, result);
          !whole) {
        return whole.error();
      }
    }
  }
  return result;
}

// ---- along a dimension ----

std::int32_t counted_from_start(std::int64_t dim, std::int32_t rank) {
  return static_cast<std::int32_t>(dim < 0 ? dim + rank : dim);
}

// True if the attribute contains the dimension, or is absent or empty, which means all dimensions.
bool names(const Call& call, const char* attribute, std::int32_t dim, std::int32_t rank) {
  const std::size_t count =
      std::max<std::size_t>(call.kernel.length(attribute), call.kernel.has(attribute) ? 1 : 0);
  constexpr std::int64_t kNone = std::int64_t{1} << 40;
  bool any = false;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t named = call.kernel.element(attribute, i, kNone);
    any |= named != kNone;
    if (named != kNone && counted_from_start(named, rank) == dim) {
      return true;
    }
  }
  return !any;
}

std::int32_t named_dim(const Call& call, std::int32_t rank) {
  return counted_from_start(call.kernel.integer("dim", 0), rank);
}

const SplitOperand& first_split(const Call& call) {
  return *std::find_if(call.operands.begin(), call.operands.end(),
                       [](const SplitOperand& each) { return each.split.any(); });
}

Result<SplitResult> reduce(const Call& call) {
  const SplitOperand& operand = first_split(call);
  const std::int32_t rank = rank_of(operand.view);
  SplitResult result = nothing(call);
  if (names(call, "dim", operand.split.dim, rank)) {
    if (call.in_backward) {  // the gradient of a tensor that is whole on all trainers
      return result;
    }
    return refused("it reduces over the split dimension");
  }
  std::int32_t before = 0;
  for (std::int32_t dim = 0; dim < operand.split.dim; ++dim) {
    before += names(call, "dim", dim, rank) ? 1 : 0;
  }
  for (std::size_t o = 0; o < call.outputs(); ++o) {
    const bool kept = rank_of(call.output(o)) == rank;
    result.outputs[o] = moved(operand.split, operand.split.dim - (kept ? 0 : before));
  }
  return result;
}

Result<SplitResult> along(const Call& call) {
  const SplitOperand& operand = first_split(call);
  const char* const attribute = call.kernel.has("dims") ? "dims" : "dim";
  if (names(call, attribute, operand.split.dim, rank_of(operand.view))) {
    return refused("it works along the split dimension");
  }
  return aligned(call, false);
}

// tril and triu work in the last two dimensions.
Result<SplitResult> triangle(const Call& call) {
  const SplitOperand& operand = first_split(call);
  if (operand.split.dim >= rank_of(operand.view) - 2) {
    return refused("it works along the split dimension");
  }
  return aligned(call, false);
}

Result<SplitResult> normalize(const Call& call) {
  const SplitOperand& operand = first_split(call);
  const auto normalized =
      static_cast<std::int32_t>(std::max<std::size_t>(1, call.kernel.length("normalized_shape")));
  if (operand.split.dim >= rank_of(operand.view) - normalized) {
    return refused("it normalizes over the split dimension");
  }
  SplitResult result = nothing(call);
  for (std::size_t o = 0; o < call.outputs(); ++o) {  // gradients of weights do not have the dimension
    const TensorView output = call.output(o);
    if (rank_of(output) == rank_of(operand.view) &&
        output.size(operand.split.dim) == operand.view.size(operand.split.dim)) {
      result.outputs[o] = operand.split;
    }
  }
  return result;
}

Result<SplitResult> concatenate(const Call& call) {
  const SplitOperand& operand = first_split(call);
  const std::int32_t rank = rank_of(operand.view);
  SplitResult result = nothing(call);
  ViewSplit known = operand.split;
  for (std::size_t i = 0; i < call.operands.size(); ++i) {
    const SplitOperand& each = call.operands[i];
    if (each.view.elements == 0 || !each.view.present) {
      continue;
    }
    if (each.split.any()) {
      if (Result<void> agreed = merge(known, each.split); !agreed) {
        return agreed.error();
      }
    } else if (Result<void> whole = check_whole(each, known.dim, known, each.view.size(known.dim), i, result);
               !whole) {
      return whole.error();
    }
  }
  const bool joined = named_dim(call, rank) == known.dim;
  result.outputs.front() = joined ? share_of(known, known.dim, call.output(0).size(known.dim)) : known;
  return result;
}

// The result has a new dimension, or the whole of a dimension of which the operand is a part.
Result<SplitResult> widen(const Call& call) {
  const SplitOperand& operand = first_split(call);
  const TensorView output = call.output(0);
  const std::int32_t dim = named_dim(call, rank_of(output));
  const bool inserted = rank_of(output) > rank_of(operand.view);
  SplitResult result = nothing(call);
  ViewSplit& split = result.outputs.front();
  if (inserted) {
    split = moved(operand.split, operand.split.dim + (operand.split.dim >= dim ? 1 : 0));
  } else {
    split = operand.split.dim == dim ? share_of(operand.split, dim, output.size(dim)) : operand.split;
  }
  return result;
}

// ---- the table ----

using Rule = Result<SplitResult> (*)(const Call&);
struct NamedRule {
  std::string_view name;
  Rule rule;
};
// What the column `split` of estimator/kernels/rules.csv names.
constexpr NamedRule kRules[] = {
    {"pointwise", pointwise},     {"reduce", reduce},       {"along", along},
    {"normalize", normalize},     {"widen", widen},         {"triangle", triangle},
    {"concatenate", concatenate}, {"embedding", embedding}, {"embedding_backward", embedding_backward}};

Rule find_rule(std::string_view name) {
  if (name.starts_with("aten::_scaled_dot_product_")) {
    return attention;
  }
  const KernelRule* const kernel = find_kernel_rule(name);
  const auto* const found = std::find_if(std::begin(kRules), std::end(kRules), [&](const NamedRule& each) {
    return kernel != nullptr && each.name == kernel->split;
  });
  return found == std::end(kRules) ? nullptr : found->rule;
}

}  // namespace

Result<ViewSplit> split_of_view(const StorageSplit& split, const TensorView& view) {
  const std::int64_t end = split.stride * split.extent;
  std::vector<std::int32_t> dims;
  for (std::int32_t dim = 0; dim < rank_of(view); ++dim) {
    const std::int64_t stride = view.stride(dim);
    if (view.size(dim) > 1 && stride > 0 && stride < end && stride * view.size(dim) > split.stride) {
      dims.push_back(dim);
    }
  }
  std::stable_sort(dims.begin(), dims.end(),
                   [&](std::int32_t a, std::int32_t b) { return view.stride(a) > view.stride(b); });
  // Choose the outermost dimension that can be split. In a packed projection, the dimension that separates
  // query, key and value is not split, unless no other can be.
  const auto split_along = [&](std::int32_t dim) {
    const std::int64_t stride = view.stride(dim);
    const std::int64_t block = std::max<std::int64_t>(1, split.stride / stride);
    const std::int64_t extent = std::min(view.size(dim) / block, end / (stride * block));
    return extent == 0 || extent * split.part % split.extent != 0
               ? ViewSplit{}
               : ViewSplit{.dim = dim,
                           .block = block,
                           .extent = extent,
                           .part = extent * split.part / split.extent,
                           .packed = split.packed};
  };
  ViewSplit found;
  for (const std::int32_t dim : dims) {
    const ViewSplit candidate = split_along(dim);
    if (candidate.any() && (!found.any() || (split.packed && view.size(found.dim) <= kPackedParts))) {
      found = candidate;
    }
  }
  if (!found.any()) {
    return refused(dims.empty() ? "it takes a single element of the split dimension"
                                : "a view of the split dimension does not divide evenly");
  }
  return found;
}

StorageSplit split_of_storage(const ViewSplit& split, const TensorView& view) {
  return {.stride = split.block * view.stride(split.dim),
          .extent = split.extent,
          .part = split.part,
          .packed = split.packed};
}

Result<SplitResult> propagate_split(std::string_view name, const KernelCall& call,
                                    const std::vector<SplitOperand>& operands, bool in_backward) {
  const Call split{call, operands, in_backward};
  if (const Product* product = find_product(name)) {
    return multiply(split, *product);
  }
  const Rule rule = find_rule(name);
  if (rule == nullptr) {
    return refused("there is no rule for how it propagates a split");
  }
  return rule(split);
}

bool takes_weight(std::string_view name, std::size_t operand, WeightOperand& weight) {
  if (name == "aten::embedding") {
    weight = {.operand = 0, .columns = 1, .rows = 0};
    return operand == 0;
  }
  const Product* const product = find_product(name);
  if (product == nullptr || operand != product->right) {
    return false;
  }
  weight = product->transposed ? WeightOperand{product->right, 0, 1} : WeightOperand{product->right, 1, 0};
  return true;
}

}  // namespace plimsoll::estimator::parallel
