// ConfigMapTableSource: reads what jobs name by a ConfigMap key.
//
//   ConfigMapTableSource source(client, {});
//   Result<estimator::SharedTables> tables = source.tables("ads", {"ads-tables", "tables.csv"}, deadline);
//
// It asks the API server for the ConfigMap each time, so that it never decides on an old
// one, and parses it once a resourceVersion: what was parsed is kept, the least recently used first to go, up
// to `cache_limit`. The content may be CSV or gzip of it, in `data` or `binaryData`. Thread-safe; calls block
// until the deadline at most.
#pragma once

#include <chrono>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "crds/training_job.h"
#include "estimator/model_source.h"
#include "kube/client.h"

namespace plimsoll::webhook {

struct TableSourceOptions {
  Bytes cache_limit = 64_MiB;  // of parsed tables and graphs; Model-A has some 300 KiB
};

class ConfigMapTableSource final : public estimator::ModelSource {
 public:
  // The client must outlive the source.
  ConfigMapTableSource(kube::Client& client, TableSourceOptions options);

  Result<estimator::SharedTables> tables(const std::string& namespace_name, const crds::TablesFrom& from,
                                         std::chrono::steady_clock::time_point deadline) override;
  Result<estimator::SharedGraph> graph(const std::string& namespace_name, const crds::GraphReference& from,
                                       std::chrono::steady_clock::time_point deadline) override;

  Bytes cached() const;

 private:
  using Key =
      std::tuple<std::string, std::string, std::string, std::string>;  // namespace, name, key, version
  using Content = std::variant<estimator::SharedTables, estimator::SharedGraph>;
  struct Entry {
    Key key;
    Content content;
    Bytes size;
  };

  template <class T>
  Result<std::shared_ptr<const T>> get(const std::string& namespace_name, const std::string& name,
                                       const std::string& key, std::chrono::steady_clock::time_point deadline,
                                       Result<T> (*parse)(const std::string&), Bytes (*size_of)(const T&));
  Result<Json> read(const std::string& what, const std::string& namespace_name, const std::string& name,
                    std::chrono::steady_clock::time_point deadline);
  Content find(const Key& key);
  void keep(Entry entry);

  kube::Client& client_;
  const TableSourceOptions options_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // most recently used first
  std::map<Key, std::list<Entry>::iterator> by_key_;
  Bytes cached_;
};

}  // namespace plimsoll::webhook
