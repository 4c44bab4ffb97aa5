#include "estimator/memory/optimizer_memory.h"

namespace plimsoll::estimator {

// Measured on PyTorch 2.14, default options (no weight decay, no amsgrad), foreach and single-tensor; docs/
// estimation.md has the table. 1.13 took 2 P for foreach Adam and 3 P for Adagrad. LAMB and row-wise Adagrad
// are not part of torch.optim: theirs follow from their definitions, unmeasured.
OptimizerMemory memory_of(crds::Optimizer optimizer, Device device) {
  const bool foreach = device == Device::kCuda;
  switch (optimizer) {
    case crds::Optimizer::kSGD: return {};
    case crds::Optimizer::kMomentum: return {.kept = 1};
    case crds::Optimizer::kAdam:
    case crds::Optimizer::kAdamW:
      return foreach ? OptimizerMemory{.kept = 2, .step_times_parameters = 1}
                     : OptimizerMemory{.kept = 2, .step_times_largest = 2};
    case crds::Optimizer::kRMSprop:
      return foreach ? OptimizerMemory{.kept = 1, .step_times_parameters = 1}
                     : OptimizerMemory{.kept = 1, .step_times_largest = 1};
    case crds::Optimizer::kAdagrad:
      return foreach ? OptimizerMemory{.kept = 1, .step_times_parameters = 2}
                     : OptimizerMemory{.kept = 1, .step_times_largest = 1};
    case crds::Optimizer::kRowWiseAdagrad: return {.kept_per_row = true, .step_times_largest = 1};
    case crds::Optimizer::kLAMB:
      return foreach ? OptimizerMemory{.kept = 2, .step_times_parameters = 1}
                     : OptimizerMemory{.kept = 2, .step_times_largest = 2};
    case crds::Optimizer::kAdafactor:
    case crds::Optimizer::kAdam8bit: return {};
  }
  return {};
}

}  // namespace plimsoll::estimator
