#include "estimator/memory/simulate.h"

#include <algorithm>
#include <cassert>
#include <optional>
#include <utility>
#include <vector>

#include "estimator/memory/autograd_rules.h"
#include "estimator/memory/fixed_costs.h"
#include "estimator/memory/optimizer_memory.h"

namespace plimsoll::estimator {
namespace {

// How parameters, gradients and optimizer state are divided among the trainers.
struct Division {
  std::int64_t parameters = 1;
  std::int64_t gradients = 1;
  std::int64_t optimizer = 1;
  std::int64_t step = 1;         // of the step's temporaries
  bool buckets = false;          // DDP's: a second copy of all gradients, kept between iterations
  bool gathers_units = false;    // layers are gathered whole, one at a time
  bool whole_gradients = false;  // ... or gradients are, in a bucket
};

Division division_of(crds::ParallelStrategy strategy, std::int64_t trainers) {
  switch (strategy) {
    case crds::ParallelStrategy::kAuto: return {.buckets = trainers > 1};
    case crds::ParallelStrategy::kDDP: return {.buckets = true};
    case crds::ParallelStrategy::kZeRO1:
      // The step's temporaries were measured as half the plain ones with 2 and with 4 ranks alike.
      return {.optimizer = trainers, .step = std::min<std::int64_t>(trainers, 2), .buckets = true};
    case crds::ParallelStrategy::kZeRO2:
      return {
          .gradients = trainers, .optimizer = trainers, .step = trainers, .whole_gradients = trainers > 1};
    case crds::ParallelStrategy::kFSDP:
    case crds::ParallelStrategy::kFSDP2:
    case crds::ParallelStrategy::kZeRO3:
      return {.parameters = trainers,
              .gradients = trainers,
              .optimizer = trainers,
              .step = trainers,
              .gathers_units = trainers > 1};
  }
  return {};
}

Bytes share(Bytes whole, std::int64_t parts) {
  return Bytes{whole.count / parts + (whole.count % parts != 0 ? 1 : 0)};
}

// FSDP beside its shards: measured with six equal layers on 2 and 4 ranks, FSDP1 and FSDP2 peaked 4 to 5
// layers above the sharded gradients (the gathered layer, the prefetched one, its staging buffer, a whole
// gradient and the reduce-scatter's input).
constexpr std::int64_t kGatheredUnits = 5;
// ZeRO-2 reduces gradients through a bucket of at most 5e8 elements (DeepSpeed's reduce_bucket_size,
// unverified).
constexpr Bytes kReduceBucket{2'000'000'000};

class Iteration {
 public:
  Iteration(const OperatorGraph& graph, const IterationRequest& request)
      : graph_(graph),
        request_(request),
        batch_(request.training->batch_size_per_trainer),
        division_(division_of(request.training->parallelism.strategy, request.trainers)),
        ledger_(request.device == Device::kCuda ? kCudaGranule : 1),
        storages_(graph.tensors().size()),
        held_(graph.tensors().size(), false),
        last_use_(graph.tensors().size(), -1),
        pending_(graph.tensors().size()) {
    for (std::size_t i = 0; i < graph.ops().size(); ++i) {
      rules_.push_back(rule_for(graph, graph.ops()[i], request.device, batch_));
      for (const TensorId input : graph.ops()[i].inputs) {
        last_use_[index(input)] = static_cast<std::int32_t>(i);
      }
    }
    saved_.resize(graph.ops().size(), false);
    kept_.resize(graph.ops().size(), -1);
  }

  Ledger run() && {
    persist();
    ledger_.enter(Phase::kForward);
    std::vector<Range> ranges = ranges_of_ops();
    for (const Range& range : ranges) {
      forward(range, recomputes(range) ? Pass::kDropping : Pass::kSaving);
    }
    ledger_.enter(Phase::kBackward);
    std::reverse(ranges.begin(), ranges.end());
    for (const Range& range : ranges) {
      if (recomputes(range)) {
        forward(range, Pass::kAgain);
      }
      for (std::int32_t i = range.end; i-- > range.begin;) {
        backward(i);
      }
      if (recomputes(range)) {
        forget_inputs(range);
      }
    }
    ledger_.enter(Phase::kOptimizerStep);
    step();
    return std::move(ledger_);
  }

 private:
  // Operators [begin, end) of one block of the model, or outside all.
  struct Range {
    std::int32_t begin = 0, end = 0;
    std::int32_t block = -1;
  };
  enum class Pass {
    kSaving,    // plain forward
    kDropping,  // forward of a checkpointed block: what it would save is dropped
    kAgain,     // its second forward, inside backward
  };
  struct Storage {
    BlockId block = -1;
    std::int32_t references = 0;
  };
  // A gradient buffer; a tensor's pending gradient is one, or a view of a part of one.
  struct Gradient {
    BlockId block = -1;
    std::int32_t references = 0;
  };
  struct Pending {
    std::int32_t gradient = -1;
    bool part = false;
  };

  static std::size_t index(std::int32_t id) { return static_cast<std::size_t>(id); }
  const Op& op(std::int32_t i) const { return graph_.ops()[index(i)]; }
  const AutogradRule& rule(std::int32_t i) const { return rules_[index(i)]; }
  Storage& storage(TensorId id) { return storages_[index(graph_.tensor(id).storage)]; }
  bool made_by_an_op(TensorId id) const { return graph_.tensor(id).role == TensorRole::kActivation; }
  bool trained(std::int32_t i) const {
    const auto& outputs = op(i).outputs;
    return std::any_of(outputs.begin(), outputs.end(),
                       [&](TensorId id) { return graph_.tensor(id).requires_grad; });
  }

  bool full() const {
    return request_.training->activation_checkpointing == crds::ActivationCheckpointing::kFull;
  }
  bool recomputes(const Range& range) const {
    return range.block >= 0 &&
           request_.training->activation_checkpointing != crds::ActivationCheckpointing::kNone;
  }
  // Selective checkpointing keeps the results of matrix products and computes the rest again.
  bool keeps_result(std::int32_t i) const { return !full() && rule(i).expensive && trained(i); }

  // What lives from before the iteration until after it.
  void persist() {
    const OptimizerMemory optimizer = memory_of(request_.training->optimizer, request_.device);
    Bytes largest_unit;
    for (const Op& each : graph_.ops()) {
      Bytes unit;
      for (const TensorId input : each.inputs) {
        // Autocast's copy stands between an operator and its parameter.
        unit += made_by_an_op(input) ? Bytes{} : parameter_bytes(input);
      }
      largest_unit = std::max(largest_unit, unit);
    }
    Bytes gradients;
    for (std::size_t i = 0; i < graph_.tensors().size(); ++i) {
      const auto id = static_cast<TensorId>(i);
      const Tensor& tensor = graph_.tensors()[i];
      if (tensor.role == TensorRole::kInput) {
        const bool of_the_batch = std::any_of(tensor.shape.begin(), tensor.shape.end(),
                                              [](const Dim& dim) { return dim.per_sample != 0; });
        ledger_.allocate(Part::kInputs, graph_.bytes_of_one(id, batch_),
                         of_the_batch ? request_.batches_in_flight : 1);
      } else if (tensor.role == TensorRole::kParameter) {
        const Bytes one = graph_.bytes_of_one(id, batch_);
        ledger_.allocate(Part::kParameters, share(one, division_.parameters), tensor.count);
        const Bytes kept = optimizer.kept_per_row
                               ? Bytes{tensor.shape.front().constant} * width_bytes(ElementType::kFP32)
                               : Bytes::ceil(static_cast<double>(one.count) * optimizer.kept);
        ledger_.allocate(Part::kOptimizerState, share(kept, division_.optimizer), tensor.count);
        if (division_.buckets) {
          ledger_.allocate(Part::kDdpBuckets, one, tensor.count);
        }
        gradients += graph_.bytes(id, batch_);
        largest_parameter_ = std::max(largest_parameter_, one);
      }
    }
    parameters_ = gradients;
    if (division_.gathers_units) {
      gathered_ =
          ledger_.allocate(Part::kTemporaries, std::min(largest_unit * kGatheredUnits, gradients * 2));
    } else if (division_.whole_gradients) {
      gathered_ = ledger_.allocate(Part::kTemporaries, std::min(gradients, kReduceBucket));
    }
  }

  Bytes parameter_bytes(TensorId id) const {
    return graph_.tensor(id).role == TensorRole::kParameter ? graph_.bytes(id, batch_) : Bytes{};
  }

  // Neighbouring operators of the same block; all of them where nothing is recomputed.
  std::vector<Range> ranges_of_ops() const {
    std::vector<Range> ranges;
    for (std::size_t i = 0; i < graph_.ops().size(); ++i) {
      const std::int32_t block = graph_.ops()[i].block;
      if (ranges.empty() || ranges.back().block != block) {
        ranges.push_back({static_cast<std::int32_t>(i), static_cast<std::int32_t>(i), block});
      }
      ++ranges.back().end;
    }
    return ranges;
  }

  void refer(TensorId id) {
    if (made_by_an_op(id)) {
      ++storage(id).references;
    }
  }
  void drop(TensorId id) {
    if (made_by_an_op(id)) {
      Storage& dropped = storage(id);
      assert(dropped.references > 0);
      if (--dropped.references == 0) {
        ledger_.release(dropped.block);
        dropped.block = -1;
      }
    }
  }
  void hold(TensorId id) {
    Storage& held = storage(id);
    if (held.references == 0) {
      held.block =
          ledger_.allocate(Part::kActivations, graph_.bytes_of_one(id, batch_), graph_.tensor(id).count);
    }
    ++held.references;
    held_[index(id)] = true;
  }
  void let_go(TensorId id) {
    if (made_by_an_op(id) && held_[index(id)]) {
      held_[index(id)] = false;
      drop(id);
    }
  }

  // An operator's results, and what it makes for its backward.
  void make(std::int32_t i) {
    if (rule(i).kept.count > 0) {
      kept_[index(i)] = ledger_.allocate(Part::kActivations, rule(i).kept);
    }
    std::optional<BlockId> temporary;
    if (rule(i).forward_temporary.count > 0) {
      temporary = ledger_.allocate(Part::kTemporaries, rule(i).forward_temporary);
    }
    for (const TensorId output : op(i).outputs) {
      hold(output);
    }
    if (temporary) {
      ledger_.release(*temporary);
    }
  }
  void save(std::int32_t i) {
    for (const TensorId saved : rule(i).saved) {
      refer(saved);
    }
    saved_[index(i)] = true;
  }
  void forget_kept(std::int32_t i) {
    if (kept_[index(i)] >= 0) {
      ledger_.release(kept_[index(i)]);
      kept_[index(i)] = -1;
    }
  }

  bool saves_own_results(std::int32_t i) const {
    const auto& saved = rule(i).saved;
    return rule(i).kept.count > 0 || std::any_of(saved.begin(), saved.end(), [&](TensorId id) {
             return std::find(op(i).outputs.begin(), op(i).outputs.end(), id) != op(i).outputs.end();
           });
  }
  // torch.utils.checkpoint stops the second forward once all is there that backward wants (its early stop):
  // at the last operator that saves something, which is itself run only if that is a result of its own.
  std::int32_t recomputed_until(const Range& range) const {
    for (std::int32_t i = range.end; i-- > range.begin;) {
      if (trained(i) && (!rule(i).saved.empty() || rule(i).kept.count > 0)) {
        return saves_own_results(i) ? i + 1 : i;
      }
    }
    return range.begin;
  }
  // An operator that the second forward does not reach: it saves what is there.
  void leave_out(std::int32_t i) {
    if (keeps_result(i)) {
      for (const TensorId output : op(i).outputs) {
        drop(output);
      }
    }
    if (trained(i)) {
      save(i);
    }
  }

  void forward(const Range& range, Pass pass) {
    if (pass == Pass::kDropping) {
      remember_inputs(range);
    }
    const std::int32_t stop = pass == Pass::kAgain ? recomputed_until(range) : range.end;
    for (std::int32_t i = range.begin; i < range.end; ++i) {
      if (i >= stop) {
        leave_out(i);
        continue;
      }
      make(i);
      for (const TensorId output : op(i).outputs) {
        if (pass == Pass::kDropping && keeps_result(i)) {
          refer(output);
        } else if (pass == Pass::kAgain && keeps_result(i)) {
          drop(output);  // the result kept from the first pass is the one held now
        }
      }
      if (pass != Pass::kDropping && trained(i)) {
        save(i);
      } else {
        forget_kept(i);
      }
      for (const TensorId input : op(i).inputs) {
        if (last_use_[index(input)] == i) {
          let_go(input);
        }
      }
    }
    if (pass == Pass::kAgain) {
      // Nobody uses the block's results a second time.
      for (std::int32_t i = range.begin; i < range.end; ++i) {
        for (const TensorId output : op(i).outputs) {
          let_go(output);
        }
      }
    }
  }

  // A checkpointed block keeps what came in from outside, to start again from it.
  template <class Action>
  void for_each_input(const Range& range, Action action) {
    std::vector<TensorId> seen;
    for (std::int32_t i = range.begin; i < range.end; ++i) {
      for (const TensorId input : op(i).inputs) {
        const bool inside = std::any_of(
            graph_.ops().begin() + range.begin, graph_.ops().begin() + range.end, [&](const Op& maker) {
              return std::find(maker.outputs.begin(), maker.outputs.end(), input) != maker.outputs.end();
            });
        if (!inside && std::find(seen.begin(), seen.end(), input) == seen.end()) {
          seen.push_back(input);
          action(input);
        }
      }
    }
  }
  void remember_inputs(const Range& range) {
    for_each_input(range, [this](TensorId id) { refer(id); });
  }
  void forget_inputs(const Range& range) {
    for_each_input(range, [this](TensorId id) { drop(id); });
  }

  std::int32_t new_gradient(TensorId of) {
    const bool parameter = graph_.tensor(of).role == TensorRole::kParameter;
    const Bytes one = graph_.bytes_of_one(of, batch_);
    const BlockId block =
        ledger_.allocate(parameter ? Part::kGradients : Part::kTemporaries,
                         parameter ? share(one, division_.gradients) : one, graph_.tensor(of).count);
    gradients_.push_back({block, 1});
    return static_cast<std::int32_t>(gradients_.size()) - 1;
  }
  void release_gradient(std::int32_t id) {
    Gradient& gradient = gradients_[index(id)];
    assert(gradient.references > 0);
    if (--gradient.references == 0) {
      ledger_.release(gradient.block);
    }
  }

  void backward(std::int32_t i) {
    if (!trained(i)) {
      return;
    }
    // Gradients of the outputs: given by the users, or 1 for the loss.
    std::vector<std::int32_t> given;
    bool part = false;
    for (const TensorId output : op(i).outputs) {
      const Pending pending = std::exchange(pending_[index(output)], Pending{});
      given.push_back(pending.gradient >= 0 ? pending.gradient : new_gradient(output));
      part = part || pending.part;
    }
    std::optional<BlockId> temporary;
    if (rule(i).backward_temporary.count > 0) {
      temporary = ledger_.allocate(Part::kTemporaries, rule(i).backward_temporary);
    }
    std::vector<std::pair<TensorId, Pending>> results;
    for (std::size_t j = 0; j < op(i).inputs.size(); ++j) {
      const TensorId input = op(i).inputs[j];
      switch (rule(i).gradients[j]) {
        case InputGradient::kNone: break;
        case InputGradient::kNew:
        case InputGradient::kNewView:
          results.emplace_back(input,
                               Pending{new_gradient(input), rule(i).gradients[j] == InputGradient::kNewView});
          break;
        case InputGradient::kAlias:
        case InputGradient::kPart:
          ++gradients_[index(given.front())].references;
          results.emplace_back(input,
                               Pending{given.front(), part || rule(i).gradients[j] == InputGradient::kPart});
          break;
      }
    }
    if (temporary) {
      ledger_.release(*temporary);
    }
    for (const std::int32_t gradient : given) {
      release_gradient(gradient);
    }
    if (saved_[index(i)]) {
      saved_[index(i)] = false;
      for (const TensorId saved : rule(i).saved) {
        drop(saved);
      }
      forget_kept(i);
    }
    for (const TensorId output : op(i).outputs) {
      let_go(output);  // only the loss is still held
    }
    for (const auto& [input, result] : results) {
      accumulate(input, result);
    }
  }

  void accumulate(TensorId input, Pending added) {
    Pending& pending = pending_[index(input)];
    if (pending.gradient < 0) {
      pending = added;
      return;
    }
    const bool in_place = !pending.part && gradients_[index(pending.gradient)].references == 1;
    if (!in_place) {
      const std::int32_t sum = new_gradient(input);
      release_gradient(pending.gradient);
      pending = {sum, false};
    }
    release_gradient(added.gradient);
  }

  void step() {
    if (gathered_) {
      ledger_.release(*gathered_);
    }
    const OptimizerMemory optimizer = memory_of(request_.training->optimizer, request_.device);
    const Bytes all = Bytes::ceil(static_cast<double>(parameters_.count) * optimizer.step_times_parameters);
    const Bytes one =
        Bytes::ceil(static_cast<double>(largest_parameter_.count) * optimizer.step_times_largest);
    ledger_.allocate(Part::kTemporaries, share(all, division_.step) + one);
  }

  const OperatorGraph& graph_;
  const IterationRequest& request_;
  const std::int64_t batch_;
  const Division division_;
  Ledger ledger_;
  std::vector<AutogradRule> rules_;     // by operator
  std::vector<bool> saved_;             // by operator: its saved tensors are referred to
  std::vector<BlockId> kept_;           // by operator: its rule's `kept`, -1 when it is not there
  std::vector<Storage> storages_;       // by tensor that has memory of its own
  std::vector<bool> held_;              // by tensor: a later operator of the pass still wants it
  std::vector<std::int32_t> last_use_;  // by tensor: the last operator that takes it
  std::vector<Pending> pending_;        // by tensor: the gradient so far
  std::vector<Gradient> gradients_;
  Bytes parameters_;
  Bytes largest_parameter_;
  std::optional<BlockId> gathered_;
};

}  // namespace

Ledger simulate(const OperatorGraph& graph, const IterationRequest& request) {
  return Iteration(graph, request).run();
}

Bytes all_bytes(const OperatorGraph& graph, std::int64_t batch) {
  Bytes total;
  for (std::size_t i = 0; i < graph.tensors().size(); ++i) {
    total += graph.bytes(static_cast<TensorId>(i), batch);
  }
  return total;
}

}  // namespace plimsoll::estimator
