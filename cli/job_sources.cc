#include "cli/job_sources.h"

#include <cctype>
#include <map>
#include <memory>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/json/view.h"

namespace plimsoll::cli {
namespace {

// Reads a key of a ConfigMap; errors name it.
template <class T, class Read>
Result<std::shared_ptr<const T>> read_key(const ConfigMapReader& config_maps,
                                          const std::string& namespace_name, const std::string& name,
                                          const std::string& key, Read read) {
  const Result<Json> config_map = config_maps(namespace_name, name);
  if (!config_map) {
    return config_map.error();
  }
  Result<T> content = read(*config_map, key);
  if (!content) {
    return content.error().within("ConfigMap " + namespace_name + "/" + name);
  }
  return std::make_shared<const T>(*std::move(content));
}

// A document's kind in the plural of the API, as "clustertrainingruntimes".
std::string plural_of(std::string_view kind) {
  std::string plural;
  for (const char each : kind) {
    plural += static_cast<char>(std::tolower(static_cast<unsigned char>(each)));
  }
  return plural + 's';
}

// Group, plural, namespace (of objects of the cluster none) and name.
using ObjectKey = std::tuple<std::string, std::string, std::string, std::string>;

std::map<ObjectKey, const Json*> by_key(const std::vector<Document>& documents) {
  std::map<ObjectKey, const Json*> objects;
  for (const auto& [object, where] : documents) {
    const std::string version = text_member(object, {"apiVersion"});
    const std::size_t slash = version.find('/');
    const std::string group = slash == version.npos ? std::string() : version.substr(0, slash);
    const std::string plural = plural_of(text_member(object, {"kind"}));
    const std::string name = text_member(object, {"metadata", "name"});
    // Whether the kind has a namespace is not known, so that the object is found both ways; the first of a name counts.
    objects.try_emplace(
        {group, plural, text_member(object, {"metadata", "namespace"}, kDefaultNamespace), name}, &object);
    objects.try_emplace({group, plural, "", name}, &object);
  }
  return objects;
}

}  // namespace

JobSources sources_of(const std::vector<Document>& documents, const ClusterState& state) {
  JobSources sources;
  sources.config_maps = [&](const std::string& space, const std::string& name) {
    return state.config_map(space, name);
  };
  sources.profiles = [&](const std::string& space, const std::string& family) {
    return state.profile_of(space, family);
  };
  sources.objects = [objects = by_key(documents)](const workloads::ObjectName& name) -> Result<Json> {
    const auto found = objects.find({name.group, name.plural, name.namespace_name, name.name});
    if (found != objects.end()) {
      return *found->second;
    }
    if (name.plural == "customresourcedefinitions") {
      return Json();  // only the patch of a TrainJob depends on it
    }
    const std::string where = name.namespace_name.empty() ? name.name : name.namespace_name + "/" + name.name;
    return Error(ErrorCode::kNotFound, where + " is not among the files; add it to them");
  };
  return sources;
}

Result<estimator::SharedTables> ConfigMapModels::tables(const std::string& namespace_name,
                                                        const crds::TablesFrom& from, Budget*) {
  return read_key<std::vector<crds::EmbeddingTable>>(config_maps_, namespace_name, from.config_map_name,
                                                     from.key, tables_of);
}

Result<estimator::SharedGraph> ConfigMapModels::graph(const std::string& namespace_name,
                                                      const crds::GraphReference& from, Budget*) {
  return read_key<estimator::TraceFile>(config_maps_, namespace_name, from.config_map_name, from.key,
                                        graph_of);
}

Result<estimator::SharedText> ConfigMapModels::text(const std::string& namespace_name,
                                                    const std::string& config_map_name,
                                                    const std::string& key, Budget*) {
  return read_key<std::string>(config_maps_, namespace_name, config_map_name, key, text_of);
}

}  // namespace plimsoll::cli
