#include "estimator/layer_costs/layer_rows.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace plimsoll::estimator::inline layer_costs {
namespace {

constexpr std::int32_t kNone = -1;

}  // namespace

// Writes the rows of one layer.
class LayerRows {
 public:
  LayerRows(const GraphCut& cut, std::size_t layer)
      : cut_(cut),
        part_(cut.layers_[layer]),
        layer_(static_cast<std::int32_t>(layer)),
        trace_(cut.trace_),
        out_{.rows = Trace(cut.budget_), .inputs = {}} {}

  LayerCut write() {
    const auto forward = static_cast<std::int32_t>(part_.forward.size());
    for (const std::int32_t op : part_.forward) {
      note_loss(op);
      emit(op);
    }
    out_.rows.forward_end = out_.rows.loss_end = forward;
    for (const std::int32_t op : part_.backward) {
      emit(op);
    }
    for (const std::int32_t buffer : part_.buffers) {
      storage(buffer);
    }
    set_times();
    copy_gradient_given_away();
    add_saved();
    add_parameters();
    add_inputs();
    return std::move(out_);
  }

 private:
  std::int32_t now() const { return static_cast<std::int32_t>(out_.rows.operators.size()); }

  std::int32_t storage(std::int32_t old) {
    const auto [found, added] = storages_.emplace(old, kNone);
    if (added) {
      TraceStorage copy = trace_.storages[index(old)];
      const bool received = part_.received.contains(old);
      if (received) {
        copy.role = StorageRole::kInput;
      } else if (cut_.summand_of_.contains(old)) {
        copy.role = StorageRole::kGradient;
      }
      copy.allocated_at = received || copy.allocated_at < 0 ? kNone : now();
      copy.released_at = kNone;
      found->second = add(copy);
      if (part_.gradients.contains(old)) {
        TraceStorage& gradient = out_.rows.storages[index(found->second)];
        gradient.role = StorageRole::kBackward;
        gradient.allocated_at = out_.rows.loss_end;
        if (const std::int32_t result = only_result();
            result >= 0) {  // as large as that, which a mean's gradient is not
          gradient.bytes = trace_.storages[index(result)].bytes;
        }
      }
    }
    return found->second;
  }

  std::int32_t add(const TraceStorage& storage) {
    out_.rows.storages.push_back(storage);
    return static_cast<std::int32_t>(out_.rows.storages.size()) - 1;
  }

  std::int32_t tensor(std::int32_t old) {
    if (old < 0) {
      return old;
    }
    const auto [found, added] = tensors_.emplace(old, kNone);
    if (added) {
      TraceTensor copy = trace_.tensors[index(old)];
      copy.storage = copy.storage < 0 ? copy.storage : storage(copy.storage);
      out_.rows.tensors.push_back(copy);
      found->second = static_cast<std::int32_t>(out_.rows.tensors.size()) - 1;
    }
    return found->second;
  }

  void note_loss(std::int32_t op) {
    if (op >= trace_.forward_end && out_.loss_begin < 0) {
      out_.loss_begin = now();
    }
  }

  void emit(std::int32_t op) {
    const TraceOperator& old = trace_.operators[index(op)];
    charge(cut_.budget_, index(old.inputs.size + old.outputs.size) + 1);
    TraceOperator copy = old;
    std::vector<std::int32_t> operands;
    operands.reserve(index(old.inputs.size) + index(old.outputs.size));
    for (std::int32_t i = 0; i < old.inputs.size; ++i) {
      operands.push_back(tensor(trace_.operands[index(old.inputs.begin + i)]));
    }
    for (std::int32_t i = 0; i < old.outputs.size; ++i) {
      const std::int32_t output = trace_.operands[index(old.outputs.begin + i)];
      replace_received(cut_.storage_of(output));
      operands.push_back(tensor(output));
    }
    copy.inputs.begin = static_cast<std::int32_t>(out_.rows.operands.size());
    copy.outputs.begin = copy.inputs.begin + old.inputs.size;
    out_.rows.operands.insert(out_.rows.operands.end(), operands.begin(), operands.end());
    const auto measured =
        std::lower_bound(trace_.temporaries.begin(), trace_.temporaries.end(), op,
                         [](const TraceTemporary& each, std::int32_t at) { return each.op < at; });
    if (measured != trace_.temporaries.end() && measured->op == op) {
      out_.rows.temporaries.push_back({now(), measured->bytes});
    }
    if (std::binary_search(trace_.unmeasured.begin(), trace_.unmeasured.end(), op)) {
      out_.rows.unmeasured.push_back(now());
    }
    out_.rows.operators.push_back(copy);
  }

  // The first sum into a received gradient is a new tensor.
  void replace_received(std::int32_t old) {
    if (old < 0 || !part_.gradients.contains(old) || !replaced_.insert(old).second) {
      return;
    }
    charge(cut_.budget_, tensors_.size());
    storage(old);  // the received one
    TraceStorage sum = trace_.storages[index(old)];
    sum.role = StorageRole::kBackward;
    sum.allocated_at = now();
    sum.released_at = kNone;
    storages_[old] = add(sum);
    std::erase_if(tensors_, [&](const auto& each) { return cut_.storage_of(each.first) == old; });
  }

  // ---- times ----

  static std::int32_t position(const std::vector<std::int32_t>& operators, std::int32_t time) {
    return static_cast<std::int32_t>(std::lower_bound(operators.begin(), operators.end(), time) -
                                     operators.begin());
  }
  std::int32_t new_time(std::int32_t time) const {
    return time < 0                  ? time
           : time <= trace_.loss_end ? position(part_.forward, time)
                                     : out_.rows.loss_end + position(part_.backward, time);
  }

  const std::set<std::int32_t>& results() const {
    static const std::set<std::int32_t> none;
    const std::size_t next = cut_.after(index(layer_));
    return next < cut_.layers_.size() ? cut_.layers_[next].received : none;
  }
  std::int32_t only_result() const { return results().size() == 1 ? *results().begin() : kNone; }
  // Of a number, as the loss is.
  std::int32_t gradient_of_loss() const {
    const bool last = out_.loss_begin >= 0 && !part_.backward.empty();
    const Span outputs = last ? trace_.operators[index(part_.backward.front())].outputs : Span{};
    return outputs.size > 0 ? cut_.storage_of(trace_.operands[index(outputs.begin)]) : kNone;
  }
  bool is_result(std::int32_t old) const { return results().contains(old); }
  bool is_given_away(std::int32_t old) const { return cut_.lowest_reader_[index(old)] < layer_; }

  // What crosses a border is never released: the next microbatch's forward pass ends it.
  void set_times() {
    for (const auto& [old, copied] : storages_) {
      TraceStorage& storage = out_.rows.storages[index(copied)];
      const bool named = storage.role == StorageRole::kOutput || storage.role == StorageRole::kLoss;
      const bool held = storage.allocated_at < 0 || storage.role == StorageRole::kGradient || named ||
                        is_result(old) || old == gradient_of_loss() ||
                        (is_given_away(old) && storage.allocated_at >= out_.rows.loss_end) ||
                        (part_.gradients.contains(old) && !replaced_.contains(old));
      storage.released_at = held ? kNone : new_time(trace_.storages[index(old)].released_at);
    }
  }

  // Autograd copies a gradient that is smaller than the tensor, as that of a mean: AccumulateGrad keeps what is laid out as the
  // tensor (torch/csrc/autograd/functions/accumulate_grad.h).
  void copy_gradient_given_away() {
    if (part_.backward.empty()) {
      return;
    }
    for (const std::int32_t input : part_.received) {
      charge(cut_.budget_, storages_.size());
      const Count& bytes = trace_.storages[index(input)].bytes;
      const bool whole = std::any_of(storages_.begin(), storages_.end(), [&](const auto& each) {
        const TraceStorage& storage = out_.rows.storages[index(each.second)];
        return is_given_away(each.first) && storage.allocated_at >= out_.rows.loss_end &&
               storage.bytes.c == bytes.c;
      });
      if (!whole) {
        add({.bytes = bytes,
             .role = StorageRole::kBackward,
             .allocated_at = now() - 1,
             .released_at = kNone});
      }
    }
  }

  void add_saved() {
    for (const std::int32_t each : cut_.saved_[index(layer_)]) {
      const TraceSaved& saved = trace_.saved[index(each)];
      const std::int32_t old = cut_.storage_of(saved.tensor);
      if (old >= 0 && storages_.contains(old) && !part_.gradients.contains(old)) {
        out_.rows.saved.push_back({tensor(saved.tensor), new_time(saved.packed_at),
                                   new_time(saved.unpacked_at), new_time(saved.released_at)});
      }
    }
  }

  void add_parameters() {
    std::map<std::int32_t, std::int32_t> gradients;  // this layer's, by the whole ones
    for (const auto& [old, copied] : storages_) {
      if (out_.rows.storages[index(copied)].role == StorageRole::kGradient) {
        gradients[gradient_of(old)] = copied;
      }
    }
    for (const auto& [old, copied] : storages_) {
      const auto [first, last] = cut_.parameters_.equal_range(old);
      for (auto each = first; each != last; ++each) {
        TraceParameter copy = trace_.parameters[index(each->second)];
        const auto gradient = gradients.find(copy.gradient.front());
        copy.storage = copied;
        copy.gradient.clear();
        copy.unit = kNone;
        if (gradient != gradients.end()) {
          copy.gradient = {gradient->second};
        }
        out_.rows.parameters.push_back(std::move(copy));
      }
      const auto [begin, end] = cut_.buffers_.equal_range(old);
      for (auto each = begin; each != end; ++each) {
        out_.rows.buffers.push_back({trace_.buffers[index(each->second)].name, copied});
      }
    }
  }

  // The whole gradient that a storage is a part of, or is.
  std::int32_t gradient_of(std::int32_t old) const {
    for (auto sum = cut_.summand_of_.find(old); sum != cut_.summand_of_.end();
         sum = cut_.summand_of_.find(old)) {
      old = sum->second;
    }
    return old;
  }

  void add_inputs() {
    const bool first = cut_.before(index(layer_)) == cut_.layers_.size();
    for (const std::int32_t op : part_.forward) {
      if (op >= trace_.forward_end) {
        return;
      }
      cut_.for_each(trace_.operators[index(op)].inputs, [&](std::int32_t tensor, std::int32_t storage) {
        const bool given = first && trace_.storages[index(storage)].role == StorageRole::kInput;
        if (given || part_.received.contains(storage)) {
          out_.inputs.push_back(trace_.tensors[index(tensor)]);
        }
      });
    }
  }

  const GraphCut& cut_;
  const GraphCut::Part& part_;
  const std::int32_t layer_;
  const Trace& trace_;
  LayerCut out_;
  std::map<std::int32_t, std::int32_t> storages_;  // new ones by those of the whole trace
  std::map<std::int32_t, std::int32_t> tensors_;
  std::set<std::int32_t> replaced_;
};

LayerCut layer_rows(const GraphCut& cut, std::size_t layer) {
  return LayerRows(cut, layer).write();
}

}  // namespace plimsoll::estimator::layer_costs
