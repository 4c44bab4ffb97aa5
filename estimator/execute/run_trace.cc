#include "estimator/execute/run_trace.h"

#include <algorithm>
#include <cassert>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "estimator/execute/life_script.h"
#include "estimator/execute/prepared_trace.h"
#include "estimator/execute/recorded_run.h"
#include "estimator/execute/shared_parameters.h"
#include "estimator/parallel/stage_memory.h"
#include "estimator/trace/optimizer.h"

namespace plimsoll::estimator::inline execute {
namespace {

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
        shared_(request) {}

  Result<TraceRun> run(std::span<const Trace* const> traces) && {
    for (const Trace* trace : traces) {
      if (Result<void> added = add_chunk(*trace); !added) {
        return added.error();
      }
    }
    if (request_.prepared != nullptr && can_record()) {
      if (std::optional<TraceRun> resized = resize_recorded()) {
        return *std::move(resized);
      }
      if (request_.prepared->is_searched()) {
        script_.emplace(request_.budget);
      }
    }
    stage_memory_ = stage_memory_of(producer_.version, static_cast<std::int64_t>(chunks_.size()),
                                    request_.replication.strategy);
    reserve();
    persist();
    keep_unscheduled();
    run_.host = life_->host_memory(request_.saving);
    if (request_.between) {
      run_between();
      return std::move(run_);
    }
    std::map<std::pair<std::int64_t, std::int64_t>, std::unique_ptr<Pass>> passes;
    for (const ScheduleStep& step : request_.schedule) {
      Chunk& chunk = chunks_[static_cast<std::size_t>(step.chunk)];
      std::unique_ptr<Pass>& pass = passes[{step.chunk, step.micro_batch}];
      if (step.forward) {
        pass = std::make_unique<Pass>(chunk, request_.budget);
        forward(chunk, *pass);
      } else {
        // scale(loss) is live while its backward runs, and so is its gradient.
        BlockId scaled = scales() ? allocate_number(Part::kActivations) : -1;
        backward(chunk, *pass);
        release(scaled);
        release_results(chunk);
        chunk.last = std::move(pass);
        chunk.accumulating = true;
        if (--chunk.micro_batches == 0) {
          ask({LifeCall::Kind::kEndAccumulation, chunk.parameters.first_unit, chunk.parameters.end_unit});
        }
      }
    }
    merge_results();
    step();
    if (script_) {
      request_.prepared->recorded() = std::make_shared<const RecordedRun>(
          RecordedRun{run_, *std::move(script_), shared_.origins(), run_.traces_, request_.schedule});
    }
    return std::move(run_);
  }

 private:
  using Source = TraceRun::Source;

  struct Pass;
  struct Chunk {
    std::int32_t id = 0;
    const Trace& trace;
    std::shared_ptr<const PreparedTrace> at;  // equal chunks share one
    ChunkParameters parameters{};
    std::unique_ptr<Pass> last{};    // the last finished pass; its gradients and results are still live
    bool accumulating = false;       // an earlier pass has left gradients
    std::int64_t micro_batches = 0;  // whose backward has not ended
    StageExchange exchange{};        // of a pipeline
  };
  // One micro-batch's forward and backward pass through a chunk.
  struct Pass {
    Pass(const Chunk& chunk, Budget* budget) : blocks(chunk.trace.storages.size(), -1, budget) {}

    BudgetVector<BlockId> blocks;                     // by storage; -1: not live
    std::multimap<std::int32_t, BlockId> recomputed;  // by the time when they are freed
    std::size_t next_unit = 0;
    std::size_t next_recomputation = 0;
  };
  // ---- the ledger ----

  BlockId allocate(Part part, Bytes bytes, std::int64_t count, TraceRun::Origin origin,
                   StreamId stream = kComputeStream) {
    const BlockId block = run_.ledger.allocate(part, bytes, count, stream);
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
    std::shared_ptr<const PreparedTrace> none;
    std::shared_ptr<const PreparedTrace>& known =
        request_.prepared == nullptr ? none : request_.prepared->of(trace);
    if (known == nullptr) {
      Result<PreparedTrace> prepared = prepare_trace(trace, producer_, request_);
      if (!prepared) {
        return prepared.error();
      }
      known = std::make_shared<const PreparedTrace>(*std::move(prepared));
    }
    chunk.at = known;
    const KernelTemporaries& kernels = chunk.at->kernels;
    run_.convolutions.add(kernels.convolutions);
    run_.warnings.insert(run_.warnings.end(), kernels.warnings.begin(), kernels.warnings.end());
    return {};
  }

  // Reserves the lists at once: a large model has tens of thousands of blocks.
  void reserve() {
    std::size_t blocks = 0;
    for (const Chunk& chunk : chunks_) {
      blocks += chunk.trace.parameters.size() * 4;  // fp32 copy, state, two temporaries of the step
    }
    for (const ScheduleStep& step : request_.schedule) {
      Chunk& chunk = chunks_[static_cast<std::size_t>(step.chunk)];
      chunk.micro_batches += step.forward ? 1 : 0;
      blocks += step.forward ? chunk.trace.storages.size() + chunk.trace.temporaries.size() : 0;
    }
    run_.ledger.reserve(blocks, blocks * 2);
    run_.origins_.reserve(blocks);
  }

  // ---- exchanges of a pipeline (parallel/stage_memory.h) ----

  // Storages of a micro-batch that stay until the next iteration.
  bool stays(const Chunk& chunk, std::int32_t storage) const {
    const StageExchange& exchange = chunk.exchange;
    return (storage == exchange.result &&
            (exchange.last ? stage_memory_.last_outputs_stay : stage_memory_.outputs_stay)) ||
           (storage == exchange.sent_gradient && stage_memory_.sent_gradients_stay) ||
           (storage == exchange.received && exchange.last && stage_memory_.last_inputs_stay);
  }
  bool in_buffer(const Chunk& chunk, std::int32_t storage) const {
    return stage_memory_.buffers_stay &&
           (storage == chunk.exchange.received || storage == chunk.exchange.received_gradient);
  }

  // Allocates the receive buffers of all micro-batches, and what stays of those that are not in the schedule.
  void keep_unscheduled() {
    for (std::size_t i = 0; i < request_.exchanges.size(); ++i) {
      Chunk& chunk = chunks_[i];
      chunk.exchange = request_.exchanges[i];
      const std::int64_t unscheduled = request_.micro_batches - chunk.micro_batches;
      for (const std::int32_t storage : {chunk.exchange.received, chunk.exchange.received_gradient,
                                         chunk.exchange.result, chunk.exchange.sent_gradient}) {
        const std::int64_t count = storage < 0                 ? 0
                                   : in_buffer(chunk, storage) ? request_.micro_batches
                                   : stays(chunk, storage)     ? unscheduled
                                                               : 0;
        if (count > 0) {
          allocate(Part::kActivations, chunk.at->shapes.storage(storage), count,
                   {Source::kStorage, chunk.id, storage});
        }
      }
    }
  }

  // schedules.py: _merge_outputs concatenates the last stage's outputs when the schedule has ended.
  void merge_results() {
    for (const Chunk& chunk : chunks_) {
      if (stage_memory_.last_outputs_stay && chunk.exchange.last && chunk.exchange.result >= 0) {
        const Bytes one = chunk.at->shapes.storage(chunk.exchange.result);
        run_.ledger.release(allocate(Part::kTemporaries, one * request_.micro_batches, 1,
                                     {Source::kStorage, chunk.id, chunk.exchange.result}));
      }
    }
  }

  // Allocates everything that stays live from iteration to iteration.
  void persist() {
    for (Chunk& chunk : chunks_) {
      chunk.parameters = shared_.add(chunk.id, chunk.trace, *chunk.at);
    }
    run_.warnings.insert(run_.warnings.end(), shared_.warnings().begin(), shared_.warnings().end());
    BudgetVector<ReplicaParameter> replicated = shared_.take_parameters();
    for (Chunk& chunk : chunks_) {
      for (std::size_t i = 0; i < chunk.trace.storages.size(); ++i) {
        if (chunk.trace.storages[i].allocated_at < 0 && chunk.parameters.shared[i] < 0) {
          allocate_storage(chunk, static_cast<std::int32_t>(i), Source::kStorage);
        }
      }
      if (request_.averaged_model) {
        copy_model(chunk);
      }
    }
    run_.replicated.replication = request_.replication;
    run_.replicated.optimizer = optimizer_;
    run_.replicated.parameters = replicated;
    life_.emplace(life_ledger_, request_.replication, std::move(replicated), optimizer_, request_.budget);
    ask({LifeCall::Kind::kPersist});
    if (!request_.set_to_none) {
      ask({LifeCall::Kind::kKeepGradients});
    }
    if (scales()) {  // _scale and _growth_tracker (_lazy_init_scale_growth_tracker)
      allocate_number(Part::kOptimizerState);
      allocate_number(Part::kOptimizerState);
    }
    for (const Chunk& chunk : chunks_) {
      for (const SteppedParameter& stepped : chunk.parameters.own) {
        for (const Bytes bytes : optimizer_state(optimizer_, stepped)) {
          if (bytes.count > 0) {
            allocate(Part::kOptimizerState, bytes, 1,
                     {Source::kState, chunk.id, static_cast<std::int32_t>(stepped.id)});
          }
        }
      }
    }
  }

  // Of the first chunk.
  void run_between() {
    Chunk& chunk = chunks_.front();
    if (request_.set_to_none) {
      hold_last_gradients(chunk);
    }
    for (std::size_t i = 0; i < chunk.trace.storages.size(); ++i) {
      if (chunk.trace.storages[i].role == StorageRole::kInput && request_.between->inputs.count > 0) {
        allocate(Part::kInputs, request_.between->inputs, 1,
                 {Source::kStorage, chunk.id, static_cast<std::int32_t>(i)});
        break;
      }
    }
    if (request_.between->kind == BetweenIterations::Kind::kCheckpoint) {
      run_.ledger.enter(Phase::kOptimizerStep);
      life_->save(request_.saving);
      return;
    }
    Pass pass(chunk, request_.budget);
    forward(chunk, pass);
  }

  // A block of GradScaler is a number on the GPU (torch/amp/grad_scaler.py).
  BlockId allocate_number(Part part) {
    constexpr Bytes kNumber{4};
    return allocate(part, kNumber, 1, {Source::kStep, 0, 0});
  }

  // AveragedModel deep-copies the module and updates the copy in place (torch/optim/swa_utils.py).
  void copy_model(const Chunk& chunk) {
    for (std::size_t i = 0; i < chunk.trace.storages.size(); ++i) {
      if (part_of(chunk.trace.storages[i].role) == Part::kParameters) {
        allocate_storage(chunk, static_cast<std::int32_t>(i), Source::kStorage);
      }
    }
  }

  bool scales() const { return request_.grad_scaler && !chunks_.front().trace.parameters.empty(); }

  // Writes the life cycle's blocks to the ledger.
  class LifeLedger : public ParameterLedger {
   public:
    explicit LifeLedger(TraceIteration& iteration) : iteration_(iteration) {}
    BlockId allocate(Part part, Bytes bytes_of_one, std::int64_t count, std::size_t parameter,
                     StreamId stream) override {
      const SharedParameters::Origin& of = iteration_.shared_.origin(parameter);
      const BlockId block = iteration_.allocate(part, bytes_of_one, count,
                                                {iteration_.stepping_ ? Source::kStep : Source::kParameter,
                                                 of.chunk, static_cast<std::int32_t>(of.parameter)},
                                                stream);
      if (iteration_.script_) {
        iteration_.script_->allocated(block, parameter);
      }
      return block;
    }
    void release(BlockId block) override {
      iteration_.run_.ledger.release(block);
      if (iteration_.script_) {
        iteration_.script_->released(block);
      }
    }

   private:
    TraceIteration& iteration_;
  };

  void ask(const LifeCall& call) {
    if (script_) {
      script_->ask(*life_, call);
    } else {
      perform(*life_, call);
    }
  }

  // ---- other numbers of trainers ----

  bool can_record() const {
    return is_recordable(request_) && std::all_of(chunks_.begin(), chunks_.end(), [](const Chunk& chunk) {
             return is_recordable(chunk.trace, *chunk.at);
           });
  }

  // The recorded run for this number of trainers. Nothing: there is none, or the life cycle does something else.
  std::optional<TraceRun> resize_recorded() {
    const std::shared_ptr<const RecordedRun> recorded = request_.prepared->recorded();
    if (recorded == nullptr || !recorded->is_of(run_.traces_, request_)) {
      return std::nullopt;
    }
    std::optional<TraceRun> run = recorded->resized(request_, optimizer_);
    if (!run) {
      return std::nullopt;
    }
    const BudgetVector<ReplicaParameter>& parameters = run->replicated.parameters;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const SharedParameters::Origin& of = recorded->origins[i];
      shared_.warn_of_padding(chunks_[static_cast<std::size_t>(of.chunk)].trace.parameters[of.parameter].name,
                              parameters[i]);
    }
    run->warnings = std::move(run_.warnings);
    run->warnings.insert(run->warnings.end(), shared_.warnings().begin(), shared_.warnings().end());
    return run;
  }

  // ---- the iteration ----

  void forward(Chunk& chunk, Pass& pass) {
    run_.ledger.enter(Phase::kForward);
    release_results(chunk);  // the loop assigns new values to its variables
    if (request_.zero_grad_before_backward && request_.set_to_none && !chunk.accumulating) {
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
    ask({LifeCall::Kind::kEndBackward});
    if (!is_alone(request_.replication)) {
      exchange_sparse_gradients(chunk, pass);
    }
  }

  void execute(const Chunk& chunk, Pass& pass, std::int32_t op) {
    charge(request_.budget, 1);
    note_lookup(chunk, op);
    pass_units(chunk, pass, op);
    const std::vector<Recomputation>& recomputations = chunk.at->plan.recomputations;
    for (std::size_t& next = pass.next_recomputation;
         next < recomputations.size() && recomputations[next].at <= op; ++next) {
      if (recomputations[next].at >= 0) {
        recompute(chunk, pass, recomputations[next]);
      }
    }
    for (const std::int32_t storage : chunk.at->plan.births.at(index(op))) {
      if (!in_buffer(chunk, storage)) {
        pass.blocks[index(storage)] = allocate_storage(chunk, storage, Source::kStorage);
      }
    }
    use_kernel(chunk, op);
  }

  void note_lookup(const Chunk& chunk, std::int32_t op) {
    if (const auto found = chunk.at->lookups.find(op); found != chunk.at->lookups.end()) {
      run_.lookups.note(found->second, run_.ledger.live());
    }
  }

  void release_at(const Chunk& chunk, Pass& pass, std::int32_t time) {
    for (const std::int32_t storage : chunk.at->plan.deaths.at(index(time))) {
      if (stays(chunk, storage)) {
        pass.blocks[index(storage)] = -1;  // the next iteration frees it
      } else {
        release(pass.blocks[index(storage)]);
      }
    }
    while (!pass.recomputed.empty() && pass.recomputed.begin()->first <= time) {
      release(pass.recomputed.begin()->second);
      pass.recomputed.erase(pass.recomputed.begin());
    }
  }

  void pass_units(const Chunk& chunk, Pass& pass, std::int32_t time) {
    const std::vector<UnitEvent>& events = chunk.at->units.events;
    const auto unit_of = [&](std::int32_t unit) {
      return unit == kRootUnit ? unit : chunk.parameters.first_unit + unit;
    };
    for (; pass.next_unit < events.size() && events[pass.next_unit].time <= time; ++pass.next_unit) {
      const UnitEvent& event = events[pass.next_unit];
      switch (event.kind) {
        case UnitEvent::Kind::kEnterForward: ask({LifeCall::Kind::kEnterForward, unit_of(event.unit)}); break;
        case UnitEvent::Kind::kLeaveForward: ask({LifeCall::Kind::kLeaveForward, unit_of(event.unit)}); break;
        case UnitEvent::Kind::kEndForward: ask({LifeCall::Kind::kEndForward}); break;
        case UnitEvent::Kind::kEnterBackward:
          ask({LifeCall::Kind::kEnterBackward, unit_of(event.unit), unit_of(event.next)});
          break;
        case UnitEvent::Kind::kLeaveBackward:
          ask({LifeCall::Kind::kLeaveBackward, unit_of(event.unit)});
          break;
      }
    }
  }

  void take_gradients(const Chunk& chunk, Pass& pass, std::int32_t op) {
    for (const std::int32_t storage : chunk.at->complete_gradients.at(index(op))) {
      BlockId& block = pass.blocks[index(storage)];
      const std::int32_t shared = chunk.parameters.shared[index(storage)];
      if (shared >= 0 && block >= 0) {
        ask({LifeCall::Kind::kTakeGradient, shared, std::exchange(block, -1)});
      } else if (shared < 0 && chunk.accumulating) {  // added to the existing gradient, then freed
        release(block);
      }
    }
  }

  void hold_last_gradients(const Chunk& chunk) {
    last_gradients_ = life_->left_gradients();
    for (std::size_t i = 0; i < chunk.trace.storages.size(); ++i) {
      if (chunk.trace.storages[i].role == StorageRole::kGradient && chunk.parameters.shared[i] < 0) {
        last_gradients_.push_back(allocate_storage(chunk, static_cast<std::int32_t>(i), Source::kStorage));
      }
    }
  }

  // Sums sparse gradients: the rows of one trainer, then the gathered rows of all, then their sum
  // (ProcessGroupGloo.cpp: AsyncSparseAllreduceWork). The result has one row for each row that any trainer
  // used.
  void exchange_sparse_gradients(const Chunk& chunk, Pass& pass) {
    const Replication& replication = request_.replication;
    // Fewer replicas exchange fewer rows.
    const std::int64_t replicas =
        replication.without_padding ? std::min<std::int64_t>(2, replication.replicas) : replication.replicas;
    for (const SteppedParameter& parameter : chunk.parameters.own) {
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

  void step() {
    run_.ledger.enter(Phase::kOptimizerStep);
    stepping_ = true;
    // unscale_() multiplies all gradients in place (_amp_foreach_non_finite_check_and_unscale_); what it found stays
    // until update().
    BlockId found = scales() ? allocate_number(Part::kTemporaries) : -1;
    BlockId inverse = scales() ? allocate_number(Part::kTemporaries) : -1;
    release(inverse);
    ask({LifeCall::Kind::kStep});
    for (const Chunk& chunk : chunks_) {
      for (const bool separate : {true, false}) {
        std::vector<SteppedParameter> updated;
        std::copy_if(
            chunk.parameters.own.begin(), chunk.parameters.own.end(), std::back_inserter(updated),
            [&](const SteppedParameter& each) { return request_.has_separate_step(each.id) == separate; });
        Step ledger(*this, chunk.id, updated);
        optimizer_step(optimizer_, updated, ledger);
      }
    }
    release(found);
  }

  const TraceProducer& producer_;
  const TraceRunRequest& request_;
  const OptimizerRun& optimizer_;
  TraceRun run_;
  std::deque<Chunk> chunks_;
  StageMemory stage_memory_;
  SharedParameters shared_;
  std::vector<BlockId> last_gradients_;  // gradients of the previous iteration
  bool stepping_ = false;                // the optimizer step is running
  LifeLedger life_ledger_{*this};
  std::optional<ParameterLifeCycle> life_;
  std::optional<LifeScript> script_;  // of a run that is recorded
};

Result<TraceRun> run_trace(std::span<const Trace* const> chunks, const TraceProducer& producer,
                           const TraceRunRequest& request) {
  assert(!chunks.empty());
  for (const Trace* trace : chunks) {
    if (Result<void> checked = check_request(*trace, request); !checked) {
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
