// run_ranks(): the iterations of the ranks of a parallel job whose model is an exported graph. Ranks with
// equal iterations are run once. Pure; any thread.
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
  bool steps_in_backward = false;
  TraceRunRequest iteration{};  // run_ranks() sets its replication; its budget is for all ranks together
};

struct RankRuns {
  // The trace of the rank with the highest peak, which must outlive the run; null if it is the whole model's.
  std::shared_ptr<const Trace> trace;
  std::unique_ptr<TraceRun> heaviest;
  // By rank, if ranks differ: ordered by pipeline stage, then owner of ZeRO-1, then rank in the tensor
  // parallel group.
  std::vector<Bytes> peaks;
  std::vector<std::string> warnings;
};

// Errors: those of run_trace, split_trace and pipeline_trace; kInvalid if the sizes do not divide the number
// of trainers; kUnsupported for context and expert parallelism, which graphs do not support.
Result<RankRuns> run_ranks(const Trace& trace, const TraceProducer& producer, const RanksRequest& request);

}  // namespace plimsoll::estimator::estimate
