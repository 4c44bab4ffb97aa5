// graph_time(): stage_time() of an exported graph: one micro-batch through the operators that were recorded, forward, loss and backward.
//
//   Result<TraceShapes> shapes = TraceShapes::at(trace, 4);
//   StageTime whole = graph_time(trace, *shapes, kernel_times, {.batch = 4});
//
// Backward's operators are in the graph, so each takes its own arithmetic or bytes. An operator whose results are views of what
// it reads takes nothing. Full checkpointing runs the forward operators of the numbered modules again. Pure; any thread.
#pragma once

#include "estimator/speed/kernel_time.h"
#include "estimator/speed/stage_time.h"
#include "estimator/trace/shapes.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline speed {

// What one operator of the graph computes and moves; as a forward operator, also where it belongs to backward.
OperatorWork work_of(const Trace& trace, const TraceShapes& shapes, std::int32_t op);

// Of the options, checkpointing and the budget. What torch.compile fuses is not known: each operator counts.
StageTime graph_time(const Trace& trace, const TraceShapes& shapes, const KernelTimes& times,
                     const StageOptions& options);

}  // namespace plimsoll::estimator::speed
