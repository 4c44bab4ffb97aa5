// ClusterObjects: reads what a workload refers to (workloads/references.h) from the API server.
//
//   ClusterObjects objects(client);
//   Result<Json> runtime = objects.object({"trainer.kubeflow.org", "v1alpha1", "trainingruntimes", "ml", "torch"}, &budget);
//
// Nothing is cached: a TrainJob is created seldom, and its runtime may have changed. Thread-safe; calls block at most until the budget's
// deadline. The client must outlive it.
#pragma once

#include <string>

#include "base/budget.h"
#include "base/json/json.h"
#include "base/result.h"
#include "kube/client.h"
#include "workloads/references.h"

namespace plimsoll::webhook {

class ClusterObjects final : public workloads::ObjectSource {
 public:
  explicit ClusterObjects(kube::Client& client) : client_(client) {}

  Result<Json> object(const workloads::ObjectName& name, Budget* budget) override;

 private:
  kube::Client& client_;
};

// An object, in a share of the time that the decision has left. `what` is for messages. Errors: the API's own; kTimeout when no time is
// left.
Result<Json> read_in_time(kube::Client& client, const kube::Resource& resource,
                          const std::string& namespace_name, const std::string& name, const std::string& what,
                          Budget* budget);

}  // namespace plimsoll::webhook
