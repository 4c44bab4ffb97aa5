#include "webhook/table_source.h"

#include "base/base64.h"
#include "crds/embedding_tables_csv.h"
#include "estimator/graph/import_trace.h"

namespace plimsoll::webhook {
namespace {

// A ConfigMap holds 1 MiB; what that may grow into.
constexpr Bytes kLargestGraph = 64_MiB;

const kube::Resource kConfigMaps{.group = "", .version = "v1", .plural = "configmaps"};

Bytes size_of(const std::vector<crds::EmbeddingTable>& tables) {
  std::size_t size = tables.capacity() * sizeof(crds::EmbeddingTable);
  for (const crds::EmbeddingTable& table : tables) {
    size += table.name.capacity();
  }
  return Bytes{static_cast<std::int64_t>(size)};
}

// The key's content: `data` holds text, `binaryData` base64 of anything.
Result<std::string> content_of(const Json& config_map, const std::string& key) {
  if (const Json& text = member(config_map, {"data", key}); text.isString()) {
    return text.asString();
  }
  if (const Json& binary = member(config_map, {"binaryData", key}); binary.isString()) {
    return base64_decode(binary.asString());
  }
  return Error(ErrorCode::kNotFound, "it has no key " + key);
}

}  // namespace

ConfigMapTableSource::ConfigMapTableSource(kube::Client& client, TableSourceOptions options)
    : client_(client), options_(options) {}

Result<SharedGraph> TableSource::graph(const std::string& /*namespace_name*/,
                                       const crds::GraphReference& /*from*/,
                                       std::chrono::steady_clock::time_point /*deadline*/) {
  return Error(ErrorCode::kUnavailable, "this webhook reads no graphs");
}

Result<Json> ConfigMapTableSource::read(const std::string& what, const std::string& namespace_name,
                                        const std::string& name,
                                        std::chrono::steady_clock::time_point deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  if (left.count() <= 0) {
    return Error(ErrorCode::kTimeout, "no time was left to read " + what);
  }
  kube::CallOptions call;
  call.timeout = std::min(call.timeout, left);
  Result<Json> config_map = client_.get(kConfigMaps, namespace_name, name, call);
  return config_map ? std::move(config_map) : config_map.error().within("read " + what);
}

Result<SharedTables> ConfigMapTableSource::tables(const std::string& namespace_name,
                                                  const crds::TablesFrom& from,
                                                  std::chrono::steady_clock::time_point deadline) {
  const std::string what = "ConfigMap " + namespace_name + "/" + from.config_map_name;
  const Result<Json> config_map = read(what, namespace_name, from.config_map_name, deadline);
  if (!config_map) {
    return config_map.error();
  }
  const Key key(namespace_name, from.config_map_name, from.key,
                text_member(*config_map, {"metadata", "resourceVersion"}));
  if (SharedTables known = find(key).tables) {
    return known;
  }
  const Result<std::string> content = content_of(*config_map, from.key);
  if (!content) {
    return content.error().within(what);
  }
  Result<std::vector<crds::EmbeddingTable>> parsed = crds::parse_embedding_tables_csv(*content);
  if (!parsed) {
    return parsed.error().within(what + ", key " + from.key);
  }
  auto tables = std::make_shared<const std::vector<crds::EmbeddingTable>>(*std::move(parsed));
  keep({.key = key, .tables = tables, .graph = nullptr, .size = size_of(*tables)});
  return SharedTables(std::move(tables));
}

Result<SharedGraph> ConfigMapTableSource::graph(const std::string& namespace_name,
                                                const crds::GraphReference& from,
                                                std::chrono::steady_clock::time_point deadline) {
  const std::string what = "ConfigMap " + namespace_name + "/" + from.config_map_name;
  const Result<Json> config_map = read(what, namespace_name, from.config_map_name, deadline);
  if (!config_map) {
    return config_map.error();
  }
  const Key key(namespace_name, from.config_map_name, from.key,
                text_member(*config_map, {"metadata", "resourceVersion"}));
  if (SharedGraph known = find(key).graph) {
    return known;
  }
  const Result<std::string> content = content_of(*config_map, from.key);
  if (!content) {
    return content.error().within(what);
  }
  Result<estimator::TraceFile> imported = estimator::import_traces(*content, {.text = kLargestGraph});
  if (!imported) {
    return imported.error().within(what + ", key " + from.key);
  }
  auto graph = std::make_shared<const estimator::TraceFile>(*std::move(imported));
  keep({.key = key, .tables = nullptr, .graph = graph, .size = estimator::memory_of(*graph)});
  return SharedGraph(std::move(graph));
}

Bytes ConfigMapTableSource::cached() const {
  const std::lock_guard lock(mutex_);
  return cached_;
}

ConfigMapTableSource::Entry ConfigMapTableSource::find(const Key& key) {
  const std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) {
    return {};
  }
  entries_.splice(entries_.begin(), entries_, found->second);
  return *found->second;
}

void ConfigMapTableSource::keep(Entry entry) {
  if (entry.size > options_.cache_limit) {
    return;
  }
  const std::lock_guard lock(mutex_);
  if (by_key_.contains(entry.key)) {
    return;  // another thread parsed it meanwhile
  }
  cached_ += entry.size;
  entries_.push_front(std::move(entry));
  by_key_[entries_.front().key] = entries_.begin();
  while (cached_ > options_.cache_limit) {
    cached_ -= entries_.back().size;
    by_key_.erase(entries_.back().key);
    entries_.pop_back();
  }
}

}  // namespace plimsoll::webhook
