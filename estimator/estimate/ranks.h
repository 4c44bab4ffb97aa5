// run_ranks(): the iteration of each trainer of a parallel job whose model is a recorded graph. Trainers that
// run the same are run once. Pure; any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "crds/training_job.h"
#include "estimator/execute/run_trace.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline estimate {

struct RanksRequest {
  crds::Parallelism parallelism{};
  std::int64_t trainers = 1;
  TraceRunRequest iteration{};  // its replication is set here; its budget is for all ranks together
};

struct RankRuns {
  // Of the trainer with the highest peak, and the trace that it runs; null where that is the whole model's,
  // which must outlive the run.
  std::shared_ptr<const Trace> trace;
  std::unique_ptr<TraceRun> heaviest;
  // By trainer, where they differ: those of a tensor parallel group next to each other, then the owners of
  // ZeRO-1, then the stages of the pipeline.
  std::vector<Bytes> peaks;
  std::vector<std::string> warnings;
};

// Errors: as run_trace, split_trace and pipeline_trace; kInvalid for trainers that the sizes do not divide;
// kUnsupported for what graphs do not know (context and expert parallelism).
Result<RankRuns> run_ranks(const Trace& trace, const TraceProducer& producer, const RanksRequest& request);

}  // namespace plimsoll::estimator::estimate
