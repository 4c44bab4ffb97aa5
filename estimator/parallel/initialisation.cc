// What trainers take of a model that is made before they shard it.
//
// Sources: torch/distributed/fsdp/_init_utils.py (_move_states_to_device, _init_param_handle_from_params: what was moved lives
// until the flat parameter and its shard are made); torch/distributed/fsdp/_fully_shard (fully_shard moves a unit, and each
// parameter's shard is a copy); torch/csrc/distributed/c10d/comm.cpp (broadcast_coalesced);
// deepspeed/runtime/engine.py (_configure_distributed_model: module.half(), then module.to(device) unless zero.Init made the
// model) and runtime/zero/partition_parameters.py (zero.Init partitions one parameter after the other). FSDP's and FSDP2's peaks were
// measured on an H100 (tests/accuracy/parallel_on_gpu.py, `made`); DeepSpeed's, and what FSDP2 sends, follow the code.
#include <array>

#include "estimator/parallel/life_cycle.h"

namespace plimsoll::estimator::inline parallel {
namespace {

using crds::Initialisation;

// torch/distributed/utils.py: PARAM_BROADCAST_BUCKET_SIZE; comm.cpp has two buckets on their way.
constexpr Bytes kBroadcastBucket = 250_MiB;
constexpr std::size_t kBucketsAtOnce = 2;

// In the precision in which it is made, which is the optimizer's.
Bytes made_bytes(const ReplicaParameter& parameter) {
  return Bytes{parameter.elements} * parameter.optimizer_width;
}

}  // namespace

void ParameterLifeCycle::make(std::size_t parameter, BudgetVector<BlockId>& made) {
  if (made[parameter] < 0) {
    made[parameter] = ledger_.allocate(Part::kParameters, made_bytes(parameters_[parameter]),
                                       parameters_[parameter].count, parameter);
  }
}

void ParameterLifeCycle::keep_shard(Bytes bytes_of_one, std::int64_t count, std::size_t parameter) {
  const BlockId shard = ledger_.allocate(Part::kParameters, bytes_of_one, count, parameter);
  if (offloads_parameters()) {
    ledger_.release(shard);
  }
}

void ParameterLifeCycle::broadcast(const Unit& unit) {
  std::array<BlockId, kBucketsAtOnce> sent{};
  sent.fill(-1);
  std::size_t next = 0;
  Bytes bucket;
  const auto send = [&] {
    release(sent[next]);
    sent[next] = ledger_.allocate(Part::kTemporaries, bucket, 1, unit.largest);
    next = (next + 1) % kBucketsAtOnce;
    bucket = {};
  };
  for (const std::size_t member : unit.members) {
    bucket += made_bytes(parameters_[member]) * parameters_[member].count;
    if (bucket >= kBroadcastBucket) {
      send();
    }
  }
  if (bucket.count > 0) {
    send();
  }
  for (BlockId& block : sent) {
    release(block);
  }
}

// The flat parameter and its shard are made while what they are made of is there.
void ParameterLifeCycle::flatten(const Unit& unit, bool is_sent, BudgetVector<BlockId>& made) {
  for (const std::size_t member : unit.members) {
    make(member, made);
  }
  if (is_sent) {
    broadcast(unit);
  }
  const ReplicaParameter& first = parameters_[unit.members.front()];
  const Bytes shard = Bytes{unit.shard.count / first.width} * first.optimizer_width;
  BlockId flat = ledger_.allocate(Part::kTemporaries, shard * shards(), 1, unit.largest);
  keep_shard(shard, 1, unit.largest);
  for (const std::size_t member : unit.members) {
    release(made[member]);
  }
  release(flat);
}

void ParameterLifeCycle::fully_shard(const Unit& unit, bool moves, BudgetVector<BlockId>& made) {
  for (const std::size_t member : unit.members) {
    if (moves) {
      make(member, made);
    }
  }
  for (const std::size_t member : unit.members) {
    const ReplicaParameter& parameter = parameters_[member];
    keep_shard(Bytes{shard_elements(parameter)} * parameter.optimizer_width, parameter.count, member);
  }
  for (const std::size_t member : unit.members) {
    release(made[member]);
  }
}

// The whole state_dict of rank 0 comes tensor by tensor (torch/distributed/_state_dict_utils.py: _broadcast_tensors).
void ParameterLifeCycle::receive_tensors() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    ledger_.release(ledger_.allocate(Part::kTemporaries, made_bytes(parameters_[i]), 1, i));
  }
}

// DeepSpeed casts a model that zero.Init has not partitioned, moves all of it to the GPU, and partitions it then.
void ParameterLifeCycle::partition(Initialisation where, BudgetVector<BlockId>& made) {
  const bool by_parameter = zero3() && where == Initialisation::kMeta;
  for (std::size_t i = 0; !by_parameter && i < parameters_.size(); ++i) {
    if (where != Initialisation::kGPU || has_optimizer_copy(parameters_[i])) {
      const BlockId cast =
          ledger_.allocate(Part::kParameters, parameters_[i].bytes(), parameters_[i].count, i);
      release(made[i]);
      made[i] = cast;
    }
  }
  for (std::size_t i = 0; zero3() && i < parameters_.size(); ++i) {
    const ReplicaParameter& parameter = parameters_[i];
    if (by_parameter) {
      made[i] = ledger_.allocate(Part::kTemporaries, parameter.bytes(), 1, i);
    }
    keep_shard(Bytes{shard_elements(parameter)} * parameter.width, parameter.count, i);
    release(made[i]);
  }
}

void ParameterLifeCycle::initialise(const Making& making) {
  charge(budget_, 2 * parameters_.size());
  const bool on_gpu = making.where == Initialisation::kGPU;
  BudgetVector<BlockId> made(parameters_.size(), -1, budget_);
  for (std::size_t i = 0; on_gpu && i < parameters_.size(); ++i) {
    make(i, made);
  }
  if (on_gpu && making.dropped.count > 0) {
    ledger_.release(ledger_.allocate(Part::kTemporaries, making.dropped, 1, 0));
  }
  if (!fsdp1() && !fsdp2()) {
    partition(making.where, made);
    return;
  }
  // Shards alone, which a state_dict then fills.
  const bool moves = making.where == Initialisation::kCPU && !making.is_sent;
  const auto shard = [&](const Unit& unit) {
    if (fsdp1()) {
      flatten(unit, making.is_sent, made);
    } else {
      fully_shard(unit, moves, made);
    }
  };
  for (const auto& [id, unit] : units_) {
    if (id != kRootUnit) {
      shard(unit);
    }
  }
  if (const auto root = units_.find(kRootUnit); root != units_.end()) {
    shard(root->second);
  }
  if (fsdp2() && making.is_sent) {
    receive_tensors();
  }
}

}  // namespace plimsoll::estimator::parallel
