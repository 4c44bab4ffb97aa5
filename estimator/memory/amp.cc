#include "estimator/memory/amp.h"

#include <algorithm>
#include <array>
#include <vector>

namespace plimsoll::estimator {
namespace {

// "10 micro batch sizes (e.g. 13, 43)": from the one to the other.
constexpr std::array<std::int64_t, 10> kMicroBatches = {13, 16, 20, 23, 26, 30, 33, 36, 40, 43};

// A node of the paper's trace: an operator that the model's code calls. Autocast's copies are made below it.
bool is_node(const Op& op) {
  return op.kind != OpKind::kCast && op.kind != OpKind::kBceWithLogits && op.kind != OpKind::kNllLoss &&
         op.kind != OpKind::kScopeEnd;
}

}  // namespace

Bytes amp_training_bytes(const OperatorGraph& graph, std::int64_t batch) {
  std::vector<Op> ops;
  for (std::int32_t i = 0; i < graph.op_count(); ++i) {
    ops.push_back(graph.op(i));
  }
  std::vector<std::size_t> last_use(graph.tensors().size(), 0);
  for (std::size_t i = 0; i < ops.size(); ++i) {
    for (const TensorId input : ops[i].inputs) {
      last_use[static_cast<std::size_t>(input)] = i;
    }
  }
  // A copy's user is a user of what was copied.
  for (std::size_t i = ops.size(); i-- > 0;) {
    if (ops[i].kind == OpKind::kCast) {
      std::size_t& source = last_use[static_cast<std::size_t>(ops[i].inputs[0])];
      source = std::max(source, last_use[static_cast<std::size_t>(ops[i].outputs[0])]);
    }
  }
  Bytes forward;
  Bytes backward;
  Bytes used_downstream;
  std::vector<Bytes> no_longer_used(ops.size() + 1);
  for (std::size_t i = 0; i < ops.size(); ++i) {
    used_downstream -= no_longer_used[i];
    if (is_node(ops[i])) {
      for (const TensorId output : ops[i].outputs) {
        if (!graph.tensor(output).requires_grad) {
          continue;
        }
        const Bytes bytes = graph.bytes(output, batch);
        forward += bytes;
        used_downstream += bytes;
        no_longer_used[std::max(last_use[static_cast<std::size_t>(output)], i) + 1] += bytes;
      }
    }
    backward = std::max(backward, used_downstream);
  }
  return std::max(forward, backward);
}

Bytes amp_predicted_training_bytes(const OperatorGraph& graph, std::int64_t batch) {
  return amp_predicted_bytes([&](std::int64_t micro) { return amp_training_bytes(graph, micro); }, batch);
}

Bytes amp_predicted_bytes(const std::function<Bytes(std::int64_t batch)>& training_bytes,
                          std::int64_t batch) {
  double sum_x = 0, sum_y = 0, sum_xx = 0, sum_xy = 0;
  for (const std::int64_t micro : kMicroBatches) {
    const auto x = static_cast<double>(micro);
    const auto y = static_cast<double>(training_bytes(micro).count);
    sum_x += x;
    sum_y += y;
    sum_xx += x * x;
    sum_xy += x * y;
  }
  const auto n = static_cast<double>(kMicroBatches.size());
  const double slope = (n * sum_xy - sum_x * sum_y) / (n * sum_xx - sum_x * sum_x);
  const double intercept = (sum_y - slope * sum_x) / n;
  return Bytes::ceil(std::max(0.0, intercept + slope * static_cast<double>(batch)));
}

}  // namespace plimsoll::estimator
