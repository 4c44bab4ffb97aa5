// PreparedTrace: what running a trace needs to know of it, whatever the number of trainers: sizes for a batch, when storages begin and
// end, units, the temporaries of its kernels. run_trace() (run_trace.h) makes one for each trace, and PreparedTraces keeps it for
// further runs.
//
//   Result<PreparedTrace> prepared = prepare_trace(trace, producer, request);
//   prepared->kernels.inside;   // by operator
//
// Pure; any thread. The trace and the request's budget must outlive it.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/budget.h"
#include "base/result.h"
#include "estimator/execute/run_trace.h"
#include "estimator/kernels/temporaries.h"
#include "estimator/parallel/units.h"
#include "estimator/trace/liveness.h"
#include "estimator/trace/lookups.h"
#include "estimator/trace/optimizer.h"
#include "estimator/trace/shapes.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline execute {

// Data of a trace that is the same for all micro-batches.
struct PreparedTrace {
  BudgetBytes memory;  // for lists as long as the trace's
  TraceShapes shapes;
  TracePlan plan;
  TraceUnits units;
  KernelTemporaries kernels;
  std::vector<SteppedParameter> parameters;
  std::vector<SteppedParameter> frozen;
  TimeTable complete_gradients;            // storages, by the operator that completes them
  std::map<std::int32_t, Lookup> lookups;  // by operator
};

// Whether the trace can be run so. Errors: kInvalid for a batch that the trace does not have, or that is not whole micro-batches;
// kUnsupported for settings that exclude each other, naming them.
Result<void> check_request(const Trace& trace, const TraceRunRequest& request);

// Errors: kUnsupported for an operator without a rule (naming it), kTooLarge for sizes beyond any machine's.
Result<PreparedTrace> prepare_trace(const Trace& trace, const TraceProducer& producer,
                                    const TraceRunRequest& request);

}  // namespace plimsoll::estimator::execute
