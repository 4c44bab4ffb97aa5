// data_parallel_time(): what the trainers that hold the same part of a model exchange in an iteration, as far as computation
// does not hide it, and the optimizer's step.
//
//   DataParallelTime time = data_parallel_time(stage, training, groups, kernel_times);
//   time.exposed; time.optimizer;
//
// FSDP and ZeRO-3 gather the next unit while one computes, forward and backward, and scatter gradients behind the backward of
// the unit before (torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py); the first gather and the last scatter are
// exposed. DDP, ZeRO-1 and ZeRO-2 reduce buckets behind the last micro-batch's backward, Megatron-LM if it is told to; what is sharded
// by the optimizer alone is gathered after its step. Pure; any thread.
#pragma once

#include <cstdint>

#include "crds/training_job.h"
#include "estimator/speed/collectives.h"
#include "estimator/speed/host_step.h"
#include "estimator/speed/kernel_time.h"
#include "estimator/speed/stage_time.h"

namespace plimsoll::estimator::inline speed {

struct DataParallelGroups {
  Group shards{};    // share the parameters, if the strategy shards; else all replicas
  Group replicas{};  // of the shards: HSDP's `replicate`
  Group experts{};   // hold the same experts
  Links links{};
  // Megatron-LM reduces gradients of FP16 as they are, others in fp32 (arguments.py: accumulate_allreduce_grads_in_fp32 for bf16).
  bool half_gradients = false;
  // Megatron-LM's --overlap-grad-reduce and --overlap-param-gather, which are off by default; others always overlap.
  bool megatron_overlaps = false;
};

struct DataParallelTime {
  double exposed = 0;
  double optimizer = 0;  // on the GPU
  HostStep host{};
};

DataParallelTime data_parallel_time(const StageTime& stage, const crds::TrainingSpec& training,
                                    const DataParallelGroups& groups, const KernelTimes& times);

}  // namespace plimsoll::estimator::speed
