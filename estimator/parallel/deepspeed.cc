// DeepSpeed's ZeRO in ParameterLifeCycle. Sources: DeepSpeed 0.19.8, deepspeed/runtime/zero/stage_1_and_2.py, stage3.py,
// partition_parameters.py, partitioned_param_coordinator.py and config.py, with config.py's defaults; the order of
// events was recorded in real runs (tests/accuracy/parallel/measure_deepspeed.py).
#include <algorithm>
#include <utility>

#include "estimator/parallel/life_cycle.h"

namespace plimsoll::estimator::inline parallel {
namespace {

// stage3_param_persistence_threshold: parameters of no more elements stay whole.
constexpr std::int64_t kPersistentElements = 100'000;
// stage3_prefetch_bucket_size: each module that is entered has as many elements gathered ahead.
constexpr std::int64_t kPrefetchedElements = 50'000'000;
// stage3_max_live_parameters: elements beyond which nothing is gathered ahead.
constexpr std::int64_t kLiveElements = 1'000'000'000;
// allgather_bucket_size: elements of updated parameters that ZeRO-1 and -2 gather at a time.
constexpr std::int64_t kAllGatherElements = 500'000'000;
// stage3_max_reuse_distance: parameters that are used again before this many elements have been used stay gathered.
constexpr std::int64_t kReuseDistance = 1'000'000'000;
// sub_group_size: elements of a partition that ZeRO-3 updates at a time.
constexpr std::int64_t kSubGroupElements = 1'000'000'000;

}  // namespace

// With parameters in half precision, or an offloaded optimizer, ZeRO-1 is DeepSpeed's too, and not PyTorch's
// ZeroRedundancyOptimizer.
bool ParameterLifeCycle::deepspeed() const {
  const bool beyond_torch =
      offloads_optimizer() || (!parameters_.empty() && has_optimizer_copy(parameters_.front()));
  return zero2() || zero3() || (replication_.strategy == crds::ParallelStrategy::kZeRO1 && beyond_torch);
}

bool ParameterLifeCycle::persists(const ReplicaParameter& parameter) const {
  return parameter.elements <= kPersistentElements;
}

// The optimizer updates a flat copy of this trainer's partition, in full precision too (single_partition_of_fp32_groups,
// fp32_partitioned_groups_flat). ZeRO-3 makes its bucket and the partition's gradients once.
void ParameterLifeCycle::persist_partitions() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const ReplicaParameter& tensor = parameters_[i];
    const Bytes partition = Bytes{shard_elements(tensor)} * tensor.width;
    if (!zero3() || persists(tensor)) {
      ledger_.allocate(Part::kParameters, tensor.bytes(), tensor.count, i);
    }
    if (!offloads_optimizer() && tensor.trained) {
      ledger_.allocate(Part::kParameters, stepped(i).bytes, tensor.count, i);
    }
    if (zero3() && !offloads_parameters()) {
      ledger_.allocate(Part::kParameters, partition, tensor.count, i);
    }
    if (zero3() && !offloads_optimizer() && tensor.trained) {
      ledger_.allocate(Part::kGradients, partition, tensor.count, i);
    }
  }
  if (zero3() && !parameters_.empty()) {
    open_bucket(0);
  }
}

// setup_buckets(): as large as configured, however small the model is.
void ParameterLifeCycle::open_bucket(std::size_t parameter) {
  if (bucket_ < 0) {
    const Bytes bytes = Bytes{replication_.reduce_bucket_elements} * parameters_[parameter].width;
    bucket_ = ledger_.allocate(Part::kDdpBuckets, bytes, 1, parameter);
  }
}

// ZeRO-1 keeps gradients until they are complete; the others move each to the bucket (__add_grad_to_ipg_bucket), or, if
// it exceeds the bucket, leave it where it is until the next one comes (extra_large_param_to_reduce).
void ParameterLifeCycle::to_bucket(std::size_t parameter, BlockId gradient) {
  open_bucket(parameter);
  if (!zero2() && !zero3()) {
    if (kept_gradients_[parameter] >= 0) {
      ledger_.release(gradient);
    } else {
      kept_gradients_[parameter] = gradient;
    }
    return;
  }
  const ReplicaParameter& tensor = parameters_[parameter];
  const bool fits = tensor.elements <= replication_.reduce_bucket_elements;
  for (std::int64_t k = 0; k < tensor.count; ++k) {
    charge(budget_, 1);
    if (bucketed_elements_ + tensor.elements > replication_.reduce_bucket_elements) {
      reduce_bucket();
    }
    if (bucketed_.empty() || bucketed_.back() != parameter) {
      bucketed_.push_back(parameter);
    }
    bucketed_elements_ += tensor.elements;
  }
  if (fits) {
    ledger_.release(gradient);
  } else {
    beside_bucket_.push_back(gradient);
  }
}

// Gradients are copied into one tensor in the order of their owners (stage_1_and_2.py: allreduce_bucket;
// runtime/comm/coalesced_collectives.py: reduce_scatter_coalesced).
void ParameterLifeCycle::reduce_bucket() {
  if (bucketed_.empty()) {
    return;
  }
  const std::size_t first = bucketed_.front();
  const Bytes bytes = Bytes{std::exchange(bucketed_elements_, 0)} * parameters_[first].width;
  const BlockId flat =
      ledger_.allocate(Part::kTemporaries, bytes, 1, first, zero3() ? kReductionStream : kComputeStream);
  if (zero3()) {
    stage(bytes, first);
  }
  ledger_.release(flat);
  for (BlockId& gradient : beside_bucket_) {
    release(gradient);
  }
  beside_bucket_.clear();
  for (const std::size_t parameter : bucketed_) {
    BlockId& kept = kept_gradients_[parameter];
    if (zero2() && !offloads_optimizer() && kept < 0) {
      const ReplicaParameter& tensor = parameters_[parameter];
      kept = ledger_.allocate(Part::kGradients, Bytes{shard_elements(tensor)} * tensor.width, tensor.count,
                              parameter);
    }
  }
  bucketed_.clear();
}

// On one trainer a parameter is its partition (NoGatherCoalescedHandle).
void ParameterLifeCycle::order_uses() {
  whole_.assign(parameters_.size(), -1);
  in_flight_.assign(parameters_.size(), -1);
  BudgetVector<std::size_t> later(budget_);
  for (auto& [id, unit] : units_) {
    unit.used_from = used_.size();
    for (const std::size_t member : unit.members) {
      const ReplicaParameter& tensor = parameters_[member];
      const bool partitioned = shards(tensor) > 1 || offloads_parameters();
      if (partitioned && !persists(tensor)) {
        (id == kRootUnit && !used_.empty() ? later : used_).push_back(member);
      }
    }
    unit.used_to = used_.size();
  }
  used_after_units_ = used_.size();
  used_.insert(used_.end(), later.begin(), later.end());
}

std::size_t ParameterLifeCycle::used_at(std::int64_t use) const {
  const auto count = static_cast<std::int64_t>(used_.size());
  return used_[static_cast<std::size_t>(use < count ? use : 2 * count - 1 - use)];
}

// fetch_sub_module() of the module that has the parameter. It is gathered if it is not there, then others ahead.
void ParameterLifeCycle::use(std::int64_t at) {
  charge(budget_, 1);
  const std::size_t parameter = used_at(at);
  const ReplicaParameter& tensor = parameters_[parameter];
  if (std::int64_t& flight = in_flight_[parameter]; flight >= 0) {
    Flight& of = flights_[static_cast<std::size_t>(flight)];
    land(of);
    flight = -1;
    if (--of.waiting == 0) {
      release(of.buffer);
    }
  } else if (whole_[parameter] < 0) {
    whole_[parameter] =
        ledger_.allocate(Part::kTemporaries, tensor.bytes(), tensor.count, parameter, kCommunicationStream);
    stage(tensor.bytes(), parameter);
    live_elements_ += tensor.elements * tensor.count;
  }
  next_use_ = std::max(next_use_, at + 1);
  prefetch();
}

// A single parameter is gathered in place (_all_gather_sequential), several into a buffer that they are copied out of.
void ParameterLifeCycle::prefetch() {
  const std::int64_t most = std::min(kLiveElements - live_elements_, kPrefetchedElements);
  Flight flight{.from = next_use_};
  std::int64_t elements = 0;
  std::size_t first = 0;
  Bytes whole;
  Bytes largest;
  while (next_use_ < uses() && elements < most) {
    charge(budget_, 1);
    const std::size_t parameter = used_at(next_use_++);
    const ReplicaParameter& tensor = parameters_[parameter];
    if (whole_[parameter] < 0 && in_flight_[parameter] < 0) {
      in_flight_[parameter] = static_cast<std::int64_t>(flights_.size());
      elements += tensor.elements * tensor.count;
      whole += tensor.bytes() * tensor.count;
      largest = std::max(largest, tensor.bytes());
      first = flight.waiting++ == 0 ? parameter : first;
    }
  }
  flight.to = next_use_;
  if (flight.waiting == 0) {
    return;
  }
  live_elements_ += elements;
  const ReplicaParameter& tensor = parameters_[first];
  if (flight.waiting == 1 && tensor.count == 1) {
    in_flight_[first] = -1;
    whole_[first] = ledger_.allocate(Part::kTemporaries, whole, 1, first, kCommunicationStream);
    stage(whole, first);
    return;
  }
  // Equal parameters are one here; their modules are gathered for one after the other.
  const Bytes buffered = std::min(whole, Bytes{kPrefetchedElements} * tensor.width + largest);
  flight.buffer = ledger_.allocate(Part::kTemporaries, buffered, 1, first, kCommunicationStream);
  stage(buffered, first);
  flights_.push_back(flight);
}

// AllGatherCoalescedHandle.wait(): all its parameters are copied out when the first is needed. The buffer lives until the
// last has been needed (__inflight_param_registry).
void ParameterLifeCycle::land(Flight& flight) {
  if (std::exchange(flight.copied_out, true)) {
    return;
  }
  const auto index = static_cast<std::int64_t>(&flight - flights_.data());
  for (std::int64_t at = flight.from; at < flight.to; ++at) {
    const std::size_t parameter = used_at(at);
    if (in_flight_[parameter] == index && whole_[parameter] < 0) {
      whole_[parameter] = ledger_.allocate(Part::kTemporaries, parameters_[parameter].bytes(),
                                           parameters_[parameter].count, parameter, kCommunicationStream);
    }
  }
}

// The root's own module has no parameters, but gathers ahead.
void ParameterLifeCycle::fetch_forward(std::int32_t id) {
  if (id == kRootUnit) {
    next_use_ = 0;
    prefetch();
  }
  const auto entered = units_.find(id);
  if (entered == units_.end()) {
    return;
  }
  const auto before = entered == units_.begin() ? entered : std::prev(entered);
  if (before->first == kRootUnit && id != kRootUnit && used_after_units_ < used_.size() &&
      reshards_after_forward(before->second)) {
    reshard(before->second);
  }
  for (std::size_t i = entered->second.used_from; i < entered->second.used_to; ++i) {
    use(static_cast<std::int64_t>(i));
  }
}

// After the units come what the root uses in the end.
void ParameterLifeCycle::fetch_after(std::int32_t id) {
  for (std::size_t i = used_after_units_; i < used_.size() && id == units_.rbegin()->first; ++i) {
    use(static_cast<std::int64_t>(i));
  }
}

void ParameterLifeCycle::fetch_backward(std::int32_t id) {
  const auto backward = [&](std::size_t from, std::size_t to) {
    for (std::size_t i = to; i > from; --i) {
      use(uses() - static_cast<std::int64_t>(i));
    }
  };
  if (!units_.empty() && id == units_.rbegin()->first) {
    backward(used_after_units_, used_.size());
    drop(used_after_units_, used_.size());
  }
  const auto entered = units_.find(id);
  if (entered != units_.end()) {
    backward(entered->second.used_from, entered->second.used_to);
  }
}

// reset_step().
void ParameterLifeCycle::finish_fetches() {
  drop(0, used_.size());
  for (Flight& flight : flights_) {
    release(flight.buffer);
  }
  flights_.clear();
  std::fill(in_flight_.begin(), in_flight_.end(), -1);
}

void ParameterLifeCycle::drop(std::size_t from, std::size_t to) {
  for (std::size_t i = from; i < to; ++i) {
    const ReplicaParameter& tensor = parameters_[used_[i]];
    if (BlockId& whole = whole_[used_[i]]; whole >= 0) {
      release(whole);
      live_elements_ -= tensor.elements * tensor.count;
    }
  }
}

// release_sub_module(): __params_to_release keeps what is used again within kReuseDistance. Between a unit's forward
// and its backward all later units are used twice.
bool ParameterLifeCycle::reshards_after_forward(const Unit& unit) const {
  return replication_.reshard_after_forward && (!zero3() || 2 * unit.elements_after >= kReuseDistance);
}

// step(): the partition's gradients are copied into one tensor, that into one of the optimizer's precision, and the
// optimizer sees one flat parameter.
void ParameterLifeCycle::step_partitions() {
  std::size_t begin = 0;
  while (begin < parameters_.size()) {
    std::size_t end = begin;
    std::int64_t elements = 0;
    while (end < parameters_.size() && (!zero3() || elements < kSubGroupElements)) {
      charge(budget_, 1);
      elements += parameters_[end].trained ? shard_elements(parameters_[end]) * parameters_[end].count : 0;
      ++end;
    }
    if (elements == 0) {
      return;  // the last parameters are frozen
    }
    const std::int64_t width = parameters_[begin].width;
    const std::int64_t optimizer_width = parameters_[begin].optimizer_width;
    BlockId averaged = -1;
    if (!zero2() && !zero3()) {  // ZeRO-1: of the whole gradients this trainer's partition remains
      for (BlockId& kept : kept_gradients_) {
        release(kept);
      }
      averaged = ledger_.allocate(Part::kGradients, Bytes{elements} * width, 1, begin);
    }
    BlockId flat = ledger_.allocate(Part::kGradients, Bytes{elements} * width, 1, begin);
    if (optimizer_width != width) {
      const BlockId cast = ledger_.allocate(Part::kGradients, Bytes{elements} * optimizer_width, 1, begin);
      release(flat);
      flat = cast;
    }
    release(averaged);
    for (BlockId& kept : kept_gradients_) {
      release(kept);
    }
    const Bytes bytes = Bytes{elements} * optimizer_width;
    step({SteppedParameter{
        .id = begin, .bytes = bytes, .elements = elements, .rows = 1, .dimensions = 1, .gradient = bytes}});
    release(flat);
    begin = end;
  }
  // all_gather_dp_groups(): into the parameters themselves.
  if (!zero3() && shards() > 1) {
    Bytes whole;
    for (const ReplicaParameter& tensor : parameters_) {
      whole += tensor.bytes() * tensor.count;
    }
    stage(std::min(whole, Bytes{kAllGatherElements} * parameters_.front().width), 0);
  }
}

}  // namespace plimsoll::estimator::parallel
