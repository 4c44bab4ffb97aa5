// ConfigMapTableSource: reads tables, graphs and descriptions that jobs name by a ConfigMap key.
//
//   ConfigMapTableSource source(client, {});
//   Result<estimator::SharedTables> tables = source.tables("ads", {"ads-tables", "tables.csv"}, &budget);
//
// It reads the ConfigMap from the API server each time, so that no decision uses an old one, and parses each
// resourceVersion once: results are cached, and so are errors of parsing, up to `cache_limit`. When that is
// reached, the least recently used entry of the namespace with the most cached bytes is evicted, so that no
// namespace takes the share of others. Tables may be CSV or gzip of it, in `data` or `binaryData`.
// Thread-safe; calls block at most until the budget's deadline.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/mutex.h"
#include "base/result.h"
#include "crds/training_job.h"
#include "estimator/provisioner/model_source.h"
#include "kube/client.h"

namespace plimsoll::webhook {

struct TableSourceOptions {
  Bytes cache_limit = 64_MiB;  // of parsed tables and graphs; Model-A has about 300 KiB
};

class ConfigMapTableSource final : public estimator::ModelSource {
 public:
  // The client must outlive the source.
  ConfigMapTableSource(kube::Client& client, TableSourceOptions options);

  Result<estimator::SharedTables> tables(const std::string& namespace_name, const crds::TablesFrom& from,
                                         Budget* budget) override;
  Result<estimator::SharedGraph> graph(const std::string& namespace_name, const crds::GraphReference& from,
                                       Budget* budget) override;
  Result<estimator::SharedText> text(const std::string& namespace_name, const std::string& config_map_name,
                                     const std::string& key, Budget* budget) override;

  Bytes cached() const;

 private:
  // Namespace, name, key, version, and the alternative of Content that it is read as.
  using Key = std::tuple<std::string, std::string, std::string, std::string, std::size_t>;
  using Content = std::variant<estimator::SharedTables, estimator::SharedGraph, estimator::SharedText, Error>;
  struct Entry {
    Key key;
    Content content;
    Bytes size;
  };

  template <class T>
  Result<std::shared_ptr<const T>> get(const std::string& namespace_name, const std::string& name,
                                       const std::string& key, Budget* budget,
                                       Result<T> (*parse)(const std::string&, Budget*),
                                       Bytes (*size_of)(const T&));
  Result<Json> read(const std::string& what, const std::string& namespace_name, const std::string& name,
                    Budget* budget);
  std::optional<Content> find(const Key& key);
  void keep(Entry entry);
  void evict_one() PLIMSOLL_REQUIRES(mutex_);

  kube::Client& client_;
  const TableSourceOptions options_;
  mutable Mutex mutex_;
  std::list<Entry> entries_ PLIMSOLL_GUARDED_BY(mutex_);  // most recently used first
  std::map<Key, std::list<Entry>::iterator> by_key_ PLIMSOLL_GUARDED_BY(mutex_);
  Bytes cached_ PLIMSOLL_GUARDED_BY(mutex_);
  std::map<std::string, Bytes> cached_by_namespace_ PLIMSOLL_GUARDED_BY(mutex_);
};

}  // namespace plimsoll::webhook
