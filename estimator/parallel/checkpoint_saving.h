// What saving a checkpoint takes: by strategy, docs/estimation.md (checkpointSaving). ParameterLifeCycle::save() and
// host_memory() are defined beside these functions. Pure; any thread.
#pragma once

#include "crds/training_job.h"

namespace plimsoll::estimator::inline parallel {

// Whether one rank's checkpoint has all parameters.
bool is_full(crds::CheckpointSaving saving);

// Whether training.checkpointSaving allocates GPU memory with training.parallelism.strategy.
bool gathers_to_save(const crds::TrainingSpec& training);

}  // namespace plimsoll::estimator::parallel
