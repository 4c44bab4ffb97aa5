// The ledger of one iteration of a forward graph, on one trainer.
#pragma once

#include <gtest/gtest.h>

#include "estimator/estimate/spec_run.h"
#include "estimator/execute/run_trace.h"
#include "estimator/spec/record.h"

namespace plimsoll::estimator::testing {

inline Ledger ledger_of(const ForwardGraph& graph, const crds::TrainingSpec& training,
                        Device device = Device::kCuda) {
  const std::int64_t batch = training.batch_size_per_trainer;
  const Recording recording = record(graph, {.device = device, .batch = batch, .input_batch = batch});
  Result<TraceRun> run = run_trace(
      recording.trace, {.torch = {}, .version = kSpecTorchVersion, .threads = 0, .cpu_capability = {}},
      {.batch = batch,
       .optimizer = training.optimizer,
       .implementation = training.optimizer_implementation,
       .checkpointing = training.activation_checkpointing,
       .replication = {.strategy = training.parallelism.strategy}});
  EXPECT_TRUE(run.ok());
  return std::move(run->ledger);
}

}  // namespace plimsoll::estimator::testing
