#include "estimator/parallel/life_cycle.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

namespace plimsoll::estimator::inline parallel {
namespace {

// DeepSpeed's reduce_bucket_size (deepspeed/runtime/zero/config.py): gradients are sent to their owners in
// it.
constexpr std::int64_t kReduceBucketElements = 500'000'000;

std::int64_t divided(std::int64_t whole, std::int64_t parts) {
  return whole / parts + (whole % parts != 0 ? 1 : 0);
}

}  // namespace

ParameterLifeCycle::ParameterLifeCycle(ParameterLedger& ledger, const Replication& replication,
                                       BudgetVector<ReplicaParameter> parameters,
                                       const OptimizerRun& optimizer, Budget* budget)
    : ledger_(ledger),
      budget_(budget),
      replication_(replication),
      parameters_(std::move(parameters)),
      optimizer_(optimizer),
      memory_of_units_(budget),
      owner_(budget),
      kept_gradients_(parameters_.size(), -1, budget) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    charge(budget_, 1);
    unit(parameters_[i].unit).members.push_back(i);
  }
  for (auto& [id, unit] : units_) {
    std::int64_t shard = 0;
    Bytes whole;
    for (const std::size_t member : unit.members) {
      shard += shard_elements(parameters_[member]) * parameters_[member].count;
      whole += parameters_[member].bytes() * parameters_[member].count;
    }
    const std::int64_t width = parameters_[unit.members.front()].width;
    if (fsdp1()) {  // one flat parameter, padded at its end
      shard = divided(whole.count / width, replication_.replicas);
    }
    unit.unpadded = whole;
    unit.shard = Bytes{shard} * width;
    unit.whole = gathers() ? unit.shard * replication_.replicas : whole;
  }
  assign_owners();
}

ParameterLifeCycle::Unit& ParameterLifeCycle::unit(std::int32_t id) {
  const auto [found, added] = units_.try_emplace(id, budget_);
  if (added) {
    constexpr std::int64_t kNode = 64;  // of the map, with malloc's overhead
    memory_of_units_.resize(memory_of_units_.bytes() + Bytes{sizeof(Unit) + kNode});
  }
  return found->second;
}

bool ParameterLifeCycle::fsdp1() const {
  using enum crds::ParallelStrategy;
  // DeepSpeed's ZeRO-3 gathers a module for its forward and backward and prefetches the next, as FSDP1 does.
  return replication_.replicas > 1 && (replication_.strategy == kFSDP || replication_.strategy == kZeRO3);
}
bool ParameterLifeCycle::fsdp2() const {
  return replication_.replicas > 1 && replication_.strategy == crds::ParallelStrategy::kFSDP2;
}
bool ParameterLifeCycle::shards_gradients() const {
  return gathers() || (replication_.replicas > 1 && replication_.strategy == crds::ParallelStrategy::kZeRO2);
}
bool ParameterLifeCycle::shards_state() const {
  return shards_gradients() ||
         (replication_.replicas > 1 && replication_.strategy == crds::ParallelStrategy::kZeRO1);
}

std::int64_t ParameterLifeCycle::shard_elements(const ReplicaParameter& parameter) const {
  if (fsdp2()) {  // rows of the first dimension; the last rank's are padded
    const std::int64_t first = std::max<std::int64_t>(1, parameter.first);
    return divided(first, replication_.replicas) * (parameter.elements / first);
  }
  return divided(parameter.elements, replication_.replicas);
}

// DeepSpeed keeps gradients in the precision of the model's computation.
bool ParameterLifeCycle::half_gradients() const {
  return replication_.strategy == crds::ParallelStrategy::kZeRO3 && has_optimizer_copy(parameters_.front());
}

// ZeroRedundancyOptimizer assigns each parameter, largest first, to the rank with the least
// (zero_redundancy_optimizer.py: _partition_parameters).
void ParameterLifeCycle::assign_owners() {
  if (replication_.strategy != crds::ParallelStrategy::kZeRO1 || replication_.replicas <= 1) {
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

// Half precision parameters with an fp32 copy mean DeepSpeed, which shards that copy by elements.
bool ParameterLifeCycle::owns(std::size_t parameter) const {
  return owner_.empty() || has_optimizer_copy(parameters_[parameter]) ||
         owner_[parameter] == replication_.rank;
}

// The part of a parameter that this trainer updates.
SteppedParameter ParameterLifeCycle::stepped(std::size_t parameter) const {
  const ReplicaParameter& tensor = parameters_[parameter];
  const bool divides = shards_gradients() || (shards_state() && has_optimizer_copy(tensor));
  const std::int64_t elements = divides ? shard_elements(tensor) : tensor.elements;
  const std::int64_t parts = std::max<std::int64_t>(1, tensor.elements / std::max<std::int64_t>(1, elements));
  SteppedParameter stepped;
  stepped.id = parameter;
  stepped.elements = elements;
  stepped.bytes = Bytes{elements} * tensor.optimizer_width;
  stepped.rows = divided(tensor.rows, parts);
  stepped.columns = tensor.columns;
  stepped.gradient = Bytes{elements} * tensor.optimizer_width;
  return stepped;
}

void ParameterLifeCycle::persist() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const ReplicaParameter& tensor = parameters_[i];
    const bool copied = has_optimizer_copy(tensor);
    if (!gathers()) {
      ledger_.allocate(Part::kParameters, tensor.bytes(), tensor.count, i);
    }
    if (gathers() || copied) {  // the shard, or the fp32 copy
      ledger_.allocate(Part::kParameters, stepped(i).bytes, tensor.count, i);
    }
    if (half_gradients() && gathers()) {  // ZeRO-3's shard in half precision
      ledger_.allocate(Part::kParameters, Bytes{shard_elements(tensor)} * tensor.width, tensor.count, i);
    }
    const bool buckets =
        !shards_gradients() && (replication_.strategy == crds::ParallelStrategy::kDDP ||
                                (replication_.strategy == crds::ParallelStrategy::kZeRO1 && !copied));
    if (buckets) {
      ledger_.allocate(Part::kDdpBuckets, tensor.bytes(), tensor.count, i);
    }
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (owns(i)) {
      for (const Bytes bytes : optimizer_state(optimizer_, stepped(i))) {
        ledger_.allocate(Part::kOptimizerState, bytes, parameters_[i].count, i);
      }
    }
  }
  if (replication_.strategy == crds::ParallelStrategy::kZeRO2 && replication_.replicas > 1) {
    Bytes gradients;
    std::int64_t width = 4;
    for (const ReplicaParameter& tensor : parameters_) {
      gradients += tensor.bytes() * tensor.count;
      width = tensor.width;
    }
    if (!parameters_.empty()) {
      ledger_.allocate(Part::kTemporaries, std::min(gradients, Bytes{kReduceBucketElements} * width), 1, 0);
    }
  }
}

std::vector<BlockId> ParameterLifeCycle::left_gradients() {
  std::vector<BlockId> blocks;
  const bool in_buckets =
      replication_.strategy == crds::ParallelStrategy::kDDP && replication_.gradient_as_bucket_view;
  for (std::size_t i = 0; i < parameters_.size() && !in_buckets; ++i) {
    const ReplicaParameter& tensor = parameters_[i];
    const std::int64_t elements = shards_gradients() ? shard_elements(tensor) : tensor.elements;
    const std::int64_t width = gathers() && !half_gradients() ? tensor.optimizer_width : tensor.width;
    blocks.push_back(ledger_.allocate(Part::kGradients, Bytes{elements} * width, tensor.count, i));
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

// The all-gather. FSDP1 writes into the flat parameter; FSDP2 into a buffer that is then copied out.
void ParameterLifeCycle::gather(Unit& unit, bool frees_last) {
  const std::size_t first = unit.members.front();
  if (fsdp1()) {
    unit.gathered.push_back(ledger_.allocate(Part::kTemporaries, unit.whole, 1, first));
    stage(unit.whole, first);
    return;
  }
  unit.buffer = ledger_.allocate(Part::kTemporaries, unit.whole, 1, first);
  stage(unit.whole, first);
  if (frees_last) {
    release(last_buffer_);
  }
}

void ParameterLifeCycle::copy_out(Unit& unit) {
  for (const std::size_t member : unit.members) {
    unit.gathered.push_back(
        ledger_.allocate(Part::kTemporaries, parameters_[member].bytes(), parameters_[member].count, member));
  }
}

void ParameterLifeCycle::reshard(Unit& unit) {
  for (BlockId& block : unit.gathered) {
    release(block);
  }
  unit.gathered.clear();
}

void ParameterLifeCycle::enter_forward(std::int32_t id) {
  const auto found = units_.find(id);
  if (!gathers() || found == units_.end() || !found->second.gathered.empty()) {
    return;
  }
  Unit& unit = found->second;
  gather(unit, true);
  if (fsdp2()) {
    copy_out(unit);
    last_buffer_ = std::exchange(unit.buffer, -1);  // until the next unit's gather
  }
}

void ParameterLifeCycle::leave_forward(std::int32_t id) {
  const auto found = units_.find(id);
  if (gathers() && found != units_.end() && id != kRootUnit && replication_.reshard_after_forward) {
    reshard(found->second);
  }
}

void ParameterLifeCycle::end_forward() {
  release(last_buffer_);
}

void ParameterLifeCycle::enter_backward(std::int32_t id, std::int32_t next) {
  if (!gathers() || id == kRootUnit) {
    return;
  }
  for (const std::int32_t each : {id, next}) {
    const auto found = units_.find(each);
    if (found == units_.end() || each == kRootUnit) {
      continue;
    }
    Unit& unit = found->second;
    if (unit.gathered.empty() && unit.buffer < 0) {
      gather(unit, false);
    }
    if (each == id && unit.buffer >= 0) {
      copy_out(unit);
      release(unit.buffer);
    }
  }
}

void ParameterLifeCycle::take_gradient(std::size_t parameter, BlockId gradient) {
  if (gathers()) {
    unit(parameters_[parameter].unit).gradients.emplace_back(parameter, gradient);
    return;
  }
  const ReplicaParameter& tensor = parameters_[parameter];
  const bool view =
      replication_.strategy == crds::ParallelStrategy::kDDP && replication_.gradient_as_bucket_view;
  if (view) {  // copied into the bucket
    ledger_.release(gradient);
    return;
  }
  BlockId& kept = kept_gradients_[parameter];
  if (shards_gradients()) {  // sent through the bucket to its owner
    ledger_.release(gradient);
    if (kept < 0) {
      const Bytes shard = Bytes{shard_elements(tensor)} * tensor.width;
      kept = ledger_.allocate(Part::kGradients, shard, tensor.count, parameter);
    }
  } else if (kept >= 0) {
    ledger_.release(gradient);  // added to the gradient of earlier micro-batches
  } else {
    kept = gradient;
  }
}

// The reduce-scatter of a unit's gradients, which leaves this rank's shard.
void ParameterLifeCycle::reduce(Unit& unit) {
  if (unit.gradients.empty()) {
    return;
  }
  const std::size_t first = unit.members.front();
  // FSDP reduces and keeps gradients in fp32 if the optimizer has an fp32 copy; DeepSpeed does not.
  const std::int64_t width_ratio =
      half_gradients() ? 1 : parameters_[first].optimizer_width / parameters_[first].width;
  BlockId flat = -1;
  if (fsdp1()) {  // the members' gradients are copied into the flat parameter's gradient
    flat = ledger_.allocate(Part::kTemporaries, unit.unpadded, 1, first);
  } else {
    reshard(unit);
    release(scattering_);
    flat = ledger_.allocate(Part::kTemporaries, unit.whole * width_ratio, 1, first);
  }
  for (auto& [parameter, gradient] : unit.gradients) {
    ledger_.release(gradient);
  }
  unit.gradients.clear();
  if (fsdp1()) {
    reshard(unit);
  }
  BlockId padded = -1;
  if (fsdp1() && unit.unpadded != unit.whole) {  // _get_reduce_scatter_tensors copies to pad
    padded = ledger_.allocate(Part::kTemporaries, unit.whole, 1, first);
  }
  const BlockId shard = ledger_.allocate(Part::kGradients, unit.shard * width_ratio, 1, first);
  stage(unit.whole * width_ratio, first);
  release(padded);
  if (fsdp1()) {
    ledger_.release(flat);
  } else {
    scattering_ = flat;
  }
  BlockId& kept = kept_gradients_[first];
  if (kept >= 0) {
    ledger_.release(shard);  // added to the gradient of earlier micro-batches
  } else {
    kept = shard;
  }
}

void ParameterLifeCycle::leave_backward(std::int32_t id) {
  const auto found = units_.find(id);
  if (gathers() && id != kRootUnit && found != units_.end()) {
    reduce(found->second);
  }
}

void ParameterLifeCycle::end_backward() {
  const auto root = units_.find(kRootUnit);
  if (gathers() && root != units_.end()) {
    reduce(root->second);
    reshard(root->second);
  }
  release(scattering_);
}

void ParameterLifeCycle::step() {
  for (const bool separate : {true, false}) {
    std::int64_t count = 0;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      count += owns(i) && parameters_[i].separate_step == separate ? parameters_[i].count : 0;
    }
    charge(budget_, parameters_.size() + static_cast<std::size_t>(count));
    const BudgetBytes memory(budget_, Bytes{sizeof(SteppedParameter)} * count);
    std::vector<SteppedParameter> updated;
    updated.reserve(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      for (std::int64_t k = 0;
           owns(i) && parameters_[i].separate_step == separate && k < parameters_[i].count; ++k) {
        updated.push_back(stepped(i));
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

}  // namespace plimsoll::estimator::parallel
