#include "estimator/provisioner/model_source.h"

namespace plimsoll::estimator::inline provisioner {

Result<SharedGraph> resolve_model(crds::TrainingJob& job, ModelSource* source, Budget* budget) {
  const bool tables_wanted = job.spec.model.dlrm && job.spec.model.dlrm->tables_from;
  if (!tables_wanted && !job.spec.model.graph) {
    return SharedGraph();
  }
  if (source == nullptr) {
    return Error(ErrorCode::kUnavailable, "this process has no access to ConfigMaps");
  }
  if (job.spec.model.graph) {
    return source->graph(job.namespace_name, *job.spec.model.graph, budget);
  }
  crds::DlrmModel& model = *job.spec.model.dlrm;
  const Result<SharedTables> tables = source->tables(job.namespace_name, *model.tables_from, budget);
  if (!tables) {
    return tables.error();
  }
  model.tables.insert(model.tables.end(), (*tables)->begin(), (*tables)->end());
  return SharedGraph();
}

}  // namespace plimsoll::estimator::provisioner
