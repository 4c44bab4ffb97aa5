// host_step(): what an iteration takes longer because its optimizer runs on the host (training.parallelism.offload): the update
// itself, and the copies to the host and back that nothing hides.
//
//   HostStep step = host_step(training, {.parameters = 1.9e9, .width = 2, .link = 49e9});
//   step.update; step.transfers;    // seconds
//
// The update is bound by the host's memory (host_update.h), and takes eight times as long as the copies: docs/speed.md, On the host,
// compares both with a published curve. Pure; any thread.
#pragma once

#include "crds/training_job.h"

namespace plimsoll::estimator::inline speed {

struct HostStep {
  double update = 0;
  double transfers = 0;
};

// Of one trainer.
struct HostWork {
  double parameters = 0;  // that the host updates
  double width = 4;       // bytes of a parameter in the computation
  double forward = 0;     // seconds of computation of an iteration, behind which copies can run
  double backward = 0;
  double link = 0;  // bytes a second, each way
};

// Values of state that an optimizer keeps of a parameter.
double states_of(crds::Optimizer optimizer);

// Zero where nothing is offloaded.
HostStep host_step(const crds::TrainingSpec& training, const HostWork& work);

}  // namespace plimsoll::estimator::speed
