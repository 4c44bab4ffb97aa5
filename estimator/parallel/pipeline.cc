#include "estimator/parallel/pipeline.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "estimator/parallel/schedule.h"
#include "estimator/parallel/stage_memory.h"

namespace plimsoll::estimator::inline parallel {
namespace {

constexpr std::int32_t kNever = -1;

Count times(const Count& count, std::int64_t factor) {
  Count result = count;
  for (double& c : result.c) {
    c *= static_cast<double>(factor);
  }
  return result;
}

// One part of the model: its operators, and the storages that it exchanges with its neighbours.
struct Part {
  std::vector<std::int32_t> forward;  // operators, in order
  std::vector<std::int32_t> backward;
  std::vector<std::int32_t> received;            // storages: activations of earlier parts
  std::vector<std::int32_t> sent;                // its own activations that later parts use
  std::vector<std::int32_t> received_gradients;  // gradients of the sent activations
  std::set<std::int32_t> sent_gradients;
  std::set<std::int32_t> own_gradients;  // this part's summand of the gradient of a shared parameter
  bool first = false;
  bool last = false;
};

// One micro-batch's forward and backward pass through one part.
struct MicroBatch {
  const Part* part = nullptr;
  std::int64_t number = 0;
  std::int32_t forward_at = 0;  // index of the first operator of its forward in the new trace
  std::int32_t forward_end = 0;
  std::int32_t backward_at = 0;
  std::int32_t backward_end = 0;
  std::map<std::int32_t, std::int32_t> storages;  // new storages by those of the recorded trace
  std::map<std::int32_t, std::int32_t> tensors;
  std::map<std::int32_t, std::int32_t> replaced;  // buffers of received gradients that a sum has replaced
};

class Unroller {
 public:
  Unroller(const Trace& trace, const PipelineCut& cut, const std::vector<std::int32_t>& parts)
      : trace_(trace),
        cut_(cut),
        memory_of_stage_(stage_memory_of(cut.version, cut.chunks, crds::ParallelStrategy::kAuto)),
        part_of_(parts),
        persistent_(trace.storages.size(), kNever) {}

  Trace run() {
    charge_memory(memory_of(trace_));
    for (std::int64_t chunk = 0; chunk < cut_.chunks; ++chunk) {
      parts_.push_back(part(static_cast<std::int32_t>(chunk * cut_.stages + cut_.stage)));
    }
    copy_tables();
    add_persistent_storages();
    add_accumulated_storages();
    const auto scheduled = static_cast<std::size_t>(2 * cut_.chunks * cut_.micro_batches);
    charge(cut_.budget, scheduled);
    charge_memory(Bytes{sizeof(ScheduleStep) + sizeof(MicroBatch)} * static_cast<std::int64_t>(scheduled));
    const std::vector<ScheduleStep> steps =
        pipeline_schedule(cut_.stage, cut_.stages, cut_.chunks, cut_.micro_batches);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      // An interleaved schedule posts a receive about one step before its use.
      const std::size_t ahead = interleaved() ? 1 : 0;
      for (std::size_t next = i == 0 ? 0 : i + ahead; next <= i + ahead && next < steps.size(); ++next) {
        prepare(steps[next]);
      }
      MicroBatch& batch = *micro_batches_.at({steps[i].chunk, steps[i].micro_batch});
      if (steps[i].forward) {
        forward(batch);
      } else {
        backward(batch, i > 0 && steps[i - 1].forward);
      }
    }
    finish();
    return std::move(out_);
  }

 private:
  // Number of scanned elements that cost one unit of work.
  static constexpr std::size_t kScannedPerUnit = 64;
  // Memory of a micro-batch's storage or tensor, with its node in a map.
  static constexpr Bytes kEntryBytes{128};
  static constexpr Bytes kMemoryStep = 256_KiB;

  // Charges memory that is about to be allocated.
  void charge_memory(Bytes bytes) {
    taken_ += bytes;
    if (taken_ > covered_) {
      covered_ = taken_ + kMemoryStep;
      memory_.resize(covered_);
    }
  }
  void scan(std::size_t elements) const { charge(cut_.budget, elements / kScannedPerUnit + 1); }

  bool buffers_by_receive() const { return !memory_of_stage_.buffers_stay; }
  // schedules.py has two executors: one for 1F1B, one for all schedules with several chunks per trainer.
  bool interleaved() const { return cut_.chunks > 1; }
  std::int32_t now() const { return static_cast<std::int32_t>(out_.operators.size()); }
  std::int32_t storage_of(std::int32_t tensor) const {
    return tensor < 0 ? kNever : trace_.tensors[index(tensor)].storage;
  }
  std::int32_t producing_part(std::int32_t storage) const {
    const std::int32_t op = trace_.storages[index(storage)].allocated_at;
    return op < 0 ? kNever : part_of_[index(op)];
  }
  bool in_backward(std::int32_t storage) const {
    return trace_.storages[index(storage)].allocated_at >= trace_.loss_end;
  }
  template <class Action>
  void for_each(const Span& span, Action action) const {
    for (std::int32_t at = span.begin; at < span.begin + span.size; ++at) {
      if (storage_of(trace_.operands[index(at)]) >= 0) {
        action(trace_.operands[index(at)], storage_of(trace_.operands[index(at)]));
      }
    }
  }

  // ---- the parts ----

  Part part(std::int32_t id) const {
    Part part;
    part.first = id == 0;
    part.last = id + 1 == static_cast<std::int32_t>(cut_.stages * cut_.chunks);
    std::set<std::int32_t> received;
    std::set<std::int32_t> gradients;
    std::set<std::int32_t> sent;
    for (std::size_t op = 0; op < trace_.operators.size(); ++op) {
      scan(kScannedPerUnit * index(trace_.operators[op].inputs.size));
      const bool forward = static_cast<std::int32_t>(op) < trace_.loss_end;
      const bool mine = part_of_[op] == id;
      if (mine) {
        (forward ? part.forward : part.backward).push_back(static_cast<std::int32_t>(op));
      }
      for_each(trace_.operators[op].inputs, [&](std::int32_t, std::int32_t storage) {
        const std::int32_t producer = producing_part(storage);
        if (producer == kNever || producer == part_of_[op]) {
          return;
        }
        if (mine) {
          (in_backward(storage) ? gradients : received).insert(storage);
        } else if (producer == id) {
          (in_backward(storage) ? part.sent_gradients : sent).insert(storage);
        }
      });
    }
    // A gradient that several parts add to is sent by each of them to the next one.
    for (const std::int32_t storage : gradients) {
      if (used_after(storage, id)) {
        part.sent_gradients.insert(storage);
      }
    }
    share_parameters(id, gradients, part);
    part.received.assign(received.begin(), received.end());
    part.sent.assign(sent.begin(), sent.end());
    part.received_gradients.assign(gradients.begin(), gradients.end());
    return part;
  }

  bool used_after(std::int32_t storage, std::int32_t id) const {
    for (std::size_t op = index(trace_.loss_end); op < trace_.operators.size(); ++op) {
      charge(cut_.budget, 1);
      scan(index(trace_.operators[op].inputs.size));
      bool uses = false;
      for_each(trace_.operators[op].inputs,
               [&](std::int32_t, std::int32_t each) { uses |= each == storage; });
      if (uses && part_of_[op] < id) {
        return true;
      }
    }
    return false;
  }

  // A parameter that two parts use has a gradient in each. Where the recorded trace adds them, each part
  // keeps its own summand instead.
  void share_parameters(std::int32_t id, std::set<std::int32_t>& received, Part& part) const {
    for (std::size_t op = index(trace_.loss_end); op < trace_.operators.size(); ++op) {
      charge(cut_.budget, 1 + index(trace_.operators[op].inputs.size));
      bool sums = false;
      for_each(trace_.operators[op].outputs, [&](std::int32_t, std::int32_t storage) {
        sums |= trace_.storages[index(storage)].role == StorageRole::kGradient;
      });
      std::set<std::int32_t> mine;
      std::set<std::int32_t> others;
      for_each(trace_.operators[op].inputs, [&](std::int32_t, std::int32_t storage) {
        if (in_backward(storage)) {
          (producing_part(storage) == id ? mine : others).insert(storage);
        }
      });
      const std::string& name = trace_.operator_names[index(trace_.operators[op].name)];
      if (!sums || !(name == "aten::add" || name == "aten::add_") || mine.size() + others.size() != 2 ||
          mine.empty() || others.empty()) {
        continue;
      }
      part.own_gradients.insert(mine.begin(), mine.end());
      for (const std::int32_t other : others) {
        received.erase(other);
      }
      for (const std::int32_t each : mine) {
        part.sent_gradients.erase(each);
      }
      std::erase(part.backward, static_cast<std::int32_t>(op));
    }
  }

  // ---- tables ----

  void copy_tables() {
    out_.device = trace_.device;
    out_.precision = trace_.precision;
    out_.method = trace_.method;
    out_.batch_sizes = trace_.batch_sizes;
    out_.dtypes = trace_.dtypes;
    out_.modules = trace_.modules;
    out_.operator_names = trace_.operator_names;
    out_.attributes = trace_.attributes;
    out_.counts = trace_.counts;
    out_.layouts = trace_.layouts;
    out_.measured = trace_.measured;
    receive_ = name_of("c10d::recv_");
    merge_ = name_of("aten::cat");
    temporaries_.assign(trace_.operators.size(), nullptr);
    for (const TraceTemporary& temporary : trace_.temporaries) {
      temporaries_[index(temporary.op)] = &temporary;
    }
    unmeasured_.assign(trace_.operators.size(), false);
    for (const std::int32_t op : trace_.unmeasured) {
      unmeasured_[index(op)] = true;
    }
    // A tensor saved between two parts may belong to either: it belongs to the part that uses it in backward.
    const auto last = static_cast<std::int32_t>(trace_.operators.size()) - 1;
    for (const TraceSaved& saved : trace_.saved) {
      const std::int32_t used_at = saved.unpacked_at >= 0 ? saved.unpacked_at : saved.packed_at;
      saved_by_.push_back(part_of_[index(std::clamp(used_at, 0, last))]);
    }
  }

  std::int32_t name_of(const char* name) {
    out_.operator_names.emplace_back(name);
    return static_cast<std::int32_t>(out_.operator_names.size()) - 1;
  }

  std::int32_t add_storage(TraceStorage storage) {
    out_.storages.push_back(storage);
    return static_cast<std::int32_t>(out_.storages.size()) - 1;
  }

  // Adds the parameters, buffers and inputs that this trainer's parts use; inputs for all micro-batches.
  void add_persistent_storages() {
    std::set<std::int32_t> used;
    for (const Part& part : parts_) {
      for (const std::vector<std::int32_t>* operators : {&part.forward, &part.backward}) {
        for (const std::int32_t op : *operators) {
          const auto note = [&](std::int32_t, std::int32_t storage) {
            if (producing_part(storage) == kNever) {
              used.insert(storage);
            }
          };
          for_each(trace_.operators[index(op)].inputs, note);
          for_each(trace_.operators[index(op)].outputs, note);
        }
      }
    }
    for (const std::int32_t storage : used) {
      TraceStorage persistent = trace_.storages[index(storage)];
      if (persistent.role == StorageRole::kInput) {
        persistent.bytes = times(persistent.bytes, cut_.micro_batches + cut_.unsimulated);
      }
      persistent_[index(storage)] = add_storage(persistent);
    }
    for (const TraceBuffer& buffer : trace_.buffers) {
      if (persistent_[index(buffer.storage)] >= 0) {
        out_.buffers.push_back({buffer.name, persistent_[index(buffer.storage)]});
      }
    }
  }

  // Adds the storages that accumulate over the micro-batches that are not simulated. On the last stage these
  // are received activations, outputs and losses; if interleaved, also the gradients that were sent; in older
  // versions all that is received or sent (stage_memory.h).
  void add_accumulated_storages() {
    Count accumulated;
    const auto add = [&](std::int32_t storage) {
      for (std::size_t i = 0; i < accumulated.c.size(); ++i) {
        accumulated.c[i] += trace_.storages[index(storage)].bytes.c[i];
      }
    };
    for (const Part& part : parts_) {
      if (part.last || !buffers_by_receive()) {
        std::for_each(part.received.begin(), part.received.end(), add);
      }
      if (!buffers_by_receive()) {
        std::for_each(part.received_gradients.begin(), part.received_gradients.end(), add);
      }
      if (memory_of_stage_.outputs_stay) {
        std::for_each(part.sent.begin(), part.sent.end(), add);
      }
      if (memory_of_stage_.sent_gradients_stay) {
        std::for_each(part.sent_gradients.begin(), part.sent_gradients.end(), add);
      }
      for (std::size_t i = 0; part.last && i < trace_.storages.size(); ++i) {
        const StorageRole role = trace_.storages[i].role;
        if (role == StorageRole::kOutput || role == StorageRole::kLoss) {
          add(static_cast<std::int32_t>(i));
        }
      }
    }
    if (cut_.unsimulated > 0) {
      add_storage({times(accumulated, cut_.unsimulated), StorageRole::kActivation, kNever, kNever});
    }
  }

  // ---- storages and tensors of a micro-batch ----

  std::int32_t storage(MicroBatch& batch, std::int32_t old) {
    if (persistent_[index(old)] >= 0) {
      return persistent_[index(old)];
    }
    const auto [found, added] = batch.storages.emplace(old, kNever);
    if (added) {
      charge_memory(kEntryBytes);
      TraceStorage copy = trace_.storages[index(old)];
      if (copy.role == StorageRole::kGradient || batch.part->own_gradients.contains(old)) {
        copy.role = batch.number == 0 ? StorageRole::kGradient : StorageRole::kBackward;
      }
      copy.allocated_at = now();
      copy.released_at = kNever;  // set_release_times() sets it
      found->second = add_storage(copy);
    }
    return found->second;
  }

  std::int32_t tensor(MicroBatch& batch, std::int32_t old) {
    if (old < 0) {
      return old;
    }
    const auto [found, added] = batch.tensors.emplace(old, kNever);
    if (added) {
      charge_memory(kEntryBytes);
      TraceTensor copy = trace_.tensors[index(old)];
      copy.storage = copy.storage < 0 ? copy.storage : storage(batch, copy.storage);
      out_.tensors.push_back(copy);
      found->second = static_cast<std::int32_t>(out_.tensors.size()) - 1;
    }
    return found->second;
  }

  void emit(MicroBatch& batch, std::int32_t op) {
    const TraceOperator& old = trace_.operators[index(op)];
    const std::int64_t sizes = std::int64_t{old.inputs.size} + old.outputs.size;
    charge(cut_.budget, static_cast<std::size_t>(sizes) + 1);
    charge_memory(Bytes{sizeof(TraceOperator) + sizeof(TraceTemporary)} +
                  Bytes{sizeof(std::int32_t)} * sizes);
    TraceOperator copy = old;
    copy.inputs = {static_cast<std::int32_t>(out_.operands.size()), old.inputs.size};
    std::vector<std::int32_t> operands;
    operands.reserve(index(old.inputs.size) + index(old.outputs.size));
    for (std::int32_t i = 0; i < old.inputs.size; ++i) {
      operands.push_back(tensor(batch, trace_.operands[index(old.inputs.begin + i)]));
    }
    for (std::int32_t i = 0; i < old.outputs.size; ++i) {
      const std::int32_t output = trace_.operands[index(old.outputs.begin + i)];
      replace_received(batch, storage_of(output));
      operands.push_back(tensor(batch, output));
    }
    out_.operands.insert(out_.operands.end(), operands.begin(), operands.end());
    copy.outputs = {copy.inputs.begin + copy.inputs.size, old.outputs.size};
    if (temporaries_[index(op)] != nullptr) {
      out_.temporaries.push_back({now(), temporaries_[index(op)]->bytes});
    }
    if (unmeasured_[index(op)]) {
      out_.unmeasured.push_back(now());
    }
    out_.operators.push_back(copy);
  }

  // Autograd adds in place only if nothing else refers to the tensor. The stage refers to a received
  // gradient, so the first sum is a new tensor.
  void replace_received(MicroBatch& batch, std::int32_t old) {
    const std::vector<std::int32_t>& received = batch.part->received_gradients;
    scan(received.size());
    if (old < 0 || batch.replaced.contains(old) ||
        std::find(received.begin(), received.end(), old) == received.end()) {
      return;
    }
    TraceStorage sum = trace_.storages[index(old)];
    sum.allocated_at = now();
    sum.released_at = kNever;
    batch.replaced.emplace(old, batch.storages.at(old));
    batch.storages[old] = add_storage(sum);
    charge(cut_.budget, batch.tensors.size());
    std::erase_if(batch.tensors, [&](const auto& each) { return storage_of(each.first) == old; });
  }

  void receive(MicroBatch& batch, const std::vector<std::int32_t>& storages, StorageRole role) {
    for (const std::int32_t old : storages) {
      scan(trace_.tensors.size());
      const auto first = std::find_if(trace_.tensors.begin(), trace_.tensors.end(),
                                      [&](const TraceTensor& each) { return each.storage == old; });
      const auto id = static_cast<std::int32_t>(first - trace_.tensors.begin());
      const std::int32_t output = tensor(batch, id);
      out_.storages[index(batch.storages.at(old))].role = role;
      out_.storages[index(batch.storages.at(old))].released_at = kNever;
      if (!buffers_by_receive()) {
        out_.storages[index(batch.storages.at(old))].allocated_at = kNever;
        continue;
      }
      TraceOperator op;
      op.name = receive_;
      op.inputs = {static_cast<std::int32_t>(out_.operands.size()), 0};
      op.outputs = {op.inputs.begin, 1};
      out_.operands.push_back(output);
      out_.operators.push_back(op);
    }
  }

  void release(std::int32_t storage) {
    TraceStorage& released = out_.storages[index(storage)];
    if (released.allocated_at >= 0) {
      released.released_at = now();
    }
  }
  void release_all(std::vector<std::int32_t>& storages) {
    for (const std::int32_t each : storages) {
      release(each);
    }
    storages.clear();
  }

  // ---- the schedule ----

  void prepare(const ScheduleStep& step) {
    std::unique_ptr<MicroBatch>& batch = micro_batches_[{step.chunk, step.micro_batch}];
    if (step.forward) {
      batch = std::make_unique<MicroBatch>();
      batch->part = &parts_[static_cast<std::size_t>(step.chunk)];
      batch->number = step.micro_batch;
      receive(*batch, batch->part->received, StorageRole::kActivation);
    } else {
      receive(*batch, batch->part->received_gradients, StorageRole::kBackward);
      if (!interleaved()) {
        release_all(being_sent_);
        release_all(received_before_);
      }
    }
  }

  void forward(MicroBatch& batch) {
    const Part& part = *batch.part;
    batch.forward_at = now();
    for (const std::int32_t op : part.forward) {
      emit(batch, op);
    }
    batch.forward_end = now();
    out_.passes.push_back({batch.forward_at, batch.forward_end - batch.forward_at});
    release_all(being_sent_);  // of the previous micro-batch
    for (const std::int32_t old : part.sent) {
      if (buffers_by_receive() && !interleaved()) {
        being_sent_.push_back(storage(batch, old));
      }
    }
  }

  void backward(MicroBatch& batch, bool after_forward) {
    const Part& part = *batch.part;
    batch.backward_at = now();
    for (const std::int32_t op : part.backward) {
      emit(batch, op);
    }
    batch.backward_end = now();
    std::vector<std::int32_t> received;
    for (const std::int32_t old : part.received_gradients) {
      const auto replaced = batch.replaced.find(old);
      received.push_back(replaced == batch.replaced.end() ? batch.storages.at(old) : replaced->second);
    }
    // Between consecutive backward passes of 1F1B, the receive operations keep their buffers until the next
    // ones are received.
    if (after_forward || interleaved()) {
      release_all(received);
    }
    received_before_ = std::move(received);
    if (!part.last) {  // the last stage's losses keep the autograd graph, and so its inputs, alive
      for (const std::int32_t old : part.received) {
        release(batch.storages.at(old));
      }
    }
    for (const std::int32_t old : part.sent) {
      // The executor waits for the send here; older ones keep the output until the next step().
      if (!memory_of_stage_.outputs_stay && (!buffers_by_receive() || interleaved())) {
        release(storage(batch, old));
      }
    }
    if (!interleaved()) {            // an interleaved executor waits for sent gradients at the end
      release_all(gradients_sent_);  // of the previous micro-batch
    }
    for (const std::int32_t old : part.sent_gradients) {
      const auto found = batch.storages.find(old);
      const bool until_next_step = memory_of_stage_.buffers_stay;  // it is the receive buffer's .grad
      if (found != batch.storages.end() && !part.first && !until_next_step) {
        gradients_sent_.push_back(found->second);
      }
    }
  }

  // ---- times ----

  std::int32_t position(const std::vector<std::int32_t>& operators, std::int32_t time) const {
    return static_cast<std::int32_t>(std::lower_bound(operators.begin(), operators.end(), time) -
                                     operators.begin());
  }
  std::int32_t new_time(const MicroBatch& batch, std::int32_t time) const {
    if (time < 0) {
      return time;
    }
    return time <= trace_.loss_end ? batch.forward_at + position(batch.part->forward, time)
                                   : batch.backward_at + position(batch.part->backward, time);
  }

  void finish() {
    release_all(gradients_sent_);
    release_all(received_before_);
    merge_outputs();
    for (const auto& [key, batch] : micro_batches_) {
      set_release_times(*batch);
    }
    for (const TraceParameter& parameter : trace_.parameters) {
      add_parameter(parameter);
    }
    const auto& first = out_.passes.front();
    out_.forward_end = first.begin + first.size;
    out_.loss_end = out_.forward_end;
    std::sort(out_.temporaries.begin(), out_.temporaries.end(),
              [](const TraceTemporary& a, const TraceTemporary& b) { return a.op < b.op; });
  }

  // step() concatenates the outputs of all micro-batches.
  void merge_outputs() {
    std::int32_t example = kNever;
    Count whole;
    for (std::size_t i = 0; i < trace_.tensors.size() && example < 0; ++i) {
      const std::int32_t old = trace_.tensors[i].storage;
      if (old >= 0 && trace_.storages[index(old)].role == StorageRole::kOutput) {
        scan(micro_batches_.size());
        const auto last = std::find_if(micro_batches_.begin(), micro_batches_.end(), [&](const auto& each) {
          return each.second->part->last && each.second->storages.contains(old);
        });
        if (last != micro_batches_.end()) {
          example = static_cast<std::int32_t>(i);
          whole = times(trace_.storages[index(old)].bytes, cut_.micro_batches + cut_.unsimulated);
        }
      }
    }
    if (example < 0) {
      return;
    }
    TraceTensor merged = trace_.tensors[index(example)];
    merged.storage = add_storage({whole, StorageRole::kActivation, now(), now() + 1});
    out_.tensors.push_back(merged);
    TraceOperator op;
    op.name = merge_;
    op.inputs = {static_cast<std::int32_t>(out_.operands.size()), 0};
    op.outputs = {op.inputs.begin, 1};
    out_.operands.push_back(static_cast<std::int32_t>(out_.tensors.size()) - 1);
    out_.operators.push_back(op);
  }

  // Sets the recorded release times, and copies what autograd saves.
  void set_release_times(MicroBatch& batch) {
    const Part& part = *batch.part;
    const auto among = [](const std::vector<std::int32_t>& all, std::int32_t id) {
      return std::find(all.begin(), all.end(), id) != all.end();
    };
    for (const auto& [old, copied] : batch.storages) {
      scan(part.received.size() + part.sent.size());
      const TraceStorage& recorded = trace_.storages[index(old)];
      TraceStorage& storage = out_.storages[index(copied)];
      const bool received = among(part.received, old);
      if (received && part.last) {
        storage.released_at = now();
      }
      const bool gradient = recorded.role == StorageRole::kGradient || part.own_gradients.contains(old);
      if (gradient && batch.number > 0) {  // added to the first micro-batch's gradient, then freed
        storage.released_at = after_last_use(batch, old);
      }
      if (received || gradient || (among(part.sent, old)) ||
          (part.sent_gradients.contains(old) && !part.first)) {
        continue;
      }
      // step() frees losses at its end, and outputs at its next call.
      if (recorded.role == StorageRole::kOutput && part.last) {
        storage.released_at = kNever;
      } else if (recorded.role == StorageRole::kLoss) {
        storage.released_at = now();
      } else if (storage.released_at == kNever && storage.allocated_at >= 0) {
        storage.released_at = new_time(batch, recorded.released_at);
      }
    }
    for (std::size_t i = 0; i < trace_.saved.size(); ++i) {
      charge(cut_.budget, 1);
      const TraceSaved& saved = trace_.saved[i];
      const std::int32_t old = storage_of(saved.tensor);
      const auto mine = &part - parts_.data();
      const bool here = old >= 0 && (persistent_[index(old)] >= 0 || batch.storages.contains(old));
      if (!here || saved_by_[i] != static_cast<std::int32_t>(mine * cut_.stages + cut_.stage)) {
        continue;
      }
      charge_memory(Bytes{sizeof(TraceSaved)});
      out_.saved.push_back({tensor(batch, saved.tensor), new_time(batch, saved.packed_at),
                            new_time(batch, saved.unpacked_at), new_time(batch, saved.released_at)});
    }
  }

  std::int32_t after_last_use(const MicroBatch& batch, std::int32_t old) const {
    std::int32_t last = 0;
    charge(cut_.budget, batch.part->backward.size());
    for (std::size_t i = 0; i < batch.part->backward.size(); ++i) {
      for_each(trace_.operators[index(batch.part->backward[i])].outputs,
               [&](std::int32_t, std::int32_t storage) {
                 last = storage == old ? static_cast<std::int32_t>(i) : last;
               });
    }
    return batch.backward_at + last + 1;
  }

  // Adds a parameter of this trainer, with the gradient that the first micro-batch leaves.
  void add_parameter(const TraceParameter& parameter) {
    if (persistent_[index(parameter.storage)] < 0) {
      return;
    }
    TraceParameter copy = parameter;
    copy.storage = persistent_[index(parameter.storage)];
    copy.gradient.clear();
    for (const auto& [key, batch] : micro_batches_) {
      charge(cut_.budget, 1);
      if (key.second != 0) {
        continue;
      }
      for (const std::int32_t old : parameter.gradient) {
        const auto found = batch->storages.find(old);
        if (found != batch->storages.end()) {
          copy.gradient.push_back(found->second);
        }
      }
      charge(cut_.budget, batch->part->own_gradients.size());
      for (const std::int32_t old : batch->part->own_gradients) {
        const auto found = batch->storages.find(old);
        const bool fits =
            trace_.storages[index(old)].bytes.c == trace_.storages[index(parameter.storage)].bytes.c;
        if (copy.gradient.empty() && found != batch->storages.end() && fits) {
          copy.gradient.push_back(found->second);
        }
      }
    }
    out_.parameters.push_back(copy);
  }

  const Trace& trace_;
  const PipelineCut& cut_;
  const StageMemory memory_of_stage_;
  BudgetBytes memory_{cut_.budget};
  Bytes taken_;
  Bytes covered_;
  const std::vector<std::int32_t>& part_of_;  // by operator
  std::vector<Part> parts_;                   // of this trainer, by chunk
  std::vector<std::int32_t> saved_by_;        // by saved tensor: the part
  std::vector<const TraceTemporary*> temporaries_;
  std::vector<bool> unmeasured_;
  std::vector<std::int32_t> persistent_;  // by storage: the parameter, buffer or input in the new trace
  std::int32_t receive_ = 0;
  std::int32_t merge_ = 0;
  std::map<std::pair<std::int64_t, std::int64_t>, std::unique_ptr<MicroBatch>> micro_batches_;
  std::vector<std::int32_t> being_sent_;       // activations
  std::vector<std::int32_t> received_before_;  // received gradients of the previous micro-batch
  std::vector<std::int32_t> gradients_sent_;
  Trace out_;
};

}  // namespace

Trace pipeline_trace(const Trace& trace, const PipelineCut& cut, const std::vector<std::int32_t>& parts) {
  return Unroller(trace, cut, parts).run();
}

}  // namespace plimsoll::estimator::parallel
