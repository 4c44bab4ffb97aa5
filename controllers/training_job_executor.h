// reconcile() is one pass over one TrainingJob: the planner (controllers/training_job_planner.h) decides step
// by step what to do next, and the executor does it: API calls, estimates, conditions and events.
//
//   Result<RequeueAfter> after = reconcile(context, object);   // object: the TrainingJob as the API has it
//
// One call at a time for one job; any number of jobs at once.
#pragma once

#include "base/json/json.h"
#include "base/result.h"
#include "controllers/pass_context.h"
#include "controllers/training_job_planner.h"

namespace plimsoll::controllers {

// A job that cannot be read is left unchanged, with an event. Errors: the API server's; try again later.
Result<RequeueAfter> reconcile(const PassContext& context, const Json& object);

}  // namespace plimsoll::controllers
