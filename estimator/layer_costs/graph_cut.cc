#include "estimator/layer_costs/graph_cut.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "estimator/layer_costs/layer_rows.h"

namespace plimsoll::estimator::inline layer_costs {
namespace {

constexpr std::int32_t kNone = -1;
constexpr std::int32_t kNobody = std::numeric_limits<std::int32_t>::max();

Error unsupported(const std::string& what) {
  return Error(ErrorCode::kUnsupported, what);
}

std::string_view parent_of(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}

}  // namespace

Result<GraphCut> GraphCut::of(const Trace& trace, const GraphParts& parts, Budget* budget) {
  GraphCut cut(trace, parts, budget);
  cut.of_operator_ = parts.of_operator;
  if (Result<void> found = cut.find(); !found) {
    return found.error();
  }
  return cut;
}

Result<void> GraphCut::find() {
  charge(budget_, 4 * (trace_.operators.size() + trace_.operands.size() + trace_.storages.size()));
  if (Result<void> checked = check_parameters(); !checked) {
    return checked;
  }
  find_sums();
  share_out();
  find_readers();
  return_trailing_sums();
  find_readers();
  if (Result<void> found = find_inputs(); !found) {
    return found;
  }
  if (Result<void> found = find_gradients(); !found) {
    return found;
  }
  find_buffers();
  find_owners();
  return {};
}

std::size_t GraphCut::before(std::size_t layer) const {
  while (layer > 0 && empty(layer - 1)) {
    --layer;
  }
  return layer > 0 ? layer - 1 : layers_.size();
}

std::size_t GraphCut::after(std::size_t layer) const {
  for (++layer; layer < layers_.size() && empty(layer);) {
    ++layer;
  }
  return layer;
}

Result<void> GraphCut::check_parameters() const {
  for (const TraceParameter& parameter : trace_.parameters) {
    if (parameter.sparse_gradient) {
      return unsupported("the gradient of " + parameter.name + " is sparse, which a swap plan does not move");
    }
    if (!parameter.trainable || parameter.gradient.empty()) {
      return unsupported(
          parameter.name +
          " gets no gradient, and frozen parameters are not modelled for layers that are swapped");
    }
  }
  return {};
}

// Where the recorded iteration adds the gradients that several layers have of one parameter.
void GraphCut::find_sums() {
  sum_.assign(trace_.operators.size(), false);
  for (std::size_t op = index(trace_.loss_end); op < trace_.operators.size(); ++op) {
    const TraceOperator& each = trace_.operators[op];
    const std::string& name = trace_.operator_names[index(each.name)];
    std::int32_t sum = kNone;
    for_each(each.outputs, [&](std::int32_t, std::int32_t storage) {
      sum = trace_.storages[index(storage)].role == StorageRole::kGradient || summand_of_.contains(storage)
                ? storage
                : sum;
    });
    if (sum < 0 || (name != "aten::add" && name != "aten::add_")) {
      continue;
    }
    std::set<std::int32_t> makers;
    Storages summands;
    for_each(each.inputs, [&](std::int32_t, std::int32_t storage) {
      if (producer(storage) >= trace_.loss_end) {
        makers.insert(part_of(producer(storage)));
        summands.insert(storage);
      }
    });
    if (makers.size() < 2) {
      continue;
    }
    sum_[op] = true;
    for (const std::int32_t maker : makers) {
      tied_.insert(index(maker));
    }
    for (const std::int32_t summand : summands) {
      if (summand != sum) {
        summand_of_[summand] = sum;
      }
    }
  }
}

void GraphCut::share_out() {
  for (std::int32_t op = 0; op < static_cast<std::int32_t>(trace_.operators.size()); ++op) {
    if (!sum_[index(op)]) {
      Part& part = layers_[index(part_of(op))];
      (op < trace_.loss_end ? part.forward : part.backward).push_back(op);
    }
  }
}

void GraphCut::find_readers() {
  lowest_reader_.assign(trace_.storages.size(), kNobody);
  for (std::size_t op = index(trace_.loss_end); op < trace_.operators.size(); ++op) {
    for_each(trace_.operators[op].inputs, [&](std::int32_t, std::int32_t storage) {
      if (!sum_[op]) {
        lowest_reader_[index(storage)] = std::min(lowest_reader_[index(storage)], of_operator_[op]);
      }
    });
  }
}

// Whether it makes of gradients alone what layers before read alone: of those that they are given, or in place of a layer that has
// no operator of backward yet.
bool GraphCut::is_sum_of_given(std::int32_t op, std::size_t before) const {
  const TraceOperator& each = trace_.operators[index(op)];
  const auto limit = static_cast<std::int32_t>(before);
  bool is = each.inputs.size > 0;
  for_each(each.inputs, [&](std::int32_t, std::int32_t storage) {
    is = is && producer(storage) >= trace_.loss_end &&
         (lowest_reader_[index(storage)] <= limit || layers_[before].backward.empty());
  });
  for_each(each.outputs, [&](std::int32_t, std::int32_t storage) {
    is = is && producer(storage) == op && lowest_reader_[index(storage)] <= limit;
  });
  return is;
}

// An operator of backward is in the module whose saved tensor was used last. One at the end that uses no saved tensor, such as
// the sum over samples of the gradient of positions, belongs to the layer before.
void GraphCut::return_trailing_sums() {
  for (std::size_t layer = layers_.size(); layer-- > 1;) {
    const std::size_t to = before(layer);
    std::vector<std::int32_t>& backward = layers_[layer].backward;
    while (to < layers_.size() && !backward.empty() && is_sum_of_given(backward.back(), to)) {
      charge(budget_, layers_[to].backward.size());
      const std::int32_t op = backward.back();
      backward.pop_back();
      of_operator_[index(op)] = static_cast<std::int32_t>(to);
      layers_[to].backward.insert(layers_[to].backward.begin(), op);
    }
  }
}

Result<void> GraphCut::find_inputs() {
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    const std::vector<std::int32_t> own = layers_[layer].forward;
    for (const std::int32_t op : own) {
      Result<void> taken;
      for_each(trace_.operators[index(op)].inputs,
               [&](std::int32_t, std::int32_t storage) { taken = taken ? take(layer, storage, op) : taken; });
      for_each(trace_.operators[index(op)].outputs, [&](std::int32_t, std::int32_t storage) {
        if (taken && layers_[layer].received.contains(storage)) {
          taken = unsupported(parts_.names[layer] +
                              " changes its input in place, which a layer of a swap plan cannot");
        }
      });
      if (!taken) {
        return taken;
      }
    }
    std::vector<std::int32_t>& all = layers_[layer].forward;
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
  }
  drop_computed_elsewhere();
  return {};
}

// What only other layers read of what they compute again.
void GraphCut::drop_computed_elsewhere() {
  for (std::size_t layer = 0; layer < layers_.size() && !again_.empty(); ++layer) {
    Storages read;
    const auto note = [&](std::int32_t, std::int32_t storage) { read.insert(storage); };
    for (const std::int32_t op : layers_[layer].backward) {
      for_each(trace_.operators[index(op)].inputs, note);
    }
    std::vector<std::int32_t> kept;
    std::vector<std::int32_t>& forward = layers_[layer].forward;
    for (auto op = forward.rbegin(); op != forward.rend(); ++op) {
      bool needed = !again_.contains(*op);
      for_each(trace_.operators[index(*op)].outputs,
               [&](std::int32_t, std::int32_t storage) { needed = needed || read.contains(storage); });
      if (needed) {
        for_each(trace_.operators[index(*op)].inputs, note);
        kept.push_back(*op);
      }
    }
    std::reverse(kept.begin(), kept.end());
    forward = std::move(kept);
  }
}

Result<void> GraphCut::take(std::size_t layer, std::int32_t storage, std::int32_t op) {
  const std::int32_t maker = producer(storage);
  const StorageRole role = trace_.storages[index(storage)].role;
  if (maker < 0) {
    const bool first = before(layer) == layers_.size();
    return role == StorageRole::kInput && !first && op < trace_.forward_end
               ? Result<void>(unsupported(
                     parts_.names[layer] +
                     " reads an input of the model, and not only what the layer before it returns"))
               : Result<void>();
  }
  const auto from = index(part_of(maker));
  if (from == layer || layers_[layer].received.contains(storage)) {
    return {};
  }
  Storages again;
  if (computed_again(storage, again)) {
    layers_[layer].forward.insert(layers_[layer].forward.end(), again.begin(), again.end());
    again_.insert(again.begin(), again.end());
    return {};
  }
  if (from != before(layer)) {
    return unsupported(
        parts_.names[layer] + " reads what " + parts_.names[from] +
        " made: a swap plan needs layers each of which takes only what the one before returns");
  }
  layers_[layer].received.insert(storage);
  return {};
}

// Whether nothing trained and nothing given makes it; with the operators that do.
bool GraphCut::computed_again(std::int32_t storage, Storages& operators) const {
  std::vector<std::int32_t> open = {storage};
  while (!open.empty()) {
    charge(budget_, 1);
    const std::int32_t each = open.back();
    open.pop_back();
    const std::int32_t op = producer(each);
    const TraceStorage& made = trace_.storages[index(each)];
    if (op < 0) {
      if (made.role != StorageRole::kBuffer) {
        return false;
      }
      continue;
    }
    if (operators.insert(op).second) {
      for_each(trace_.operators[index(op)].inputs,
               [&](std::int32_t, std::int32_t input) { open.push_back(input); });
    }
  }
  return true;
}

Result<void> GraphCut::find_gradients() {
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    Part& part = layers_[layer];
    for (const std::int32_t op : part.backward) {
      Result<void> known;
      for_each(trace_.operators[index(op)].inputs, [&](std::int32_t, std::int32_t storage) {
        const std::int32_t maker = producer(storage);
        if (maker < 0 || index(part_of(maker)) == layer || part.received.contains(storage)) {
          return;
        }
        if (maker >= trace_.loss_end) {
          part.gradients.insert(storage);
        } else if (std::binary_search(part.forward.begin(), part.forward.end(), maker)) {
          return;  // it computes that again
        } else if (index(part_of(maker)) == before(layer)) {
          part.received.insert(storage);
        } else {
          known = unsupported(
              "backward of " + parts_.names[layer] + " reads what " + parts_.names[index(part_of(maker))] +
              " made: a swap plan needs layers each of which takes only what the one before returns");
        }
      });
      if (!known) {
        return known;
      }
    }
  }
  return {};
}

// A module's buffers move with it, read or not.
void GraphCut::find_buffers() {
  std::map<std::string_view, std::vector<std::int32_t>> of_module;
  for (const TraceBuffer& buffer : trace_.buffers) {
    of_module[parent_of(buffer.name)].push_back(buffer.storage);
  }
  for (Part& part : layers_) {
    for (const std::int32_t op : part.forward) {
      const std::int32_t module = trace_.operators[index(op)].module;
      const auto found = module < 0 ? of_module.end() : of_module.find(trace_.modules[index(module)]);
      if (found != of_module.end()) {
        part.buffers.insert(found->second.begin(), found->second.end());
      }
    }
  }
}

void GraphCut::find_owners() {
  saved_.resize(layers_.size());
  const auto last = static_cast<std::int32_t>(trace_.operators.size()) - 1;
  for (std::size_t i = 0; i < trace_.saved.size() && last >= 0; ++i) {
    const TraceSaved& saved = trace_.saved[i];
    const std::int32_t used_at = saved.unpacked_at >= 0 ? saved.unpacked_at : saved.packed_at;
    saved_[index(part_of(std::clamp(used_at, 0, last)))].push_back(static_cast<std::int32_t>(i));
  }
  for (std::size_t i = 0; i < trace_.parameters.size(); ++i) {
    parameters_.emplace(trace_.parameters[i].storage, static_cast<std::int32_t>(i));
  }
  for (std::size_t i = 0; i < trace_.buffers.size(); ++i) {
    buffers_.emplace(trace_.buffers[i].storage, static_cast<std::int32_t>(i));
  }
}

LayerCut GraphCut::layer(std::size_t number) const {
  if (!empty(number)) {
    return layer_rows(*this, number);
  }
  LayerCut cut;
  if (const std::size_t next = after(number); next < layers_.size()) {
    cut.inputs = layer_rows(*this, next).inputs;
  }
  return cut;
}

Trace GraphCut::whole(const LayerCut& cut) const {
  Trace trace = cut.rows;
  trace.device = trace_.device;
  trace.precision = trace_.precision;
  trace.method = trace_.method;
  trace.batch_sizes = trace_.batch_sizes;
  trace.dtypes = trace_.dtypes;
  trace.modules = trace_.modules;
  trace.operator_names = trace_.operator_names;
  trace.attributes = trace_.attributes;
  trace.counts = trace_.counts;
  trace.layouts = trace_.layouts;
  trace.measured = trace_.measured;
  return trace;
}

}  // namespace plimsoll::estimator::layer_costs
