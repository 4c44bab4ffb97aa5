#include "webhook/table_source.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/base64.h"
#include "crds/embedding_tables_csv.h"
#include "estimator/trace/import_graph.h"
#include "webhook/cluster_objects.h"

namespace plimsoll::webhook {
namespace {

// Limits of the uncompressed content; a ConfigMap has at most 1 MiB. A graph of 10,000 operators has 2 MiB,
// 100,000 tables have 6 MiB.
constexpr Bytes kMaxGraph = 8_MiB;
constexpr Bytes kMaxTables = 16_MiB;
// The size of a cache entry without its content.
constexpr std::int64_t kEntryBytes = 256;

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
  return Error(ErrorCode::kNotFound, "there is no key " + key);
}

}  // namespace

ConfigMapTableSource::ConfigMapTableSource(kube::Client& client, TableSourceOptions options)
    : client_(client), options_(options) {}

Result<Json> ConfigMapTableSource::read(const std::string& what, const std::string& namespace_name,
                                        const std::string& name, Budget* budget) {
  Result<Json> config_map = read_in_time(client_, kConfigMaps, namespace_name, name, what, budget);
  return config_map ? std::move(config_map) : config_map.error().within("read " + what);
}

template <class T>
Result<std::shared_ptr<const T>> ConfigMapTableSource::get(const std::string& namespace_name,
                                                           const std::string& name, const std::string& key,
                                                           Budget* budget,
                                                           Result<T> (*parse)(const std::string&, Budget*),
                                                           Bytes (*size_of)(const T&)) {
  using Shared = std::shared_ptr<const T>;
  const std::string what = "ConfigMap " + namespace_name + "/" + name;
  const Result<Json> config_map = read(what, namespace_name, name, budget);
  if (!config_map) {
    return config_map.error();
  }
  const Key place(namespace_name, name, key, text_member(*config_map, {"metadata", "resourceVersion"}),
                  Content(Shared()).index());
  if (const std::optional<Content> known = find(place)) {
    if (const Shared* same = std::get_if<Shared>(&*known)) {
      return *same;
    }
    if (const Error* error = std::get_if<Error>(&*known)) {
      return *error;
    }
  }
  const Result<std::string> content = content_of(*config_map, key);
  if (!content) {
    return content.error().within(what);
  }
  Budget unlimited;
  Budget& within = budget == nullptr ? unlimited : *budget;
  Result<T> parsed = within.run([&] { return parse(*content, budget); });
  if (!parsed) {
    const Error error = parsed.error().within(what + ", key " + key);
    // These errors are permanent while the ConfigMap is unchanged; a deadline may be met next time.
    if (error.code == ErrorCode::kInvalid || error.code == ErrorCode::kTooLarge) {
      keep({.key = place, .content = error, .size = Bytes{static_cast<std::int64_t>(error.message.size())}});
    }
    return error;
  }
  auto shared = std::make_shared<const T>(*std::move(parsed));
  keep({.key = place, .content = shared, .size = size_of(*shared)});
  return Shared(std::move(shared));
}

Result<estimator::SharedTables> ConfigMapTableSource::tables(const std::string& namespace_name,
                                                             const crds::TablesFrom& from, Budget* budget) {
  return get<std::vector<crds::EmbeddingTable>>(
      namespace_name, from.config_map_name, from.key, budget,
      [](const std::string& text, Budget* limits) {
        return crds::parse_embedding_tables_csv(text, kMaxTables, limits);
      },
      size_of);
}

Result<estimator::SharedGraph> ConfigMapTableSource::graph(const std::string& namespace_name,
                                                           const crds::GraphReference& from, Budget* budget) {
  return get<estimator::TraceFile>(
      namespace_name, from.config_map_name, from.key, budget,
      [](const std::string& text, Budget* limits) {
        return estimator::import_traces(text, {.text = kMaxGraph, .budget = limits});
      },
      estimator::memory_of);
}

Result<estimator::SharedText> ConfigMapTableSource::text(const std::string& namespace_name,
                                                         const std::string& config_map_name,
                                                         const std::string& key, Budget* budget) {
  return get<std::string>(
      namespace_name, config_map_name, key, budget,
      [](const std::string& text, Budget*) { return Result<std::string>(text); },
      [](const std::string& text) { return Bytes{static_cast<std::int64_t>(text.size())}; });
}

Bytes ConfigMapTableSource::cached() const {
  const MutexLock lock(mutex_);
  return cached_;
}

std::optional<ConfigMapTableSource::Content> ConfigMapTableSource::find(const Key& key) {
  const MutexLock lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) {
    return std::nullopt;
  }
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->content;
}

void ConfigMapTableSource::keep(Entry entry) {
  entry.size += Bytes{kEntryBytes};
  if (entry.size > options_.cache_limit) {
    return;
  }
  const MutexLock lock(mutex_);
  if (by_key_.contains(entry.key)) {
    return;  // another thread parsed it meanwhile
  }
  cached_ += entry.size;
  cached_by_namespace_[std::get<0>(entry.key)] += entry.size;
  entries_.push_front(std::move(entry));
  by_key_[entries_.front().key] = entries_.begin();
  while (cached_ > options_.cache_limit) {
    evict_one();
  }
}

void ConfigMapTableSource::evict_one() {
  const auto most = std::max_element(cached_by_namespace_.begin(), cached_by_namespace_.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto oldest = std::find_if(entries_.rbegin(), entries_.rend(),
                                   [&](const Entry& entry) { return std::get<0>(entry.key) == most->first; });
  cached_ -= oldest->size;
  most->second -= oldest->size;
  if (most->second == Bytes{}) {
    cached_by_namespace_.erase(most);
  }
  by_key_.erase(oldest->key);
  entries_.erase(std::next(oldest).base());
}

}  // namespace plimsoll::webhook
