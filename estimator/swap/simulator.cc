#include "estimator/swap/simulator.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "estimator/swap/event_sink.h"

namespace plimsoll::estimator::inline swap {
namespace {

// A microbatch of `size` samples, by its index, needs this one of `made`.
std::size_t maker_of(std::size_t index, std::int64_t size, std::int64_t made) {
  return static_cast<std::size_t>(((static_cast<std::int64_t>(index) + 1) * size - 1) / made);
}

template <class Sink>
class IterationWriter {
 public:
  using Event = typename Sink::Event;
  static constexpr Event kNone = Sink::kNone;

  IterationWriter(const SwapPlan& plan, SwapCosts& costs, const SwapMachine& machine, Sink& sink)
      : plan_(plan),
        costs_(costs),
        machine_(machine),
        sink_(sink),
        forward_(*costs.forward(plan.forward_microbatch)),
        recompute_(*costs.forward(plan.backward_microbatch)),
        backward_(*costs.backward(plan.backward_microbatch)),
        tasks_(packed_tasks(plan, costs.layers())),
        is_pipeline_(plan.mode == SwapMode::kVPP && plan.gpus > 1),
        by_p2p_(is_pipeline_ && plan.peer_to_peer && hands_over_by_p2p(machine)),
        samples_(plan.mode == SwapMode::kVDP ? plan.samples / plan.gpus : plan.samples),
        states_(tasks_.size()),
        last_of_(static_cast<std::size_t>(plan.gpus)),
        compute_(static_cast<std::size_t>(plan.gpus)) {
    is_resident_.resize(costs.layers());
    for (const std::size_t layer : plan.resident) {
      is_resident_[layer] = true;
    }
    share_pins();
  }

  void write() {
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
      index_ = i;
      task_ = &tasks_[i];
      state_ = &states_[i];
      tasks_[i].forward ? forward() : backward();
      Last& last = last_of_[static_cast<std::size_t>(task_->gpu)];
      last = {.task = task_, .state = state_, .before = last.state};
    }
    const std::size_t first = tasks_.size() - last_gradients_.size();
    for (std::size_t i = first; i < tasks_.size(); ++i) {
      index_ = i;
      task_ = &tasks_[i];
      update_residents(last_gradients_.back());
      update(last_gradients_.back());
    }
  }
  std::vector<double> compute_seconds() const { return compute_; }

 private:
  using After = std::array<Event, 4>;
  struct State {
    std::vector<Event> computed;    // the last of each microbatch
    std::vector<Event> recomputed;  // of a backward task
    std::vector<Event> handed;      // that have reached the host
    Event ended = kNone;            // what the task held is free
  };
  struct Last {  // of a GPU
    const PackedTask* task = nullptr;
    const State* state = nullptr;
    const State* before = nullptr;
  };

  bool published() const { return machine_.runtime == SwapRuntime::kPublished; }
  bool turns() const { return task_->end == costs_.layers() && !task_->forward; }
  const Last& left() const { return last_of_[static_cast<std::size_t>(task_->gpu)]; }

  Event add(SwapAction action, SwapStream stream, double seconds, std::size_t microbatch,
            const After& after) {
    const bool is_compute =
        action == SwapAction::kForward || action == SwapAction::kRecompute || action == SwapAction::kBackward;
    if (is_compute) {
      compute_[static_cast<std::size_t>(task_->gpu)] += seconds;
    }
    return sink_.run({.action = action,
                      .stream = stream,
                      .gpu = stream == SwapStream::kHost && !published() ? 0 : task_->gpu,
                      .task = static_cast<std::int32_t>(index_),
                      .microbatch = static_cast<std::int32_t>(microbatch),
                      .seconds = seconds},
                     after);
  }
  Event move(SwapAction action, SwapStream stream, double bytes, std::size_t microbatch, const After& after) {
    return sink_.run({.action = action,
                      .stream = stream,
                      .gpu = task_->gpu,
                      .task = static_cast<std::int32_t>(index_),
                      .microbatch = static_cast<std::int32_t>(microbatch),
                      .bytes = bytes},
                     after);
  }
  Event take_over(SwapAction action, Bytes bytes, std::size_t microbatch, const After& after) {
    return sink_.run({.action = action,
                      .stream = SwapStream::kP2POut,
                      .gpu = tasks_[index_ - 1].gpu,
                      .peer = task_->gpu,
                      .task = static_cast<std::int32_t>(index_),
                      .microbatch = static_cast<std::int32_t>(microbatch),
                      .bytes = static_cast<double>(bytes.count)},
                     after);
  }
  static double count(Bytes bytes) { return static_cast<double>(bytes.count); }

  // Bytes of a layer's weights, as many more as its transfer takes longer because they are not in pinned memory.
  void share_pins() {
    weight_bytes_.resize(costs_.layers());
    Bytes left = machine_.pinned;
    const bool slower =
        machine_.pageable_bandwidth > 0 && machine_.pageable_bandwidth < machine_.host_bandwidth;
    if (slower &&
        left != Bytes::max()) {  // gradients, stashes and what is handed over come first: they move both ways
      const PackedVolumes volumes = packed_volumes(plan_, costs_.profile(), machine_.runtime);
      left =
          left - volumes.gradients_out - Bytes{volumes.stash.count / 2} - Bytes{volumes.hand_over.count / 2};
    }
    for (std::size_t i = 0; i < weight_bytes_.size(); ++i) {
      const Bytes bytes = is_resident_[i] ? Bytes{} : costs_.profile().moved(i);
      const bool fits = !slower || left >= bytes;
      left = left - bytes;
      weight_bytes_[i] = count(bytes) * (fits ? 1 : machine_.host_bandwidth / machine_.pageable_bandwidth);
    }
  }

  // ---- what tasks share ----

  // `again`: for a microbatch that follows others, if they are not grouped.
  Event weights(Event again = kNone) {
    const Last& last = left();
    Event after = again;
    if (again == kNone && last.task != nullptr) {
      after = plan_.prefetch ? last.state->computed.back() : last.state->ended;
    }
    double bytes = 0;
    for (std::size_t layer = task_->first; layer < task_->end; ++layer) {
      const bool stays = !published() && again == kNone && last.task != nullptr &&
                         last.task->first <= layer && layer < last.task->end;
      bytes += stays || is_resident_[layer] ? 0 : weight_bytes_[layer];
    }
    return move(SwapAction::kWeights, SwapStream::kIn, bytes, 0, {after, kNone, kNone, kNone});
  }

  // What the arrival of a microbatch's input waits for beside its maker. Without prefetch one is on the GPU at a time; else
  // two, and the first ones arrive during the task before.
  Event turn_of(std::size_t microbatch, Event weights, Event previous) const {
    if (!plan_.prefetch) {
      return microbatch == 0 ? weights : previous;
    }
    if (microbatch >= 2) {
      return state_->computed[microbatch - 2];
    }
    const Last& last = left();
    if (last.task == nullptr) {
      return kNone;
    }
    return microbatch == 1 ? last.state->ended : second_last_of(last);
  }
  static Event second_last_of(const Last& last) {
    const std::vector<Event>& computed = last.state->computed;
    if (computed.size() >= 2) {
      return computed[computed.size() - 2];
    }
    return last.before != nullptr ? last.before->ended : kNone;
  }

  Event input(std::size_t microbatch, const PassCosts& pass, std::int64_t size, Event turn) {
    const Bytes bytes = pass.input(task_->first);
    if (index_ == 0) {
      return move(SwapAction::kInput, SwapStream::kIn, count(bytes), microbatch, {turn, kNone, kNone, kNone});
    }
    const State& before = states_[index_ - 1];
    const bool recut = turns() && plan_.forward_microbatch != plan_.backward_microbatch;
    if (by_p2p_ && !recut) {
      return take_over(SwapAction::kInput, bytes, microbatch,
                       {before.computed[microbatch], turn, kNone, kNone});
    }
    const std::size_t maker = before.handed.size() == microbatches(size)
                                  ? microbatch
                                  : maker_of(microbatch, size, plan_.forward_microbatch);
    return move(SwapAction::kInput, SwapStream::kIn, count(bytes), microbatch,
                {before.handed[maker], turn, kNone, kNone});
  }

  std::size_t microbatches(std::int64_t size) const { return static_cast<std::size_t>(samples_ / size); }

  Event free(Event after) {
    return add(SwapAction::kFree, SwapStream::kCompute, machine_.task_seconds, 0,
               {after, kNone, kNone, kNone});
  }

  // From one process's host memory to another's: read and written, so that each byte counts twice.
  Event copy(Bytes bytes, std::int32_t to, std::size_t microbatch, Event after) {
    const double seconds =
        to == task_->gpu ? 0
                         : 2 * count(bytes) * static_cast<double>(used_gpus()) / machine_.host_copy_bandwidth;
    return add(SwapAction::kHostCopy, SwapStream::kHost, seconds, microbatch, {after, kNone, kNone, kNone});
  }
  std::int64_t used_gpus() const {
    return plan_.mode == SwapMode::kVDP
               ? plan_.gpus
               : std::min<std::int64_t>(plan_.gpus, static_cast<std::int64_t>(tasks_.size()));
  }

  // ---- a forward task ----

  // The backward microbatches whose last sample the forward microbatch has.
  std::pair<std::size_t, std::size_t> made_by(std::size_t microbatch) const {
    const auto samples = static_cast<std::int64_t>(microbatch) * plan_.forward_microbatch;
    return {static_cast<std::size_t>(samples / plan_.backward_microbatch),
            static_cast<std::size_t>((samples + plan_.forward_microbatch) / plan_.backward_microbatch)};
  }

  const PackedTask& backward_task_of(std::size_t head) const {
    return *std::find_if(tasks_.begin(), tasks_.end(),
                         [&](const PackedTask& task) { return !task.forward && task.first == head; });
  }

  // The input of a backward pack, and when each of its microbatches is there.
  Event stash(std::size_t head, std::size_t microbatch, Event made, Event turn) {
    const Event out = move(SwapAction::kStash, SwapStream::kOut, count(forward_.input(head)), microbatch,
                           {made, turn, kNone, kNone});
    std::vector<Event>& ready = stashed_[head];
    const auto [begin, end] = made_by(microbatch);
    const std::int32_t to = published() ? backward_task_of(head).gpu : 0;  // else nothing is copied
    for (std::size_t i = begin; i < end; ++i) {
      ready.push_back(published() ? copy(recompute_.input(head), to, i, out) : out);
    }
    return out;
  }

  void forward() {
    std::vector<std::size_t> heads;
    for (const std::size_t head : plan_.backward_packs) {
      const bool is_stashed = head != plan_.backward_packs.back() && (head > 0 || published());
      if (is_stashed && task_->first <= head && head < task_->end) {
        heads.push_back(head);
      }
    }
    heads.push_back(task_->end);
    const bool inputs_first = plan_.prefetch && !is_pipeline_;
    Event weights_here = inputs_first ? kNone : weights();
    Event previous = kNone;
    Event out = kNone;
    for (std::size_t i = 0; i < microbatches(plan_.forward_microbatch); ++i) {
      const Event arrived = input(i, forward_, plan_.forward_microbatch, turn_of(i, weights_here, previous));
      if (i == 0 && inputs_first) {
        weights_here = weights();
      } else if (i > 0 && !machine_.principles.group) {
        weights_here = weights(previous);
      }
      After waits{arrived, weights_here, kNone, kNone};
      Event computed = kNone;
      std::size_t done = task_->first;
      for (const std::size_t head : heads) {
        if (head > done) {
          computed = add(SwapAction::kForward, SwapStream::kCompute, forward_.seconds(done, head), i, waits);
          waits = {kNone, kNone, kNone, kNone};
        }
        if (head < task_->end && !stays(head)) {
          Event turn = kNone;
          if (head == task_->first && plan_.prefetch) {
            turn = i == 0 ? (left().state != nullptr ? left().state->ended : kNone) : state_->computed[i - 1];
          }
          const Event gone = stash(head, i, head == task_->first ? arrived : computed, turn);
          if (!plan_.prefetch) {
            waits[2] = gone;
          }
        }
        done = head;
      }
      state_->computed.push_back(computed);
      out = hand_over_result(i, computed);
      previous = is_pipeline_ ? computed : out;
    }
    state_->ended = free(!plan_.prefetch && !is_pipeline_ ? out : kNone);
  }

  Event hand_over_result(std::size_t microbatch, Event computed) {
    const bool turn_is_next = !tasks_[index_ + 1].forward;
    const bool recut = turn_is_next && plan_.forward_microbatch != plan_.backward_microbatch;
    if (by_p2p_ && !recut) {
      return computed;  // the next task's GPU takes it
    }
    const Event out = move(SwapAction::kResult, SwapStream::kOut, count(forward_.input(task_->end)),
                           microbatch, {computed, kNone, kNone, kNone});
    if (published() && is_pipeline_ && recut) {
      const auto [begin, end] = made_by(microbatch);
      for (std::size_t i = begin; i < end; ++i) {
        state_->handed.push_back(copy(recompute_.input(task_->end), tasks_[index_ + 1].gpu, i, out));
      }
    } else {
      state_->handed.push_back(out);
    }
    return out;
  }

  // ---- a backward task ----

  // Whether the stash of the backward pack that begins there is on its GPU already.
  bool stays(std::size_t head) const { return std::ranges::binary_search(plan_.resident_stashes, head); }

  Event stashed_input(std::size_t microbatch, Event turn) {
    if (stays(task_->first)) {
      return kNone;
    }
    const auto ready = stashed_.find(task_->first);
    return move(ready == stashed_.end() ? SwapAction::kInput : SwapAction::kStash, SwapStream::kIn,
                count(recompute_.input(task_->first)), microbatch,
                {ready == stashed_.end() ? kNone : ready->second[microbatch], turn, kNone, kNone});
  }

  Event gradient_of_result(std::size_t microbatch, Event recomputed) {
    const State& before = states_[index_ - 1];
    Event turn = recomputed;
    if (plan_.prefetch) {
      const Last& last = left();
      if (microbatch > 0) {
        turn = state_->recomputed[microbatch - 1];
      } else if (last.task == nullptr) {
        turn = kNone;
      } else if (!is_pipeline_ || (!last.task->forward && last.task->end < costs_.layers())) {
        turn = last.state->recomputed.empty() ? kNone : last.state->recomputed.back();
      } else {
        turn = second_last_of(last);
      }
    }
    const Bytes bytes = recompute_.input(task_->end);
    if (by_p2p_) {
      return take_over(SwapAction::kGradientOfResult, bytes, microbatch,
                       {before.computed[microbatch], turn, kNone, kNone});
    }
    return move(SwapAction::kGradientOfResult, SwapStream::kIn, count(bytes), microbatch,
                {before.handed[microbatch], turn, kNone, kNone});
  }

  void backward() {
    const bool inputs_first = plan_.prefetch && (!turns() || !is_pipeline_);
    Event weights_here = inputs_first ? kNone : weights();
    Event previous = kNone;
    Event out = kNone;
    for (std::size_t i = 0; i < microbatches(plan_.backward_microbatch); ++i) {
      const Event turn = turn_of(i, weights_here, previous);
      const Event arrived =
          turns() ? input(i, recompute_, plan_.backward_microbatch, turn) : stashed_input(i, turn);
      Event gradient = kNone;
      if (!turns() && plan_.prefetch) {
        gradient = gradient_of_result(i, kNone);
      }
      if (i == 0 && inputs_first) {
        weights_here = weights();
      } else if (i > 0 && !machine_.principles.group) {
        weights_here = gradients_return(i, weights(previous));
      }
      const double forward_seconds = recompute_.seconds(task_->first, task_->end);
      const Event recomputed = add(SwapAction::kRecompute, SwapStream::kCompute, forward_seconds, i,
                                   {arrived, weights_here, kNone, kNone});
      state_->recomputed.push_back(recomputed);
      if (!turns() && !plan_.prefetch) {
        gradient = gradient_of_result(i, recomputed);
      }
      const Event computed = add(SwapAction::kBackward, SwapStream::kCompute,
                                 std::max(0.0, backward_.seconds(task_->first, task_->end) - forward_seconds),
                                 i, {gradient, recomputed, kNone, kNone});
      state_->computed.push_back(computed);
      out = kNone;
      if (task_->first > 0 && !by_p2p_) {
        out = move(SwapAction::kGradientOfInput, SwapStream::kOut, count(recompute_.input(task_->first)), i,
                   {computed, kNone, kNone, kNone});
        state_->handed.push_back(out);
      }
      previous = is_pipeline_ || out == kNone ? computed : out;
    }
    finish_backward(state_->computed.back(), plan_.prefetch || is_pipeline_ ? kNone : out);
  }

  void finish_backward(Event computed, Event last_out) {
    const double bytes = count(gradients());
    Event reduced = kNone;
    if (plan_.mode == SwapMode::kVDP && plan_.gpus > 1) {
      // Published: a ring. plimsoll.harmony: each GPU adds its gradients to those that the one before it hands over.
      const auto others = static_cast<double>(plan_.gpus - 1);
      const double moved = published() ? 2 * others / static_cast<double>(plan_.gpus) : others;
      const double bandwidth =
          machine_.p2p_bandwidth > 0 ? machine_.p2p_bandwidth : machine_.host_bandwidth / 2;
      reduced = add(SwapAction::kAllReduce, SwapStream::kCompute, moved * bytes / bandwidth, 0,
                    {computed, last_out, kNone, kNone});
    }
    const Event gone =
        move(SwapAction::kGradients, SwapStream::kOut, bytes, 0, {computed, reduced, last_out, kNone});
    if (machine_.principles.just_in_time) {
      update_residents(computed);
      state_->ended = free(gone);
      update(gone);
    } else {
      state_->ended = free(gone);
      last_gradients_.push_back(gone);
    }
  }

  template <class Amount>
  auto of_residents(const Amount& amount_of) const {
    auto sum = amount_of(task_->first, task_->first);
    for (std::size_t layer = task_->first; layer < task_->end; ++layer) {
      if (is_resident_[layer]) {
        sum += amount_of(layer, layer + 1);
      }
    }
    return sum;
  }

  // Those that leave.
  Bytes gradients() const {
    const auto of = [&](std::size_t first, std::size_t end) {
      return costs_.gradients(first, end, machine_.runtime);
    };
    return of(task_->first, task_->end) - of_residents(of);
  }

  void update(Event gradients) {
    const auto of = [&](std::size_t first, std::size_t end) { return costs_.update_seconds(first, end); };
    add(SwapAction::kUpdate, SwapStream::kHost,
        std::max(0.0, of(task_->first, task_->end) - of_residents(of)), 0, {gradients, kNone, kNone, kNone});
  }

  void update_residents(Event gradients) {
    const double seconds = of_residents([&](std::size_t first, std::size_t end) {
      return first == end ? 0 : resident_update_seconds(costs_.profile(), first, machine_);
    });
    if (seconds > 0) {
      add(SwapAction::kUpdate, SwapStream::kCompute, seconds, 0, {gradients, kNone, kNone, kNone});
    }
  }

  // The gradients of the microbatches before leave, and come back to be added to.
  Event gradients_return(std::size_t microbatch, Event weights) {
    const double bytes = count(gradients());
    const Event out = move(SwapAction::kGradients, SwapStream::kOut, bytes, microbatch,
                           {state_->computed.back(), kNone, kNone, kNone});
    return move(SwapAction::kGradients, SwapStream::kIn, bytes, microbatch, {out, weights, kNone, kNone});
  }

  const SwapPlan& plan_;
  SwapCosts& costs_;
  const SwapMachine& machine_;
  Sink& sink_;
  const PassCosts& forward_;
  const PassCosts& recompute_;
  const PassCosts& backward_;
  std::vector<PackedTask> tasks_;
  bool is_pipeline_;
  bool by_p2p_;
  std::int64_t samples_;  // of a task
  std::vector<State> states_;
  std::vector<Last> last_of_;
  std::vector<double> compute_;
  std::vector<double> weight_bytes_;
  std::vector<bool> is_resident_;
  std::vector<Event> last_gradients_;  // of each backward task, if nothing is updated before the end
  std::map<std::size_t, std::vector<Event>> stashed_;  // by the pack's first layer

  std::size_t index_ = 0;
  const PackedTask* task_ = nullptr;
  State* state_ = nullptr;
};

template <class Sink>
SwapTimes run(const SwapPlan& plan, SwapCosts& costs, const SwapMachine& machine,
              std::vector<SwapEvent>* timeline, Budget* budget) {
  Sink sink(plan.gpus, machine, timeline);
  IterationWriter<Sink> writer(plan, costs, machine, sink);
  writer.write();
  SwapTimes times;
  times.seconds = sink.finish(budget);
  times.compute_seconds = writer.compute_seconds();
  return times;
}

Error not_measured(const char* pass, std::int64_t microbatch) {
  return invalid("the profile has no " + std::string(pass) + " pass with microbatches of " +
                 std::to_string(microbatch) + " samples");
}

}  // namespace

double resident_update_seconds(const SwapProfile& profile, std::size_t layer, const SwapMachine& machine) {
  const Bytes kept = profile.kept_on_host(layer);
  const Bytes bytes = (kept + profile.state[layer]) * 2 + profile.weights[layer] +
                      (profile.moves_as_kept(layer) ? Bytes{} : profile.weights[layer]);
  return static_cast<double>(bytes.count) / machine.gpu_memory_bandwidth;
}

const char* name_of(SwapStream stream) {
  static constexpr std::array<const char*, kSwapStreams> kNames = {"swap in", "swap out", "compute",
                                                                   "P2P in",  "P2P out",  "host"};
  return kNames[static_cast<std::size_t>(stream)];
}

const char* name_of(SwapAction action) {
  switch (action) {
    case SwapAction::kWeights: return "weights";
    case SwapAction::kInput: return "input";
    case SwapAction::kStash: return "stash";
    case SwapAction::kGradientOfResult: return "gradient of the result";
    case SwapAction::kForward: return "forward";
    case SwapAction::kRecompute: return "recompute";
    case SwapAction::kBackward: return "backward";
    case SwapAction::kResult: return "result";
    case SwapAction::kGradientOfInput: return "gradient of the input";
    case SwapAction::kHostCopy: return "copy";
    case SwapAction::kAllReduce: return "all-reduce";
    case SwapAction::kGradients: return "gradients";
    case SwapAction::kFree: return "free";
    case SwapAction::kUpdate: return "update";
  }
  return "";
}

Result<SwapTimes> simulate_swap(const SwapPlan& plan, SwapCosts& costs, const SwapMachine& machine,
                                std::vector<SwapEvent>* timeline, Budget* budget) {
  if (!(machine.host_bandwidth > 0)) {
    return invalid("the machine needs a bandwidth between host and GPUs above 0");
  }
  if (costs.forward(plan.forward_microbatch) == nullptr) {
    return not_measured("forward", plan.forward_microbatch);
  }
  if (costs.backward(plan.backward_microbatch) == nullptr ||
      costs.forward(plan.backward_microbatch) == nullptr) {
    return not_measured("backward", plan.backward_microbatch);
  }
  if (!(plan.resident.empty() && plan.resident_stashes.empty()) &&
      machine.runtime == SwapRuntime::kPublished) {
    return invalid(
        "nothing stays on a GPU under Harmony's own runtime: resident and residentStashes must be empty");
  }
  if (!plan.resident.empty() && !(machine.gpu_memory_bandwidth > 0)) {
    return invalid("the machine needs a bandwidth of the GPUs' memory above 0, for layers that stay there");
  }
  const bool alone = machine.gpus_per_root == 1 || plan.gpus == 1;
  // The GPUs of vDP do the same at the same time, and so have equal shares.
  if (machine.fixed_shares || alone || plan.mode == SwapMode::kVDP) {
    return run<EventClock>(plan, costs, machine, timeline, budget);
  }
  return run<EventGraph>(plan, costs, machine, timeline, budget);
}

}  // namespace plimsoll::estimator::swap
