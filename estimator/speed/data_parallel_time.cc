#include "estimator/speed/data_parallel_time.h"

#include <algorithm>

namespace plimsoll::estimator::inline speed {
namespace {

using crds::ParallelStrategy;

constexpr double kFloat = 4;
constexpr double kBucket = 25 << 20;  // DDP's bucket_cap_mb

bool shards_parameters(ParallelStrategy strategy) {
  return strategy == ParallelStrategy::kFSDP || strategy == ParallelStrategy::kFSDP2 ||
         strategy == ParallelStrategy::kZeRO3;
}

bool shards_optimizer(ParallelStrategy strategy) {
  return shards_parameters(strategy) || strategy == ParallelStrategy::kZeRO1 ||
         strategy == ParallelStrategy::kZeRO2 || strategy == ParallelStrategy::kMegatron;
}

// Bytes a parameter that a step moves. One kernel reads parameter, gradient and state and writes parameter and state, for Adam 7
// values. The foreach implementation, the default on GPUs, takes a pass for each operation (torch/optim/adam.py: _multi_tensor_adam):
// mul, lerp, mul, addcmul, sqrt, div, add and addcdiv read and write 21.
double step_bytes(const crds::TrainingSpec& training) {
  const double fused = kFloat * (3 + 2 * states_of(training.optimizer));
  const bool one_kernel = training.optimizer_implementation == crds::OptimizerImplementation::kFused ||
                          training.parallelism.strategy == ParallelStrategy::kMegatron;
  constexpr double kForeachPasses = 3;
  return one_kernel ? fused : fused * kForeachPasses;
}

// The time of an exchange, and by how much it slows down computation that runs meanwhile.
struct Exchange {
  double seconds = 0, slowing = 0;

  void add(double more, const Group& group) {
    seconds += more;
    slowing += more * occupied_share(group);
  }
};

Exchange operator+(const Exchange& a, const Exchange& b) {
  return {.seconds = a.seconds + b.seconds, .slowing = a.slowing + b.slowing};
}

// Of so many bytes of parameters that all have, and of experts.
Exchange exchange_of(Collective collective, double dense, double expert, const DataParallelGroups& groups) {
  Exchange time;
  if (dense > 0) {
    time.add(collective_seconds(collective, dense, groups.shards, groups.links), groups.shards);
  }
  if (expert > 0) {
    time.add(collective_seconds(collective, expert, groups.experts, groups.links), groups.experts);
  }
  return time;
}

double share_on_host(const crds::Parallelism& parallelism) {
  return parallelism.offload == crds::Offload::kNone ? 0
                                                     : static_cast<double>(parallelism.offload_percent) / 100;
}

struct UnitExchange {
  Exchange gather, scatter;
};

UnitExchange exchange_of(const UnitTime& unit, const DataParallelGroups& groups) {
  UnitExchange time{.gather = exchange_of(Collective::kAllGather, unit.parameters * unit.width,
                                          unit.expert_parameters * unit.width, groups),
                    .scatter = exchange_of(Collective::kReduceScatter, unit.trained * unit.width,
                                           unit.expert_trained * unit.width, groups)};
  const double shard = unit.trained * unit.width / static_cast<double>(groups.shards.size);
  if (shard > 0) {
    time.scatter.add(collective_seconds(Collective::kAllReduce, shard, groups.replicas, groups.links),
                     groups.shards);
  }
  return time;
}

// What an exchange adds to the computation behind which it runs: the rest that is longer, and what it slows down.
double not_hidden(const Exchange& exchange, double computation) {
  if (exchange.seconds <= computation) {
    return exchange.slowing;
  }
  return exchange.seconds - computation + exchange.slowing * computation / exchange.seconds;
}

double exposed_of_units(const StageTime& stage, const crds::TrainingSpec& training,
                        const DataParallelGroups& groups) {
  const bool pipelined = training.parallelism.pipeline > 1;
  // In a pipeline, parameters stay gathered and gradients whole until the last micro-batch.
  const auto rounds = static_cast<double>(pipelined ? 1 : training.gradient_accumulation);
  const auto computed = static_cast<double>(training.gradient_accumulation) / rounds;
  double exposed = 0;
  UnitExchange last;
  for (const auto& [id, unit] : stage.units) {
    const UnitExchange time = exchange_of(unit, groups);
    const Exchange again =
        training.parallelism.reshard_after_forward && !pipelined ? time.gather : Exchange();
    exposed += not_hidden(time.gather, unit.forward * computed);
    exposed += not_hidden(again + time.scatter, unit.backward * computed);
    last = time;
  }
  return rounds * (exposed + last.gather.seconds + last.scatter.seconds);
}

double exposed_of_buckets(const StageTime& stage, const crds::TrainingSpec& training,
                          const DataParallelGroups& groups) {
  double dense = 0;
  double expert = 0;
  double forward = 0;
  double backward = 0;
  double width = kFloat;
  for (const auto& [id, unit] : stage.units) {
    dense += unit.trained;
    expert += unit.expert_trained;
    forward += unit.forward;
    backward += unit.backward;
    width = unit.width;
  }
  const bool gathers = shards_optimizer(training.parallelism.strategy);
  const double gradient =
      training.parallelism.strategy == ParallelStrategy::kMegatron && !groups.half_gradients ? kFloat : width;
  const Collective reduce = gathers ? Collective::kReduceScatter : Collective::kAllReduce;
  const Exchange reduced = exchange_of(reduce, dense * gradient, expert * gradient, groups);
  const Exchange gathered =
      gathers ? exchange_of(Collective::kAllGather, dense * width, expert * width, groups) : Exchange();
  // Megatron-LM gathers what the first micro-batch's forward needs behind it; DeepSpeed before it
  // (deepspeed/runtime/zero/stage_1_and_2.py: step ends with all_gather_dp_groups).
  if (training.parallelism.strategy == ParallelStrategy::kMegatron) {
    return groups.megatron_overlaps ? not_hidden(reduced, backward) + not_hidden(gathered, forward)
                                    : reduced.seconds + gathered.seconds;
  }
  const double last = reduced.seconds * std::min(1.0, kBucket / std::max(1.0, (dense + expert) * gradient));
  return std::max(not_hidden(reduced, backward), last) + gathered.seconds;
}

}  // namespace

DataParallelTime data_parallel_time(const StageTime& stage, const crds::TrainingSpec& training,
                                    const DataParallelGroups& groups, const KernelTimes& times) {
  const ParallelStrategy strategy = training.parallelism.strategy;
  double trained = 0;
  double expert = 0;
  double forward = 0;
  double backward = 0;
  double width = kFloat;
  for (const auto& [id, unit] : stage.units) {
    trained += unit.trained;
    expert += unit.expert_trained;
    forward += unit.forward;
    backward += unit.backward;
    width = unit.width;
  }
  const auto parts = static_cast<double>(training.gradient_accumulation);
  const bool sharded = shards_optimizer(strategy);
  const double local = sharded ? trained / static_cast<double>(groups.shards.size) +
                                     expert / static_cast<double>(groups.experts.size)
                               : trained + expert;
  const double on_host = local * share_on_host(training.parallelism);
  const double on_gpu = local - on_host;
  return {.exposed = shards_parameters(strategy) ? exposed_of_units(stage, training, groups)
                                                 : exposed_of_buckets(stage, training, groups),
          .optimizer = on_gpu > 0 ? times.memory(on_gpu * step_bytes(training)) : 0,
          .host = host_step(training, {.parameters = on_host,
                                       .width = width,
                                       .forward = forward * parts,
                                       .backward = backward * parts,
                                       .link = groups.links.host})};
}

}  // namespace plimsoll::estimator::speed
