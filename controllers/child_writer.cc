#include "controllers/child_writer.h"

#include "base/json/edit.h"
#include "controllers/job_children.h"
#include "crds/training_job.h"

namespace plimsoll::controllers {
namespace {

// The Job controller writes a Job's status often: a deletion that met such a write reads again.
constexpr int kMaxDeleteTries = 4;

const Json* controller_of(const Json& object) {
  const Json& owners = member(object, {"metadata", "ownerReferences"});
  if (!owners.isArray()) {
    return nullptr;
  }
  for (const Json& owner : owners) {
    if (member(owner, {"controller"}) == Json(true)) {
      return &owner;
    }
  }
  return nullptr;
}

std::string trainers_of(const Json& job) {
  return text_member(job, {"spec", "template", "metadata", "annotations", kTrainersAnnotation});
}

// The labels that the API server gives to a Job, besides those that it was created with.
bool is_of_the_server(const std::string& label) {
  return label.starts_with("batch.kubernetes.io/") || label == "controller-uid" || label == "job-name";
}

bool same_labels(const Json& orphan, const Json& wanted) {
  const JsonView wanted_labels = member(wanted, {"metadata", "labels"});
  std::size_t own = 0;
  for (const auto& [label, value] : JsonView(member(orphan, {"metadata", "labels"})).members()) {
    if (!is_of_the_server(std::string(label))) {
      const std::optional<JsonView> same = wanted_labels.member(label);
      if (!same || !(*same == value)) {
        return false;
      }
      ++own;
    }
  }
  return own == wanted_labels.members().size();
}

// Whether an orphan is what the job would create: the same labels, and the same shape.
bool matches(const Json& orphan, const Json& wanted) {
  const Json& selector = member(wanted, {"spec", "selector"});  // a Service's; a Job gets its own
  return same_labels(orphan, wanted) && trainers_of(orphan) == trainers_of(wanted) &&
         (selector.isNull() || member(orphan, {"spec", "selector"}) == selector);
}

// "owned by StatefulSet kafka", for messages.
std::string holder_of(const Json& object) {
  if (const Json* controller = controller_of(object)) {
    return "owned by " + text_member(*controller, {"kind"}) + " " + text_member(*controller, {"name"});
  }
  return has_owner(object) ? "which has other owners" : "which has no owner";
}

}  // namespace

bool has_owner(const Json& object) {
  const Json& owners = member(object, {"metadata", "ownerReferences"});
  return owners.isArray() && !owners.empty();
}

bool is_controlled_by(const Json& object, const std::string& uid) {
  const Json* controller = controller_of(object);
  return controller != nullptr && !uid.empty() && text_member(*controller, {"uid"}) == uid;
}

bool is_controlled_by_job_named(const Json& object, const std::string& name) {
  const Json* owner = controller_of(object);
  return owner != nullptr && text_member(*owner, {"kind"}) == "TrainingJob" &&
         text_member(*owner, {"apiVersion"}) == crds::kApiVersion && text_member(*owner, {"name"}) == name;
}

Result<Json> ChildWriter::create(const kube::Resource& resource, const Json& child) {
  Result<Json> made = client_.create(resource, namespace_name(), child, call_);
  if (made || made.error().code != ErrorCode::kAlreadyExists) {
    return made;
  }
  const std::string name = text_member(child, {"metadata", "name"});
  Result<Json> there = client_.get(resource, namespace_name(), name, call_);
  if (!there && there.error().code == ErrorCode::kNotFound) {
    return Error(ErrorCode::kConflict, name + " in " + resource.plural + " has just been deleted");
  }
  if (!there || is_controlled_by(*there, uid())) {
    return there;
  }
  if (is_controlled_by_job_named(*there, text_member(job_, {"metadata", "name"}))) {
    return replace(resource, *there, child);
  }
  return adopt(resource, *there, child);
}

// A name belongs to one object at a time: if this job has it, an earlier job of the name is gone.
Result<void> ChildWriter::owns_its_name() {
  const Result<Json> live =
      client_.get(kTrainingJobs, namespace_name(), text_member(job_, {"metadata", "name"}), call_);
  if (!live) {
    return live.error();
  }
  if (text_member(*live, {"metadata", "uid"}) != uid()) {
    return Error(ErrorCode::kConflict, "another job has taken the name since this one was read");
  }
  return {};
}

// Does not wait for the garbage collector, which may take a long time.
Result<Json> ChildWriter::replace(const kube::Resource& resource, const Json& left, const Json& child) {
  const std::string name = text_member(child, {"metadata", "name"});
  if (const Result<void> owns = owns_its_name(); !owns) {
    return owns.error();
  }
  if (const Result<void> removed = remove_as_read(resource, left);
      !removed && removed.error().code != ErrorCode::kNotFound) {
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
  if (has_owner(child) || !matches(child, wanted)) {
    return Error(
        ErrorCode::kAlreadyExists,
        "the name " + name + " in " + resource.plural + " is taken by an object that is not this job's, " +
            holder_of(child) +
            "; it was left as it is. Delete or rename that object, or give the TrainingJob another name");
  }
  if (!member(child, {"metadata", "deletionTimestamp"}).isNull()) {
    return Error(ErrorCode::kConflict, name + " in " + resource.plural + " is still being deleted");
  }
  JsonObject patch;
  patch["metadata"]["uid"] = text_member(child, {"metadata", "uid"});
  patch["metadata"]["resourceVersion"] = text_member(child, {"metadata", "resourceVersion"});
  patch["metadata"]["ownerReferences"].append(owner_reference(job_));
  return client_.patch(resource, namespace_name(), name, kube::PatchType::kMerge, patch, {}, call_);
}

Result<void> ChildWriter::remove_as_read(const kube::Resource& resource, const Json& object) {
  kube::CallOptions call = call_;
  call.uid = text_member(object, {"metadata", "uid"});
  call.resource_version = text_member(object, {"metadata", "resourceVersion"});
  // In the foreground: the Job exists as long as it has pods, and its controller, which sees the deletion,
  // creates no more.
  call.propagation = kube::Propagation::kForeground;
  return client_.remove(resource, namespace_name(), text_member(object, {"metadata", "name"}), call);
}

Result<void> ChildWriter::remove(const kube::Resource& resource, const std::string& name) {
  Result<void> removed;
  for (int i = 0; i < kMaxDeleteTries; ++i) {
    const Result<Json> there = client_.get(resource, namespace_name(), name, call_);
    if (!there) {
      return there.error().code == ErrorCode::kNotFound ? Result<void>() : there.error();
    }
    if (!is_controlled_by(*there, uid()) || !member(*there, {"metadata", "deletionTimestamp"}).isNull()) {
      return {};
    }
    removed = remove_as_read(resource, *there);
    if (removed || removed.error().code == ErrorCode::kNotFound) {
      return {};
    }
    if (removed.error().code != ErrorCode::kConflict) {
      break;
    }
  }
  return removed.error().within("delete " + name + " in " + resource.plural);
}

}  // namespace plimsoll::controllers
