// Where a command finds what jobs refer to: ConfigMaps of tables, graphs and descriptions, MemoryProfiles, and the runtimes of TrainJobs.
// In the files that the command was given, or in a cluster.
//
//   JobSources sources = sources_of(*documents, *state);
//   JobsOfInput input = read_jobs(*documents, sources);
//
// One thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"
#include "cli/cluster_state.h"
#include "cli/input.h"
#include "crds/memory_profile.h"
#include "estimator/provisioner/model_source.h"
#include "workloads/references.h"

namespace plimsoll::cli {

// Finds a ConfigMap. Errors: kNotFound, or those of the API server.
using ConfigMapReader =
    std::function<Result<Json>(const std::string& namespace_name, const std::string& name)>;
// Null where nothing was learned or said of the family.
using ProfileReader =
    std::function<const crds::MemoryProfile*(const std::string& namespace_name, const std::string& family)>;
// Any other object. Null where it is not known and can be done without; errors: kNotFound, or those of the API server.
using ObjectReader = std::function<Result<Json>(const workloads::ObjectName& name)>;

struct JobSources {
  std::string default_namespace = kDefaultNamespace;  // of jobs that name none
  ConfigMapReader config_maps;
  ProfileReader profiles;
  ObjectReader objects;
};

// What is among the documents, and in the state that was read from them. Both must outlive the sources.
JobSources sources_of(const std::vector<Document>& documents, const ClusterState& state);

// ConfigMaps as models are resolved by (resolve_model). The reader must outlive it.
class ConfigMapModels final : public estimator::ModelSource {
 public:
  explicit ConfigMapModels(const ConfigMapReader& config_maps) : config_maps_(config_maps) {}

  Result<estimator::SharedTables> tables(const std::string& namespace_name, const crds::TablesFrom& from,
                                         Budget* budget) override;
  Result<estimator::SharedGraph> graph(const std::string& namespace_name, const crds::GraphReference& from,
                                       Budget* budget) override;
  Result<estimator::SharedText> text(const std::string& namespace_name, const std::string& config_map_name,
                                     const std::string& key, Budget* budget) override;

 private:
  const ConfigMapReader& config_maps_;
};

// Other objects as references are read by (read_references). The reader must outlive it.
class ReadObjects final : public workloads::ObjectSource {
 public:
  explicit ReadObjects(const ObjectReader& objects) : objects_(objects) {}
  Result<Json> object(const workloads::ObjectName& name, Budget*) override { return objects_(name); }

 private:
  const ObjectReader& objects_;
};

}  // namespace plimsoll::cli
