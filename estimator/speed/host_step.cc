#include "estimator/speed/host_step.h"

#include <algorithm>

#include "estimator/speed/host_update.h"

namespace plimsoll::estimator::inline speed {
namespace {

using crds::Optimizer;
using crds::ParallelStrategy;

constexpr double kFloat = 4;

// Bytes of a parameter that are copied in an iteration, by what runs meanwhile.
struct Copied {
  double forward = 0;   // to the GPU, behind the forward passes
  double backward = 0;  // behind the backward passes, in the direction that has more
  double exposed = 0;   // beside nothing but, perhaps, the update
};

Copied copied_of(const crds::TrainingSpec& training, double width) {
  const crds::Parallelism& parallelism = training.parallelism;
  const auto parts = static_cast<double>(training.gradient_accumulation);
  if (parallelism.strategy == ParallelStrategy::kMegatron) {
    // Gradients and parameters in fp32 (megatron/core/optimizer/cpu_offloading/hybrid_optimizer.py: _set_sub_optimizer_grads,
    // param_copy_back_gpu_hook).
    return {.exposed = 2 * kFloat};
  }
  const bool zero = crds::is_zero(parallelism.strategy);
  const double moved = zero ? width : kFloat;
  // DeepSpeed copies gradients while backward makes them (stage_1_and_2.py: async_accumulate_grad_in_cpu_via_gpu), FSDP2 once
  // they are reduced (_fsdp_collectives.py: foreach_reduce).
  if (parallelism.offload == crds::Offload::kOptimizer) {
    return {.backward = moved, .exposed = moved};
  }
  // The shards are on the host: each pass copies them (_fsdp_param.py: all_gather_inputs; partition_parameters.py). Backward's
  // gradients leave at the same time, as many bytes the other way.
  return {.forward = parts * moved, .backward = parts * moved};
}

}  // namespace

double states_of(Optimizer optimizer) {
  switch (optimizer) {
    case Optimizer::kSGD: return 0;
    case Optimizer::kMomentum:
    case Optimizer::kAdagrad:
    case Optimizer::kRMSprop: return 1;
    case Optimizer::kRowWiseAdagrad:
    case Optimizer::kAdafactor: return 0;  // a value a row or column
    default: return 2;
  }
}

HostStep host_step(const crds::TrainingSpec& training, const HostWork& work) {
  if (training.parallelism.offload == crds::Offload::kNone || work.parameters <= 0 || work.link <= 0) {
    return {};
  }
  const Bytes weights = Bytes::ceil(work.parameters * kFloat);
  HostStep step;
  step.update = host_update_seconds(
      {.weights = weights, .state = Bytes::ceil(work.parameters * kFloat * states_of(training.optimizer))});
  const Copied copied = copied_of(training, work.width);
  const double seconds = work.parameters / work.link;  // of a byte of each
  const double beside_update = training.parallelism.overlap_offload ? step.update : 0;
  step.transfers = std::max(0.0, copied.forward * seconds - work.forward) +
                   std::max(0.0, copied.backward * seconds - work.backward) +
                   std::max(0.0, copied.exposed * seconds - beside_update);
  return step;
}

}  // namespace plimsoll::estimator::speed
