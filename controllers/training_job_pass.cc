#include "controllers/training_job_pass.h"

#include <utility>

#include "base/json/edit.h"
#include "base/log.h"
#include "controllers/training_job_executor.h"

namespace plimsoll::controllers {

kube::ObjectReference reference_to(const JsonView& job) {
  return {.api_version = crds::kApiVersion,
          .kind = "TrainingJob",
          .namespace_name = text_member(job, {"metadata", "namespace"}),
          .name = text_member(job, {"metadata", "name"}),
          .uid = text_member(job, {"metadata", "uid"})};
}

Result<RequeueAfter> reconcile(const PassContext& context, const Json& object) {
  Result<crds::TrainingJob> job = crds::decode_training_job(JsonView(object));
  if (!job) {
    // The API server's schema refuses such objects; one that is older than the schema waits to be edited.
    log_warning("Failed to read a job", {{"job", kube::key_of(object)}, {"problem", to_string(job.error())}});
    if (context.events != nullptr) {
      context.events->record(reference_to(object), kube::EventType::kWarning, "InvalidJob",
                             "Plimsoll cannot read this job, and does nothing for it until it is edited: " +
                                 to_string(job.error()));
    }
    return RequeueAfter();
  }
  if (crds::is_managed_elsewhere(*job)) {
    return RequeueAfter();
  }
  return TrainingJobExecutor(context, object, *std::move(job)).run();
}

}  // namespace plimsoll::controllers
