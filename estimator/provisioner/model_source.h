// ModelSource: the parts of a job's model that are in a ConfigMap: embedding tables (tablesFrom of
// spec.model.dlrm and spec.model.embeddings), exported graphs (spec.model.graph), and descriptions of workloads of other kinds.
// Implementations are in other folders.
//
//   Result<SharedGraph> graph = resolve_model(job, source, &budget);   // tables are now in the job
//   ProvisionRequest request{.job = &job, .graph = graph->get(), .budget = &budget};
//
// Implementations are thread-safe; calls block until the budget's deadline at most. An exceeded budget is the
// error kTimeout, kTooLarge or kCancelled.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/budget.h"
#include "base/result.h"
#include "crds/training_job.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline provisioner {

using SharedTables = std::shared_ptr<const std::vector<crds::EmbeddingTable>>;
using SharedGraph = std::shared_ptr<const TraceFile>;
using SharedText = std::shared_ptr<const std::string>;

class ModelSource {
 public:
  virtual ~ModelSource() = default;
  // Errors: the API's own, kNotFound for a missing key, kInvalid for content that is not a CSV of tables.
  virtual Result<SharedTables> tables(const std::string& namespace_name, const crds::TablesFrom& from,
                                      Budget* budget) = 0;
  // The same for a graph in JSON or gzipped JSON.
  virtual Result<SharedGraph> graph(const std::string& namespace_name, const crds::GraphReference& from,
                                    Budget* budget) = 0;
  // A key's content as it is.
  virtual Result<SharedText> text(const std::string& namespace_name, const std::string& config_map_name,
                                  const std::string& key, Budget* budget) = 0;
};

// Gives a graph's job the tables that the graph's file describes, unless the job has its own.
void take_tables_of_graph(crds::TrainingJob& job, const TraceFile& graph);

// Appends the tables that the job's model refers to, and returns the graph that it refers to, or null. Errors: the source's; kUnavailable when there is no source.
Result<SharedGraph> resolve_model(crds::TrainingJob& job, ModelSource* source, Budget* budget);

}  // namespace plimsoll::estimator::provisioner
