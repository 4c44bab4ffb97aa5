#include "estimator/estimate/floor.h"

#include <algorithm>

#include "estimator/estimate/margins.h"

namespace plimsoll::estimator::inline estimate {
namespace {

using Source = TraceRun::Source;

bool is_operators(const TraceRun& run, BlockId block) {
  const Source source = run.origin_of(block).source;
  return source == Source::kStorage || source == Source::kRecomputed || source == Source::kKernel;
}

// Gradients and cuDNN's workspaces are not counted: how long gradients live depends on how they are exchanged, and
// training continues without the workspaces.
bool is_traced(const TraceRun& run, BlockId block) {
  const Ledger::Block& of = run.ledger.blocks()[static_cast<std::size_t>(block)];
  return is_operators(run, block) && !of.dispensable && of.part != Part::kGradients;
}

struct Level {
  Bytes peak;
  Bytes margined;  // of the peak, what margins are a share of
  Bytes inputs;
};

// The highest level of the blocks that `counts` names.
template <class Counts>
Level highest(const TraceRun& run, const Counts& counts) {
  Bytes live;
  Bytes without_margin;
  Level level;
  for (std::size_t i = 0; i < run.ledger.events().size(); ++i) {
    const MemoryEvent& event = run.ledger.events()[i];
    const bool allocates = event.kind == MemoryEvent::Kind::kAllocate;
    if ((!allocates && event.kind != MemoryEvent::Kind::kRelease) || !counts(event.block)) {
      continue;
    }
    const Ledger::Block& block = run.ledger.blocks()[static_cast<std::size_t>(event.block)];
    const Bytes change = allocates ? block.bytes : Bytes{} - block.bytes;
    live += change;
    if (block.part == Part::kInputs || block.part == Part::kParameters) {
      without_margin += change;
    }
    if (allocates && block.part == Part::kInputs) {
      level.inputs += block.bytes;
    }
    if (live > level.peak) {
      level.peak = live;
      level.margined = live - without_margin;
    }
  }
  return level;
}

// The optimizer's steps within backward have temporaries of their own.
bool knows_exchange(const Replication& replication) {
  return replication.without_padding && gathers(replication.strategy) && !replication.steps_in_backward &&
         replication.replicas / replication.replicate > 1;
}

Bytes with_exchange(const TraceRun& run, const EstimateRequest& request) {
  // What replicas hold before the iteration is counted for each number.
  BlockId first_of_iteration = 0;
  for (std::size_t i = 0; i < run.ledger.begin_of_iteration(); ++i) {
    first_of_iteration = std::max(first_of_iteration, run.ledger.events()[i].block + 1);
  }
  const Level level = highest(run, [&](BlockId block) {
    const bool exchanged = run.origin_of(block).source == Source::kParameter && block >= first_of_iteration;
    return exchanged ||
           (is_operators(run, block) && !run.ledger.blocks()[static_cast<std::size_t>(block)].dispensable);
  });
  Breakdown parts;
  parts.activations = level.margined;
  parts.inputs = level.inputs;
  return level.peak + total_of(margins_of(request, run.ledger, parts, {}));
}

}  // namespace

MemoryFloor::MemoryFloor(const TraceRun& run, const EstimateRequest& request) {
  const Replication& replication = run.replicated.replication;
  if (replication.replicas < 2) {
    return;
  }
  const Level traced = highest(run, [&](BlockId block) { return is_traced(run, block); });
  traced_ = traced.peak;
  if (gathers(replication.strategy)) {
    margin_ =
        Bytes{static_cast<std::int64_t>(static_cast<double>(traced.margined.count) * kSimulationMargin)};
  }
  if (knows_exchange(replication)) {
    exchanged_ = with_exchange(run, request);
  }
  // ZeRO-1 assigns whole parameters to ranks, and one rank's share may rise with their number.
  if (replication.strategy != crds::ParallelStrategy::kZeRO1) {
    sharded_ = run.replicated;
  }
}

Bytes MemoryFloor::at(std::int64_t replicas, Budget* budget) const {
  return std::max(least_, of_iterations(replicas, budget));
}

Bytes MemoryFloor::of_iterations(std::int64_t replicas, Budget* budget) const {
  const bool alone = replicas < 2;
  if (!sharded_ || (alone && !gathers(sharded_->replication.strategy))) {
    return alone ? Bytes{} : traced_;
  }
  charge(budget, sharded_->parameters.size());
  Replication replication = sharded_->replication;
  // Fewer trainers may have their experts alone, and gather none: then less is exchanged, and the search needs a floor that
  // does not rise with the number.
  const bool shares_experts = std::any_of(sharded_->parameters.begin(), sharded_->parameters.end(),
                                          [](const ReplicaParameter& each) { return each.experts_over > 1; });
  const bool exchanges = exchanged_ && !shares_experts && replicas / replication.replicate > 1 &&
                         replicas <= replication.replicas;
  replication.replicas = replicas;
  return persistent_bytes(replication, sharded_->parameters, sharded_->optimizer, budget) +
         (exchanges ? *exchanged_ : traced_ + (alone ? Bytes{} : margin_));
}

}  // namespace plimsoll::estimator::estimate
