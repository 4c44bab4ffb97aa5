#include "webhook/cluster_objects.h"

#include <algorithm>
#include <chrono>

namespace plimsoll::webhook {
namespace {

// Reading one object may take half of the time for a decision.
constexpr int kShareForReading = 2;

}  // namespace

Result<Json> read_in_time(kube::Client& client, const kube::Resource& resource,
                          const std::string& namespace_name, const std::string& name, const std::string& what,
                          Budget* budget) {
  kube::CallOptions call;
  if (budget != nullptr) {
    call.stop = budget->limits().stop;
    if (const Budget::Time deadline = budget->limits().deadline; deadline != Budget::Time::max()) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          (deadline - std::chrono::steady_clock::now()) / kShareForReading);
      if (left.count() <= 0) {
        return Error(ErrorCode::kTimeout, "the deadline leaves no time to read " + what);
      }
      call.timeout = std::min(call.timeout, left);
    }
  }
  return client.get(resource, namespace_name, name, call);
}

Result<Json> ClusterObjects::object(const workloads::ObjectName& name, Budget* budget) {
  const kube::Resource resource{.group = name.group,
                                .version = name.version,
                                .plural = name.plural,
                                .namespaced = !name.namespace_name.empty()};
  return read_in_time(client_, resource, name.namespace_name, name.name, name.plural + " " + name.name,
                      budget);
}

}  // namespace plimsoll::webhook
