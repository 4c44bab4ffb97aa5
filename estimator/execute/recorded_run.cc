#include "estimator/execute/recorded_run.h"

#include <algorithm>

namespace plimsoll::estimator::inline execute {

bool is_recordable(const TraceRunRequest& request) {
  const Replication& replication = request.replication;
  return gathers(replication.strategy) && replication.replicas > replication.replicate && !request.between &&
         request.exchanges.empty() && !request.zero_grad_before_backward;
}

bool is_recordable(const Trace& trace, const PreparedTrace& prepared) {
  return prepared.lookups.empty() &&
         std::none_of(trace.parameters.begin(), trace.parameters.end(),
                      [](const TraceParameter& each) { return each.sparse_gradient; });
}

bool RecordedRun::is_of(const std::vector<const Trace*>& chunks, const TraceRunRequest& request) const {
  Replication same = request.replication;
  same.replicas = run.replicated.replication.replicas;
  return traces == chunks && schedule == request.schedule && same == run.replicated.replication;
}

std::optional<TraceRun> RecordedRun::resized(const TraceRunRequest& request,
                                             const OptimizerRun& optimizer) const {
  TraceRun other = run;
  other.warnings.clear();
  other.replicated.replication = request.replication;
  const std::optional<HostMemory> host =
      script.resize(other.ledger, request.replication, other.replicated.parameters, optimizer, request.saving,
                    request.budget);
  if (!host) {
    return std::nullopt;
  }
  other.host = *host;
  return other;
}

}  // namespace plimsoll::estimator::execute
