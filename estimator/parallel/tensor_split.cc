#include "estimator/parallel/tensor_split.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "estimator/parallel/split_rules.h"
#include "estimator/trace/module_pattern.h"
#include "estimator/trace/shapes.h"

namespace plimsoll::estimator::inline parallel {
namespace {

constexpr const char* kAllReduce = "_c10d_functional::all_reduce";

// Usual layer names, by Megatron-LM's roles: Llama, Mistral and Qwen, GPT-2, GPT-NeoX, OPT, BERT, T5, timm
// and torch, as the tensor parallel plans of transformers and torchtitan split them. torch's
// MultiheadAttention is recognized by its in_proj_weight.
const std::vector<std::string> kUsualColumns = {"q_proj",
                                                "k_proj",
                                                "v_proj",
                                                "qkv_proj",
                                                "gate_proj",
                                                "up_proj",
                                                "wq",
                                                "wk",
                                                "wv",
                                                "w1",
                                                "w3",
                                                "gate_up_proj",
                                                "c_attn",
                                                "c_fc",
                                                "fc1",
                                                "linear1",
                                                "qkv",
                                                "q",
                                                "k",
                                                "v",
                                                "up",
                                                "query_key_value",
                                                "dense_h_to_4h",
                                                "self.query",
                                                "self.key",
                                                "self.value",
                                                "wi",
                                                "intermediate.dense",
                                                "wi_0",
                                                "wi_1"};
const std::vector<std::string> kUsualRows = {"o_proj",
                                             "out_proj",
                                             "down_proj",
                                             "wo",
                                             "w2",
                                             "c_proj",
                                             "fc2",
                                             "linear2",
                                             "out",
                                             "down",
                                             "attn.proj",
                                             "proj_out",
                                             "output.dense",
                                             "dense_4h_to_h",
                                             "SelfAttention.o",
                                             "EncDecAttention.o"};
constexpr std::string_view kPackedProjection = ".in_proj_weight";

std::string_view module_of(const std::string& parameter) {
  const std::size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? std::string_view() : std::string_view(parameter).substr(0, dot);
}

// Size of the rank's part by torch.chunk, which DTensor uses (_shard.py: local_shard_size_and_offset).
std::int64_t chunk_of(std::int64_t size, const TensorSplit& split) {
  const std::int64_t each = (size + split.ways - 1) / split.ways;
  return std::clamp<std::int64_t>(size - each * split.rank, 0, each);
}

Count scaled(const Count& count, const StorageSplit& split) {
  Count result = count;
  for (double& c : result.c) {
    c = c * static_cast<double>(split.part) / static_cast<double>(split.extent);
  }
  return result;
}

// An all-reduce of a partial result.
struct Sum {
  std::int32_t op = 0;        // the operator with the partial result
  std::int32_t at = 0;        // the operator before which the all-reduce runs
  std::int32_t storage = -1;  // of the partial result
};

class Splitter {
 public:
  Splitter(const Trace& trace, const TraceShapes& shapes, const TensorSplit& split)
      : trace_(trace),
        shapes_(shapes),
        split_(split),
        storages_(trace.storages.size()),
        constant_(trace.storages.size(), false),
        parameter_of_(trace.storages.size(), -1),
        gradient_of_(trace.storages.size(), -1) {
    memory_.resize(memory_of(trace) * kCopies);
  }

  Result<SplitTrace> run() {
    for (std::size_t i = 0; i < trace_.parameters.size(); ++i) {
      parameter_of_[index(trace_.parameters[i].storage)] = static_cast<std::int32_t>(i);
      for (const std::int32_t gradient : trace_.parameters[i].gradient) {
        gradient_of_[index(gradient)] = static_cast<std::int32_t>(i);
      }
    }
    if (Result<void> chosen = choose_layers(); !chosen) {
      return chosen.error();
    }
    for (std::size_t op = 0; op < trace_.operators.size(); ++op) {
      const TraceOperator& called = trace_.operators[op];
      charge(split_.budget, index(called.inputs.size) + index(called.outputs.size) + 1);
      if (Result<void> passed = split_operator(op); !passed) {
        return describe(passed.error(), op);
      }
    }
    for (std::size_t i = 0; i < trace_.parameters.size(); ++i) {
      for (const std::int32_t gradient : trace_.parameters[i].gradient) {
        if (storages_[index(gradient)].any() != storages_[index(trace_.parameters[i].storage)].any()) {
          return Error(ErrorCode::kUnsupported, trace_.parameters[i].name.substr(0, 120) +
                                                    " and its gradient would be split differently");
        }
      }
    }
    return build();
  }

 private:
  Error describe(const Error& error, std::size_t op) const {
    const TraceOperator& called = trace_.operators[op];
    const std::string& module = called.module < 0 ? std::string() : trace_.modules[index(called.module)];
    return Error(error.code, trace_.operator_names[index(called.name)].substr(0, 120) + " in " +
                                 (module.empty() ? "the model itself" : module.substr(0, 120)) +
                                 " cannot work on the split layers: " + error.message +
                                 "; split other layers (--split-columns, --split-rows)");
  }

  // ---- which parameters ----

  Result<void> choose_layers() {
    const bool usual = split_.columns.empty() && split_.rows.empty();
    ModulePatterns columns(usual ? kUsualColumns : split_.columns);
    ModulePatterns rows(usual ? kUsualRows : split_.rows);
    std::map<std::string_view, bool> by_columns;  // of the chosen modules
    for (const TraceParameter& parameter : trace_.parameters) {
      charge(split_.budget, 1 + split_.columns.size() + split_.rows.size());
      const std::string_view module = module_of(parameter.name);
      const bool packed = usual && std::string_view(parameter.name).ends_with(kPackedProjection);
      const bool column = columns.matches_end(module) || packed;
      const bool row = rows.matches_end(module);
      if (column && row) {
        return invalid(std::string(module.substr(0, 120)) + " would be split by columns and by rows");
      }
      if (column || row) {
        by_columns.emplace(module, column);
      }
    }
    if (usual && by_columns.empty()) {
      return invalid(
          "no layer of the graph has a usual name that determines how to split it; name some with "
          "--split-columns and --split-rows");
    }
    for (const ModulePatterns* patterns : {&columns, &rows}) {
      if (!usual && patterns->unused() != nullptr) {
        return invalid("no layer of the graph matches \"" + patterns->unused()->substr(0, 80) + "\"");
      }
    }
    find_uses();
    std::set<std::string> names[2];
    for (const auto& [module, column] : by_columns) {
      if (Result<void> done = split_module(module, column, usual); !done) {
        return done.error();
      }
      names[column ? 0 : 1].emplace(module.substr(std::min(module.size(), module.rfind('.') + 1)));
    }
    if (usual) {
      const auto listed = [](const std::set<std::string>& all) {
        std::string text;
        for (const std::string& each : all) {
          text += (text.empty() ? "" : ", ") + each;
        }
        return text.empty() ? std::string("none") : text;
      };
      note_ = "layers split by their usual names: by columns " + listed(names[0]) + "; by rows " +
              listed(names[1]);
    }
    return {};
  }

  // Finds the first use of each parameter as a weight, directly or as a copy that autocast made.
  void find_uses() {
    std::vector<std::int32_t> source(trace_.storages.size(), -1);
    for (std::size_t i = 0; i < source.size(); ++i) {
      source[i] = parameter_of_[i] >= 0 ? static_cast<std::int32_t>(i) : -1;
    }
    for (std::int32_t op = 0; op < trace_.loss_end; ++op) {
      const TraceOperator& called = trace_.operators[index(op)];
      const std::string& name = trace_.operator_names[index(called.name)];
      for (std::int32_t i = 0; i < called.inputs.size; ++i) {
        const std::int32_t tensor = trace_.operands[index(called.inputs.begin + i)];
        const std::int32_t storage = tensor < 0 ? -1 : trace_.tensors[index(tensor)].storage;
        if (storage < 0 || source[index(storage)] < 0) {
          continue;
        }
        WeightOperand weight;
        if (takes_weight(name, static_cast<std::size_t>(i), weight)) {
          const TensorView view = shapes_.tensor(tensor);
          const ViewSplit whole{.dim = 0, .block = 1, .extent = 1, .part = 1};
          Use use;
          const auto owner = parameter_of_[index(source[index(storage)])];
          use.columns = along(whole, weight.columns, view, trace_.parameters[index(owner)]);
          use.rows = along(whole, weight.rows, view, trace_.parameters[index(owner)]);
          uses_.emplace(source[index(storage)], use);
        } else if (name == "aten::_to_copy" && called.outputs.size == 1) {
          const std::int32_t copy = trace_.operands[index(called.outputs.begin)];
          source[index(trace_.tensors[index(copy)].storage)] = source[index(storage)];
        }
      }
    }
  }

  // The whole dimension of the parameter; the view may be a part of it (query's rows of a packed projection).
  StorageSplit along(ViewSplit whole, std::int32_t dim, const TensorView& view,
                     const TraceParameter& parameter) const {
    whole.dim = dim;
    StorageSplit split = split_of_storage(whole, view);
    split.extent = view.size(dim);
    const TensorView all = shapes_.tensor_of(parameter.layout, parameter.dtype);
    for (std::size_t i = 0; i < all.rank(); ++i) {
      const auto each = static_cast<std::ptrdiff_t>(i);
      split.extent = all.stride(each) == split.stride ? std::max(split.extent, all.size(each)) : split.extent;
    }
    return split;
  }

  Result<void> split_module(std::string_view module, bool column, bool usual) {
    std::int64_t features = 0;
    bool any = false;
    for (const TraceParameter& parameter : trace_.parameters) {
      const auto use = uses_.find(parameter.storage);
      if (module_of(parameter.name) != module || use == uses_.end()) {
        continue;
      }
      features = use->second.columns.extent;
      any = true;
      divide(parameter.storage, column ? use->second.columns : use->second.rows);
      storages_[index(parameter.storage)].packed =
          column && use->second.columns.extent == kPackedParts * use->second.rows.extent;
    }
    if (!any && !usual) {
      return invalid(std::string(module.substr(0, 120)) +
                     " has no weight for a product or an embedding; it cannot be split");
    }
    for (const TraceParameter& parameter : trace_.parameters) {
      const TensorView view = shapes_.tensor_of(parameter.layout, parameter.dtype);
      if (any && column && module_of(parameter.name) == module && view.rank() == 1 &&
          view.elements == features) {
        divide(parameter.storage, {.stride = 1, .extent = features, .part = features, .packed = false});
      }
    }
    return {};
  }

  void divide(std::int32_t storage, StorageSplit split) {
    split.part = chunk_of(split.extent, split_);
    uneven_ |= split.extent % split_.ways != 0;
    storages_[index(storage)] = split;
  }

  // ---- operators ----

  std::int32_t storage_of(std::int32_t tensor) const {
    return tensor < 0 ? -1 : trace_.tensors[index(tensor)].storage;
  }

  Result<ViewSplit> split_of(std::int32_t tensor) const {
    const std::int32_t storage = storage_of(tensor);
    if (storage < 0 || !storages_[index(storage)].any()) {
      return ViewSplit{};
    }
    const TensorView view = shapes_.tensor(tensor);
    // A scalar, or a tensor without elements at this batch, is not split.
    return view.elements <= 1 ? ViewSplit{} : split_of_view(storages_[index(storage)], view);
  }

  Result<void> split_operator(std::size_t op) {
    const TraceOperator& called = trace_.operators[op];
    std::vector<SplitOperand> operands;
    bool any = false;
    bool constant = true;
    for (std::int32_t i = 0; i < called.inputs.size; ++i) {
      const std::int32_t tensor = trace_.operands[index(called.inputs.begin + i)];
      SplitOperand operand;
      if (tensor >= 0) {
        const Result<ViewSplit> split = split_of(tensor);
        if (!split) {
          return split.error();
        }
        const std::int32_t storage = storage_of(tensor);
        operand = {.view = shapes_.tensor(tensor),
                   .split = *split,
                   .constant = storage >= 0 && constant_[index(storage)] && !split->any()};
        any |= split->any();
        constant &= operand.constant;
      }
      operands.push_back(operand);
    }
    const std::string& name = trace_.operator_names[index(called.name)];
    if (name == "aten::embedding_dense_backward" && split_embedding_gradient(called)) {
      return {};
    }
    // new_zeros uses only the dtype of its operand.
    constant |= name.starts_with("aten::new_");
    if (!any || constant) {
      for (std::int32_t i = 0; i < called.outputs.size; ++i) {
        const std::int32_t storage = storage_of(trace_.operands[index(called.outputs.begin + i)]);
        if (storage >= 0 && trace_.storages[index(storage)].allocated_at == static_cast<std::int32_t>(op)) {
          constant_[index(storage)] = constant;
        }
      }
      return {};
    }
    const TraceProducer nobody;
    const bool in_backward = static_cast<std::int32_t>(op) >= trace_.loss_end;
    const Result<SplitResult> result =
        propagate_split(name, KernelCall(trace_, shapes_, nobody, op), operands, in_backward);
    if (!result) {
      return result.error();
    }
    for (const SplitResult::Adapted& adapted : result->adapted) {
      const std::int32_t tensor = trace_.operands[index(called.inputs.begin) + adapted.operand];
      storages_[index(storage_of(tensor))] = split_of_storage(adapted.split, shapes_.tensor(tensor));
    }
    if (result->partial) {
      sum_after(static_cast<std::int32_t>(op));
    }
    return set_outputs(called, *result);
  }

  Result<void> set_outputs(const TraceOperator& called, const SplitResult& result) {
    for (std::int32_t i = 0; i < called.outputs.size; ++i) {
      const std::int32_t tensor = trace_.operands[index(called.outputs.begin + i)];
      const std::int32_t storage = storage_of(tensor);
      if (storage < 0) {
        continue;
      }
      const ViewSplit& split = result.outputs[index(i)];
      StorageSplit& known = storages_[index(storage)];
      if (split.any() && !known.any()) {
        const bool allocated_here =
            &trace_.operators[index(trace_.storages[index(storage)].allocated_at)] == &called;
        if (!allocated_here && !constant_[index(storage)]) {
          return Error(ErrorCode::kUnsupported, "it writes a split result into a whole tensor");
        }
        known = split_of_storage(split, shapes_.tensor(tensor));
      }
    }
    return {};
  }

  // If an embedding's weight is split by rows, its gradient is split although the result's gradient is whole.
  bool split_embedding_gradient(const TraceOperator& called) {
    const std::int32_t storage = storage_of(trace_.operands[index(called.outputs.begin)]);
    const std::int32_t parameter = storage < 0 ? -1 : gradient_of_[index(storage)];
    if (parameter < 0) {
      return false;
    }
    const StorageSplit& split = storages_[index(trace_.parameters[index(parameter)].storage)];
    const TensorView view = shapes_.tensor(trace_.operands[index(called.outputs.begin)]);
    if (!split.any() || split.stride * split.extent != view.elements) {
      return false;
    }
    storages_[index(storage)] = split;
    return true;
  }

  // In forward, the all-reduce follows at once. In backward, it follows at the end of the product's autograd
  // node, which also computes the gradients of weight and bias (AddmmBackward0, then
  // _FromTorchTensorBackward).
  void sum_after(std::int32_t op) {
    const Span outputs = trace_.operators[index(op)].outputs;
    const std::int32_t storage = storage_of(trace_.operands[index(outputs.begin)]);
    std::int32_t at = op + 1;
    const auto size = static_cast<std::int32_t>(trace_.operators.size());
    while (op >= trace_.loss_end && at < size &&
           trace_.operators[index(at)].module == trace_.operators[index(op)].module && !reads(at, storage)) {
      charge(split_.budget, index(trace_.operators[index(at)].inputs.size) + 1);
      ++at;
    }
    sums_.push_back({op, at, storage});
  }

  bool reads(std::int32_t op, std::int32_t storage) const {
    const Span inputs = trace_.operators[index(op)].inputs;
    for (std::int32_t i = 0; i < inputs.size; ++i) {
      if (storage_of(trace_.operands[index(inputs.begin + i)]) == storage) {
        return true;
      }
    }
    return false;
  }

  // ---- the new trace ----

  Result<SplitTrace> build() {
    SplitTrace result;
    out_ = trace_;
    for (std::size_t i = 0; i < storages_.size(); ++i) {
      if (storages_[i].any()) {
        out_.storages[i].bytes = scaled(trace_.storages[i].bytes, storages_[i]);
      }
    }
    charge(split_.budget, trace_.tensors.size());
    for (std::size_t i = 0; i < trace_.tensors.size(); ++i) {
      const Result<ViewSplit> split = split_of(static_cast<std::int32_t>(i));
      if (split && split->any()) {  // an unused tensor may not be split
        out_.tensors[i].layout =
            narrowed(trace_.tensors[i].layout, *split, shapes_.tensor(static_cast<std::int32_t>(i)));
      }
    }
    for (TraceParameter& parameter : out_.parameters) {
      const StorageSplit& split = storages_[index(parameter.storage)];
      result.split_parameters.push_back(split.any());
      if (split.any()) {
        const TensorView view = shapes_.tensor_of(parameter.layout, parameter.dtype);
        const Result<ViewSplit> seen = split_of_view(split, view);
        if (!seen) {
          return seen.error().within(parameter.name);
        }
        parameter.layout = narrowed(parameter.layout, *seen, view);
      }
    }
    scale_temporaries();
    insert_sums();
    result.trace = std::move(out_);
    result.uneven = uneven_;
    result.note = note_;
    return result;
  }

  std::int32_t narrowed(std::int32_t layout, const ViewSplit& split, const TensorView& view) {
    const auto key = std::make_tuple(layout, split.dim, split.block, split.extent, split.part);
    const auto known = layouts_.find(key);
    if (known != layouts_.end()) {
      return known->second;
    }
    const StorageSplit memory = split_of_storage(split, view);
    const TraceLayout& old = trace_.layouts[index(layout)];
    TraceLayout narrow = old;
    const auto copied = [&](const Span& from, auto divides) {
      const Span to{static_cast<std::int32_t>(out_.counts.size()), from.size};
      for (std::int32_t i = 0; i < from.size; ++i) {
        const Count count = out_.counts[index(from.begin + i)];
        out_.counts.push_back(divides(i) ? scaled(count, memory) : count);
      }
      return to;
    };
    narrow.shape = copied(old.shape, [&](std::int32_t i) { return i == split.dim; });
    if (!old.contiguous) {
      narrow.strides = copied(old.strides, [&](std::int32_t i) {
        return view.stride(i) >= memory.stride * memory.extent && i != split.dim;
      });
    }
    out_.layouts.push_back(narrow);
    const auto id = static_cast<std::int32_t>(out_.layouts.size()) - 1;
    layouts_.emplace(key, id);
    return id;
  }

  // Measured kernel temporaries are proportional to the size of the operands.
  void scale_temporaries() {
    for (TraceTemporary& temporary : out_.temporaries) {
      const TraceOperator& op = trace_.operators[index(temporary.op)];
      for (const Span& span : {op.inputs, op.outputs}) {
        const auto begin = trace_.operands.begin() + span.begin;
        const auto split = std::find_if(begin, begin + span.size, [&](std::int32_t tensor) {
          return storage_of(tensor) >= 0 && storages_[index(storage_of(tensor))].any();
        });
        if (split != begin + span.size) {
          temporary.bytes = scaled(temporary.bytes, storages_[index(storage_of(*split))]);
          break;
        }
      }
    }
  }

  void insert_sums() {
    std::sort(sums_.begin(), sums_.end(), [](const Sum& a, const Sum& b) { return a.at < b.at; });
    // Events at a time come before the all-reduce at that time.
    const auto new_time = [this](std::int32_t time) {
      return time < 0 ? time
                      : time + static_cast<std::int32_t>(
                                   std::partition_point(sums_.begin(), sums_.end(),
                                                        [&](const Sum& sum) { return sum.at < time; }) -
                                   sums_.begin());
    };
    const auto new_operator = [this](std::int32_t op) {
      return op < 0 ? op
                    : op + static_cast<std::int32_t>(
                               std::partition_point(sums_.begin(), sums_.end(),
                                                    [&](const Sum& sum) { return sum.at <= op; }) -
                               sums_.begin());
    };
    for (TraceStorage& storage : out_.storages) {
      storage.allocated_at = new_operator(storage.allocated_at);
      storage.released_at = new_time(storage.released_at);
    }
    for (TraceSaved& saved : out_.saved) {
      saved.packed_at = new_time(saved.packed_at);
      saved.unpacked_at = new_time(saved.unpacked_at);
      saved.released_at = new_time(saved.released_at);
    }
    for (TraceTemporary& temporary : out_.temporaries) {
      temporary.op = new_operator(temporary.op);
    }
    for (std::int32_t& op : out_.unmeasured) {
      op = new_operator(op);
    }
    // An all-reduce at the end of forward belongs to forward.
    out_.forward_end = new_operator(trace_.forward_end);
    out_.loss_end = new_operator(trace_.loss_end);
    for (const Sum& sum : sums_) {
      if (sum.op >= trace_.forward_end && sum.at == trace_.forward_end) {
        --out_.forward_end;
      }
    }
    const auto name = static_cast<std::int32_t>(out_.operator_names.size());
    out_.operator_names.emplace_back(kAllReduce);
    BudgetVector<TraceOperator> operators;
    operators.reserve(trace_.operators.size() + sums_.size());
    std::size_t next = 0;
    for (std::int32_t op = 0; op <= static_cast<std::int32_t>(trace_.operators.size()); ++op) {
      for (; next < sums_.size() && sums_[next].at == op; ++next) {
        operators.push_back(sum_of(sums_[next], name, static_cast<std::int32_t>(operators.size())));
      }
      if (op < static_cast<std::int32_t>(trace_.operators.size())) {
        operators.push_back(replaced(trace_.operators[index(op)]));
      }
    }
    out_.operators = std::move(operators);
  }

  // The result of the all-reduce replaces the partial result in all later operators.
  TraceOperator sum_of(const Sum& sum, std::int32_t name, std::int32_t at) {
    TraceStorage summed = out_.storages[index(sum.storage)];
    out_.storages[index(sum.storage)].released_at = at + 1;
    out_.storages[index(sum.storage)].role =
        at < out_.loss_end ? StorageRole::kActivation : StorageRole::kBackward;
    summed.allocated_at = at;
    out_.storages.push_back(summed);
    const auto storage = static_cast<std::int32_t>(out_.storages.size()) - 1;
    TraceOperator op;
    op.name = name;
    op.module = trace_.operators[index(sum.op)].module;
    const std::int32_t input = trace_.operands[index(trace_.operators[index(sum.op)].outputs.begin)];
    op.inputs = {static_cast<std::int32_t>(out_.operands.size()), 1};
    out_.operands.push_back(input);
    charge(split_.budget, (trace_.tensors.size() + out_.saved.size()) / kScannedPerUnit + 1);
    for (std::size_t i = 0; i < trace_.tensors.size(); ++i) {
      if (trace_.tensors[i].storage == sum.storage) {
        out_.tensors.push_back(out_.tensors[i]);
        out_.tensors.back().storage = storage;
        replaced_[static_cast<std::int32_t>(i)] = static_cast<std::int32_t>(out_.tensors.size()) - 1;
      }
    }
    op.outputs = {static_cast<std::int32_t>(out_.operands.size()), 1};
    out_.operands.push_back(replaced_.at(input));
    for (TraceSaved& saved : out_.saved) {
      const auto other = replaced_.find(saved.tensor);
      if (other != replaced_.end() && saved.packed_at >= at) {
        saved.tensor = other->second;
        saved.packed_at = std::max(saved.packed_at, at + 1);
      }
    }
    return op;
  }

  TraceOperator replaced(TraceOperator op) {
    if (replaced_.empty()) {
      return op;
    }
    for (Span* span : {&op.inputs, &op.outputs}) {
      const Span old = *span;
      const auto begin = trace_.operands.begin() + old.begin;
      if (std::none_of(begin, begin + old.size,
                       [this](std::int32_t tensor) { return replaced_.contains(tensor); })) {
        continue;
      }
      span->begin = static_cast<std::int32_t>(out_.operands.size());
      for (std::int32_t i = 0; i < old.size; ++i) {
        const std::int32_t tensor = trace_.operands[index(old.begin + i)];
        const auto other = replaced_.find(tensor);
        out_.operands.push_back(other == replaced_.end() ? tensor : other->second);
      }
    }
    return op;
  }

  struct Use {
    StorageSplit columns;
    StorageSplit rows;
  };

  // Memory of the new trace, and as much again for the data of storages and tensors.
  static constexpr std::int64_t kCopies = 2;
  // Number of scanned elements that cost one unit of work.
  static constexpr std::size_t kScannedPerUnit = 64;

  const Trace& trace_;
  const TraceShapes& shapes_;
  const TensorSplit& split_;
  BudgetBytes memory_{split_.budget};
  std::vector<StorageSplit> storages_;
  std::vector<bool> constant_;  // by storage: SplitOperand::constant
  std::vector<std::int32_t> parameter_of_;
  std::vector<std::int32_t> gradient_of_;
  std::map<std::int32_t, Use> uses_;  // by storage of the parameter
  std::vector<Sum> sums_;
  bool uneven_ = false;
  std::string note_;
  Trace out_;
  std::map<std::tuple<std::int32_t, std::int32_t, std::int64_t, std::int64_t, std::int64_t>, std::int32_t>
      layouts_;
  std::map<std::int32_t, std::int32_t> replaced_;  // tensors of partial results: those of the sums
};

}  // namespace

Result<SplitTrace> split_trace(const Trace& trace, std::int64_t batch, const TensorSplit& split) {
  const Result<TraceShapes> shapes = TraceShapes::at(trace, batch, {.budget = split.budget});
  if (!shapes) {
    return shapes.error();
  }
  return Splitter(trace, *shapes, split).run();
}

}  // namespace plimsoll::estimator::parallel
