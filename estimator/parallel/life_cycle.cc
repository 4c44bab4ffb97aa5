#include "estimator/parallel/life_cycle.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <string>
#include <utility>

namespace plimsoll::estimator::inline parallel {
namespace {

// The unit of what is_apart() in a unit. Traces have fewer units than this.
constexpr std::int32_t apart_of(std::int32_t unit) {
  return unit + (1 << 30);
}

std::int64_t divided(std::int64_t whole, std::int64_t parts) {
  return whole / parts + (whole % parts != 0 ? 1 : 0);
}

}  // namespace

Result<void> check_replicate(const crds::Parallelism& parallelism, std::int64_t holders) {
  using enum crds::ParallelStrategy;
  const std::int64_t replicate = parallelism.replicate;
  const auto refuse = [&](const std::string& why) {
    return invalid("training.parallelism.replicate is " + std::to_string(replicate) + " and " + why);
  };
  if (replicate == 1) {
    return {};
  }
  if (parallelism.strategy != kFSDP && parallelism.strategy != kFSDP2) {
    return refuse("goes with strategy FSDP or FSDP2");
  }
  if (replicate < 1 || holders % replicate != 0) {
    return refuse("must divide the " + std::to_string(holders) + " trainers that hold the same parameters");
  }
  if (parallelism.strategy == kFSDP && replicate == holders) {
    return refuse("leaves FSDP one trainer a group, which shards nothing: use DDP");
  }
  return {};
}

std::string padding_warning(const std::string& name, const ReplicaParameter& parameter, std::int64_t shards) {
  const std::int64_t rows = std::max<std::int64_t>(1, parameter.first);
  const std::int64_t padded = divided(rows, shards) * shards;
  if (padded < 2 * rows) {
    return {};
  }
  return name + " has " + std::to_string(rows) + " rows, which FSDP2 pads to " + std::to_string(padded) +
         " for " + std::to_string(shards) + " trainers: it is gathered " + std::to_string(padded / rows) +
         " times as large as it is. fully_shard's shard_placement_fn can shard it along another dimension; experts "
         "can have parameters of their own (transformer.splitExperts) or be shared by trainers "
         "(parallelism.expert), or HSDP's groups be smaller (parallelism.replicate)";
}

Result<void> check_steps(const crds::Parallelism& parallelism, bool steps_in_backward, std::int64_t holders,
                         std::int64_t micro_batches) {
  using enum crds::ParallelStrategy;
  if (!steps_in_backward) {
    return {};
  }
  const auto refuse = [](const std::string& why) { return invalid("training.optimizerInBackward " + why); };
  if (micro_batches > 1) {
    return refuse("needs gradientAccumulation 1: a gradient is complete after the last micro-batch");
  }
  if (holders > 1 && parallelism.strategy != kFSDP && parallelism.strategy != kFSDP2) {
    return refuse("on several trainers needs parallelism.strategy FSDP or FSDP2");
  }
  if (parallelism.offload != crds::Offload::kNone) {
    return refuse("does not go with parallelism.offload");
  }
  return {};
}

ParameterLifeCycle::ParameterLifeCycle(ParameterLedger& ledger, const Replication& replication,
                                       BudgetVector<ReplicaParameter> parameters,
                                       const OptimizerRun& optimizer, Budget* budget)
    : ledger_(ledger),
      budget_(budget),
      replication_(replication),
      parameters_(std::move(parameters)),
      has_frozen_(std::any_of(parameters_.begin(), parameters_.end(),
                              [](const ReplicaParameter& each) { return !each.trained; })),
      optimizer_(optimizer),
      memory_of_units_(budget),
      owner_(budget),
      on_host_(budget),
      kept_gradients_(parameters_.size(), -1, budget),
      bucketed_(budget),
      beside_bucket_(budget),
      used_(budget),
      whole_(budget),
      in_flight_(budget),
      flights_(budget) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    charge(budget_, 1);
    unit(unit_of(parameters_[i])).members.push_back(i);
  }
  for (auto& [id, unit] : units_) {
    bool shares_experts = false;
    unit.largest = unit.members.front();
    unit.first_trained = unit.members.front();
    Bytes unpadded;
    for (const std::size_t member : unit.members) {
      const ReplicaParameter& parameter = parameters_[member];
      unit.largest = parameter.bytes() > parameters_[unit.largest].bytes() ? member : unit.largest;
      const std::int64_t mine = shard_elements(parameter) * parameter.count;
      const Bytes padded = replication_.without_padding ? Bytes{parameter.elements} * parameter.count
                                                        : Bytes{mine} * shards(parameter);
      unit.elements += parameter.elements * parameter.count;
      shares_experts = shares_experts || parameter.experts_over > 1;
      unpadded += parameter.bytes() * parameter.count;
      unit.whole += padded * parameter.width;
      unit.shard += Bytes{mine} * parameter.width;
      unit.buffered += padded * (parameter.gathered_width > 0 ? parameter.gathered_width : parameter.width);
      if (parameter.trained) {
        unit.first_trained = unit.trained++ == 0 ? member : unit.first_trained;
        unit.trained_unpadded += parameter.bytes() * parameter.count;
        unit.trained_whole += padded * parameter.width;
        unit.trained_shard += Bytes{mine} * parameter.width;
      }
    }
    if (fsdp1() && !shares_experts) {  // one flat parameter, padded at its end
      const std::int64_t width = parameters_[unit.members.front()].width;
      unit.shard = Bytes{divided(unpadded.count / width, shards())} * width;
      unit.whole = replication_.without_padding ? unpadded : unit.shard * shards();
      unit.trained_whole = unit.whole;
      unit.trained_shard = unit.shard;
    }
    unit.whole = gathers() ? unit.whole : unpadded;
  }
  std::int64_t elements_after = 0;
  for (auto unit = units_.rbegin(); unit != units_.rend(); ++unit) {
    unit->second.elements_after = elements_after;
    elements_after += unit->second.elements;
  }
  assign_owners();
  choose_steps_on_host();
  if (zero3()) {
    order_uses();
  }
}

std::int32_t ParameterLifeCycle::unit_of(const ReplicaParameter& parameter) const {
  return is_apart(parameter) ? apart_of(parameter.unit) : parameter.unit;
}

ParameterLifeCycle::Unit& ParameterLifeCycle::unit(std::int32_t id) {
  const auto [found, added] = units_.try_emplace(id, budget_);
  if (added) {
    constexpr std::int64_t kNode = 64;  // of the map, with malloc's overhead
    memory_of_units_.resize(memory_of_units_.bytes() + Bytes{sizeof(Unit) + kNode});
  }
  return found->second;
}

bool ParameterLifeCycle::shards_gradients() const {
  return gathers() || zero2();
}
bool ParameterLifeCycle::shards_state() const {
  return shards_gradients() || (replication_.replicas > 1 &&
                                (replication_.strategy == crds::ParallelStrategy::kZeRO1 || megatron()));
}

std::int64_t ParameterLifeCycle::shard_elements(const ReplicaParameter& parameter) const {
  if (fsdp2()) {  // rows of the first dimension; the last rank's are padded
    const std::int64_t first = std::max<std::int64_t>(1, parameter.first);
    return divided(first, shards(parameter)) * (parameter.elements / first);
  }
  return divided(parameter.elements, shards(parameter));
}

// Megatron-LM's HybridDeviceOptimizer takes parameters in their order until they have the share of the elements; experts that
// trainers share have an optimizer of their own (core/optimizer/cpu_offloading/hybrid_optimizer.py:
// _get_sub_optimizer_param_groups; core/optimizer/__init__.py: ChainedOptimizer). The last parameter is taken in part: Megatron-LM's
// experts, which are one here, are parameters of their own there, and its shards are ranges of a buffer.
void ParameterLifeCycle::choose_steps_on_host() {
  constexpr std::int64_t kAll = 100;
  if (!megatron() || !offloads_optimizer() || replication_.offload_percent >= kAll) {
    return;
  }
  charge(budget_, 4 * parameters_.size());
  on_host_.resize(parameters_.size(), 0);
  for (const bool experts : {false, true}) {
    double elements = 0;
    const auto counts = [&](std::size_t i) { return (parameters_[i].experts_over > 1) == experts; };
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      elements += counts(i) ? static_cast<double>(stepped(i).elements * parameters_[i].count) : 0;
    }
    auto left =
        static_cast<std::int64_t>(elements * static_cast<double>(replication_.offload_percent) / kAll);
    for (std::size_t i = 0; i < parameters_.size() && left > 0; ++i) {
      if (counts(i)) {
        on_host_[i] = std::min(left, stepped(i).elements * parameters_[i].count);
        left -= on_host_[i];
      }
    }
  }
}

std::int64_t ParameterLifeCycle::elements_on_host(std::size_t parameter) const {
  if (!offloads_optimizer()) {
    return 0;
  }
  return on_host_.empty() ? stepped(parameter).elements * parameters_[parameter].count : on_host_[parameter];
}

ParameterLifeCycle::SteppedOnGpu ParameterLifeCycle::stepped_on_gpu(std::size_t parameter) const {
  const std::int64_t count = parameters_[parameter].count;
  const std::int64_t on_host = elements_on_host(parameter);
  if (on_host == 0) {
    return {.whole = count, .rest = std::nullopt};
  }
  SteppedParameter one = stepped(parameter);
  const std::int64_t left = one.elements * count - on_host;
  const std::int64_t rest = left % one.elements;
  if (rest == 0) {
    return {.whole = left / one.elements, .rest = std::nullopt};
  }
  const std::int64_t whole = left / one.elements;
  const std::int64_t width = one.bytes.count / one.elements;
  one.rows = divided(one.rows * rest, one.elements);
  one.elements = rest;
  one.bytes = Bytes{rest} * width;
  one.gradient = one.bytes;
  return {.whole = whole, .rest = one};
}

// ZeroRedundancyOptimizer assigns each parameter, largest first, to the rank with the least
// (zero_redundancy_optimizer.py: _partition_parameters).
void ParameterLifeCycle::assign_owners() {
  if (replication_.strategy != crds::ParallelStrategy::kZeRO1 || replication_.replicas <= 1 || deepspeed()) {
    return;
  }
  BudgetVector<std::size_t> order(parameters_.size(), budget_);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return parameters_[a].elements * parameters_[a].count > parameters_[b].elements * parameters_[b].count;
  });
  // Among equal loads, the lowest rank comes first.
  using Load = std::pair<std::int64_t, std::int64_t>;  // elements, rank
  const auto ranks = static_cast<std::size_t>(replication_.replicas);
  charge(budget_, ranks + order.size());
  BudgetVector<Load> loads(ranks, budget_);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    loads[rank].second = static_cast<std::int64_t>(rank);
  }
  std::priority_queue<Load, BudgetVector<Load>, std::greater<>> least(std::greater<>(), std::move(loads));
  owner_.assign(parameters_.size(), 0);
  for (const std::size_t parameter : order) {
    Load load = least.top();
    least.pop();
    owner_[parameter] = load.second;
    load.first += parameters_[parameter].elements * parameters_[parameter].count;
    least.push(load);
  }
}

bool ParameterLifeCycle::updates(std::size_t parameter) const {
  return parameters_[parameter].trained && (owner_.empty() || owner_[parameter] == replication_.rank);
}

// The part of a parameter that this trainer updates.
SteppedParameter ParameterLifeCycle::stepped(std::size_t parameter) const {
  const ReplicaParameter& tensor = parameters_[parameter];
  const bool divides = shards_gradients() || deepspeed() || (shards_state() && megatron());
  const std::int64_t elements = divides ? shard_elements(tensor) : tensor.elements;
  const std::int64_t parts = std::max<std::int64_t>(1, tensor.elements / std::max<std::int64_t>(1, elements));
  SteppedParameter stepped;
  stepped.id = parameter;
  stepped.elements = elements;
  stepped.bytes = Bytes{elements} * tensor.optimizer_width;
  stepped.rows = divided(tensor.rows, parts);
  stepped.columns = tensor.columns;
  stepped.dimensions = tensor.dimensions;
  stepped.gradient = Bytes{elements} * tensor.optimizer_width;
  return stepped;
}

void ParameterLifeCycle::persist() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const ReplicaParameter& tensor = parameters_[i];
    const bool copied = has_optimizer_copy(tensor);
    if (deepspeed()) {
      continue;
    }
    if (!gathers()) {
      ledger_.allocate(Part::kParameters, tensor.bytes(), tensor.count, i);
    }
    const bool on_host = copied && !fsdp2() ? offloads_copy() : offloads_parameters();
    if ((gathers() || copied) && !on_host) {  // the shard, or the fp32 copy
      ledger_.allocate(Part::kParameters, stepped(i).bytes, tensor.count, i);
    }
    if (megatron()) {  // param_and_grad_buffer.py: main_grad, whole and in fp32, as --accumulate-allreduce-grads-in-fp32
      ledger_.allocate(Part::kGradients, Bytes{tensor.elements} * tensor.optimizer_width, tensor.count, i);
    }
    const bool buckets = replication_.strategy == crds::ParallelStrategy::kDDP ||
                         replication_.strategy == crds::ParallelStrategy::kZeRO1;
    if (buckets) {
      ledger_.allocate(Part::kDdpBuckets, tensor.bytes(), tensor.count, i);
    }
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const SteppedOnGpu on_gpu = updates(i) ? stepped_on_gpu(i) : SteppedOnGpu();
    if (on_gpu.whole > 0) {
      for (const Bytes bytes : optimizer_state(optimizer_, stepped(i))) {
        ledger_.allocate(Part::kOptimizerState, bytes, on_gpu.whole, i);
      }
    }
    if (on_gpu.rest) {
      for (const Bytes bytes : optimizer_state(optimizer_, *on_gpu.rest)) {
        ledger_.allocate(Part::kOptimizerState, bytes, 1, i);
      }
    }
  }
  for (std::int64_t kept = 0; accumulates_whole() && shards() > 1 && kept < replication_.kept_scatters;
       ++kept) {
    const auto largest = std::max_element(units_.begin(), units_.end(), [&](const auto& a, const auto& b) {
      return a.second.trained_whole * gradient_width_ratio(a.second) <
             b.second.trained_whole * gradient_width_ratio(b.second);
    });
    if (largest != units_.end()) {
      const Unit& unit = largest->second;
      ledger_.allocate(Part::kTemporaries, unit.trained_whole * gradient_width_ratio(unit), 1, unit.largest);
    }
  }
  if (deepspeed()) {
    persist_partitions();
  }
}

bool ParameterLifeCycle::gradients_in_buckets() const {
  return replication_.strategy == crds::ParallelStrategy::kDDP && replication_.gradient_as_bucket_view;
}

Bytes ParameterLifeCycle::gradient_bytes(std::size_t parameter) const {
  const ReplicaParameter& tensor = parameters_[parameter];
  const std::int64_t elements = shards_gradients() ? shard_elements(tensor) : tensor.elements;
  return Bytes{elements} * (gathers() ? tensor.optimizer_width : tensor.width);
}

void ParameterLifeCycle::keep_gradients() {
  if (megatron() ||
      deepspeed()) {  // main_grad always stays; DeepSpeed's step() frees what it has updated with
    return;
  }
  if (gathers()) {
    for (const auto& [id, unit] : units_) {
      if (unit.trained > 0) {
        kept_gradients_[unit.first_trained] = ledger_.allocate(
            Part::kGradients, unit.trained_shard * gradient_width_ratio(unit), 1, unit.first_trained);
      }
    }
    return;
  }
  for (std::size_t i = 0; i < parameters_.size() && !gradients_in_buckets(); ++i) {
    kept_gradients_[i] = ledger_.allocate(Part::kGradients, gradient_bytes(i), parameters_[i].count, i);
  }
}

std::vector<BlockId> ParameterLifeCycle::left_gradients() {
  std::vector<BlockId> blocks;
  const bool none = gradients_in_buckets() || megatron() || deepspeed() || offloads_optimizer() ||
                    replication_.steps_in_backward;
  for (std::size_t i = 0; i < parameters_.size() && !none; ++i) {
    if (parameters_[i].trained) {
      blocks.push_back(ledger_.allocate(Part::kGradients, gradient_bytes(i), parameters_[i].count, i));
    }
  }
  return blocks;
}

void ParameterLifeCycle::release(BlockId& block) {
  if (block >= 0) {
    ledger_.release(block);
    block = -1;
  }
}

void ParameterLifeCycle::stage(Bytes bytes, std::size_t parameter) {
  if (replication_.collectives_copy) {
    ledger_.release(ledger_.allocate(Part::kTemporaries, bytes, 1, parameter));
  }
}

void ParameterLifeCycle::reshard(Unit& unit) {
  drop(unit.used_from, unit.used_to);
  for (BlockId& block : unit.gathered) {
    release(block);
  }
  unit.gathered.clear();
}

void ParameterLifeCycle::enter_forward(std::int32_t id) {
  if (zero3()) {
    fetch_forward(id);
    return;
  }
  for (const std::int32_t each : {id, apart_of(id)}) {
    const auto found = units_.find(each);
    if (!gathers() || found == units_.end() || !found->second.gathered.empty()) {
      continue;
    }
    Unit& unit = found->second;
    gather(unit, true);
    if (fsdp2()) {
      copy_out(unit);
      last_buffer_ = std::exchange(unit.buffer, -1);  // until the next unit's gather
    }
  }
}

void ParameterLifeCycle::leave_forward(std::int32_t id) {
  for (const std::int32_t each : {apart_of(id), id}) {
    const auto found = units_.find(each);
    if (gathers() && found != units_.end() && each != kRootUnit && reshards_after_forward(found->second)) {
      reshard(found->second);
    }
  }
  if (zero3()) {
    fetch_after(id);
  }
}

void ParameterLifeCycle::end_forward() {
  release(last_buffer_);
}

void ParameterLifeCycle::enter_backward(std::int32_t id, std::int32_t next) {
  if (!gathers()) {
    return;
  }
  if (zero3()) {
    if (id != kRootUnit) {
      fetch_backward(id);
    }
    return;
  }
  // Experts begin their unit's backward, and gather the next unit ahead. So does the root, which is whole already. FSDP1
  // gathers the next unit of the order in which forward left them: the unit's own adapters before the next unit.
  const bool has_adapters = fsdp1() && units_.contains(apart_of(id));
  after_adapters_ = has_adapters ? next : kRootUnit;
  for (const std::int32_t each : {id, apart_of(id), has_adapters ? kRootUnit : next}) {
    const auto found = units_.find(each);
    if (found == units_.end() || each == kRootUnit || (id == kRootUnit && each != next)) {
      continue;
    }
    Unit& unit = found->second;
    const bool whole = !unit.gathered.empty();
    if (!whole && unit.buffer < 0) {
      gather(unit, false);
    }
    if (each != next && !whole && fsdp2()) {
      copy_out(unit);
      release(unit.buffer);
    }
  }
}

void ParameterLifeCycle::take_gradient(std::size_t parameter, BlockId gradient) {
  if (deepspeed()) {
    to_bucket(parameter, gradient);
    return;
  }
  if (accumulates_whole() && kept_gradients_[parameter] >= 0) {  // added in place
    ledger_.release(gradient);
    return;
  }
  if (gathers()) {
    const std::int32_t id = unit_of(parameters_[parameter]);
    Unit& of = unit(id);
    of.gradients.emplace_back(parameter, gradient);
    if (id != parameters_[parameter].unit && of.gradients.size() == of.trained) {
      finish_unit(id);
      const auto next = units_.find(std::exchange(after_adapters_, kRootUnit));
      if (next != units_.end() && next->first != kRootUnit && next->second.gathered.empty()) {
        gather(next->second, false);
      }
    }
    return;
  }
  const bool view =
      replication_.strategy == crds::ParallelStrategy::kDDP && replication_.gradient_as_bucket_view;
  if (view || megatron()) {  // copied into the bucket, or added to main_grad
    ledger_.release(gradient);
    return;
  }
  BlockId& kept = kept_gradients_[parameter];
  if (kept >= 0) {
    ledger_.release(gradient);  // added to the gradient of earlier micro-batches
  } else if (replication_.steps_in_backward) {
    step_now(parameter);
    ledger_.release(gradient);
  } else {
    kept = gradient;
  }
}

void ParameterLifeCycle::step_now(std::size_t parameter) {
  for (std::int64_t k = 0; k < parameters_[parameter].count; ++k) {
    step({stepped(parameter)});
  }
}

void ParameterLifeCycle::leave_backward(std::int32_t id) {
  if (gathers() && id != kRootUnit) {
    finish_unit(apart_of(id));
    finish_unit(id);
  }
}

// All gradients of the unit are there.
void ParameterLifeCycle::finish_unit(std::int32_t id) {
  const auto found = units_.find(id);
  if (found == units_.end()) {
    return;
  }
  if (zero3()) {
    reshard(found->second);
  } else if (accumulates_whole()) {
    accumulate(found->second);
  } else {
    reduce(found->second);
  }
}

void ParameterLifeCycle::end_backward() {
  if (zero3()) {
    finish_fetches();
  }
  const auto root = units_.find(kRootUnit);
  if (gathers() && !zero3() && root != units_.end()) {
    if (accumulates_whole()) {
      accumulate(root->second);
    } else {
      reduce(root->second);
      reshard(root->second);
    }
  }
  release(scattering_);
  if (deepspeed()) {
    reduce_bucket();
    if (!zero3()) {
      release(bucket_);
    }
  }
}

// stage.py: start_gradient_reduction. The units in reverse order, the root last.
void ParameterLifeCycle::end_accumulation(std::int32_t first, std::int32_t last) {
  if (!accumulates_whole()) {
    return;
  }
  const auto finish = [&](std::int32_t id) {
    charge(budget_, 1);
    const auto found = units_.find(id);
    if (found == units_.end()) {
      return;
    }
    Unit& unit = found->second;
    for (const std::size_t member : unit.members) {
      if (BlockId& kept = kept_gradients_[member]; kept >= 0) {
        unit.gradients.emplace_back(member, std::exchange(kept, -1));
      }
    }
    reduce(unit);
    reshard(unit);
  };
  for (std::int32_t id = last - 1; id >= first; --id) {
    finish(apart_of(id));
    finish(id);
  }
  finish(apart_of(kRootUnit));
  finish(kRootUnit);
  release(scattering_);
}

void ParameterLifeCycle::step() {
  if (offloads_copy() || replication_.steps_in_backward) {
    return;  // on the host, or done
  }
  if (deepspeed()) {
    step_partitions();
    return;
  }
  for (const bool separate : {true, false}) {
    std::int64_t count = 0;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      count += updates(i) && steps_apart(parameters_[i]) == separate ? parameters_[i].count : 0;
    }
    charge(budget_, parameters_.size() + static_cast<std::size_t>(count));
    const BudgetBytes memory(budget_, Bytes{sizeof(SteppedParameter)} * count);
    std::vector<SteppedParameter> updated;
    updated.reserve(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (!updates(i) || steps_apart(parameters_[i]) != separate) {
        continue;
      }
      const SteppedOnGpu on_gpu = stepped_on_gpu(i);
      updated.insert(updated.end(), static_cast<std::size_t>(on_gpu.whole), stepped(i));
      if (on_gpu.rest) {
        updated.push_back(*on_gpu.rest);
      }
    }
    step(updated);
  }
}

void ParameterLifeCycle::step(const std::vector<SteppedParameter>& updated) {
  class Step : public StepLedger {
   public:
    Step(ParameterLedger& ledger, const std::vector<SteppedParameter>& stepped)
        : ledger_(ledger), stepped_(stepped) {}
    BlockId allocate(std::size_t parameter, Bytes bytes) override {
      return ledger_.allocate(Part::kTemporaries, bytes, 1, stepped_[parameter].id);
    }
    void release(BlockId block) override { ledger_.release(block); }

   private:
    ParameterLedger& ledger_;
    const std::vector<SteppedParameter>& stepped_;
  };
  Step step(ledger_, updated);
  optimizer_step(optimizer_, updated, step);
}

bool gathers(crds::ParallelStrategy strategy) {
  using enum crds::ParallelStrategy;
  return strategy == kFSDP || strategy == kFSDP2 || strategy == kZeRO3;
}

Bytes persistent_bytes(const Replication& replication, const BudgetVector<ReplicaParameter>& parameters,
                       const OptimizerRun& optimizer, Budget* budget) {
  class Sum : public ParameterLedger {
   public:
    BlockId allocate(Part, Bytes bytes_of_one, std::int64_t count, std::size_t, StreamId) override {
      bytes += bytes_of_one * count;
      return 0;
    }
    void release(BlockId) override {}
    Bytes bytes;
  };
  Sum sum;
  ParameterLifeCycle(sum, replication, parameters, optimizer, budget).persist();
  return sum.bytes;
}

}  // namespace plimsoll::estimator::parallel
