// What people hear of a TrainingJob: a Kubernetes event, and the same as a line of the log. Both carry the id of the request
// that decided the job's size (crds/request_id.h).
//
//   record_event(context.events, object, kube::EventType::kNormal, "AttemptStarted", "attempt 0: 8 x A100-80GB");
//
// Does not wait for the API server. Any thread.
#pragma once

#include <string>

#include "base/json/view.h"
#include "kube/event_recorder.h"

namespace plimsoll::controllers {

// `events` may be null: then there is the log alone.
void record_event(kube::EventRecorder* events, const JsonView& job, kube::EventType type,
                  const std::string& reason, const std::string& message);

}  // namespace plimsoll::controllers
