// What an optimizer keeps between steps and takes during one, for dense parameters. Pure; any thread.
#pragma once

#include "crds/training_job.h"
#include "estimator/memory/estimate.h"

namespace plimsoll::estimator {

struct OptimizerMemory {
  double kept = 0;                   // times the parameter bytes
  bool kept_per_row = false;         // instead: one fp32 a row of each parameter
  double step_times_parameters = 0;  // temporaries of the step, times all parameter bytes (foreach)
  double step_times_largest = 0;     // ... times the largest parameter (one tensor at a time)
};

// CUDA runs the foreach implementations by default since PyTorch 2.0, the CPU goes tensor by tensor.
OptimizerMemory memory_of(crds::Optimizer optimizer, Device device);

}  // namespace plimsoll::estimator
