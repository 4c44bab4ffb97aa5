#include "controllers/child_writer.h"

#include "base/json_edit.h"
#include "controllers/job_children.h"
#include "crds/training_job.h"

namespace plimsoll::controllers {
namespace {

const Json* controller_of(const Json& object) {
  for (const Json& owner : member(object, {"metadata", "ownerReferences"})) {
    if (member(owner, {"controller"}) == Json(true)) {
      return &owner;
    }
  }
  return nullptr;
}

std::string label_of(const Json& object, const char* name) {
  return text_member(object, {"metadata", "labels", name});
}

std::string trainers_of(const Json& job) {
  return text_member(job, {"spec", "template", "metadata", "annotations", kTrainersAnnotation});
}

}  // namespace

bool is_controlled_by(const Json& object, const std::string& uid) {
  const Json* controller = controller_of(object);
  return controller != nullptr && text_member(*controller, {"uid"}) == uid;
}

std::string ChildWriter::namespace_name() const {
  return text_member(job_, {"metadata", "namespace"});
}

Result<Json> ChildWriter::create(const kube::Resource& resource, const Json& child) {
  Result<Json> made = client_.create(resource, namespace_name(), child, call_);
  if (made || made.error().code != ErrorCode::kAlreadyExists) {
    return made;
  }
  const std::string name = text_member(child, {"metadata", "name"});
  Result<Json> there = client_.get(resource, namespace_name(), name, call_);
  if (!there || is_controlled_by(*there, text_member(job_, {"metadata", "uid"}))) {
    return there;
  }
  if (const Json* owner = controller_of(*there); owner != nullptr && is_predecessor(*owner)) {
    return replace(resource, *there, child);
  }
  return adopt(resource, *there, child);
}

// Whether that is a TrainingJob which had this one's name, and so is gone.
bool ChildWriter::is_predecessor(const Json& owner) const {
  return text_member(owner, {"kind"}) == "TrainingJob" &&
         text_member(owner, {"apiVersion"}) == crds::kApiVersion &&
         text_member(owner, {"name"}) == text_member(job_, {"metadata", "name"});
}

// What a predecessor left is not waited for: the garbage collector may take its time.
Result<Json> ChildWriter::replace(const kube::Resource& resource, const Json& left, const Json& child) {
  const std::string name = text_member(child, {"metadata", "name"});
  kube::CallOptions call = call_;
  call.uid = text_member(left, {"metadata", "uid"});
  const Result<void> removed = client_.remove(resource, namespace_name(), name, call);
  if (!removed && removed.error().code != ErrorCode::kNotFound) {
    return removed.error();
  }
  Result<Json> made = client_.create(resource, namespace_name(), child, call_);
  if (!made && made.error().code == ErrorCode::kAlreadyExists) {
    return Error(ErrorCode::kConflict, name + " in " + resource.plural +
                                           ", of an earlier job of this name, is still being deleted");
  }
  return made;
}

Result<Json> ChildWriter::adopt(const kube::Resource& resource, const Json& child, const Json& wanted) {
  const std::string name = text_member(child, {"metadata", "name"});
  const bool matches = label_of(child, kJobNameLabel) == label_of(wanted, kJobNameLabel) &&
                       label_of(child, kAttemptLabel) == label_of(wanted, kAttemptLabel) &&
                       trainers_of(child) == trainers_of(wanted);
  if (controller_of(child) != nullptr || !matches ||
      !member(child, {"metadata", "deletionTimestamp"}).isNull()) {
    return Error(ErrorCode::kAlreadyExists,
                 "the name " + name + " is taken in " + resource.plural + " by what is not this job's");
  }
  JsonObject patch;
  patch["metadata"]["uid"] = text_member(child, {"metadata", "uid"});
  patch["metadata"]["resourceVersion"] = text_member(child, {"metadata", "resourceVersion"});
  patch["metadata"]["ownerReferences"] = member(child, {"metadata", "ownerReferences"});
  patch["metadata"]["ownerReferences"].append(owner_reference(job_));
  return client_.patch(resource, namespace_name(), name, kube::PatchType::kMerge, patch, {}, call_);
}

Result<void> ChildWriter::remove(const kube::Resource& resource, const std::string& name) {
  const Result<void> removed = client_.remove(resource, namespace_name(), name, call_);
  return removed || removed.error().code == ErrorCode::kNotFound ? Result<void>() : removed;
}

}  // namespace plimsoll::controllers
