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
    return text_member(text, {});
  }
  if (const Json& binary = member(config_map, {"binaryData", key}); binary.isString()) {
    return base64_decode(text_member(binary, {}));
  }
  return Error(ErrorCode::kNotFound, "it has no key " + key);
}

}  // namespace

ConfigMapTableSource::ConfigMapTableSource(kube::Client& client, TableSourceOptions options)
    : client_(client), options_(options) {}

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

template <class T>
Result<std::shared_ptr<const T>> ConfigMapTableSource::get(const std::string& namespace_name,
                                                           const std::string& name, const std::string& key,
                                                           std::chrono::steady_clock::time_point deadline,
                                                           Result<T> (*parse)(const std::string&),
                                                           Bytes (*size_of)(const T&)) {
  using Shared = std::shared_ptr<const T>;
  const std::string what = "ConfigMap " + namespace_name + "/" + name;
  const Result<Json> config_map = read(what, namespace_name, name, deadline);
  if (!config_map) {
    return config_map.error();
  }
  const Key place(namespace_name, name, key, text_member(*config_map, {"metadata", "resourceVersion"}));
  const Content known = find(place);
  if (const Shared* same = std::get_if<Shared>(&known); same != nullptr && *same != nullptr) {
    return *same;
  }
  const Result<std::string> content = content_of(*config_map, key);
  if (!content) {
    return content.error().within(what);
  }
  Result<T> parsed = parse(*content);
  if (!parsed) {
    return parsed.error().within(what + ", key " + key);
  }
  auto shared = std::make_shared<const T>(*std::move(parsed));
  keep({.key = place, .content = shared, .size = size_of(*shared)});
  return Shared(std::move(shared));
}

Result<estimator::SharedTables> ConfigMapTableSource::tables(const std::string& namespace_name,
                                                             const crds::TablesFrom& from,
                                                             std::chrono::steady_clock::time_point deadline) {
  return get<std::vector<crds::EmbeddingTable>>(
      namespace_name, from.config_map_name, from.key, deadline,
      [](const std::string& text) { return crds::parse_embedding_tables_csv(text); }, size_of);
}

Result<estimator::SharedGraph> ConfigMapTableSource::graph(const std::string& namespace_name,
                                                           const crds::GraphReference& from,
                                                           std::chrono::steady_clock::time_point deadline) {
  return get<estimator::TraceFile>(
      namespace_name, from.config_map_name, from.key, deadline,
      [](const std::string& text) { return estimator::import_traces(text, {.text = kLargestGraph}); },
      estimator::memory_of);
}

Bytes ConfigMapTableSource::cached() const {
  const std::lock_guard lock(mutex_);
  return cached_;
}

ConfigMapTableSource::Content ConfigMapTableSource::find(const Key& key) {
  const std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) {
    return {};
  }
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->content;
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
