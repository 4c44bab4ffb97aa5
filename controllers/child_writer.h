// Creates and deletes the children of a TrainingJob by Kubernetes' rules of ownership. An object is changed
// or deleted only if its controller reference names this job's uid, and only in the state in which it was
// read (preconditions on uid and resourceVersion). There are two exceptions. An orphan (kubectl delete
// --cascade=orphan) that has no owner, and exactly the labels and the shape of the wanted child, is adopted.
// A child of a deleted TrainingJob of the same name is replaced, once the API server confirms that this job
// has the name now. Any other object with the name of a child is not changed.
//
//   ChildWriter children(client, job, call);
//   Result<Json> made = children.create(kJobs, wanted);    // kAlreadyExists: the name is taken
//
// One call at a time. Client and job must outlive it.
#pragma once

#include <string>

#include "base/json/json.h"
#include "base/result.h"
#include "kube/client.h"

namespace plimsoll::controllers {

// Whether the object's controller is the one of this uid.
bool is_controlled_by(const Json& object, const std::string& uid);

// Whether the object's controller is, or was, a TrainingJob of this name.
bool is_controlled_by_job_named(const Json& object, const std::string& name);

bool has_owner(const Json& object);

class ChildWriter {
 public:
  // `job`: the TrainingJob that owns them.
  ChildWriter(kube::Client& client, const Json& job, const kube::CallOptions& call)
      : client_(client), job_(job), call_(call) {}

  // The child as it is in the API server, made now or earlier. Errors: kAlreadyExists when the name is taken
  // by an object that is not the job's; kConflict when the name is about to be free; else the API server's.
  Result<Json> create(const kube::Resource& resource, const Json& child);
  // Deletes the child of that name if the job owns it, with the objects that it owns itself: a Job stays
  // visible until its pods are gone. Success, too, if there is no such object or another owner has it.
  Result<void> remove(const kube::Resource& resource, const std::string& name);

 private:
  Result<Json> replace(const kube::Resource& resource, const Json& left, const Json& child);
  Result<Json> adopt(const kube::Resource& resource, const Json& child, const Json& wanted);
  Result<void> remove_as_read(const kube::Resource& resource, const Json& object);
  Result<void> owns_its_name();
  std::string namespace_name() const { return text_member(job_, {"metadata", "namespace"}); }
  std::string uid() const { return text_member(job_, {"metadata", "uid"}); }

  kube::Client& client_;
  const Json& job_;
  const kube::CallOptions& call_;
};

}  // namespace plimsoll::controllers
