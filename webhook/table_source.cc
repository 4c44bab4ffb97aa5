#include "webhook/table_source.h"

#include "base/base64.h"
#include "crds/embedding_tables_csv.h"

namespace plimsoll::webhook {
namespace {

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

Result<SharedTables> ConfigMapTableSource::tables(const std::string& namespace_name,
                                                  const crds::TablesFrom& from,
                                                  std::chrono::steady_clock::time_point deadline) {
  const std::string what = "ConfigMap " + namespace_name + "/" + from.config_map_name;
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  if (left.count() <= 0) {
    return Error(ErrorCode::kTimeout, "no time was left to read " + what);
  }
  kube::CallOptions call;
  call.timeout = std::min(call.timeout, left);
  const Result<Json> config_map = client_.get(kConfigMaps, namespace_name, from.config_map_name, call);
  if (!config_map) {
    return config_map.error().within("read " + what);
  }
  const Key key(namespace_name, from.config_map_name, from.key,
                text_member(*config_map, {"metadata", "resourceVersion"}));
  if (SharedTables known = find(key)) {
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
  keep(key, tables);
  return SharedTables(std::move(tables));
}

Bytes ConfigMapTableSource::cached() const {
  const std::lock_guard lock(mutex_);
  return cached_;
}

SharedTables ConfigMapTableSource::find(const Key& key) {
  const std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) {
    return nullptr;
  }
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->tables;
}

void ConfigMapTableSource::keep(const Key& key, const SharedTables& tables) {
  const Bytes size = size_of(*tables);
  if (size > options_.cache_limit) {
    return;
  }
  const std::lock_guard lock(mutex_);
  if (by_key_.contains(key)) {
    return;  // another thread parsed it meanwhile
  }
  entries_.push_front({key, tables, size});
  by_key_[key] = entries_.begin();
  cached_ += size;
  while (cached_ > options_.cache_limit) {
    cached_ -= entries_.back().size;
    by_key_.erase(entries_.back().key);
    entries_.pop_back();
  }
}

}  // namespace plimsoll::webhook
