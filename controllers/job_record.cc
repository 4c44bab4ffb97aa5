#include "controllers/job_record.h"

#include <utility>

#include "base/json/edit.h"
#include "base/json/view.h"
#include "base/log.h"
#include "controllers/job_children.h"
#include "controllers/job_events.h"
#include "crds/request_id.h"

namespace plimsoll::controllers {
namespace {

std::int64_t generation_of(const Json& object) {
  return JsonView(member(object, {"metadata", "generation"})).integer().value_or(0);
}

std::string resource_version_of(const Json& object) {
  return text_member(object, {"metadata", "resourceVersion"});
}

}  // namespace

JobRecord::JobRecord(const PassContext& context, const Json& object, crds::TrainingJob job,
                     const kube::CallOptions& call)
    : status(crds::decode_status(object)),
      context_(context),
      call_(call),
      object_(object),
      job_(std::move(job)),
      written_(status) {}

void JobRecord::set(const char* type, bool holds, const std::string& reason, const std::string& message) {
  status.set({.type = type,
              .status = holds ? "True" : "False",
              .observed_generation = generation_of(object_),
              .reason = reason,
              .message = message},
             now());
}

void JobRecord::settle_mode(std::optional<crds::ProvisioningMode> of_namespace) {
  namespace_mode_ = of_namespace;
  context_.policy.settle_mode(job_.spec.provisioning, namespace_mode_);
}

void JobRecord::event(kube::EventType type, const std::string& reason, const std::string& message) {
  events_.push_back({type, reason, message});
}

Result<void> JobRecord::write() {
  status.observed_generation = generation_of(object_);
  if (has_changes()) {
    Json updated = object_;
    set_member(updated, "status", crds::encode(status));
    Result<Json> answer =
        context_.client->update(kTrainingJobs, job_.namespace_name, updated, "status", call_);
    if (!answer) {
      return answer.error().within("write the status");
    }
    object_ = *std::move(answer);
    written_ = status;
  }
  for (const Event& event : events_) {
    record_event(context_.events, object_, event.type, event.reason, event.message);
  }
  events_.clear();
  return {};
}

Result<void> JobRecord::patch(const Json& operations) {
  if (operations.empty()) {
    return {};
  }
  JsonArray guarded;
  guarded.append(json_object(
      {{"op", "test"}, {"path", "/metadata/resourceVersion"}, {"value", resource_version_of(object_)}}));
  for (const Json& operation : operations) {
    guarded.append(operation);
  }
  Result<Json> answer = context_.client->patch(kTrainingJobs, job_.namespace_name, job_.name,
                                               kube::PatchType::kJson, guarded, {}, call_);
  if (!answer) {
    return answer.error().within("change the spec");
  }
  Result<crds::TrainingJob> job = crds::decode_training_job(JsonView(*answer));
  if (!job) {
    return job.error();
  }
  object_ = *std::move(answer);
  job_ = *std::move(job);
  context_.policy.settle_mode(job_.spec.provisioning, namespace_mode_);
  return {};
}

Result<void> JobRecord::check_current() const {
  const Result<Json> live = context_.client->get(kTrainingJobs, job_.namespace_name, job_.name, call_);
  if (!live) {
    return live.error();
  }
  const bool same = text_member(*live, {"metadata", "uid"}) == uid() &&
                    resource_version_of(*live) == resource_version_of(object_);
  return same ? Result<void>() : Error(ErrorCode::kConflict, "the job has changed since it was read");
}

Result<void> JobRecord::remove() const {
  kube::CallOptions as_read = call_;
  as_read.uid = uid();
  as_read.resource_version = resource_version_of(object_);
  const Result<void> removed =
      context_.client->remove(kTrainingJobs, job_.namespace_name, job_.name, as_read);
  if (!removed && removed.error().code != ErrorCode::kNotFound) {
    return removed.error().within("delete the job after its time to live");
  }
  log_info("Deleted a job after its time to live",
           {{"job", job_.namespace_name + "/" + job_.name}, {"requestId", crds::request_id_of(object_)}});
  return {};
}

}  // namespace plimsoll::controllers
