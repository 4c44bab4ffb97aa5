#include "controllers/job_events.h"

#include <map>

#include "base/log.h"
#include "base/utf8.h"
#include "controllers/job_children.h"
#include "crds/request_id.h"
#include "kube/object_store.h"

namespace plimsoll::controllers {
namespace {

constexpr std::size_t kLoggedLimit = 1024;  // as an event's message

}  // namespace

void record_event(kube::EventRecorder* events, const JsonView& job, kube::EventType type,
                  const std::string& reason, const std::string& message) {
  const std::string request_id = crds::request_id_of(job);
  log(type == kube::EventType::kWarning ? LogLevel::kWarning : LogLevel::kInfo, "Recorded an event of a job",
      {{"job", kube::key_of(job)},
       {"requestId", request_id},
       {"event", reason},
       {"message", utf8_shortened(message, kLoggedLimit)}});
  if (events == nullptr) {
    return;
  }
  std::map<std::string, std::string> annotations;
  if (!request_id.empty()) {
    annotations[crds::kRequestIdAnnotation] = request_id;
  }
  events->record(reference_to(job), type, reason, message, annotations);
}

}  // namespace plimsoll::controllers
