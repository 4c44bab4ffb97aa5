#include "estimator/provisioner/model_source.h"

namespace plimsoll::estimator::inline provisioner {

void take_tables_of_graph(crds::TrainingJob& job, const TraceFile& graph) {
  if (!job.spec.model.embeddings && !graph.embeddings.empty()) {
    job.spec.model.embeddings = crds::EmbeddingsModel{.tables = graph.embeddings, .tables_from = {}};
  }
}

Result<SharedGraph> resolve_model(crds::TrainingJob& job, ModelSource* source, Budget* budget) {
  crds::ModelSpec& model = job.spec.model;
  if (!model.tables_from() && !model.graph) {
    return SharedGraph();
  }
  if (source == nullptr) {
    return Error(ErrorCode::kUnavailable, "this process has no access to ConfigMaps");
  }
  if (model.tables_from()) {
    const Result<SharedTables> tables = source->tables(job.namespace_name, *model.tables_from(), budget);
    if (!tables) {
      return tables.error();
    }
    model.own_tables().insert(model.own_tables().end(), (*tables)->begin(), (*tables)->end());
  }
  if (!model.graph) {
    return SharedGraph();
  }
  Result<SharedGraph> graph = source->graph(job.namespace_name, *model.graph, budget);
  if (graph && *graph != nullptr) {
    take_tables_of_graph(job, **graph);
  }
  return graph;
}

}  // namespace plimsoll::estimator::provisioner
