#include "estimator/execute/run_trace.h"

#include <algorithm>
#include <cassert>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "estimator/kernels/temporaries.h"
#include "estimator/parallel/units.h"
#include "estimator/trace/liveness.h"
#include "estimator/trace/optimizer.h"
#include "estimator/trace/shapes.h"

namespace plimsoll::estimator::inline execute {
namespace {

constexpr std::int64_t kMasterWidth = 4;

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
  constexpr const char* kKinds[] = {"parameter", "buffer",     "input",    "output",
                                    "loss",      "activation", "gradient", "activation gradient"};
  return kKinds[static_cast<std::size_t>(role)];
}

const char* replicated_kind(Part part) {
  const bool gathered = part == Part::kInputs || part == Part::kActivations || part == Part::kTemporaries;
  return gathered ? "gathered or scattered" : estimator::kind_of(part);
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
    return invalid("the graph was recorded only at batch " + std::to_string(trace.batch_sizes.front()) +
                   " and is not valid for other batch sizes; export it again with --batch-size " +
                   std::to_string(request.batch / parts));
  }
  return {};
}

}  // namespace

// The iteration of one trainer: the order of events, and state that all passes share.
class TraceIteration {
 public:
  TraceIteration(const TraceProducer& producer, const TraceRunRequest& request, const OptimizerRun& optimizer,
                 Device device)
      : producer_(producer),
        request_(request),
        optimizer_(optimizer),
        run_(device == Device::kCuda ? kCudaGranule : 1, request.budget),
        memory_(request.budget) {}

  Result<TraceRun> run(std::span<const Trace* const> traces) && {
    for (const Trace* trace : traces) {
      if (Result<void> added = add_chunk(*trace); !added) {
        return added.error();
      }
    }
    reserve();
    persist();
    std::map<std::pair<std::int64_t, std::int64_t>, std::unique_ptr<Pass>> passes;
    for (const ScheduleStep& step : request_.schedule) {
      Chunk& chunk = chunks_[static_cast<std::size_t>(step.chunk)];
      std::unique_ptr<Pass>& pass = passes[{step.chunk, step.micro_batch}];
      if (step.forward) {
        pass = std::make_unique<Pass>(chunk, request_.budget);
        forward(chunk, *pass);
      } else {
        backward(chunk, *pass);
        release_results(chunk);
        chunk.last = std::move(pass);
        chunk.accumulating = true;
      }
    }
    step();
    return std::move(run_);
  }

 private:
  using Source = TraceRun::Source;

  // Data of a trace that is the same for all micro-batches.
  struct Static {
    TraceShapes shapes;
    TracePlan plan;
    TraceUnits units;
    KernelTemporaries kernels;
    std::vector<SteppedParameter> parameters;
    TimeTable complete_gradients;  // storages, by the operator that completes them
  };
  struct Pass;
  struct Chunk {
    std::int32_t id = 0;
    const Trace& trace;
    std::shared_ptr<const Static> at;     // equal chunks share one
    std::vector<SteppedParameter> own{};  // parameters that this class manages (sparse gradients)
    std::vector<std::int32_t> shared{};   // by storage: its parameter in the life cycle; -1: none
    std::unique_ptr<Pass> last{};         // the last finished pass; its gradients and results are still live
    bool accumulating = false;            // an earlier pass has left gradients
    std::int32_t first_unit = 0;          // number of the chunk's first unit in the life cycle
  };
  // One micro-batch's forward and backward pass through a chunk.
  struct Pass {
    Pass(const Chunk& chunk, Budget* budget) : blocks(chunk.trace.storages.size(), -1, budget) {}

    BudgetVector<BlockId> blocks;                     // by storage; -1: not live
    std::multimap<std::int32_t, BlockId> recomputed;  // by the time when they are freed
    std::size_t next_unit = 0;
    std::size_t next_recomputation = 0;
  };
  // A parameter that the life cycle manages.
  struct Shared {
    std::int32_t chunk = 0;
    std::size_t parameter = 0;
  };

  // ---- the ledger ----

  BlockId allocate(Part part, Bytes bytes, std::int64_t count, TraceRun::Origin origin) {
    const BlockId block = run_.ledger.allocate(part, bytes, count);
    assert(static_cast<std::size_t>(block) == run_.origins_.size());
    run_.origins_.push_back(origin);
    return block;
  }

  BlockId allocate_storage(const Chunk& chunk, std::int32_t storage, Source source) {
    const TraceStorage& of = chunk.trace.storages[index(storage)];
    const Bytes bytes = chunk.at->shapes.storage(storage);
    const Part part = source == Source::kRecomputed ? Part::kActivations : part_of(of.role);
    return bytes.count > 0 ? allocate(part, bytes, of.count, {source, chunk.id, storage}) : -1;
  }

  void release(BlockId& block) {
    if (block >= 0) {
      run_.ledger.release(block);
      block = -1;
    }
  }

  void use_kernel(const Chunk& chunk, std::int32_t op) {
    const Bytes bytes = chunk.at->kernels.inside[index(op)];
    const TraceRun::Origin origin{Source::kKernel, chunk.id, op};
    if (bytes.count > 0) {
      run_.ledger.release(allocate(Part::kTemporaries, bytes, 1, origin));
    }
    const std::vector<Bytes>& workspaces = chunk.at->kernels.workspaces;
    if (!workspaces.empty() && workspaces[index(op)].count > 0) {
      run_.ledger.release(run_.ledger.allocate_dispensable(Part::kTemporaries, workspaces[index(op)]));
      run_.origins_.push_back(origin);
    }
  }

  // ---- before the iteration ----

  Result<void> add_chunk(const Trace& trace) {
    Chunk& chunk = chunks_.emplace_back(
        Chunk{.id = static_cast<std::int32_t>(chunks_.size()), .trace = trace, .at = nullptr});
    run_.traces_.push_back(&trace);
    const auto same = std::find_if(chunks_.begin(), chunks_.end(),
                                   [&](const Chunk& other) { return &other.trace == &trace; });
    if (same->at != nullptr) {
      chunk.at = same->at;
      return {};
    }
    memory_.resize(memory_.bytes() + memory_of(trace));  // for lists as long as the trace's
    Result<TraceShapes> shapes =
        TraceShapes::at(trace, request_.batch / request_.gradient_accumulation,
                        {.halve_floats = request_.halve_floats, .budget = request_.budget});
    if (!shapes) {
      return shapes.error();
    }
    Result<TracePlan> plan = plan_trace(trace, request_.reentrant_checkpointing ? 0 : producer_.version,
                                        request_.checkpointing, request_.checkpoint_modules, request_.budget);
    if (!plan) {
      return plan.error();
    }
    Result<KernelTemporaries> kernels =
        kernel_temporaries(trace, *shapes, producer_,
                           {.gpu_family = request_.gpu_family,
                            .convolution_workspace = request_.convolution_workspace,
                            .lenient = request_.lenient,
                            .budget = request_.budget});
    if (!kernels) {
      return kernels.error();
    }
    run_.warnings.insert(run_.warnings.end(), kernels->warnings.begin(), kernels->warnings.end());
    std::vector<SteppedParameter> parameters = stepped_parameters(trace, *shapes);
    chunk.at = std::make_shared<const Static>(Static{.shapes = *std::move(shapes),
                                                     .plan = *std::move(plan),
                                                     .units = units_of(trace),
                                                     .kernels = *std::move(kernels),
                                                     .parameters = std::move(parameters),
                                                     .complete_gradients = complete_gradients(trace)});
    return {};
  }

  // Reserves the lists at once: a large model has tens of thousands of blocks.
  void reserve() {
    std::size_t blocks = 0;
    for (const Chunk& chunk : chunks_) {
      blocks += chunk.trace.parameters.size() * 4;  // fp32 copy, state, two temporaries of the step
    }
    for (const ScheduleStep& step : request_.schedule) {
      const Chunk& chunk = chunks_[static_cast<std::size_t>(step.chunk)];
      blocks += step.forward ? chunk.trace.storages.size() + chunk.trace.temporaries.size() : 0;
    }
    run_.ledger.reserve(blocks, blocks * 2);
    run_.origins_.reserve(blocks);
  }

  // The gradients that are complete after each operator.
  static TimeTable complete_gradients(const Trace& trace) {
    std::vector<std::int32_t> last(trace.storages.size(), -1);
    for (std::size_t op = index(trace.loss_end); op < trace.operators.size(); ++op) {
      const Span outputs = trace.operators[op].outputs;
      for (std::int32_t at = outputs.begin; at < outputs.begin + outputs.size; ++at) {
        const std::int32_t tensor = trace.operands[index(at)];
        const std::int32_t storage = tensor < 0 ? -1 : trace.tensors[index(tensor)].storage;
        if (storage >= 0 && trace.storages[index(storage)].role == StorageRole::kGradient) {
          last[index(storage)] = static_cast<std::int32_t>(op);
        }
      }
    }
    return TimeTable(last, trace.operators.size());
  }

  // Allocates everything that stays live from iteration to iteration.
  void persist() {
    BudgetVector<ReplicaParameter> replicated(request_.budget);
    std::int32_t units = 0;  // of the previous chunks
    for (Chunk& chunk : chunks_) {
      units = share(chunk, units, replicated);
    }
    for (Chunk& chunk : chunks_) {
      for (std::size_t i = 0; i < chunk.trace.storages.size(); ++i) {
        if (chunk.trace.storages[i].allocated_at < 0 && chunk.shared[i] < 0) {
          allocate_storage(chunk, static_cast<std::int32_t>(i), Source::kStorage);
        }
      }
    }
    life_.emplace(life_ledger_, request_.replication, std::move(replicated), optimizer_, request_.budget);
    life_->persist();
    for (const Chunk& chunk : chunks_) {
      for (const SteppedParameter& stepped : chunk.own) {
        for (const Bytes bytes : optimizer_state(optimizer_, stepped)) {
          if (bytes.count > 0) {
            allocate(Part::kOptimizerState, bytes, 1,
                     {Source::kState, chunk.id, static_cast<std::int32_t>(stepped.id)});
          }
        }
      }
    }
  }

  bool alone() const {
    return request_.replication.replicas == 1 &&
           request_.replication.strategy == crds::ParallelStrategy::kAuto;
  }

  // Moves the parameters with dense gradients to the life cycle, which distributes them over the trainers.
  // DDP has no buckets for sparse gradients (reducer.cpp: expect_sparse_gradient). Returns the number of
  // units so far.
  std::int32_t share(Chunk& chunk, std::int32_t first_unit, BudgetVector<ReplicaParameter>& replicated) {
    std::int32_t end_unit = first_unit;
    chunk.shared.assign(chunk.trace.storages.size(), -1);
    for (const SteppedParameter& stepped : chunk.at->parameters) {
      if (stepped.sparse) {
        chunk.own.push_back(stepped);
        continue;
      }
      charge(request_.budget, 1);
      const TraceParameter& parameter = chunk.trace.parameters[stepped.id];
      const TensorView view = chunk.at->shapes.tensor_of(parameter.layout, parameter.dtype);
      const std::int32_t unit = chunk.at->units.of_parameter[stepped.id];
      replicated.push_back({.elements = view.elements,
                            .rows = stepped.rows,
                            .columns = stepped.columns,
                            .first = view.shape.empty() ? 1 : view.shape.front(),
                            .width = view.width,
                            .optimizer_width = request_.keeps_fp32 ? kMasterWidth : view.width,
                            .count = chunk.trace.storages[index(parameter.storage)].count,
                            .unit = unit == kRootUnit ? unit : first_unit + unit,
                            .separate_step = has_separate_step(stepped.id)});
      end_unit = std::max(end_unit, first_unit + unit + 1);
      chunk.shared[index(parameter.storage)] = static_cast<std::int32_t>(shared_.size());
      chunk.shared[index(parameter.gradient.front())] = static_cast<std::int32_t>(shared_.size());
      shared_.push_back({chunk.id, stepped.id});
    }
    for (const UnitEvent& event : chunk.at->units.events) {
      end_unit = std::max(end_unit, first_unit + event.unit + 1);
    }
    chunk.first_unit = first_unit;
    if (!chunk.own.empty() && !alone()) {
      run_.warnings.emplace_back(
          "sparse gradients are exchanged row by row; counted as if trainers looked up different rows");
    }
    return end_unit;
  }

  // Writes the life cycle's blocks to the ledger.
  class LifeLedger : public ParameterLedger {
   public:
    explicit LifeLedger(TraceIteration& iteration) : iteration_(iteration) {}
    BlockId allocate(Part part, Bytes bytes_of_one, std::int64_t count, std::size_t parameter) override {
      const Shared& of = iteration_.shared_[parameter];
      return iteration_.allocate(part, bytes_of_one, count,
                                 {iteration_.stepping_ ? Source::kStep : Source::kParameter, of.chunk,
                                  static_cast<std::int32_t>(of.parameter)});
    }
    void release(BlockId block) override { iteration_.run_.ledger.release(block); }

   private:
    TraceIteration& iteration_;
  };

  // ---- the iteration ----

  void forward(Chunk& chunk, Pass& pass) {
    run_.ledger.enter(Phase::kForward);
    release_results(chunk);  // the loop assigns new values to its variables
    if (request_.zero_grad_before_backward && !chunk.accumulating) {
      hold_last_gradients(chunk);
    }
    for (std::int32_t op = 0; op < chunk.trace.loss_end; ++op) {
      release_at(chunk, pass, op);
      execute(chunk, pass, op);
    }
    release_at(chunk, pass, chunk.trace.loss_end);
    if (run_.kept_after_forward.count == 0) {
      run_.kept_after_forward = kept(chunk, pass);
    }
  }

  // Frees what the last pass left, except gradients.
  void release_results(Chunk& chunk) {
    const std::unique_ptr<Pass> last = std::move(chunk.last);
    for (std::size_t i = 0; last && i < last->blocks.size(); ++i) {
      if (chunk.trace.storages[i].role != StorageRole::kGradient) {
        release(last->blocks[i]);
      }
    }
  }

  void backward(Chunk& chunk, Pass& pass) {
    for (BlockId& block : last_gradients_) {
      release(block);
    }
    last_gradients_.clear();
    run_.ledger.enter(Phase::kBackward);
    const auto end = static_cast<std::int32_t>(chunk.trace.operators.size());
    const std::int32_t late = chunk.trace.loss_end + (end - chunk.trace.loss_end) / 2;
    for (std::int32_t op = chunk.trace.loss_end; op < end; ++op) {
      if (op > chunk.trace.loss_end) {
        release_at(chunk, pass, op);
        take_gradients(chunk, pass, op - 1);
      }
      if (op == late) {
        run_.ledger.enter_late_backward();
      }
      execute(chunk, pass, op);
    }
    release_at(chunk, pass, end);
    if (end > chunk.trace.loss_end) {
      take_gradients(chunk, pass, end - 1);
    }
    pass_units(chunk, pass, end);
    for (auto& [until, block] : pass.recomputed) {
      release(block);
    }
    pass.recomputed.clear();
    life_->end_backward();
    if (!alone()) {
      exchange_sparse_gradients(chunk, pass);
    }
  }

  void execute(const Chunk& chunk, Pass& pass, std::int32_t op) {
    charge(request_.budget, 1);
    pass_units(chunk, pass, op);
    const std::vector<Recomputation>& recomputations = chunk.at->plan.recomputations;
    for (std::size_t& next = pass.next_recomputation;
         next < recomputations.size() && recomputations[next].at <= op; ++next) {
      if (recomputations[next].at >= 0) {
        recompute(chunk, pass, recomputations[next]);
      }
    }
    for (const std::int32_t storage : chunk.at->plan.births.at(index(op))) {
      pass.blocks[index(storage)] = allocate_storage(chunk, storage, Source::kStorage);
    }
    use_kernel(chunk, op);
  }

  void release_at(const Chunk& chunk, Pass& pass, std::int32_t time) {
    for (const std::int32_t storage : chunk.at->plan.deaths.at(index(time))) {
      release(pass.blocks[index(storage)]);
    }
    while (!pass.recomputed.empty() && pass.recomputed.begin()->first <= time) {
      release(pass.recomputed.begin()->second);
      pass.recomputed.erase(pass.recomputed.begin());
    }
  }

  void pass_units(const Chunk& chunk, Pass& pass, std::int32_t time) {
    const std::vector<UnitEvent>& events = chunk.at->units.events;
    const auto unit_of = [&](std::int32_t unit) {
      return unit == kRootUnit ? unit : chunk.first_unit + unit;
    };
    for (; pass.next_unit < events.size() && events[pass.next_unit].time <= time; ++pass.next_unit) {
      const UnitEvent& event = events[pass.next_unit];
      switch (event.kind) {
        case UnitEvent::Kind::kEnterForward: life_->enter_forward(unit_of(event.unit)); break;
        case UnitEvent::Kind::kLeaveForward: life_->leave_forward(unit_of(event.unit)); break;
        case UnitEvent::Kind::kEndForward: life_->end_forward(); break;
        case UnitEvent::Kind::kEnterBackward:
          life_->enter_backward(unit_of(event.unit), unit_of(event.next));
          break;
        case UnitEvent::Kind::kLeaveBackward: life_->leave_backward(unit_of(event.unit)); break;
      }
    }
  }

  void take_gradients(const Chunk& chunk, Pass& pass, std::int32_t op) {
    for (const std::int32_t storage : chunk.at->complete_gradients.at(index(op))) {
      BlockId& block = pass.blocks[index(storage)];
      const std::int32_t shared = chunk.shared[index(storage)];
      if (shared >= 0 && block >= 0) {
        life_->take_gradient(static_cast<std::size_t>(shared), std::exchange(block, -1));
      } else if (shared < 0 && chunk.accumulating) {  // added to the existing gradient, then freed
        release(block);
      }
    }
  }

  void hold_last_gradients(const Chunk& chunk) {
    last_gradients_ = life_->left_gradients();
    for (std::size_t i = 0; i < chunk.trace.storages.size(); ++i) {
      if (chunk.trace.storages[i].role == StorageRole::kGradient && chunk.shared[i] < 0) {
        last_gradients_.push_back(allocate_storage(chunk, static_cast<std::int32_t>(i), Source::kStorage));
      }
    }
  }

  // Sums sparse gradients: the rows of one trainer, then the gathered rows of all, then their sum
  // (ProcessGroupGloo.cpp: AsyncSparseAllreduceWork). The result has one row for each row that any trainer
  // used.
  void exchange_sparse_gradients(const Chunk& chunk, Pass& pass) {
    const std::int64_t replicas = request_.replication.replicas;
    for (const SteppedParameter& parameter : chunk.own) {
      constexpr std::int64_t kIndexWidth = 8;
      const TraceParameter& declared = chunk.trace.parameters[parameter.id];
      const TensorView view = chunk.at->shapes.tensor_of(declared.layout, declared.dtype);
      const std::int64_t rows = view.size(0);
      const Bytes row = Bytes{rows == 0 ? 0 : view.bytes().count / rows} + Bytes{kIndexWidth};
      const std::int64_t mine = std::min(rows, parameter.gradient.count / row.count);
      const TraceRun::Origin origin{Source::kParameter, chunk.id, static_cast<std::int32_t>(parameter.id)};
      const auto take = [&](std::int64_t count) {
        return allocate(Part::kTemporaries, row * count, 1, origin);
      };
      const BlockId coalesced = take(mine);
      const BlockId gathered = take(mine * replicas);
      const BlockId sum = take(mine * replicas);
      run_.ledger.release(gathered);
      run_.ledger.release(coalesced);
      for (const std::int32_t storage : declared.gradient) {
        release(pass.blocks[index(storage)]);
      }
      BlockId result = allocate(Part::kGradients, row * std::min(rows, mine * replicas), 1, origin);
      run_.ledger.release(sum);
      if (chunk.accumulating) {  // added to the existing gradient, then freed
        release(result);
      }
    }
  }

  static Bytes kept(const Chunk& chunk, const Pass& pass) {
    Bytes sum;
    for (std::size_t i = 0; i < pass.blocks.size(); ++i) {
      sum += pass.blocks[i] >= 0 ? chunk.at->shapes.storage(static_cast<std::int32_t>(i)) : Bytes{};
    }
    return sum;
  }

  // The second forward pass of a checkpointed block.
  void recompute(const Chunk& chunk, Pass& pass, const Recomputation& again) {
    std::vector<BlockId> blocks(again.storages.size(), -1);
    std::size_t next = 0;
    charge(request_.budget, again.storages.size());
    for (std::int32_t op = again.begin; op < again.end; ++op) {
      charge(request_.budget, 1);
      const std::size_t step = index(op - again.begin);
      for (; next < again.storages.size() &&
             chunk.trace.storages[index(again.storages[next].storage)].allocated_at == op;
           ++next) {
        const std::int32_t storage = again.storages[next].storage;
        blocks[next] = again.skipped[step] ? std::exchange(pass.blocks[index(storage)], -1)
                                           : allocate_storage(chunk, storage, Source::kRecomputed);
      }
      if (!again.skipped[step]) {
        use_kernel(chunk, op);
      }
      for (const std::int32_t each : again.releases.at(step)) {
        release(blocks[index(each)]);
      }
    }
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      if (blocks[i] >= 0 && again.storages[i].released_at >= 0) {
        pass.recomputed.emplace(again.storages[i].released_at, blocks[i]);
      } else {
        release(blocks[i]);
      }
    }
  }

  // ---- the optimizer ----

  class Step : public StepLedger {
   public:
    Step(TraceIteration& iteration, std::int32_t chunk, const std::vector<SteppedParameter>& stepped)
        : iteration_(iteration), chunk_(chunk), stepped_(stepped) {}
    BlockId allocate(std::size_t parameter, Bytes bytes) override {
      return iteration_.allocate(Part::kTemporaries, bytes, 1,
                                 {Source::kStep, chunk_, static_cast<std::int32_t>(stepped_[parameter].id)});
    }
    void release(BlockId block) override { iteration_.run_.ledger.release(block); }

   private:
    TraceIteration& iteration_;
    const std::int32_t chunk_;
    const std::vector<SteppedParameter>& stepped_;
  };

  bool has_separate_step(std::size_t parameter) const {
    return !request_.separate_step.empty() && request_.separate_step[parameter];
  }

  void step() {
    run_.ledger.enter(Phase::kOptimizerStep);
    stepping_ = true;
    life_->step();
    for (const Chunk& chunk : chunks_) {
      for (const bool separate : {true, false}) {
        std::vector<SteppedParameter> updated;
        std::copy_if(chunk.own.begin(), chunk.own.end(), std::back_inserter(updated),
                     [&](const SteppedParameter& each) { return has_separate_step(each.id) == separate; });
        Step ledger(*this, chunk.id, updated);
        optimizer_step(optimizer_, updated, ledger);
      }
    }
  }

  const TraceProducer& producer_;
  const TraceRunRequest& request_;
  const OptimizerRun& optimizer_;
  TraceRun run_;
  BudgetBytes memory_;  // of the data kept for each trace
  std::deque<Chunk> chunks_;
  std::vector<Shared> shared_;           // indexed as the life cycle's parameters
  std::vector<BlockId> last_gradients_;  // gradients of the previous iteration
  bool stepping_ = false;                // the optimizer step is running
  LifeLedger life_ledger_{*this};
  std::optional<ParameterLifeCycle> life_;
};

std::string TraceRun::name_of(BlockId block) const {
  const Origin& origin = origins_[index(block)];
  const Trace& trace = *traces_[index(origin.chunk)];
  const auto operator_name = [&](std::int32_t op) {
    const TraceOperator& called = trace.operators[index(op)];
    const std::string& module = called.module < 0 ? std::string() : trace.modules[index(called.module)];
    return (module.empty() ? "" : module + ": ") + trace.operator_names[index(called.name)];
  };
  if (origin.source == Source::kKernel) {
    return operator_name(origin.id);
  }
  if (origin.source == Source::kState || origin.source == Source::kStep ||
      origin.source == Source::kParameter) {
    return trace.parameters[index(origin.id)].name;
  }
  const TraceStorage& storage = trace.storages[index(origin.id)];
  for (const TraceParameter& parameter : trace.parameters) {
    const std::vector<std::int32_t>& gradient = parameter.gradient;
    if (parameter.storage == origin.id ||
        std::find(gradient.begin(), gradient.end(), origin.id) != gradient.end()) {
      return parameter.name;
    }
  }
  for (const TraceBuffer& buffer : trace.buffers) {
    if (buffer.storage == origin.id) {
      return buffer.name;
    }
  }
  return storage.allocated_at < 0 ? "input" : operator_name(storage.allocated_at);
}

const char* TraceRun::kind_of(BlockId block) const {
  const Origin& origin = origins_[index(block)];
  switch (origin.source) {
    case Source::kStorage: return kind_name(traces_[index(origin.chunk)]->storages[index(origin.id)].role);
    case Source::kRecomputed: return "recomputed activation";
    case Source::kKernel: return "kernel temporary";
    case Source::kState: return "optimizer state";
    case Source::kStep: return "optimizer temporary";
    case Source::kParameter: return replicated_kind(ledger.blocks()[index(block)].part);
  }
  return "";
}

Result<TraceRun> run_trace(std::span<const Trace* const> chunks, const TraceProducer& producer,
                           const TraceRunRequest& request) {
  assert(!chunks.empty());
  for (const Trace* trace : chunks) {
    if (Result<void> checked = check(*trace, request); !checked) {
      return checked.error();
    }
  }
  const Device device = chunks.front()->device;
  const Result<OptimizerRun> optimizer =
      optimizer_run(request.optimizer, request.implementation, device, producer.version);
  if (!optimizer) {
    return optimizer.error();
  }
  return TraceIteration(producer, request, *optimizer, device).run(chunks);
}

Result<TraceRun> run_trace(const Trace& trace, const TraceProducer& producer,
                           const TraceRunRequest& request) {
  TraceRunRequest whole = request;
  // All later micro-batches allocate the same as the second one.
  whole.schedule = pipeline_schedule(0, 1, 1, std::clamp<std::int64_t>(request.gradient_accumulation, 0, 2));
  const Trace* const chunks[] = {&trace};
  return run_trace(chunks, producer, whole);
}

}  // namespace plimsoll::estimator::execute
