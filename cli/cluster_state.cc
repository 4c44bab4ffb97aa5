#include "cli/cluster_state.h"

#include <algorithm>

#include "base/base64.h"
#include "base/json/edit.h"
#include "base/json/view.h"
#include "base/quantity.h"
#include "crds/embedding_tables_csv.h"
#include "crds/gpu_model.h"
#include "crds/unknown_fields.h"
#include "estimator/trace/import_graph.h"

namespace plimsoll::cli {
namespace {

const kube::Resource kNodes{.group = "", .version = "v1", .plural = "nodes", .namespaced = false};
const kube::Resource kPods{.group = "", .version = "v1", .plural = "pods"};
const kube::Resource kGpuModels{
    .group = crds::kGroup, .version = crds::kVersion, .plural = "gpumodels", .namespaced = false};
const kube::Resource kMemoryProfiles{
    .group = crds::kGroup, .version = crds::kVersion, .plural = "memoryprofiles"};

// Collects objects in any order and counts the GPUs once all are there.
class Collector {
 public:
  Result<void> add(const Json& object, const std::string& where) {
    const std::string kind = text_member(object, {"kind"});
    const std::string version = text_member(object, {"apiVersion"});
    Result<void> added;
    if (version == "v1" && kind == "Node") {
      added = append(estimator::decode_node(object), nodes_);
    } else if (version == "v1" && kind == "Pod") {
      requested_[text_member(object, {"spec", "nodeName"})] += gpus_of_pod(object);
    } else if (version == "v1" && kind == "ConfigMap") {
      const std::string space = text_member(object, {"metadata", "namespace"}, kDefaultNamespace);
      state_.config_maps[{space, text_member(object, {"metadata", "name"})}] = object;
    } else if (version == crds::kApiVersion && kind == "GPUModel") {
      added = append(crds::decode_gpu_model(object), gpu_models_);
      added = added ? state_.catalog.apply(gpu_models_.back()) : added;
    } else if (version == crds::kApiVersion && kind == "MemoryProfile") {
      added = append(crds::decode_memory_profile(object), state_.profiles);
    }
    return added ? added : added.error().within(where);
  }

  ClusterState take() && {
    if (nodes_.empty()) {
      state_.gpus = estimator::inventory_of(gpu_models_, state_.catalog);
      return std::move(state_);
    }
    for (estimator::GpuNode& node : nodes_) {
      node.requested_gpus = requested_[node.name];
    }
    std::vector<std::string> unknown;
    state_.gpus = estimator::take_inventory(nodes_, state_.catalog, &unknown);
    for (const std::string& label : unknown) {
      state_.notes.push_back(label.empty()
                                 ? "GPUs of nodes without a product label are left out"
                                 : "GPUs labelled " + label + " are left out: no GPUModel has that label");
    }
    return std::move(state_);
  }

 private:
  template <class T>
  static Result<void> append(Result<T> decoded, std::vector<T>& to) {
    if (!decoded) {
      return decoded.error();
    }
    to.push_back(*std::move(decoded));
    return {};
  }

  ClusterState state_;
  std::vector<estimator::GpuNode> nodes_;
  std::map<std::string, std::int64_t> requested_;
  std::vector<crds::GpuModel> gpu_models_;
};

std::int64_t gpus_of_container(const JsonView& container) {
  const JsonView limit = member(container, {"resources", "limits", crds::kGpuResource});
  if (const std::optional<std::int64_t> count = limit.integer()) {
    return std::max<std::int64_t>(0, *count);
  }
  const Result<Bytes> count = parse_bytes(limit.text().value_or("0"));
  return count ? count->count : 0;
}

}  // namespace

std::int64_t gpus_of_pod(const Json& pod) {
  const std::string phase = text_member(pod, {"status", "phase"});
  if (text_member(pod, {"spec", "nodeName"}).empty() || phase == "Succeeded" || phase == "Failed") {
    return 0;
  }
  std::int64_t together = 0;
  for (const JsonView container : member(JsonView(pod), {"spec", "containers"}).elements()) {
    together += gpus_of_container(container);
  }
  // Init containers run one after another, before the others.
  for (const JsonView container : member(JsonView(pod), {"spec", "initContainers"}).elements()) {
    together = std::max(together, gpus_of_container(container));
  }
  return together;
}

Result<Json> ClusterState::config_map(const std::string& namespace_name, const std::string& name) const {
  const auto found = config_maps.find({namespace_name, name});
  if (found == config_maps.end()) {
    return Error(ErrorCode::kNotFound,
                 "ConfigMap " + namespace_name + "/" + name + " is not among the files; add it to them");
  }
  return found->second;
}

const crds::MemoryProfile* ClusterState::profile_of(const std::string& namespace_name,
                                                    const std::string& family) const {
  if (family.empty()) {
    return nullptr;
  }
  const auto found = std::find_if(profiles.begin(), profiles.end(), [&](const crds::MemoryProfile& profile) {
    const std::string& space = profile.namespace_name.empty() ? kDefaultNamespace : profile.namespace_name;
    return profile.family == family && space == namespace_name;
  });
  return found == profiles.end() ? nullptr : &*found;
}

Result<ClusterState> cluster_from_documents(const std::vector<Document>& documents) {
  Collector collector;
  for (const Document& document : documents) {
    // What a person wrote; objects of an API server may have fields of a newer schema.
    if (const Result<void> known = crds::refuse_unknown_fields(JsonView(document.object)); !known) {
      return known.error().within(document.where);
    }
    if (Result<void> added = collector.add(document.object, document.where); !added) {
      return added.error();
    }
  }
  return std::move(collector).take();
}

Result<ClusterState> cluster_from_client(kube::Client& client) {
  Collector collector;
  for (const auto& [resource, kind] :
       {std::pair(&kGpuModels, "GPUModel"), std::pair(&kNodes, "Node"), std::pair(&kPods, "Pod"),
        std::pair(&kMemoryProfiles, "MemoryProfile")}) {
    kube::ListOptions what;
    if (resource == &kPods) {
      what.field_selector = "status.phase!=Succeeded,status.phase!=Failed";
    }
    Result<Json> list = client.list(*resource, {}, what);
    if (!list && list.error().code == ErrorCode::kNotFound && resource->group == crds::kGroup) {
      continue;  // Plimsoll is not installed: the built-in catalogue and constants hold
    }
    if (!list) {
      return list.error().within(std::string("list ") + resource->plural);
    }
    for (const Json& listed : member(*list, {"items"})) {
      const std::string where = resource->plural + " " + text_member(listed, {"metadata", "name"});
      // Items of a typed list come without their kind.
      JsonEdit edit(listed);
      edit["kind"] = kind;
      edit["apiVersion"] = resource->group.empty() ? std::string("v1") : std::string(crds::kApiVersion);
      const Result<Json> item = std::move(edit).take();
      if (!item) {
        return item.error().within(where);
      }
      if (Result<void> added = collector.add(*item, where); !added) {
        return added.error();
      }
    }
  }
  return std::move(collector).take();
}

Result<std::string> text_of(const Json& config_map, const std::string& key) {
  // `data` holds text, `binaryData` holds base64 of anything.
  if (const Json& text = member(config_map, {"data", key}); text.isString()) {
    return text_member(text, {});
  }
  const Json& binary = member(config_map, {"binaryData", key});
  if (!binary.isString()) {
    return Error(ErrorCode::kNotFound, "it has no key " + key);
  }
  return base64_decode(text_member(binary, {}));
}

Result<std::vector<crds::EmbeddingTable>> tables_of(const Json& config_map, const std::string& key) {
  const Result<std::string> content = text_of(config_map, key);
  return content ? crds::parse_embedding_tables_csv(*content) : content.error();
}

Result<estimator::TraceFile> graph_of(const Json& config_map, const std::string& key) {
  const Result<std::string> content = text_of(config_map, key);
  return content ? estimator::import_traces(*content) : content.error();
}

}  // namespace plimsoll::cli
