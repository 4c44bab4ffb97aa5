// ModelSource: the parts of a job's model that are in a ConfigMap: embedding tables (spec.model.dlrm.tablesFrom)
// and exported graphs (spec.model.graph). Implementations are in other folders.
//
//   Result<SharedGraph> graph = resolve_model(job, source, &budget);   // tables are now in the job
//   ProvisionRequest request{.job = &job, .graph = graph->get(), .budget = &budget};
//
// Implementations are thread-safe; calls block until the budget's deadline at most. An exceeded budget is the
// error kTimeout, kTooLarge or kCancelled.
#pragma once

#include <memory>
#include <vector>

#include "base/budget.h"
#include "base/result.h"
#include "crds/training_job.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline provisioner {

using SharedTables = std::shared_ptr<const std::vector<crds::EmbeddingTable>>;
using SharedGraph = std::shared_ptr<const TraceFile>;

class ModelSource {
 public:
  virtual ~ModelSource() = default;
  // Errors: the API's own, kNotFound for a missing key, kInvalid for content that is not a CSV of tables.
  virtual Result<SharedTables> tables(const std::string& namespace_name, const crds::TablesFrom& from,
                                      Budget* budget) = 0;
  // The same for a graph in JSON or gzipped JSON.
  virtual Result<SharedGraph> graph(const std::string& namespace_name, const crds::GraphReference& from,
                                    Budget* budget) = 0;
};

// Appends the tables that the job's model refers to, and returns the graph that it refers to, or null. Errors: the source's; kUnavailable when there is no source.
Result<SharedGraph> resolve_model(crds::TrainingJob& job, ModelSource* source, Budget* budget);

}  // namespace plimsoll::estimator::provisioner
