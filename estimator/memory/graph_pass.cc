#include "estimator/memory/graph_pass.h"

#include <algorithm>
#include <cassert>
#include <optional>

namespace plimsoll::estimator {
namespace {

constexpr std::int32_t kNoUnit = -2;

TensorId saved_tensor(const Op& op, std::int16_t place) {
  return place == AutogradRule::kResult ? op.outputs[0] : op.inputs[static_cast<std::size_t>(place)];
}

}  // namespace

GraphPlan::GraphPlan(const OperatorGraph& graph, const crds::TrainingSpec& training, Device device,
                     std::int64_t batch, Budget* budget)
    : graph_(graph),
      batch_(batch),
      budget_(budget),
      rules_(budget),
      rule_(budget),
      trained_(budget),
      keeps_result_(budget),
      ranges_(budget),
      last_use_(graph.tensors().size(), -1, budget),
      parameter_(graph.tensors().size(), -1, budget),
      gradient_parts_(graph.tensors().size(), 0, budget),
      bytes_(budget) {
  bytes_.reserve(graph.tensors().size());
  std::int32_t parameters = 0;
  for (std::size_t i = 0; i < graph.tensors().size(); ++i) {
    charge(budget, 1);
    bytes_.push_back(graph.bytes_of_one(static_cast<TensorId>(i), batch));
    if (graph.tensors()[i].role == TensorRole::kParameter) {
      parameter_[i] = parameters++;
    }
  }
  rule_.reserve(static_cast<std::size_t>(graph.op_count()));
  for (std::int32_t i = 0; i < graph.op_count(); ++i) {
    charge(budget, 1);
    const Op each = graph.op(i);
    if (each.like == i) {
      rule_.push_back(static_cast<std::int32_t>(rules_.size()));
      rules_.push_back(rule_for(graph, each, device, batch));
    } else {
      rule_.push_back(rule_[static_cast<std::size_t>(each.like)]);
    }
    trained_.push_back(std::any_of(each.outputs.begin(), each.outputs.end(), [&](TensorId id) {
      return graph.tensors()[static_cast<std::size_t>(id)].requires_grad;
    }));
    for (std::size_t j = 0; j < each.inputs.size(); ++j) {
      const auto input = static_cast<std::size_t>(each.inputs[j]);
      last_use_[input] = i;
      if (parameter_[input] >= 0 && trained_.back() && rule(i).gradients[j] != InputGradient::kNone) {
        ++gradient_parts_[input];
      }
    }
  }
  find_ranges(training.activation_checkpointing);
  find_kept_results(training.activation_checkpointing);
}

bool GraphPlan::saves_own_results(std::int32_t i) const {
  const auto& saved = rule(i).saved;
  return rule(i).kept.count > 0 ||
         std::find(saved.begin(), saved.end(), AutogradRule::kResult) != saved.end();
}

// Neighbouring operators of the same block. torch.utils.checkpoint stops the second forward once all is there
// that backward wants (its early stop): at the last operator that saves something, which is itself run only
// if that is a result of its own.
void GraphPlan::find_ranges(crds::ActivationCheckpointing checkpointing) {
  BudgetVector<std::int32_t> made_in(graph_.tensors().size(), -1, budget_);
  std::int32_t unit = kNoUnit;
  for (std::int32_t i = 0; i < graph_.op_count(); ++i) {
    const Op each = op(i);
    if (ranges_.empty() || ranges_.back().block != each.block || unit != each.unit) {
      const bool recomputed = each.block >= 0 && checkpointing != crds::ActivationCheckpointing::kNone;
      ranges_.push_back({i, i, each.block, recomputed, BudgetVector<TensorId>(budget_), i});
      unit = each.unit;
    }
    Range& range = ranges_.back();
    ++range.end;
    if (!range.recomputed) {
      continue;
    }
    const auto number = static_cast<std::int32_t>(ranges_.size());
    for (const TensorId input : each.inputs) {
      std::int32_t& maker = made_in[static_cast<std::size_t>(input)];
      if (maker != number) {
        maker = number;  // once is enough
        range.inputs.push_back(input);
      }
    }
    for (const TensorId output : each.outputs) {
      made_in[static_cast<std::size_t>(output)] = number;
    }
    if (trained(i) && (!rule(i).saved.empty() || rule(i).kept.count > 0)) {
      range.recomputed_until = saves_own_results(i) ? i + 1 : i;
    }
  }
}

// kSelectiveHalf: the first, third, ... matrix product of a block, as torchtitan's policy counts them;
// attention always (torchtitan, parallelize_llama.py: _get_custom_policy).
void GraphPlan::find_kept_results(crds::ActivationCheckpointing checkpointing) {
  using crds::ActivationCheckpointing;
  const bool half = checkpointing == ActivationCheckpointing::kSelectiveHalf;
  if (!half && checkpointing != ActivationCheckpointing::kSelective) {
    return;
  }
  keeps_result_.assign(static_cast<std::size_t>(graph_.op_count()), false);
  for (const Range& range : ranges_) {
    bool second = false;
    for (std::int32_t i = range.begin; i < range.end; ++i) {
      if (!rule(i).expensive || !trained(i)) {
        continue;
      }
      const bool product = op(i).kind != OpKind::kAttention;
      keeps_result_[static_cast<std::size_t>(i)] = !(half && product && second);
      second = product ? !second : second;
    }
  }
}

GraphPass::GraphPass(const GraphPlan& plan, Ledger& ledger, ParameterLifeCycle& parameters,
                     std::size_t first_parameter, std::int32_t first_tensor)
    : plan_(plan),
      ledger_(ledger),
      parameters_(parameters),
      first_parameter_(first_parameter),
      first_tensor_(first_tensor),
      saved_(static_cast<std::size_t>(plan.graph().op_count()), false, plan.budget()),
      kept_(static_cast<std::size_t>(plan.graph().op_count()), -1, plan.budget()),
      storages_(plan.graph().tensors().size(), plan.budget()),
      held_(plan.graph().tensors().size(), false, plan.budget()),
      pending_(plan.graph().tensors().size(), plan.budget()),
      missing_(plan.graph().tensors().size(), 0, plan.budget()),
      gradients_(plan.budget()) {
  gradients_.reserve(plan.graph().tensors().size());
  for (std::size_t i = 0; i < missing_.size(); ++i) {
    missing_[i] = plan.gradient_parts(static_cast<TensorId>(i));
  }
}

void GraphPass::forward(bool keeps_result) {
  std::int32_t unit = kNoUnit;
  parameters_.enter_forward(kRootUnit);
  for (const GraphPlan::Range& range : plan_.ranges()) {
    if (op(range.begin).unit != unit) {
      parameters_.leave_forward(unit);
      unit = op(range.begin).unit;
      parameters_.enter_forward(unit);
    }
    run(range, range.recomputed ? Pass::kDropping : Pass::kSaving);
  }
  parameters_.leave_forward(unit);
  parameters_.end_forward();
  if (keeps_result) {
    for (std::int32_t i = plan_.graph().op_count(); result_ < 0 && i-- > 0;) {
      result_ = op(i).outputs.empty() ? -1 : op(i).outputs.front();
    }
    if (result_ >= 0 && made_by_an_op(result_)) {
      refer(result_);
    }
  }
}

void GraphPass::backward() {
  std::int32_t unit = kNoUnit;
  const BudgetVector<GraphPlan::Range>& ranges = plan_.ranges();
  const std::size_t half = ranges.size() / 2;
  for (auto range = ranges.rbegin(); range != ranges.rend(); ++range) {
    if (static_cast<std::size_t>(range - ranges.rbegin()) == half) {
      ledger_.enter_late_backward();
    }
    if (op(range->begin).unit != unit) {
      parameters_.leave_backward(unit);
      unit = op(range->begin).unit;
      std::int32_t next = kRootUnit;
      for (auto before = range; before != ranges.rend() && (next == kRootUnit || next == unit); ++before) {
        next = op(before->begin).unit;
      }
      parameters_.enter_backward(unit, next == unit ? kRootUnit : next);
    }
    if (range->recomputed) {
      run(*range, Pass::kAgain);
    }
    for (std::int32_t i = range->end; i-- > range->begin;) {
      backward(i);
    }
    if (range->recomputed) {
      for (const TensorId input : range->inputs) {
        drop(input);
      }
    }
  }
  parameters_.leave_backward(unit);
  parameters_.end_backward();
}

void GraphPass::refer(TensorId id) {
  if (made_by_an_op(id)) {
    ++storage(id).references;
  }
}

void GraphPass::drop(TensorId id) {
  if (made_by_an_op(id)) {
    Storage& dropped = storage(id);
    assert(dropped.references > 0);
    if (--dropped.references == 0) {
      ledger_.release(dropped.block);
      dropped.block = -1;
    }
  }
}

void GraphPass::hold(TensorId id) {
  Storage& held = storage(id);
  if (held.references == 0) {
    const TensorId owner = tensor(id).storage;
    held.block =
        marked(ledger_.allocate(Part::kActivations, plan_.bytes_of_one(owner), tensor(owner).count), owner);
  }
  ++held.references;
  held_[index(id)] = true;
}

void GraphPass::let_go(TensorId id) {
  if (made_by_an_op(id) && held_[index(id)]) {
    held_[index(id)] = false;
    drop(id);
  }
}

// An operator's results, and what it makes for its backward.
void GraphPass::make(std::int32_t i) {
  if (rule(i).kept.count > 0) {
    kept_[index(i)] = marked(ledger_.allocate(Part::kActivations, rule(i).kept), op(i).outputs[0]);
  }
  std::optional<BlockId> temporary;
  if (rule(i).forward_temporary.count > 0) {
    temporary = marked(ledger_.allocate(Part::kTemporaries, rule(i).forward_temporary), op(i).outputs[0]);
  }
  for (const TensorId output : op(i).outputs) {
    hold(output);
  }
  if (temporary) {
    ledger_.release(*temporary);
  }
}

void GraphPass::save(std::int32_t i) {
  for (const std::int16_t saved : rule(i).saved) {
    refer(saved_tensor(op(i), saved));
  }
  saved_[index(i)] = true;
}

void GraphPass::forget_kept(std::int32_t i) {
  if (kept_[index(i)] >= 0) {
    ledger_.release(kept_[index(i)]);
    kept_[index(i)] = -1;
  }
}

// An operator that the second forward does not reach: it saves what is there.
void GraphPass::leave_out(std::int32_t i) {
  if (plan_.keeps_result(i)) {
    for (const TensorId output : op(i).outputs) {
      drop(output);
    }
  }
  if (plan_.trained(i)) {
    save(i);
  }
}

void GraphPass::run(const GraphPlan::Range& range, Pass pass) {
  if (pass == Pass::kDropping) {
    for (const TensorId input : range.inputs) {
      refer(input);
    }
  }
  for (std::int32_t i = range.begin; i < range.end; ++i) {
    charge(plan_.budget(), 1);
    if (pass == Pass::kAgain && i >= range.recomputed_until) {
      leave_out(i);
      continue;
    }
    make(i);
    for (const TensorId output : op(i).outputs) {
      if (pass == Pass::kDropping && plan_.keeps_result(i)) {
        refer(output);
      } else if (pass == Pass::kAgain && plan_.keeps_result(i)) {
        drop(output);  // the result kept from the first pass is the one held now
      }
    }
    if (pass != Pass::kDropping && plan_.trained(i)) {
      save(i);
    } else {
      forget_kept(i);
    }
    for (const TensorId input : op(i).inputs) {
      if (plan_.last_use(input) == i) {
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

std::int32_t GraphPass::new_gradient(TensorId of) {
  const Part part = tensor(of).role == TensorRole::kParameter ? Part::kGradients : Part::kTemporaries;
  gradients_.push_back({marked(ledger_.allocate(part, plan_.bytes_of_one(of), tensor(of).count), of), 1});
  return static_cast<std::int32_t>(gradients_.size()) - 1;
}

void GraphPass::release_gradient(std::int32_t id) {
  Gradient& gradient = gradients_[index(id)];
  assert(gradient.references > 0);
  if (--gradient.references == 0) {
    ledger_.release(gradient.block);
  }
}

void GraphPass::backward(std::int32_t i) {
  if (!plan_.trained(i)) {
    return;
  }
  charge(plan_.budget(), 1);
  const Op op = plan_.op(i);
  const AutogradRule& rule = plan_.rule(i);
  // Gradients of the outputs: given by the users, received from the next stage, or 1 for the loss.
  given_.clear();
  bool part = false;
  for (const TensorId output : op.outputs) {
    const Pending pending = std::exchange(pending_[index(output)], Pending{});
    given_.push_back(pending.gradient >= 0 ? pending.gradient : new_gradient(output));
    part = part || pending.part;
    if (output == result_) {
      result_ = -1;
      drop(output);
    }
  }
  std::optional<BlockId> temporary;
  if (rule.backward_temporary.count > 0) {
    temporary = marked(ledger_.allocate(Part::kTemporaries, rule.backward_temporary), op.outputs[0]);
  }
  made_.clear();
  for (std::size_t j = 0; j < op.inputs.size(); ++j) {
    const TensorId input = op.inputs[j];
    const InputGradient gradient = rule.gradients[j];
    switch (gradient) {
      case InputGradient::kNone: break;
      case InputGradient::kNew:
      case InputGradient::kNewView:
        made_.emplace_back(input, Pending{new_gradient(input), gradient == InputGradient::kNewView});
        break;
      case InputGradient::kAlias:
      case InputGradient::kPart:
        ++gradients_[index(given_.front())].references;
        made_.emplace_back(input, Pending{given_.front(), part || gradient == InputGradient::kPart});
        break;
    }
  }
  if (temporary) {
    ledger_.release(*temporary);
  }
  for (const std::int32_t gradient : given_) {
    release_gradient(gradient);
  }
  if (saved_[index(i)]) {
    saved_[index(i)] = false;
    for (const std::int16_t saved : rule.saved) {
      drop(saved_tensor(op, saved));
    }
    forget_kept(i);
  }
  for (const TensorId output : op.outputs) {
    let_go(output);  // only the loss is still held
  }
  for (const auto& [input, gradient] : made_) {
    accumulate(input, gradient);
  }
}

void GraphPass::accumulate(TensorId input, Pending added) {
  Pending& pending = pending_[index(input)];
  if (pending.gradient < 0) {
    pending = added;
  } else {
    const bool in_place = !pending.part && gradients_[index(pending.gradient)].references == 1;
    if (!in_place) {
      const std::int32_t sum = new_gradient(input);
      release_gradient(pending.gradient);
      pending = {sum, false};
    }
    release_gradient(added.gradient);
  }
  if (plan_.parameter(input) >= 0 && --missing_[index(input)] == 0) {
    if (gradients_[index(pending.gradient)].references > 1) {  // somebody else's too: it is copied
      const std::int32_t copy = new_gradient(input);
      release_gradient(pending.gradient);
      pending.gradient = copy;
    }
    parameters_.take_gradient(first_parameter_ + static_cast<std::size_t>(plan_.parameter(input)),
                              gradients_[index(pending.gradient)].block);
    pending = {};
  }
}

}  // namespace plimsoll::estimator
