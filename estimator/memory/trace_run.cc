#include "estimator/memory/trace_run.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>

#include "estimator/memory/fixed_costs.h"
#include "estimator/memory/kernel_formulas.h"
#include "estimator/memory/kernel_rules.h"
#include "estimator/memory/trace_optimizer.h"
#include "estimator/memory/trace_plan.h"
#include "estimator/memory/trace_shapes.h"
#include "estimator/memory/trace_units.h"

namespace plimsoll::estimator {
namespace {

std::size_t index(std::int32_t id) {
  return static_cast<std::size_t>(id);
}

Part part_of(StorageRole role) {
  switch (role) {
    case StorageRole::kParameter:
    case StorageRole::kBuffer: return Part::kParameters;
    case StorageRole::kInput: return Part::kInputs;
    case StorageRole::kOutput:
    case StorageRole::kLoss:
    case StorageRole::kActivation: return Part::kActivations;
    case StorageRole::kGradient: return Part::kGradients;
    case StorageRole::kBackward: return Part::kTemporaries;
  }
  return Part::kTemporaries;
}

const char* kind_name(StorageRole role) {
  switch (role) {
    case StorageRole::kParameter: return "parameter";
    case StorageRole::kBuffer: return "buffer";
    case StorageRole::kInput: return "input";
    case StorageRole::kOutput: return "output";
    case StorageRole::kLoss: return "loss";
    case StorageRole::kActivation: return "activation";
    case StorageRole::kGradient: return "gradient";
    case StorageRole::kBackward: return "activation gradient";
  }
  return "";
}

const char* replicated_kind(Part part) {
  switch (part) {
    case Part::kParameters: return "parameter";
    case Part::kGradients: return "gradient";
    case Part::kOptimizerState: return "optimizer state";
    case Part::kDdpBuckets: return "gradient bucket";
    case Part::kInputs:
    case Part::kActivations:
    case Part::kTemporaries: break;
  }
  return "gathered or scattered";
}

Result<void> check(const Trace& trace, const TraceRunRequest& request) {
  constexpr std::int64_t kMaxBatch = std::int64_t{1} << 32;
  if (request.batch < 1 || request.batch > kMaxBatch) {
    return invalid("the batch size must be from 1 to " + std::to_string(kMaxBatch) + ", is " +
                   std::to_string(request.batch));
  }
  const std::int64_t parts = request.gradient_accumulation;
  if (parts < 1 || request.batch % parts != 0) {
    return invalid("gradient accumulation must divide the batch of " + std::to_string(request.batch) +
                   ", is " + std::to_string(parts));
  }
  if (trace.batch_sizes.size() == 1 && trace.batch_sizes.front() != request.batch / parts) {
    return invalid("the graph was recorded at batch " + std::to_string(trace.batch_sizes.front()) +
                   " alone and holds for no other; export it again with --batch-size " +
                   std::to_string(request.batch / parts));
  }
  return {};
}

}  // namespace

class TraceIteration {
 public:
  TraceIteration(const Trace& trace, const TraceProducer& producer, const TraceRunRequest& request,
                 const TraceShapes& shapes, const TracePlan& plan, const OptimizerRun& optimizer)
      : trace_(trace),
        producer_(producer),
        request_(request),
        shapes_(shapes),
        plan_(plan),
        optimizer_(optimizer),
        run_(trace, trace.device == TraceDevice::kCuda ? kCudaGranule : 1, request.budget),
        memory_(request.budget, memory_of(trace)),
        blocks_(trace.storages.size(), -1) {}

  Result<TraceRun> run() && {
    if (Result<void> charged = charge_kernels(); !charged) {
      return charged.error();
    }
    own_ = stepped_parameters(trace_, shapes_);
    replicate();
    persist();
    for (std::int64_t part = 0; part < std::min<std::int64_t>(request_.gradient_accumulation, 2); ++part) {
      iterate(part > 0);
    }
    step();
    return std::move(run_);
  }

 private:
  using Source = TraceRun::Source;

  // ---- the ledger ----

  BlockId allocate(Part part, Bytes bytes, Source source, std::int32_t id) {
    const BlockId block = run_.ledger.allocate(part, bytes);
    assert(static_cast<std::size_t>(block) == run_.origins_.size());
    run_.origins_.push_back({source, id});
    return block;
  }

  void allocate_storage(std::int32_t storage) {
    const Bytes bytes = shapes_.storage(storage);
    if (bytes.count > 0 && blocks_[index(storage)] < 0) {
      blocks_[index(storage)] =
          allocate(part_of(trace_.storages[index(storage)].role), bytes, Source::kStorage, storage);
    }
  }

  void release(BlockId& block) {
    if (block >= 0) {
      run_.ledger.release(block);
      block = -1;
    }
  }

  // ---- kernels ----

  // What each operator takes inside, by operator; refuses those that are not known.
  Result<void> charge_kernels() {
    std::vector<const KernelRule*> rules;
    for (const std::string& name : trace_.operator_names) {
      rules.push_back(find_kernel_rule(name));
    }
    std::vector<bool> by_rule(trace_.operators.size(), !trace_.measured);
    for (const std::int32_t op : trace_.unmeasured) {
      by_rule[index(op)] = true;
    }
    std::set<std::string> unknown;
    inside_.assign(trace_.operators.size(), Bytes{});
    for (const TraceTemporary& temporary : trace_.temporaries) {
      inside_[index(temporary.op)] = Bytes{std::max<std::int64_t>(0, temporary.bytes.at(shapes_.batch()))};
    }
    for (std::size_t i = 0; i < trace_.operators.size(); ++i) {
      if (!by_rule[i]) {
        continue;
      }
      charge(request_.budget,
             index(trace_.operators[i].inputs.size) + index(trace_.operators[i].outputs.size) + 1);
      const KernelCall call(trace_, shapes_, producer_, i);
      const KernelRule* rule = rules[index(trace_.operators[i].name)];
      if (trace_.device == TraceDevice::kCuda) {
        workspaces_.push_back(
            kernels::cuda_convolution_workspace(trace_.operator_names[index(trace_.operators[i].name)], call,
                                                request_.gpu_family, request_.convolution_workspace));
      }
      if (rule == nullptr) {
        unknown.insert(trace_.operator_names[index(trace_.operators[i].name)]);
        inside_[i] = conservative_temporary(call);
      } else {
        inside_[i] = trace_.device == TraceDevice::kCpu ? rule->cpu(call) : rule->cuda(call);
      }
    }
    for (const std::string& name : unknown) {
      if (!request_.lenient) {
        return Error(ErrorCode::kUnsupported,
                     "there is no rule for what the operator " + name.substr(0, 120) +
                         " takes inside; with --lenient a conservative bound is taken instead");
      }
      run_.warnings.push_back("no rule for " + name.substr(0, 120) +
                              ": charged as much again as it reads and writes");
    }
    return {};
  }

  void use_kernel(std::int32_t op) {
    const Bytes bytes = inside_[index(op)];
    if (bytes.count > 0) {
      run_.ledger.release(allocate(Part::kTemporaries, bytes, Source::kKernel, op));
    }
    if (!workspaces_.empty() && workspaces_[index(op)].count > 0) {
      run_.ledger.release(run_.ledger.allocate_dispensable(Part::kTemporaries, workspaces_[index(op)]));
      run_.origins_.push_back({Source::kKernel, op});
    }
  }

  // ---- the iteration ----

  // ---- parallelism ----

  class Replicated : public ParameterLedger {
   public:
    explicit Replicated(TraceIteration& iteration) : iteration_(iteration) {}
    BlockId allocate(Part part, Bytes bytes_of_one, [[maybe_unused]] std::int64_t count,
                     std::size_t parameter) override {
      assert(count == 1);
      return iteration_.allocate(part, bytes_of_one, Source::kReplicated,
                                 static_cast<std::int32_t>(iteration_.shared_[parameter].id));
    }
    void release(BlockId block) override { iteration_.run_.ledger.release(block); }

   private:
    TraceIteration& iteration_;
  };

  // Hands the parameters with dense gradients over to their life cycle among trainers. DDP has no buckets for
  // sparse ones (reducer.cpp: expect_sparse_gradient).
  void replicate() {
    const bool alone =
        request_.replication.replicas == 1 && request_.replication.strategy == crds::ParallelStrategy::kAuto;
    if (alone) {
      return;
    }
    const auto sparse = std::stable_partition(own_.begin(), own_.end(),
                                              [](const SteppedParameter& each) { return each.sparse; });
    shared_.assign(sparse, own_.end());
    own_.erase(sparse, own_.end());
    if (!own_.empty()) {
      run_.warnings.emplace_back(
          "sparse gradients are exchanged row by row; counted as if trainers looked up different rows");
    }
    units_ = units_of(trace_);
    BudgetVector<HeldParameter> held(request_.budget);
    replicated_.assign(trace_.storages.size(), -1);
    for (std::size_t i = 0; i < shared_.size(); ++i) {
      const SteppedParameter& stepped = shared_[i];
      const TraceParameter& parameter = trace_.parameters[stepped.id];
      const TensorView view = shapes_.tensor_of(parameter.layout, parameter.dtype);
      held.push_back({.elements = view.elements,
                      .rows = stepped.rows,
                      .columns = stepped.columns,
                      .first = view.shape.empty() ? 1 : view.shape.front(),
                      .width = view.width,
                      .kept_width = view.width,
                      .count = 1,
                      .unit = units_.of_parameter[stepped.id],
                      .apart = steps_apart(stepped.id)});
      replicated_[index(parameter.storage)] = static_cast<std::int32_t>(i);
      replicated_[index(parameter.gradient.front())] = static_cast<std::int32_t>(i);
    }
    life_ = std::make_unique<ParameterLifeCycle>(replicated_ledger_, request_.replication, std::move(held),
                                                 optimizer_, request_.budget);
  }

  bool is_replicated(std::size_t storage) const { return life_ && replicated_[storage] >= 0; }

  void pass_units(std::int32_t time) {
    while (life_ && next_unit_ < units_.events.size() && units_.events[next_unit_].time <= time) {
      const UnitEvent& event = units_.events[next_unit_++];
      switch (event.kind) {
        case UnitEvent::Kind::kEnterForward: life_->enter_forward(event.unit); break;
        case UnitEvent::Kind::kLeaveForward: life_->leave_forward(event.unit); break;
        case UnitEvent::Kind::kEndForward: life_->end_forward(); break;
        case UnitEvent::Kind::kEnterBackward: life_->enter_backward(event.unit, event.next); break;
        case UnitEvent::Kind::kLeaveBackward: life_->leave_backward(event.unit); break;
      }
    }
  }

  void take_gradients(const TimeTable& complete, std::size_t op, bool accumulating) {
    for (const std::int32_t storage : complete.at(op)) {
      if (!is_replicated(index(storage))) {
        if (accumulating) {  // added to what is there
          release(blocks_[index(storage)]);
        }
      } else if (blocks_[index(storage)] >= 0) {
        life_->take_gradient(static_cast<std::size_t>(replicated_[index(storage)]),
                             std::exchange(blocks_[index(storage)], -1));
      }
    }
  }

  // What lives from iteration to iteration.
  void persist() {
    for (std::size_t i = 0; i < trace_.storages.size(); ++i) {
      if (trace_.storages[i].allocated_at < 0 && !is_replicated(i)) {
        allocate_storage(static_cast<std::int32_t>(i));
      }
    }
    if (life_) {
      life_->persist();
    }
    for (const SteppedParameter& stepped : own_) {
      for (const Bytes bytes : optimizer_state(optimizer_, stepped)) {
        if (bytes.count > 0) {
          allocate(Part::kOptimizerState, bytes, Source::kState, static_cast<std::int32_t>(stepped.id));
        }
      }
    }
  }

  void release_at(std::size_t time) {
    for (const std::int32_t storage : plan_.deaths.at(time)) {
      if (trace_.storages[index(storage)].allocated_at >= 0) {
        release(blocks_[index(storage)]);
      }
    }
  }

  // Forward, loss and backward. `accumulating`: gradients of an earlier part of the batch are there, and each
  // new one goes once it has been added.
  void iterate(bool accumulating) {
    std::vector<BlockId> first_gradients;
    if (accumulating) {
      for (std::size_t i = 0; i < trace_.storages.size(); ++i) {
        if (trace_.storages[i].role == StorageRole::kGradient) {
          first_gradients.push_back(std::exchange(blocks_[i], -1));
        } else if (trace_.storages[i].allocated_at >= 0) {
          release(blocks_[i]);
        }
      }
    }
    const TimeTable added = accumulating || life_ ? additions() : TimeTable();
    next_unit_ = 0;
    run_.ledger.enter(Phase::kForward);
    if (request_.zero_grad_before_backward && !accumulating) {
      hold_last_gradients();
    }
    auto pass = plan_.recomputations.begin();
    for (std::size_t op = 0; op <= trace_.operators.size(); ++op) {
      charge(request_.budget, 1);
      release_at(op);
      if ((life_ || accumulating) && op > 0) {
        take_gradients(added, op - 1, accumulating);
      }
      release_recomputed(static_cast<std::int32_t>(op));
      if (op == index(trace_.loss_end)) {
        run_.kept_after_forward = kept();
        for (BlockId& block : last_gradients_) {
          release(block);
        }
        last_gradients_.clear();
        run_.ledger.enter(Phase::kBackward);
      }
      pass_units(static_cast<std::int32_t>(op));
      for (; pass != plan_.recomputations.end() && pass->at <= static_cast<std::int32_t>(op); ++pass) {
        if (pass->at >= 0) {
          recompute(*pass);
        }
      }
      if (op < trace_.operators.size()) {
        for (const std::int32_t storage : plan_.births.at(op)) {
          allocate_storage(storage);
        }
        use_kernel(static_cast<std::int32_t>(op));
      }
    }
    for (auto& [until, block] : recomputed_) {
      release(block);
    }
    recomputed_.clear();
    if (life_) {
      life_->end_backward();
      exchange_sparse_gradients(accumulating);
    }
    if (accumulating) {
      gradients_ = std::move(first_gradients);
    }
  }

  void hold_last_gradients() {
    if (life_) {
      last_gradients_ = life_->left_gradients();
    }
    for (std::size_t i = 0; i < trace_.storages.size(); ++i) {
      const Bytes bytes = shapes_.storage(static_cast<std::int32_t>(i));
      if (trace_.storages[i].role == StorageRole::kGradient && !is_replicated(i) && bytes.count > 0) {
        last_gradients_.push_back(
            allocate(Part::kGradients, bytes, Source::kStorage, static_cast<std::int32_t>(i)));
      }
    }
  }

  // The sum of sparse gradients: each trainer's rows once, those of all gathered, and put together
  // (ProcessGroupGloo.cpp: AsyncSparseAllreduceWork). What remains has a row for each that anyone looked up.
  void exchange_sparse_gradients(bool accumulating) {
    const std::int64_t replicas = request_.replication.replicas;
    for (const SteppedParameter& parameter : own_) {
      constexpr std::int64_t kIndexWidth = 8;
      const TraceParameter& held = trace_.parameters[parameter.id];
      const TensorView view = shapes_.tensor_of(held.layout, held.dtype);
      const std::int64_t rows = view.size(0);
      const Bytes row = Bytes{rows == 0 ? 0 : view.bytes().count / rows} + Bytes{kIndexWidth};
      const std::int64_t mine = std::min(rows, parameter.gradient.count / row.count);
      const auto id = static_cast<std::int32_t>(parameter.id);
      const auto take = [&](std::int64_t count) {
        return allocate(Part::kTemporaries, row * count, Source::kReplicated, id);
      };
      const BlockId coalesced = take(mine);
      const BlockId gathered = take(mine * replicas);
      const BlockId sum = take(mine * replicas);
      run_.ledger.release(gathered);
      run_.ledger.release(coalesced);
      for (const std::int32_t storage : held.gradient) {
        release(blocks_[index(storage)]);
      }
      BlockId result =
          allocate(Part::kGradients, row * std::min(rows, mine * replicas), Source::kReplicated, id);
      run_.ledger.release(sum);
      if (accumulating) {  // added to what is there
        release(result);
      }
    }
  }

  // By operator: the gradients that are complete after it.
  TimeTable additions() const {
    std::vector<std::int32_t> last(trace_.storages.size(), -1);
    for (std::size_t op = index(trace_.loss_end); op < trace_.operators.size(); ++op) {
      const Span outputs = trace_.operators[op].outputs;
      for (std::int32_t at = outputs.begin; at < outputs.begin + outputs.size; ++at) {
        const std::int32_t tensor = trace_.operands[index(at)];
        const std::int32_t storage = tensor < 0 ? -1 : trace_.tensors[index(tensor)].storage;
        if (storage >= 0 && trace_.storages[index(storage)].role == StorageRole::kGradient) {
          last[index(storage)] = static_cast<std::int32_t>(op);
        }
      }
    }
    return TimeTable(last, trace_.operators.size());
  }

  Bytes kept() const {
    Bytes sum;
    for (std::size_t i = 0; i < trace_.storages.size(); ++i) {
      if (trace_.storages[i].allocated_at >= 0 && blocks_[i] >= 0) {
        sum += shapes_.storage(static_cast<std::int32_t>(i));
      }
    }
    return sum;
  }

  // ---- checkpointing ----

  void recompute(const Recomputation& pass) {
    std::vector<BlockId> made(pass.storages.size(), -1);
    std::size_t next = 0;
    charge(request_.budget, pass.storages.size());
    for (std::int32_t op = pass.begin; op < pass.end; ++op) {
      charge(request_.budget, 1);
      const std::size_t step = index(op - pass.begin);
      if (!pass.skipped[step]) {
        for (; next < pass.storages.size() &&
               trace_.storages[index(pass.storages[next].storage)].allocated_at == op;
             ++next) {
          const std::int32_t storage = pass.storages[next].storage;
          const Bytes bytes = shapes_.storage(storage);
          if (bytes.count > 0) {
            made[next] = allocate(Part::kActivations, bytes, Source::kRecomputed, storage);
          }
        }
        use_kernel(op);
      }
      for (const std::int32_t each : pass.releases.at(step)) {
        release(made[index(each)]);
      }
    }
    for (std::size_t i = 0; i < made.size(); ++i) {
      if (made[i] >= 0 && pass.storages[i].released_at >= 0) {
        recomputed_.emplace(pass.storages[i].released_at, made[i]);
      } else {
        release(made[i]);
      }
    }
  }

  void release_recomputed(std::int32_t time) {
    while (!recomputed_.empty() && recomputed_.begin()->first <= time) {
      release(recomputed_.begin()->second);
      recomputed_.erase(recomputed_.begin());
    }
  }

  // ---- the optimizer ----

  class Step : public StepLedger {
   public:
    Step(TraceIteration& iteration, const std::vector<SteppedParameter>& stepped)
        : iteration_(iteration), stepped_(stepped) {}
    BlockId allocate(std::size_t parameter, Bytes bytes) override {
      return iteration_.allocate(Part::kTemporaries, bytes, Source::kStep,
                                 static_cast<std::int32_t>(stepped_[parameter].id));
    }
    void release(BlockId block) override { iteration_.run_.ledger.release(block); }

   private:
    TraceIteration& iteration_;
    const std::vector<SteppedParameter>& stepped_;
  };

  bool steps_apart(std::size_t parameter) const {
    return !request_.stepped_apart.empty() && request_.stepped_apart[parameter];
  }

  void step() {
    run_.ledger.enter(Phase::kOptimizerStep);
    if (life_) {
      life_->step();
    }
    for (const bool apart : {true, false}) {
      std::vector<SteppedParameter> updated;
      std::copy_if(own_.begin(), own_.end(), std::back_inserter(updated),
                   [&](const SteppedParameter& each) { return steps_apart(each.id) == apart; });
      Step ledger(*this, updated);
      optimizer_step(optimizer_, updated, ledger);
    }
  }

  const Trace& trace_;
  const TraceProducer& producer_;
  const TraceRunRequest& request_;
  const TraceShapes& shapes_;
  const TracePlan& plan_;
  const OptimizerRun& optimizer_;
  TraceRun run_;
  const BudgetBytes memory_;                         // of the lists below
  std::vector<BlockId> blocks_;                      // by storage; -1: not alive
  std::vector<BlockId> gradients_;                   // of earlier parts of the batch
  std::vector<BlockId> last_gradients_;              // of the iteration before
  std::multimap<std::int32_t, BlockId> recomputed_;  // by the time when they die
  std::vector<Bytes> workspaces_;                    // by operator: what cuDNN takes; empty on the CPU
  std::vector<Bytes> inside_;                        // by operator: what its kernel takes
  std::vector<SteppedParameter> own_;                // parameters that the iteration keeps itself
  std::vector<SteppedParameter> shared_;             // ... that life_ keeps
  Replicated replicated_ledger_{*this};
  std::unique_ptr<ParameterLifeCycle> life_;  // null: one trainer
  std::vector<std::int32_t> replicated_;      // by storage: the place in shared_ of its parameter, -1 else
  TraceUnits units_;
  std::size_t next_unit_ = 0;
};

std::string TraceRun::name_of(BlockId block) const {
  const Origin& origin = origins_[index(block)];
  const auto operator_name = [this](std::int32_t op) {
    const TraceOperator& called = trace_->operators[index(op)];
    const std::string& module = called.module < 0 ? std::string() : trace_->modules[index(called.module)];
    return (module.empty() ? "" : module + ": ") + trace_->operator_names[index(called.name)];
  };
  if (origin.source == Source::kKernel) {
    return operator_name(origin.id);
  }
  if (origin.source == Source::kState || origin.source == Source::kStep ||
      origin.source == Source::kReplicated) {
    return trace_->parameters[index(origin.id)].name;
  }
  const TraceStorage& storage = trace_->storages[index(origin.id)];
  for (const TraceParameter& parameter : trace_->parameters) {
    const std::vector<std::int32_t>& gradient = parameter.gradient;
    if (parameter.storage == origin.id ||
        std::find(gradient.begin(), gradient.end(), origin.id) != gradient.end()) {
      return parameter.name;
    }
  }
  for (const TraceBuffer& buffer : trace_->buffers) {
    if (buffer.storage == origin.id) {
      return buffer.name;
    }
  }
  return storage.allocated_at < 0 ? "input" : operator_name(storage.allocated_at);
}

const char* TraceRun::kind_of(BlockId block) const {
  const Origin& origin = origins_[index(block)];
  switch (origin.source) {
    case Source::kStorage: return kind_name(trace_->storages[index(origin.id)].role);
    case Source::kRecomputed: return "recomputed activation";
    case Source::kKernel: return "kernel temporary";
    case Source::kState: return "optimizer state";
    case Source::kStep: return "optimizer temporary";
    case Source::kReplicated: return replicated_kind(ledger.blocks()[index(block)].part);
  }
  return "";
}

Result<TraceRun> run_trace(const Trace& trace, const TraceProducer& producer,
                           const TraceRunRequest& request) {
  if (Result<void> checked = check(trace, request); !checked) {
    return checked.error();
  }
  const Result<OptimizerRun> optimizer =
      optimizer_run(request.optimizer, request.implementation, trace.device, producer.version);
  if (!optimizer) {
    return optimizer.error();
  }
  const Result<TraceShapes> shapes =
      TraceShapes::at(trace, request.batch / request.gradient_accumulation,
                      {.halve_floats = request.halve_floats, .budget = request.budget});
  if (!shapes) {
    return shapes.error();
  }
  const Result<TracePlan> plan =
      plan_trace(trace, request.reentrant_checkpointing ? 0 : producer.version, request.checkpointing,
                 request.checkpoint_modules, request.budget);
  if (!plan) {
    return plan.error();
  }
  return TraceIteration(trace, producer, request, *shapes, *plan, *optimizer).run();
}

}  // namespace plimsoll::estimator
