#include "estimator/spec/record.h"

#include <algorithm>
#include <cassert>
#include <utility>
#include <vector>

#include "estimator/spec/autograd_rules.h"

namespace plimsoll::estimator::inline spec {
namespace {

constexpr std::int16_t kNone = -1;

class Recorder {
 public:
  Recorder(const ForwardGraph& graph, const RecordOptions& options)
      : graph_(graph),
        options_(options),
        recording_{.trace = Trace(options.budget),
                   .tensor_of_storage = BudgetVector<TensorId>(options.budget)},
        trace_(recording_.trace),
        rules_(options.budget),
        rule_(options.budget),
        storage_(graph.tensors().size(), kNone, options.budget),
        parameter_(graph.tensors().size(), kNone, options.budget),
        last_use_(graph.tensors().size(), kNone, options.budget),
        missing_gradients_(graph.tensors().size(), 0, options.budget),
        pending_(graph.tensors().size(), options.budget),
        gradients_(options.budget),
        saved_(index(graph.op_count()) + 1, 0, options.budget) {}

  Recording record() && {
    trace_.device = options_.device;
    trace_.batch_sizes = {options_.batch};
    trace_.measured = true;  // temporaries are listed
    add_names();
    add_tensors();
    find_uses();
    forward();
    backward();
    return std::move(recording_);
  }

 private:
  // A gradient buffer. The gradients of several tensors may be views of it.
  struct Gradient {
    std::int32_t storage = -1;
    std::int32_t references = 0;
  };
  // The gradient of a tensor so far.
  struct Pending {
    std::int32_t gradient = -1;
    bool part = false;  // a view of a part of the buffer
  };

  const Tensor& tensor(TensorId id) const { return graph_.tensors()[index(id)]; }
  Bytes bytes_of(TensorId id) const {  // of one of `count` equal tensors
    return elements_[index(tensor(id).shape)] * width_bytes(tensor(id).type);
  }
  const AutogradRule& rule(std::int32_t op) const { return rules_[index(rule_[index(op)])]; }
  std::int32_t now() const { return static_cast<std::int32_t>(trace_.operators.size()); }
  bool has_backward(const Op& op) const {
    return std::any_of(op.outputs.begin(), op.outputs.end(),
                       [&](TensorId id) { return tensor(id).requires_grad; });
  }

  // ---- tables ----

  void add_names() {
    for (std::size_t kind = 0; kind < kOpKinds; ++kind) {
      trace_.operator_names.emplace_back(name_of(static_cast<OpKind>(kind)));
    }
    for (std::size_t type = 0; type < kElementTypes; ++type) {
      trace_.dtypes.emplace_back(dtype_of(static_cast<ElementType>(type)));
    }
    for (const Shape& shape : graph_.shapes()) {
      charge(options_.budget, 1);
      const auto begin = static_cast<std::int32_t>(trace_.counts.size());
      for (const Dim& dim : shape) {
        trace_.counts.push_back(
            {{static_cast<double>(dim.constant), static_cast<double>(dim.per_sample), 0, 0}});
      }
      trace_.layouts.push_back({.shape = {begin, static_cast<std::int32_t>(shape.size())}, .strides = {}});
      elements_.push_back(elements_of(shape, options_.batch));
    }
  }

  std::int32_t add_storage(TensorId of, Bytes bytes, std::int64_t count, StorageRole role) {
    charge(options_.budget, 1);
    trace_.storages.push_back({.bytes = Count::constant(bytes.count),
                               .role = role,
                               .allocated_at = role < StorageRole::kOutput ? -1 : now(),
                               .released_at = -1,
                               .count = count});
    recording_.tensor_of_storage.push_back(of);
    return static_cast<std::int32_t>(trace_.storages.size()) - 1;
  }

  // The first tensors of the trace are those of the graph, with equal ids.
  void add_tensors() {
    // Estimates: each operator has one in backward and one that adds or copies a gradient; most tensors have
    // a gradient.
    const std::size_t tensors = graph_.tensors().size();
    const std::size_t operators = index(graph_.op_count());
    trace_.tensors.reserve(tensors * 2 + tensors / 2);
    trace_.storages.reserve(tensors * 2);
    recording_.tensor_of_storage.reserve(tensors * 2);
    trace_.operators.reserve(operators * 3);
    trace_.operands.reserve(operators * 8);
    trace_.saved.reserve(operators * 3);
    for (std::size_t i = 0; i < graph_.tensors().size(); ++i) {
      const auto id = static_cast<TensorId>(i);
      const Tensor& of = tensor(id);
      if (of.role == TensorRole::kParameter) {
        storage_[i] = add_storage(id, graph_.bytes_of_one(id, 1), of.count, StorageRole::kParameter);
        parameter_[i] = static_cast<std::int32_t>(trace_.parameters.size());
        trace_.parameters.push_back({.name = {},
                                     .storage = storage_[i],
                                     .layout = of.shape,
                                     .dtype = static_cast<std::int16_t>(of.type),
                                     .trainable = of.requires_grad,
                                     .gradient = {},
                                     .sparse_gradient = false,
                                     .unit = of.unit,
                                     .expert = of.expert});
      } else if (of.role == TensorRole::kInput) {
        const Shape& shape = graph_.shape_of(id);
        const bool per_sample =
            std::any_of(shape.begin(), shape.end(), [](const Dim& dim) { return dim.per_sample != 0; });
        storage_[i] = add_storage(id, graph_.bytes_of_one(id, options_.input_batch),
                                  per_sample ? options_.batches_in_flight : 1, StorageRole::kInput);
      }
      trace_.tensors.push_back(
          {.storage = storage_[i], .layout = layout_of(of), .dtype = static_cast<std::int16_t>(of.type)});
    }
  }

  // Several equal results are one tensor with an additional dimension.
  std::int32_t layout_of(const Tensor& tensor) {
    if (tensor.role != TensorRole::kActivation || tensor.count == 1) {
      return tensor.shape;
    }
    const Span shape = trace_.layouts[index(tensor.shape)].shape;
    const auto begin = static_cast<std::int32_t>(trace_.counts.size());
    trace_.counts.push_back(Count::constant(tensor.count));
    for (std::int32_t i = shape.begin; i < shape.begin + shape.size; ++i) {
      trace_.counts.push_back(trace_.counts[index(i)]);
    }
    trace_.layouts.push_back({.shape = {begin, shape.size + 1}, .strides = {}});
    return static_cast<std::int32_t>(trace_.layouts.size()) - 1;
  }

  void find_uses() {
    for (std::int32_t i = 0; i < graph_.op_count(); ++i) {
      charge(options_.budget, 1);
      const Op op = graph_.op(i);
      if (op.like == i) {
        rule_.push_back(static_cast<std::int32_t>(rules_.size()));
        rules_.push_back(rule_for(graph_, op, options_.device, options_.batch));
      } else {
        rule_.push_back(rule_[index(op.like)]);
      }
      for (std::size_t j = 0; j < op.inputs.size(); ++j) {
        last_use_[index(op.inputs[j])] = i;
        if (parameter_[index(op.inputs[j])] >= 0 && rule(i).gradients[j] != InputGradient::kNone) {
          ++missing_gradients_[index(op.inputs[j])];
        }
      }
    }
  }

  // The trace's module of an operator: one for each run of operators with the same unit and checkpointed
  // block.
  std::int32_t module_of(const Op& op) {
    std::vector<ModuleGroup>& groups = trace_.module_groups;
    if (groups.empty() || groups.back().unit != op.unit || groups.back().block != op.block) {
      groups.push_back({op.unit, op.block});
      trace_.modules.emplace_back();
    }
    return static_cast<std::int32_t>(groups.size()) - 1;
  }

  // ---- forward ----

  void forward() {
    for (std::int32_t i = 0; i < graph_.op_count(); ++i) {
      record_forward(i);
    }
    trace_.forward_end = trace_.loss_end = now();
    for (std::int32_t i = 0; options_.caches_casts && i < graph_.op_count(); ++i) {
      charge(options_.budget, 1);
      const Op op = graph_.op(i);
      if (op.kind == OpKind::kCast && is_cached(tensor(op.inputs[0]), tensor(op.outputs[0]))) {
        hold_until(storage_[index(op.outputs[0])], now());
      }
    }
  }

  static bool is_cached(const Tensor& from, const Tensor& to) {
    return from.role == TensorRole::kParameter && from.requires_grad && from.type == ElementType::kFP32 &&
           (to.type == ElementType::kBF16 || to.type == ElementType::kFP16);
  }

  void record_forward(std::int32_t i) {
    const Op op = graph_.op(i);
    const AutogradRule& rule = this->rule(i);
    const bool saves = has_backward(op);
    TraceOperator operation;
    operation.name = static_cast<std::int32_t>(op.kind);
    operation.module = module_of(op);
    operation.inputs = add_operands(op.inputs);
    if (op.kind == OpKind::kEmbeddingLookup) {
      trace_.operands.push_back(tables());
      ++operation.inputs.size;
    }
    std::int32_t auxiliary = kNone;  // storage of rule.auxiliary
    if (rule.auxiliary.count > 0) {
      auxiliary = add_storage(op.outputs[0], rule.auxiliary, 1, StorageRole::kActivation);
      trace_.storages[index(auxiliary)].released_at = now() + 1;
    }
    for (const TensorId output : op.outputs) {
      if (tensor(output).storage == output) {
        storage_[index(output)] =
            add_storage(output, bytes_of(output), tensor(output).count, StorageRole::kActivation);
        trace_.storages.back().released_at = 0;
      }
      const std::int32_t storage = storage_[index(tensor(output).storage)];
      trace_.tensors[index(output)].storage = storage;
      if (last_use_[index(output)] >= 0 || !saves) {
        hold_until(storage, last_use_[index(output)] < 0 ? -1 : last_use_[index(output)] + 1);
      }  // otherwise it is held until its backward
    }
    operation.outputs = add_operands(op.outputs);
    if (auxiliary >= 0) {
      trace_.operands.push_back(add_tensor(auxiliary, op.outputs[0], tensor(op.outputs[0]).type));
      trace_.tensors.back().dtype = static_cast<std::int16_t>(ElementType::kBool);  // counted in bytes
      ++operation.outputs.size;
    }
    if (rule.forward_temporary.count > 0) {
      trace_.temporaries.push_back({now(), Count::constant(rule.forward_temporary.count)});
    }
    saved_[index(i)] = static_cast<std::int32_t>(trace_.saved.size());
    if (saves) {
      for (const std::int16_t input : rule.saved) {
        const bool result = input == AutogradRule::kResult;
        trace_.saved.push_back({.tensor = result ? op.outputs[0] : op.inputs[static_cast<std::size_t>(input)],
                                .packed_at = result ? now() + 1 : now()});
      }
      if (auxiliary >= 0) {
        trace_.saved.push_back({.tensor = trace_.operands.back(), .packed_at = now() + 1});
      }
    }
    for (const std::int16_t input : rule.attributes) {
      if (saves) {
        attributes_.push_back(storage_[index(tensor(op.inputs[static_cast<std::size_t>(input)]).storage)]);
      }
    }
    saved_[index(i) + 1] = static_cast<std::int32_t>(trace_.saved.size());
    trace_.operators.push_back(operation);
  }

  // The tables are not in the graph and are updated inside backward; they are an operand because they are
  // trained.
  std::int32_t tables() {
    if (tables_ < 0) {
      constexpr auto kType = static_cast<std::int16_t>(ElementType::kFP32);
      const auto layout = static_cast<std::int32_t>(trace_.layouts.size());
      trace_.layouts.push_back({.shape = {}, .strides = {}});
      const std::int32_t storage = add_storage(kNone, Bytes{}, 1, StorageRole::kParameter);
      trace_.parameters.push_back(
          {.name = {}, .storage = storage, .layout = layout, .dtype = kType, .gradient = {}});
      tables_ = static_cast<std::int32_t>(trace_.tensors.size());
      trace_.tensors.push_back({.storage = storage, .layout = layout, .dtype = kType});
    }
    return tables_;
  }

  // `time` -1: never freed.
  void hold_until(std::int32_t storage, std::int32_t time) {
    if (storage >= 0 && trace_.storages[index(storage)].allocated_at >= 0) {
      std::int32_t& released = trace_.storages[index(storage)].released_at;
      released = released < 0 || time < 0 ? -1 : std::max(released, time);
    }
  }

  Span add_operands(std::span<const TensorId> ids) {
    const Span span{static_cast<std::int32_t>(trace_.operands.size()), static_cast<std::int32_t>(ids.size())};
    trace_.operands.insert(trace_.operands.end(), ids.begin(), ids.end());
    return span;
  }

  ElementType gradient_type(TensorId of) const { return tensor(of).gradient_type.value_or(tensor(of).type); }

  std::int32_t add_tensor(std::int32_t storage, TensorId like, ElementType type) {
    trace_.tensors.push_back(
        {.storage = storage, .layout = tensor(like).shape, .dtype = static_cast<std::int16_t>(type)});
    return static_cast<std::int32_t>(trace_.tensors.size()) - 1;
  }

  // ---- backward ----

  void backward() {
    result_ = options_.keeps_result ? graph_.result() : kNone;
    if (graph_.result() >= 0) {
      recording_.result = storage_[index(tensor(graph_.result()).storage)];
    }
    for (std::int32_t i = graph_.op_count(); i-- > 0;) {
      charge(options_.budget, 1);
      const Op op = graph_.op(i);
      if (has_backward(op)) {
        backward(i, op);
      }
    }
    // The loss holds the nodes until backward() returns.
    for (const std::int32_t storage : attributes_) {
      hold_until(storage, now());
    }
  }

  // Appends an operator of backward that allocates these gradients, in the module of the forward operator.
  void append(std::int32_t forward, const std::vector<std::pair<TensorId, std::int32_t>>& allocated,
              OpKind kind) {
    const auto begin = static_cast<std::int32_t>(trace_.operands.size());
    for (const auto& [id, gradient] : allocated) {
      trace_.operands.push_back(add_tensor(gradients_[index(gradient)].storage, id, gradient_type(id)));
    }
    trace_.operators.push_back({.name = static_cast<std::int32_t>(kind),
                                .module = trace_.operators[index(forward)].module,
                                .attributes = -1,
                                .inputs = trace_.operators[index(forward)].outputs,
                                .outputs = {begin, static_cast<std::int32_t>(allocated.size())}});
  }

  std::int32_t new_gradient(TensorId of) {
    const Bytes bytes = elements_[index(tensor(of).shape)] * width_bytes(gradient_type(of));
    gradients_.push_back({add_storage(of, bytes, tensor(of).count, StorageRole::kBackward), 1});
    return static_cast<std::int32_t>(gradients_.size()) - 1;
  }

  void release(std::int32_t gradient) {
    Gradient& released = gradients_[index(gradient)];
    assert(released.references > 0);
    if (--released.references == 0) {
      trace_.storages[index(released.storage)].released_at = now();
    }
  }

  void backward(std::int32_t i, const Op& op) {
    // Gradients of the outputs: from their users, received from the next stage, or 1 for the loss.
    output_gradients_.clear();
    new_gradients_.clear();
    bool part = false;
    for (const TensorId output : op.outputs) {
      const Pending pending = std::exchange(pending_[index(output)], Pending{});
      output_gradients_.push_back(pending.gradient >= 0 ? pending.gradient : new_gradient(output));
      if (pending.gradient < 0) {
        new_gradients_.emplace_back(output, output_gradients_.back());
      }
      part = part || pending.part;
    }
    if (!new_gradients_.empty()) {
      append(i, new_gradients_, OpKind::kReceive);
    }
    if (op.kind == OpKind::kReceive) {
      recording_.received = storage_[index(op.outputs[0])];
      recording_.sent_gradient = gradients_[index(output_gradients_.front())].storage;
    }
    if (std::find(op.outputs.begin(), op.outputs.end(), result_) != op.outputs.end()) {
      recording_.received_gradient = gradients_[index(output_gradients_.front())].storage;
      hold_until(storage_[index(tensor(std::exchange(result_, kNone)).storage)], now());
    }
    const AutogradRule& rule = this->rule(i);
    new_gradients_.clear();
    input_gradients_.clear();
    for (std::size_t k = 0; k < op.inputs.size(); ++k) {
      const std::size_t j = rule.last_input_first ? op.inputs.size() - 1 - k : k;
      const InputGradient gradient = rule.gradients[j];
      if (gradient == InputGradient::kNew || gradient == InputGradient::kNewView) {
        new_gradients_.emplace_back(op.inputs[j], new_gradient(op.inputs[j]));
        input_gradients_.emplace_back(
            op.inputs[j], Pending{new_gradients_.back().second, gradient == InputGradient::kNewView});
      } else if (gradient != InputGradient::kNone) {
        const std::int32_t shared = output_gradients_.front();
        ++gradients_[index(shared)].references;
        input_gradients_.emplace_back(op.inputs[j],
                                      Pending{shared, part || gradient == InputGradient::kPart});
      }
    }
    if (rule.last_input_first) {  // they are passed on in the order of the inputs
      std::reverse(input_gradients_.begin(), input_gradients_.end());
    }
    if (rule.backward_temporary.count > 0) {
      trace_.temporaries.push_back({now(), Count::constant(rule.backward_temporary.count)});
    }
    const std::int32_t time = now();
    append(i, new_gradients_, op.kind);
    for (std::int32_t saved = saved_[index(i)]; saved < saved_[index(i) + 1]; ++saved) {
      trace_.saved[index(saved)].unpacked_at = time;
      trace_.saved[index(saved)].released_at = now();
    }
    for (const std::int32_t gradient : output_gradients_) {
      release(gradient);
    }
    for (const TensorId output : op.outputs) {
      if (last_use_[index(output)] < 0) {  // the loss
        hold_until(trace_.tensors[index(output)].storage, now());
      }
    }
    for (const auto& [input, gradient] : input_gradients_) {
      accumulate(i, input, gradient);
    }
  }

  void accumulate(std::int32_t i, TensorId input, Pending added) {
    Pending& pending = pending_[index(input)];
    if (pending.gradient < 0) {
      pending = added;
    } else {
      const bool in_place = !pending.part && gradients_[index(pending.gradient)].references == 1;
      if (!in_place) {
        const std::int32_t sum = new_gradient(input);
        append(i, {{input, sum}}, OpKind::kAdd);
        release(std::exchange(pending, Pending{sum, false}).gradient);
      }
      release(added.gradient);
    }
    const std::int32_t parameter = parameter_[index(input)];
    if (parameter < 0 || --missing_gradients_[index(input)] > 0) {
      return;
    }
    if (gradients_[index(pending.gradient)].references > 1) {  // also referenced elsewhere: it is copied
      const std::int32_t copy = new_gradient(input);
      append(i, {{input, copy}}, OpKind::kCopy);
      release(std::exchange(pending, Pending{copy, false}).gradient);
    }
    const std::int32_t storage = gradients_[index(pending.gradient)].storage;
    trace_.storages[index(storage)].role = StorageRole::kGradient;
    trace_.parameters[index(parameter)].gradient = {storage};
    // A gradient is complete after the last operator that has it as an output.
    trace_.operands.push_back(add_tensor(storage, input, tensor(input).type));
    ++trace_.operators.back().outputs.size;
    pending = {};
  }

  const ForwardGraph& graph_;
  const RecordOptions& options_;
  Recording recording_;
  Trace& trace_;
  std::vector<Bytes> elements_;           // by shape: number of elements, as Bytes because it saturates
  BudgetVector<AutogradRule> rules_;      // copies of an operator share one
  BudgetVector<std::int32_t> rule_;       // by operator: index in rules_
  BudgetVector<std::int32_t> storage_;    // by tensor with its own memory
  BudgetVector<std::int32_t> parameter_;  // by tensor: index of the trace's parameter; -1: none
  BudgetVector<std::int32_t> last_use_;   // by tensor: the last operator with it as an input
  BudgetVector<std::int32_t> missing_gradients_;  // by tensor: missing summands of a parameter's gradient
  BudgetVector<Pending> pending_;                 // by tensor
  BudgetVector<Gradient> gradients_;
  BudgetVector<std::int32_t> saved_;      // by operator: where its entries in Trace::saved begin
  std::vector<std::int32_t> attributes_;  // storages that nodes have as attributes
  std::int32_t tables_ = kNone;           // the tensor that stands for the embedding tables
  TensorId result_ = kNone;               // kept for the next stage
  // For the operator whose backward is being recorded: gradients of its outputs, gradients that it allocates,
  // and gradients of its inputs.
  std::vector<std::int32_t> output_gradients_;
  std::vector<std::pair<TensorId, std::int32_t>> new_gradients_;
  std::vector<std::pair<TensorId, Pending>> input_gradients_;
};

}  // namespace

Recording record(const ForwardGraph& graph, const RecordOptions& options) {
  return Recorder(graph, options).record();
}

}  // namespace plimsoll::estimator::spec
