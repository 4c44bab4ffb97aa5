#include "estimator/parallel/checkpoint_saving.h"

#include <algorithm>
#include <vector>

#include "estimator/parallel/life_cycle.h"

namespace plimsoll::estimator::inline parallel {
namespace {

using crds::CheckpointSaving;
using crds::ParallelStrategy;

// torch/distributed/checkpoint/filesystem.py: _OverlappingCpuLoader copies tensors to the host until this much is on
// its way to the file (FileSystemWriter's per_thread_copy_ahead).
constexpr Bytes kCopiedAhead{10'000'000};

// Blocks that live until the object ends.
class Gathered {
 public:
  explicit Gathered(ParameterLedger& ledger) : ledger_(ledger) {}
  ~Gathered() { clear(); }
  Gathered(const Gathered&) = delete;
  Gathered& operator=(const Gathered&) = delete;

  void add(Bytes bytes, std::int64_t count, std::size_t parameter) {
    if (bytes.count > 0) {
      blocks_.push_back(ledger_.allocate(Part::kTemporaries, bytes, count, parameter));
    }
  }
  void take(Gathered& other) {
    blocks_.insert(blocks_.end(), other.blocks_.begin(), other.blocks_.end());
    other.blocks_.clear();
  }
  void clear() {
    for (const BlockId block : blocks_) {
      ledger_.release(block);
    }
    blocks_.clear();
  }

 private:
  ParameterLedger& ledger_;
  std::vector<BlockId> blocks_;
};

}  // namespace

bool is_full(CheckpointSaving saving) {
  return saving == CheckpointSaving::kFull || saving == CheckpointSaving::kFullOffloaded;
}

// FSDP1 gathers its flat parameters for sharded state_dicts, too.
bool gathers_to_save(const crds::TrainingSpec& training) {
  using enum ParallelStrategy;
  const ParallelStrategy strategy = training.parallelism.strategy;
  return strategy == kFSDP ? training.checkpoint_saving != CheckpointSaving::kNone
                           : is_full(training.checkpoint_saving) &&
                                 (strategy == kFSDP2 || strategy == kZeRO1 || strategy == kZeRO3);
}

// Of one of `count` equal parameters, as this trainer holds and saves it.
Bytes ParameterLifeCycle::saved_bytes(std::size_t parameter) const {
  return stepped(parameter).bytes;
}

std::vector<Bytes> ParameterLifeCycle::saved_state(std::size_t parameter) const {
  return updates(parameter) ? optimizer_state(optimizer_, stepped(parameter)) : std::vector<Bytes>();
}

Bytes ParameterLifeCycle::saved_by_rank() const {
  Bytes sum;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    charge(budget_, 1);
    sum += saved_bytes(i) * parameters_[i].count;
    for (const Bytes bytes : saved_state(i)) {
      sum += bytes * parameters_[i].count;
    }
    sum += updates(i) ? managed_state(optimizer_, stepped(i)) * parameters_[i].count : Bytes{};
  }
  return sum;
}

// FSDP2: torch/distributed/_state_dict_utils.py, _gather_state_dict. Each DTensor is redistributed to all ranks, first
// the model's, then the optimizer's; with cpu_offload rank 0 moves each to the host before the next is gathered.
void ParameterLifeCycle::save_dtensors(bool offloaded) {
  if (shards() == 1 && replication_.replicas == 1) {
    return;  // redistribute() returns the local tensor
  }
  Gathered gathered(ledger_);
  const auto gather = [&](std::size_t parameter, Bytes shard) {
    const ReplicaParameter& tensor = parameters_[parameter];
    const Bytes whole = shard * shards(tensor);
    for (std::int64_t k = 0; k < tensor.count; ++k) {
      charge(budget_, 1);
      const BlockId moved =  // from the host
          offloads_parameters() ? ledger_.allocate(Part::kTemporaries, shard, 1, parameter) : -1;
      gathered.add(whole, 1, parameter);
      stage(whole, parameter);
      if (moved >= 0) {
        ledger_.release(moved);
      }
      if (offloaded) {
        gathered.clear();
      }
    }
  };
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    gather(i, saved_bytes(i));
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    for (const Bytes bytes : saved_state(i)) {
      gather(i, bytes);
    }
  }
}

// FSDP1: torch/distributed/fsdp/_state_dict_utils.py and _optim_utils.py. state_dict() enters the root module first and
// leaves it last, so that its flat parameter stays gathered, in full precision and on the stream of the computation.
// Parameters are copied out of each: whole, or this rank's chunk; with offload_to_cpu the flat parameter itself moves to
// the host. Then the states of each flat parameter are gathered, and stay (the state_dict's tensors are views), are moved
// to the host, or are cut into chunks.
void ParameterLifeCycle::save_flat_parameters(CheckpointSaving saving) {
  const bool offloaded = saving == CheckpointSaving::kFullOffloaded;
  const bool full = saving == CheckpointSaving::kFull;
  Gathered saved(ledger_);
  const auto gather = [&](Gathered& into, Bytes bytes, const Unit& unit) {
    into.add(bytes, 1, unit.members.front());
    stage(bytes, unit.members.front());
  };
  // A rank's chunk has whole rows (_shard_utils.py: _create_chunk_dtensor).
  const auto chunk_of = [&](std::size_t parameter, Bytes whole) {
    const std::int64_t rows = std::max<std::int64_t>(1, parameters_[parameter].first);
    const std::int64_t mine = (rows + shards() - 1) / shards();
    return full ? whole : Bytes{whole.count / rows * std::min(rows, mine)};
  };
  const auto whole_of = [&](std::size_t member) {
    return Bytes{parameters_[member].elements} * parameters_[member].optimizer_width;
  };
  const auto copy = [&](const Unit& unit) {
    for (const std::size_t member : unit.members) {
      charge(budget_, 1);
      saved.add(chunk_of(member, whole_of(member)), parameters_[member].count, member);
    }
  };
  const auto unsharded = [&](const Unit& unit) {
    const ReplicaParameter& first = parameters_[unit.members.front()];
    return unit.whole * (first.optimizer_width / first.width);
  };
  const auto root = units_.find(kRootUnit);
  {
    Gathered of_root(ledger_);
    if (root != units_.end()) {
      gather(of_root, unsharded(root->second), root->second);
    }
    if (offloaded) {
      of_root.clear();
    }
    for (const auto& [id, unit] : units_) {
      if (id == kRootUnit) {
        continue;
      }
      Gathered of_unit(ledger_);
      gather(of_unit, unsharded(unit), unit);
      if (!offloaded) {
        copy(unit);
      }
    }
    if (root != units_.end() && !offloaded) {
      copy(root->second);
    }
  }
  for (const auto& [id, unit] : units_) {
    Gathered of_unit(ledger_);
    std::vector<Bytes> states;  // of the unit's flat parameter
    for (const std::size_t member : unit.members) {
      const std::vector<Bytes> of_member = saved_state(member);
      states.resize(std::max(states.size(), of_member.size()));
      for (std::size_t k = 0; k < of_member.size(); ++k) {
        states[k] += of_member[k] * parameters_[member].count * shards();
      }
    }
    for (const Bytes bytes : states) {
      gather(full ? saved : of_unit, bytes, unit);
    }
    for (const std::size_t member : unit.members) {
      for (const Bytes bytes :
           saving == CheckpointSaving::kFullOffloaded || full ? std::vector<Bytes>() : saved_state(member)) {
        charge(budget_, 1);
        saved.add(chunk_of(member, bytes * shards()), parameters_[member].count, member);
      }
    }
  }
}

// DeepSpeed's ZeRO-3: deepspeed/runtime/engine.py, _zero3_consolidated_16bit_state_dict gathers a module's own
// parameters and copies them to the host before the next module's. Each rank saves its own optimizer state.
void ParameterLifeCycle::save_module_by_module() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    for (std::int64_t k = 0; k < parameters_[i].count; ++k) {
      charge(budget_, 1);
      Gathered gathered(ledger_);
      gathered.add(Bytes{shard_elements(parameters_[i])} * shards() * parameters_[i].width, 1, i);
      stage(parameters_[i].bytes(), i);
    }
  }
}

// torch/distributed/optim/zero_redundancy_optimizer.py, consolidate_state_dict: one rank after the other broadcasts its
// pickled state, which is received on the GPU and loaded there, while what the rank before sent is still referred to.
// Rank 0 copies it to the host; where the host is the device, that is no copy, and all stay.
void ParameterLifeCycle::consolidate_states() {
  if (replication_.replicas < 2 || parameters_.empty()) {
    return;
  }
  std::vector<Bytes> of_rank(static_cast<std::size_t>(replication_.replicas));
  charge(budget_, of_rank.size() + parameters_.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    for (const Bytes bytes : optimizer_state(optimizer_, stepped(i))) {
      of_rank[static_cast<std::size_t>(owner_[i])] += bytes * parameters_[i].count;
    }
  }
  const bool keeps_all = optimizer_.device == Device::kCpu && replication_.rank == 0;
  Gathered loaded(ledger_);
  for (std::size_t rank = 1; rank < of_rank.size(); ++rank) {  // rank 0's own does not leave it
    if (of_rank[rank].count == 0) {
      continue;
    }
    BlockId exchanged = ledger_.allocate(Part::kTemporaries, of_rank[rank], 1, 0);
    Gathered next(ledger_);
    if (static_cast<std::int64_t>(rank) != replication_.rank) {
      next.add(of_rank[rank], 1, 0);
    }
    release(exchanged);
    if (!keeps_all) {
      loaded.clear();
    }
    loaded.take(next);
  }
}

void ParameterLifeCycle::save(CheckpointSaving saving) {
  if (saving == CheckpointSaving::kNone || parameters_.empty()) {
    return;
  }
  if (fsdp1()) {
    save_flat_parameters(saving);
  } else if (is_full(saving) && fsdp2()) {
    save_dtensors(saving == CheckpointSaving::kFullOffloaded);
  } else if (is_full(saving) && zero3() && shards() > 1) {
    save_module_by_module();
  } else if (is_full(saving) && !owner_.empty()) {
    consolidate_states();
  }
}

HostMemory ParameterLifeCycle::host_memory(CheckpointSaving saving) const {
  HostMemory host;
  Bytes full;     // checkpoint
  Bytes largest;  // tensor of what this rank saves
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    charge(budget_, 1);
    const ReplicaParameter& tensor = parameters_[i];
    const std::int64_t count = tensor.count;
    Bytes state;
    if (tensor.trained) {
      state = managed_state(optimizer_, stepped(i));
      for (const Bytes bytes : optimizer_state(optimizer_, stepped(i))) {
        state += bytes;
        largest = std::max(largest, bytes);
      }
    }
    largest = std::max(largest, saved_bytes(i));
    const std::int64_t parts = gathers() ? shards(tensor) : 1;
    full += (saved_bytes(i) + state) * count * parts;
    if (offloads_optimizer() && updates(i)) {
      const double updated = static_cast<double>(elements_on_host(i)) /
                             static_cast<double>(std::max<std::int64_t>(1, stepped(i).elements));
      host.parameters += Bytes::ceil(static_cast<double>(saved_bytes(i).count) * updated);
      host.gradients += Bytes::ceil(static_cast<double>(saved_bytes(i).count) * updated);
      host.optimizer_state += Bytes::ceil(static_cast<double>(state.count) * updated);
    } else if (updates(i)) {
      host.optimizer_state += managed_state(optimizer_, stepped(i)) * count;
    } else if (offloads_parameters() && !zero3()) {
      host.parameters += saved_bytes(i) * count;
    }
    if (offloads_parameters() && zero3()) {  // ZeRO-3's shard in the model's precision
      host.parameters += Bytes{shard_elements(tensor)} * tensor.width * count;
    }
  }
  switch (saving) {
    case CheckpointSaving::kNone: break;
    case CheckpointSaving::kFull:  // torch/serialization.py: _save copies one storage after the other
      host.checkpoint = gathers() ? largest * shards() : largest;
      break;
    case CheckpointSaving::kFullOffloaded: host.checkpoint = full; break;
    case CheckpointSaving::kSharded:
      host.checkpoint = std::min(saved_by_rank(), kCopiedAhead + largest);
      break;
    case CheckpointSaving::
        kShardedAsync:  // torch/distributed/checkpoint/state_dict_saver.py: async_save stages all
      host.checkpoint = saved_by_rank();
      break;
  }
  return host;
}

}  // namespace plimsoll::estimator::parallel
