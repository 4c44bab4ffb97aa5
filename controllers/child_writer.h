// Makes and clears away the children of a job by Kubernetes' rules of ownership: what has another owner is
// left alone, what lost its owner (kubectl delete --cascade=orphan) is taken again by a job of that name, if
// it is what the job would make, and what a deleted job of that name has left behind makes way.
//
//   ChildWriter children(client, job, call);
//   Result<Json> made = children.create(kJobs, wanted);
//
// One call at a time. Client and job must outlive it.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"
#include "kube/client.h"

namespace plimsoll::controllers {

// Whether the object's controller is the one of this uid.
bool is_controlled_by(const Json& object, const std::string& uid);

class ChildWriter {
 public:
  // `job`: the TrainingJob that owns them.
  ChildWriter(kube::Client& client, const Json& job, const kube::CallOptions& call)
      : client_(client), job_(job), call_(call) {}

  // The child as it is in the API server, made now or earlier. Errors: kAlreadyExists when the name is taken
  // by what is not the job's; kConflict when it is about to be free; else the API server's.
  Result<Json> create(const kube::Resource& resource, const Json& child);
  // Nothing to remove is as good.
  Result<void> remove(const kube::Resource& resource, const std::string& name);

 private:
  bool is_predecessor(const Json& owner) const;
  Result<Json> replace(const kube::Resource& resource, const Json& left, const Json& child);
  Result<Json> adopt(const kube::Resource& resource, const Json& child, const Json& wanted);
  std::string namespace_name() const;

  kube::Client& client_;
  const Json& job_;
  const kube::CallOptions& call_;
};

}  // namespace plimsoll::controllers
