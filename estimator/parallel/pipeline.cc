#include "estimator/parallel/pipeline.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "estimator/parallel/schedule.h"

namespace plimsoll::estimator::inline parallel {
namespace {

constexpr std::int32_t kNever = -1;
// From 2.15 on buffers are made for each receive, and outputs go once they are sent; before, buffers were
// made once for all micro-batches and outputs stayed until their backward
// (torch/distributed/pipelining/_recv_buffers.py, stage.py: release_fwd_send_outputs).
constexpr TorchVersion kBuffersByReceive = 215;

std::size_t index(std::int32_t id) {
  return static_cast<std::size_t>(id);
}

Count times(const Count& count, std::int64_t factor) {
  Count result = count;
  for (double& c : result.c) {
    c *= static_cast<double>(factor);
  }
  return result;
}

// What one part of the model takes from and gives to its neighbours.
struct Part {
  std::vector<std::int32_t> forward;  // operators, in order
  std::vector<std::int32_t> backward;
  std::vector<std::int32_t> received;            // storages: activations of earlier parts
  std::vector<std::int32_t> sent;                // ... of its own that later parts take
  std::vector<std::int32_t> received_gradients;  // of what it sent
  std::set<std::int32_t> sent_gradients;
  std::set<std::int32_t> own_gradients;  // storages that are a parameter's gradient as far as this part goes
  bool first = false;
  bool last = false;
};

// One micro-batch's passage through one part.
struct Passage {
  const Part* part = nullptr;
  std::int64_t micro_batch = 0;
  std::int32_t forward_at = 0;  // new operator index where its forward begins
  std::int32_t forward_end = 0;
  std::int32_t backward_at = 0;
  std::int32_t backward_end = 0;
  std::map<std::int32_t, std::int32_t> storages;  // of the recording by those made here
  std::map<std::int32_t, std::int32_t> tensors;
  std::map<std::int32_t, std::int32_t> renewed;  // received gradients that a sum has replaced: their buffers
};

class Unroller {
 public:
  Unroller(const Trace& trace, const PipelineCut& cut, const std::vector<std::int32_t>& parts)
      : trace_(trace), cut_(cut), part_of_(parts), lasting_(trace.storages.size(), kNever) {}

  Trace run() {
    take(memory_of(trace_));
    for (std::int64_t chunk = 0; chunk < cut_.chunks; ++chunk) {
      parts_.push_back(part(static_cast<std::int32_t>(chunk * cut_.stages + cut_.stage)));
    }
    copy_tables();
    keep_what_lasts();
    pile_up();
    const auto scheduled = static_cast<std::size_t>(2 * cut_.chunks * cut_.micro_batches);
    charge(cut_.budget, scheduled);
    take(Bytes{sizeof(ScheduleStep) + sizeof(Passage)} * static_cast<std::int64_t>(scheduled));
    const std::vector<ScheduleStep> steps =
        pipeline_schedule(cut_.stage, cut_.stages, cut_.chunks, cut_.micro_batches);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      // An interleaved schedule posts a receive about one step before it is needed.
      const std::size_t ahead = interleaved() ? 1 : 0;
      for (std::size_t next = i == 0 ? 0 : i + ahead; next <= i + ahead && next < steps.size(); ++next) {
        prepare(steps[next]);
      }
      Passage& passage = *passages_.at({steps[i].chunk, steps[i].micro_batch});
      if (steps[i].forward) {
        forward(passage);
      } else {
        backward(passage, i > 0 && steps[i - 1].forward);
      }
    }
    finish();
    return std::move(out_);
  }

 private:
  // Elements that a plain scan passes in the time of a unit of work.
  static constexpr std::size_t kScannedPerUnit = 64;
  // Of a storage or tensor of a passage: itself and its node in a map.
  static constexpr Bytes kEntryBytes{128};
  static constexpr Bytes kMemoryStep = 256_KiB;

  // Memory that is about to be allocated.
  void take(Bytes bytes) {
    taken_ += bytes;
    if (taken_ > covered_) {
      covered_ = taken_ + kMemoryStep;
      memory_.resize(covered_);
    }
  }
  void scan(std::size_t elements) const { charge(cut_.budget, elements / kScannedPerUnit + 1); }

  bool eager() const { return cut_.version >= kBuffersByReceive; }
  // schedules.py has two executors: one of 1F1B's own, one for all schedules of several parts a trainer.
  bool interleaved() const { return cut_.chunks > 1; }
  std::int32_t now() const { return static_cast<std::int32_t>(out_.operators.size()); }
  std::int32_t storage_of(std::int32_t tensor) const {
    return tensor < 0 ? kNever : trace_.tensors[index(tensor)].storage;
  }
  std::int32_t maker(std::int32_t storage) const {
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

  // ---- what a part is ----

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
        const std::int32_t made_by = maker(storage);
        if (made_by == kNever || made_by == part_of_[op]) {
          return;
        }
        if (mine) {
          (in_backward(storage) ? gradients : received).insert(storage);
        } else if (made_by == id) {
          (in_backward(storage) ? part.sent_gradients : sent).insert(storage);
        }
      });
    }
    // A gradient that runs on through several parts is each one's own from where it adds to it.
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

  // A parameter that two parts use has a gradient in each; where the recording adds them up, each keeps its
  // own summand instead.
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
          (maker(storage) == id ? mine : others).insert(storage);
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
    // What is saved between two parts could be the one's result or the other's input: who asks for it tells.
    const auto last = static_cast<std::int32_t>(trace_.operators.size()) - 1;
    for (const TraceSaved& saved : trace_.saved) {
      const std::int32_t asks = saved.unpacked_at >= 0 ? saved.unpacked_at : saved.packed_at;
      saved_by_.push_back(part_of_[index(std::clamp(asks, 0, last))]);
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

  // Parameters, buffers and inputs that this trainer's parts use; inputs for all micro-batches.
  void keep_what_lasts() {
    std::set<std::int32_t> used;
    for (const Part& part : parts_) {
      for (const std::vector<std::int32_t>* operators : {&part.forward, &part.backward}) {
        for (const std::int32_t op : *operators) {
          const auto note = [&](std::int32_t, std::int32_t storage) {
            if (maker(storage) == kNever) {
              used.insert(storage);
            }
          };
          for_each(trace_.operators[index(op)].inputs, note);
          for_each(trace_.operators[index(op)].outputs, note);
        }
      }
    }
    for (const std::int32_t storage : used) {
      TraceStorage kept = trace_.storages[index(storage)];
      if (kept.role == StorageRole::kInput) {
        kept.bytes = times(kept.bytes, cut_.micro_batches + cut_.further);
      }
      lasting_[index(storage)] = add_storage(kept);
    }
    for (const TraceBuffer& buffer : trace_.buffers) {
      if (lasting_[index(buffer.storage)] >= 0) {
        out_.buffers.push_back({buffer.name, lasting_[index(buffer.storage)]});
      }
    }
  }

  // What piles up with the micro-batches, of those that do not run: on the last stage what it received, its
  // outputs and losses; interleaved, gradients that were sent; before 2.15 all that is received.
  void pile_up() {
    Count pile;
    const auto add = [&](std::int32_t storage) {
      for (std::size_t i = 0; i < pile.c.size(); ++i) {
        pile.c[i] += trace_.storages[index(storage)].bytes.c[i];
      }
    };
    for (const Part& part : parts_) {
      if (part.last || !eager()) {
        std::for_each(part.received.begin(), part.received.end(), add);
      }
      if (!eager()) {
        std::for_each(part.received_gradients.begin(), part.received_gradients.end(), add);
      }
      if (interleaved()) {
        std::for_each(part.sent_gradients.begin(), part.sent_gradients.end(), add);
      }
      for (std::size_t i = 0; part.last && i < trace_.storages.size(); ++i) {
        const StorageRole role = trace_.storages[i].role;
        if (role == StorageRole::kOutput || role == StorageRole::kLoss) {
          add(static_cast<std::int32_t>(i));
        }
      }
    }
    if (cut_.further > 0) {
      add_storage({times(pile, cut_.further), StorageRole::kActivation, kNever, kNever});
    }
  }

  // ---- storages and tensors of a passage ----

  std::int32_t storage(Passage& passage, std::int32_t old) {
    if (lasting_[index(old)] >= 0) {
      return lasting_[index(old)];
    }
    const auto [found, added] = passage.storages.emplace(old, kNever);
    if (added) {
      take(kEntryBytes);
      TraceStorage made = trace_.storages[index(old)];
      if (made.role == StorageRole::kGradient || passage.part->own_gradients.contains(old)) {
        made.role = passage.micro_batch == 0 ? StorageRole::kGradient : StorageRole::kBackward;
      }
      made.allocated_at = now();
      made.released_at = kNever;  // settle() knows
      found->second = add_storage(made);
    }
    return found->second;
  }

  std::int32_t tensor(Passage& passage, std::int32_t old) {
    if (old < 0) {
      return old;
    }
    const auto [found, added] = passage.tensors.emplace(old, kNever);
    if (added) {
      take(kEntryBytes);
      TraceTensor made = trace_.tensors[index(old)];
      made.storage = made.storage < 0 ? made.storage : storage(passage, made.storage);
      out_.tensors.push_back(made);
      found->second = static_cast<std::int32_t>(out_.tensors.size()) - 1;
    }
    return found->second;
  }

  void emit(Passage& passage, std::int32_t op) {
    const TraceOperator& old = trace_.operators[index(op)];
    const std::int64_t sizes = std::int64_t{old.inputs.size} + old.outputs.size;
    charge(cut_.budget, static_cast<std::size_t>(sizes) + 1);
    take(Bytes{sizeof(TraceOperator) + sizeof(TraceTemporary)} + Bytes{sizeof(std::int32_t)} * sizes);
    TraceOperator made = old;
    made.inputs = {static_cast<std::int32_t>(out_.operands.size()), old.inputs.size};
    std::vector<std::int32_t> operands;
    for (std::int32_t i = 0; i < old.inputs.size; ++i) {
      operands.push_back(tensor(passage, trace_.operands[index(old.inputs.begin + i)]));
    }
    for (std::int32_t i = 0; i < old.outputs.size; ++i) {
      const std::int32_t output = trace_.operands[index(old.outputs.begin + i)];
      renew(passage, storage_of(output));
      operands.push_back(tensor(passage, output));
    }
    out_.operands.insert(out_.operands.end(), operands.begin(), operands.end());
    made.outputs = {made.inputs.begin + made.inputs.size, old.outputs.size};
    if (temporaries_[index(op)] != nullptr) {
      out_.temporaries.push_back({now(), temporaries_[index(op)]->bytes});
    }
    if (unmeasured_[index(op)]) {
      out_.unmeasured.push_back(now());
    }
    out_.operators.push_back(made);
  }

  // Autograd adds in place only to what nobody else holds; a received gradient is held by the stage, so the
  // first sum is a new tensor.
  void renew(Passage& passage, std::int32_t old) {
    const std::vector<std::int32_t>& received = passage.part->received_gradients;
    scan(received.size());
    if (old < 0 || passage.renewed.contains(old) ||
        std::find(received.begin(), received.end(), old) == received.end()) {
      return;
    }
    TraceStorage sum = trace_.storages[index(old)];
    sum.allocated_at = now();
    sum.released_at = kNever;
    passage.renewed.emplace(old, passage.storages.at(old));
    passage.storages[old] = add_storage(sum);
    charge(cut_.budget, passage.tensors.size());
    std::erase_if(passage.tensors, [&](const auto& each) { return storage_of(each.first) == old; });
  }

  void receive(Passage& passage, const std::vector<std::int32_t>& storages, StorageRole role) {
    for (const std::int32_t old : storages) {
      scan(trace_.tensors.size());
      const auto first = std::find_if(trace_.tensors.begin(), trace_.tensors.end(),
                                      [&](const TraceTensor& each) { return each.storage == old; });
      const auto id = static_cast<std::int32_t>(first - trace_.tensors.begin());
      const std::int32_t output = tensor(passage, id);
      out_.storages[index(passage.storages.at(old))].role = role;
      out_.storages[index(passage.storages.at(old))].released_at = kNever;
      if (!eager()) {
        out_.storages[index(passage.storages.at(old))].allocated_at = kNever;
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
    std::unique_ptr<Passage>& passage = passages_[{step.chunk, step.micro_batch}];
    if (step.forward) {
      passage = std::make_unique<Passage>();
      passage->part = &parts_[static_cast<std::size_t>(step.chunk)];
      passage->micro_batch = step.micro_batch;
      receive(*passage, passage->part->received, StorageRole::kActivation);
    } else {
      receive(*passage, passage->part->received_gradients, StorageRole::kBackward);
      if (!interleaved()) {
        release_all(being_sent_);
        release_all(received_before_);
      }
    }
  }

  void forward(Passage& passage) {
    const Part& part = *passage.part;
    passage.forward_at = now();
    for (const std::int32_t op : part.forward) {
      emit(passage, op);
    }
    passage.forward_end = now();
    out_.passes.push_back({passage.forward_at, passage.forward_end - passage.forward_at});
    release_all(being_sent_);  // the micro-batch before
    for (const std::int32_t old : part.sent) {
      if (eager() && !interleaved()) {
        being_sent_.push_back(storage(passage, old));
      }
    }
  }

  void backward(Passage& passage, bool after_forward) {
    const Part& part = *passage.part;
    passage.backward_at = now();
    for (const std::int32_t op : part.backward) {
      emit(passage, op);
    }
    passage.backward_end = now();
    std::vector<std::int32_t> received;
    for (const std::int32_t old : part.received_gradients) {
      const auto renewed = passage.renewed.find(old);
      received.push_back(renewed == passage.renewed.end() ? passage.storages.at(old) : renewed->second);
    }
    // While 1F1B's backward passes follow each other the receive operations hold their buffers until the next
    // ones are there.
    if (after_forward || interleaved()) {
      release_all(received);
    }
    received_before_ = std::move(received);
    if (!part.last) {  // the last stage's losses hold the graph, and so its inputs
      for (const std::int32_t old : part.received) {
        release(passage.storages.at(old));
      }
    }
    for (const std::int32_t old : part.sent) {
      if (!eager() || interleaved()) {  // its send is waited for here
        release(storage(passage, old));
      }
    }
    if (!interleaved()) {            // ... for which gradients' sends are waited for at the end
      release_all(gradients_sent_);  // of the micro-batch before
    }
    for (const std::int32_t old : part.sent_gradients) {
      const auto found = passage.storages.find(old);
      if (found != passage.storages.end() && !part.first) {
        gradients_sent_.push_back(found->second);
      }
    }
  }

  // ---- times ----

  std::int32_t position(const std::vector<std::int32_t>& operators, std::int32_t time) const {
    return static_cast<std::int32_t>(std::lower_bound(operators.begin(), operators.end(), time) -
                                     operators.begin());
  }
  std::int32_t new_time(const Passage& passage, std::int32_t time) const {
    if (time < 0) {
      return time;
    }
    return time <= trace_.loss_end ? passage.forward_at + position(passage.part->forward, time)
                                   : passage.backward_at + position(passage.part->backward, time);
  }

  void finish() {
    release_all(gradients_sent_);
    release_all(received_before_);
    merge_outputs();
    for (const auto& [key, passage] : passages_) {
      settle(*passage);
    }
    for (const TraceParameter& parameter : trace_.parameters) {
      keep(parameter);
    }
    const auto& first = out_.passes.front();
    out_.forward_end = first.begin + first.size;
    out_.loss_end = out_.forward_end;
    std::sort(out_.temporaries.begin(), out_.temporaries.end(),
              [](const TraceTemporary& a, const TraceTemporary& b) { return a.op < b.op; });
  }

  // step() gives back the outputs of all micro-batches as one.
  void merge_outputs() {
    std::int32_t example = kNever;
    Count whole;
    for (std::size_t i = 0; i < trace_.tensors.size() && example < 0; ++i) {
      const std::int32_t old = trace_.tensors[i].storage;
      if (old >= 0 && trace_.storages[index(old)].role == StorageRole::kOutput) {
        scan(passages_.size());
        const auto last = std::find_if(passages_.begin(), passages_.end(), [&](const auto& each) {
          return each.second->part->last && each.second->storages.contains(old);
        });
        if (last != passages_.end()) {
          example = static_cast<std::int32_t>(i);
          whole = times(trace_.storages[index(old)].bytes, cut_.micro_batches + cut_.further);
        }
      }
    }
    if (example < 0) {
      return;
    }
    TraceTensor made = trace_.tensors[index(example)];
    made.storage = add_storage({whole, StorageRole::kActivation, now(), now() + 1});
    out_.tensors.push_back(made);
    TraceOperator op;
    op.name = merge_;
    op.inputs = {static_cast<std::int32_t>(out_.operands.size()), 0};
    op.outputs = {op.inputs.begin, 1};
    out_.operands.push_back(static_cast<std::int32_t>(out_.tensors.size()) - 1);
    out_.operators.push_back(op);
  }

  // Releases that the recording knows, and what autograd holds.
  void settle(Passage& passage) {
    const Part& part = *passage.part;
    const auto among = [](const std::vector<std::int32_t>& all, std::int32_t id) {
      return std::find(all.begin(), all.end(), id) != all.end();
    };
    for (const auto& [old, made] : passage.storages) {
      scan(part.received.size() + part.sent.size());
      const TraceStorage& recorded = trace_.storages[index(old)];
      TraceStorage& storage = out_.storages[index(made)];
      const bool received = among(part.received, old);
      if (received && part.last) {
        storage.released_at = now();
      }
      const bool gradient = recorded.role == StorageRole::kGradient || part.own_gradients.contains(old);
      if (gradient && passage.micro_batch > 0) {  // gone once it is added to what is there
        storage.released_at = after_last_use(passage, old);
      }
      if (received || gradient || (among(part.sent, old)) ||
          (part.sent_gradients.contains(old) && !part.first)) {
        continue;
      }
      // step() frees losses when it ends, and outputs when it is called again.
      if (recorded.role == StorageRole::kOutput && part.last) {
        storage.released_at = kNever;
      } else if (recorded.role == StorageRole::kLoss) {
        storage.released_at = now();
      } else if (storage.released_at == kNever && storage.allocated_at >= 0) {
        storage.released_at = new_time(passage, recorded.released_at);
      }
    }
    for (std::size_t i = 0; i < trace_.saved.size(); ++i) {
      charge(cut_.budget, 1);
      const TraceSaved& saved = trace_.saved[i];
      const std::int32_t old = storage_of(saved.tensor);
      const auto mine = &part - parts_.data();
      const bool here = old >= 0 && (lasting_[index(old)] >= 0 || passage.storages.contains(old));
      if (!here || saved_by_[i] != static_cast<std::int32_t>(mine * cut_.stages + cut_.stage)) {
        continue;
      }
      take(Bytes{sizeof(TraceSaved)});
      out_.saved.push_back({tensor(passage, saved.tensor), new_time(passage, saved.packed_at),
                            new_time(passage, saved.unpacked_at), new_time(passage, saved.released_at)});
    }
  }

  std::int32_t after_last_use(const Passage& passage, std::int32_t old) const {
    std::int32_t last = 0;
    charge(cut_.budget, passage.part->backward.size());
    for (std::size_t i = 0; i < passage.part->backward.size(); ++i) {
      for_each(trace_.operators[index(passage.part->backward[i])].outputs,
               [&](std::int32_t, std::int32_t storage) {
                 last = storage == old ? static_cast<std::int32_t>(i) : last;
               });
    }
    return passage.backward_at + last + 1;
  }

  // A parameter of this trainer, with the gradient that the first micro-batch leaves.
  void keep(const TraceParameter& parameter) {
    if (lasting_[index(parameter.storage)] < 0) {
      return;
    }
    TraceParameter kept = parameter;
    kept.storage = lasting_[index(parameter.storage)];
    kept.gradient.clear();
    for (const auto& [key, passage] : passages_) {
      charge(cut_.budget, 1);
      if (key.second != 0) {
        continue;
      }
      for (const std::int32_t old : parameter.gradient) {
        const auto found = passage->storages.find(old);
        if (found != passage->storages.end()) {
          kept.gradient.push_back(found->second);
        }
      }
      charge(cut_.budget, passage->part->own_gradients.size());
      for (const std::int32_t old : passage->part->own_gradients) {
        const auto found = passage->storages.find(old);
        const bool fits =
            trace_.storages[index(old)].bytes.c == trace_.storages[index(parameter.storage)].bytes.c;
        if (kept.gradient.empty() && found != passage->storages.end() && fits) {
          kept.gradient.push_back(found->second);
        }
      }
    }
    out_.parameters.push_back(kept);
  }

  const Trace& trace_;
  const PipelineCut& cut_;
  BudgetBytes memory_{cut_.budget};
  Bytes taken_;
  Bytes covered_;
  const std::vector<std::int32_t>& part_of_;  // by operator
  std::vector<Part> parts_;                   // of this trainer, by chunk
  std::vector<std::int32_t> saved_by_;
  std::vector<const TraceTemporary*> temporaries_;
  std::vector<bool> unmeasured_;
  std::vector<std::int32_t> lasting_;  // by storage: parameters, buffers and inputs in the new trace
  std::int32_t receive_ = 0;
  std::int32_t merge_ = 0;
  std::map<std::pair<std::int64_t, std::int64_t>, std::unique_ptr<Passage>> passages_;
  std::vector<std::int32_t> being_sent_;       // outputs
  std::vector<std::int32_t> received_before_;  // gradients, of the micro-batch before
  std::vector<std::int32_t> gradients_sent_;
  Trace out_;
};

}  // namespace

Trace pipeline_trace(const Trace& trace, const PipelineCut& cut, const std::vector<std::int32_t>& parts) {
  return Unroller(trace, cut, parts).run();
}

}  // namespace plimsoll::estimator::parallel
