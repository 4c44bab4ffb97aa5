// SwapTraining: how a job trains through host memory by a swap plan, as a decision, a status and messages have it. A value; any
// thread.
//
//   decision.swap->planned.plan;          // for plimsoll.harmony
//   text_of(*decision.swap);              // "a swap plan (vPP, 52 layers): about 40.5 s an iteration, 1.6 times ..."
#pragma once

#include <cstddef>
#include <string>

#include "base/bytes.h"
#include "base/json/json.h"
#include "estimator/swap/planner.h"

namespace plimsoll::estimator::inline host_training {

struct SwapTraining {
  PlannedSwap planned;
  std::size_t layers = 0;
  Bytes capacity;               // of a GPU, that the plan may use
  Bytes host_memory;            // that the trainer's container asks for, /dev/shm included
  Bytes shared_memory;          // /dev/shm; 0: the container runtime's default
  double resident_seconds = 0;  // of an iteration on the same GPUs, if their memory held the model

  double slowdown() const { return resident_seconds > 0 ? planned.seconds / resident_seconds : 0; }
};

// As status.swapPlan. Fractions are text, as everywhere in the API.
Json to_json(const SwapTraining& swap);

std::string text_of(const SwapTraining& swap);

}  // namespace plimsoll::estimator::host_training
