// RecordedRun: a run of traces, kept with what it asked of its parameters' life cycle, from which runs with another number of trainers are
// made without running the traces again (life_script.h).
//
//   if (recorded->is_of(traces, request)) {
//     if (std::optional<TraceRun> run = recorded->resized(request, optimizer)) return *run;
//   }
//
// A value that is complete when it is made: any thread. The traces must outlive it.
#pragma once

#include <optional>
#include <vector>

#include "estimator/execute/life_script.h"
#include "estimator/execute/run_trace.h"
#include "estimator/execute/shared_parameters.h"
#include "estimator/execute/trace_run.h"
#include "estimator/parallel/schedule.h"
#include "estimator/trace/optimizer.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline execute {

// Whether a run of this request can be recorded: parameters are gathered, and the iteration asks nothing of the life cycle but what a
// script holds.
bool is_recordable(const TraceRunRequest& request);
// Whether nothing of the trace depends on the replication but the blocks of the life cycle.
bool is_recordable(const Trace& trace, const PreparedTrace& prepared);

struct RecordedRun {
  TraceRun run;
  LifeScript script;
  std::vector<SharedParameters::Origin> origins;  // of run.replicated.parameters
  std::vector<const Trace*> traces{};             // by chunk
  std::vector<ScheduleStep> schedule{};

  // Whether it differs from a run of these in nothing but the number of trainers.
  bool is_of(const std::vector<const Trace*>& chunks, const TraceRunRequest& request) const;

  // The run with the sizes that its blocks have with this replication, and without warnings. Nothing where the life cycle does
  // something else.
  std::optional<TraceRun> resized(const TraceRunRequest& request, const OptimizerRun& optimizer) const;
};

}  // namespace plimsoll::estimator::execute
