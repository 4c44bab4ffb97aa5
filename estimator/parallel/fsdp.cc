// What FSDP and FSDP2 allocate to gather a unit and to reduce its gradients, in ParameterLifeCycle, which calls it in the order of
// an iteration. Sources: life_cycle.h.
#include <utility>

#include "estimator/parallel/life_cycle.h"

namespace plimsoll::estimator::inline parallel {

bool ParameterLifeCycle::fsdp1() const {
  return replication_.replicas > 1 && replication_.strategy == crds::ParallelStrategy::kFSDP;
}
// Also on a single trainer: it copies the parameters that it would gather (_fsdp_param_group.py:
// wait_for_unshard), while FSDP1 becomes NO_SHARD there.
bool ParameterLifeCycle::fsdp2() const {
  return replication_.strategy == crds::ParallelStrategy::kFSDP2;
}

// FSDP keeps gradients in fp32 if the optimizer has an fp32 copy.
std::int64_t ParameterLifeCycle::gradient_width_ratio(const Unit& unit) const {
  const ReplicaParameter& first = parameters_[unit.first_trained];
  return first.optimizer_width / first.width;
}

std::int64_t ParameterLifeCycle::reduced_width_ratio(const Unit& unit) const {
  return replication_.reduces_in_half ? 1 : gradient_width_ratio(unit);
}

// FSDP allocates what it gathers and what it reduces to on streams of their own, whose pools the allocator keeps
// apart (FSDP2: _fsdp_param_group.py, FSDPCommContext; FSDP1: _runtime_utils.py, _init_streams, and _unshard and
// _post_backward_hook, which use them). The input of FSDP2's reduce-scatter and what it copies out belong to the stream
// of the computation.

// What FSDP1 sends of a shard that is kept in another precision or on the host (_flat_param.py: _use_low_precision_shard,
// flat_param_to). -1: the shard itself.
BlockId ParameterLifeCycle::low_precision_shard(const Unit& unit) {
  const ReplicaParameter& first = parameters_[unit.members.front()];
  const bool casts = has_optimizer_copy(first);
  if ((!casts && !offloads_parameters()) || shards(first) == 1) {
    return -1;
  }
  const auto allocate = [&](Bytes bytes) {
    return ledger_.allocate(Part::kTemporaries, bytes, 1, unit.largest, kPreGatherStream);
  };
  const BlockId sent = allocate(unit.shard);
  if (casts && offloads_parameters()) {
    ledger_.release(allocate(unit.shard * gradient_width_ratio(unit)));  // the copy from the host
  }
  return sent;
}

// The all-gather. FSDP1 writes into the flat parameter; FSDP2 into a buffer that is then copied out.
void ParameterLifeCycle::gather(Unit& unit, bool frees_last) {
  if (fsdp1()) {
    const BlockId sent = low_precision_shard(unit);
    unit.gathered.push_back(
        ledger_.allocate(Part::kTemporaries, unit.whole, 1, unit.largest, kCommunicationStream));
    stage(unit.whole, unit.largest);
    if (sent >= 0) {
      ledger_.release(sent);
    }
    return;
  }
  if (shards(parameters_[unit.members.front()]) > 1) {
    unit.buffer = ledger_.allocate(Part::kTemporaries, unit.buffered, 1, unit.largest, kCommunicationStream);
    stage(unit.buffered, unit.largest);
  }
  if (frees_last) {
    release(last_buffer_);
  }
}

void ParameterLifeCycle::copy_out(Unit& unit) {
  for (const std::size_t member : unit.members) {
    unit.gathered.push_back(ledger_.allocate(Part::kTemporaries, parameters_[member].gathered_bytes(),
                                             parameters_[member].count, member));
  }
}

// The first micro-batch's gradients are cast to the reduction's precision (_fsdp_param_group.py:
// _set_unsharded_grad_dtypes); later ones are added to them.
void ParameterLifeCycle::accumulate(Unit& unit) {
  for (auto& [parameter, gradient] : unit.gradients) {
    const ReplicaParameter& tensor = parameters_[parameter];
    BlockId& kept = kept_gradients_[parameter];
    kept = gradient;
    if (has_optimizer_copy(tensor) && !replication_.reduces_in_half) {
      kept = ledger_.allocate(Part::kGradients, Bytes{tensor.elements} * tensor.optimizer_width, tensor.count,
                              parameter);
      ledger_.release(gradient);
    }
  }
  unit.gradients.clear();
}

// The reduce-scatter of a unit's gradients, which leaves this rank's shard. HSDP's all-reduce among the groups
// works on that shard in place (_fsdp_collectives.py: foreach_reduce; FSDP1: _runtime_utils.py, _reduce_grad).
void ParameterLifeCycle::reduce(Unit& unit) {
  if (unit.gradients.empty()) {
    reshard(unit);
    return;
  }
  const std::size_t first = unit.first_trained;
  const std::int64_t width_ratio = reduced_width_ratio(unit);
  BlockId flat = -1;
  if (fsdp1()) {
    // The members' gradients are copied into the flat parameter's gradient, on the stream whose forward took the
    // members out of the flat parameter (_runtime_utils.py: _unshard).
    flat = ledger_.allocate(Part::kTemporaries, unit.trained_unpadded, 1, unit.largest, kCommunicationStream);
  } else {
    reshard(unit);
    release(scattering_);
    flat = ledger_.allocate(Part::kTemporaries, unit.trained_whole * width_ratio, 1, unit.largest);
  }
  for (auto& [parameter, gradient] : unit.gradients) {
    ledger_.release(gradient);
  }
  unit.gradients.clear();
  if (fsdp1()) {
    reshard(unit);
  }
  BlockId cast = -1;
  if (fsdp1() && width_ratio > 1 && shards(parameters_[first]) > 1) {  // _post_backward_hook
    cast = ledger_.allocate(Part::kTemporaries, unit.trained_unpadded * width_ratio, 1, unit.largest,
                            kReductionStream);
  }
  BlockId padded = -1;
  if (fsdp1() && unit.trained_unpadded != unit.trained_whole) {  // _get_reduce_scatter_tensors copies to pad
    padded = ledger_.allocate(Part::kTemporaries, unit.trained_whole * width_ratio, 1, unit.largest,
                              kReductionStream);
  }
  BlockId shard =
      ledger_.allocate(Part::kGradients, unit.trained_shard * width_ratio, 1, first, kReductionStream);
  if (shards(parameters_[first]) > 1) {
    stage(unit.trained_whole * width_ratio, unit.largest);
  }
  release(padded);
  release(cast);
  if (gradient_width_ratio(unit) !=
      width_ratio) {  // _cast_grad_to_param_dtype; _fsdp_collectives.py: _to_dtype_if_needed
    const BlockId wide = ledger_.allocate(Part::kGradients, unit.trained_shard * gradient_width_ratio(unit),
                                          1, first, kReductionStream);
    ledger_.release(std::exchange(shard, wide));
  }
  if (fsdp1()) {
    ledger_.release(flat);
  } else {
    scattering_ = flat;
  }
  BlockId& kept = kept_gradients_[first];
  if (replication_.steps_in_backward) {
    for (const std::size_t member : unit.members) {
      if (updates(member)) {
        step_now(member);
      }
    }
  }
  // It is copied to the host, updates the parameters, or is added to the gradient of earlier micro-batches.
  if (offloads_optimizer() || replication_.steps_in_backward || kept >= 0) {
    ledger_.release(shard);
  } else {
    kept = shard;
  }
}

}  // namespace plimsoll::estimator::parallel
