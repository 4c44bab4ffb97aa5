// ClusterState: what a command knows about the cluster: its GPUs, what was learned of each model family, and the
// ConfigMaps that tables come from. Read from files (what `kubectl get nodes,gpumodels,memoryprofiles -A -o
// yaml` prints) or from the API server. One thread.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"
#include "cli/input.h"
#include "crds/memory_profile.h"
#include "crds/training_job.h"
#include "estimator/catalog/gpu_catalog.h"
#include "estimator/catalog/inventory.h"
#include "estimator/trace/trace.h"
#include "kube/client.h"

namespace plimsoll::cli {

inline constexpr const char* kDefaultNamespace = "default";

struct ClusterState {
  estimator::GpuCatalog catalog = estimator::GpuCatalog::built_in();
  std::vector<estimator::AvailableGpu> gpus;
  std::vector<crds::MemoryProfile> profiles;
  std::map<std::pair<std::string, std::string>, Json> config_maps;  // by namespace and name
  std::vector<std::string> notes;                                   // what was left out, and why

  // Errors: kNotFound.
  Result<Json> config_map(const std::string& namespace_name, const std::string& name) const;
  // Null: nothing was learned yet.
  const crds::MemoryProfile* profile_of(const std::string& namespace_name, const std::string& family) const;
};

// Reads Nodes, Pods, GPUModels, MemoryProfiles and ConfigMaps among the documents; other kinds are not looked
// at. The GPUs are counted on the nodes, or where there are none taken from the GPUModels' status. Errors:
// kInvalid for an object of a kind that matters and cannot be read.
Result<ClusterState> cluster_from_documents(const std::vector<Document>& documents);

// The same from the API server. A cluster without Plimsoll's CRDs has no GPUModels and no MemoryProfiles.
Result<ClusterState> cluster_from_client(kube::Client& client);

// The tables that a ConfigMap key names. Errors: kNotFound, kInvalid.
Result<std::vector<crds::EmbeddingTable>> tables_of(const Json& config_map, const std::string& key);

// The exported graph that a ConfigMap key names. Errors: kNotFound, kInvalid.
Result<estimator::TraceFile> graph_of(const Json& config_map, const std::string& key);

// What a ConfigMap key holds. Errors: kNotFound, kInvalid.
Result<std::string> text_of(const Json& config_map, const std::string& key);

// GPUs that a pod holds or will hold on its node; 0 when it is not bound or has ended.
std::int64_t gpus_of_pod(const Json& pod);

}  // namespace plimsoll::cli
