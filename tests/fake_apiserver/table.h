// meta.k8s.io Table: what `kubectl get` asks for. One row an object, its cells made by the columns of its
// type. Pure functions; any thread.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "tests/fake_apiserver/resource_type.h"
#include "tests/fake_apiserver/store.h"

namespace plimsoll::testing::fake {

enum class IncludeObject { kMetadata, kObject, kNone };

struct TableOptions {
  std::string version = "v1";  // of meta.k8s.io; v1beta1 before Kubernetes 1.15
  IncludeObject include = IncludeObject::kMetadata;
  bool headers = true;  // the first event of a watch only
};

Json make_table(const ResourceType& type, const std::vector<const Json*>& objects,
                const TableOptions& options);

// "5m", "3h20m", "12d": how kubectl writes ages.
std::string format_age(std::chrono::seconds age);

// The age of a timestamp in an object (RFC 3339), or "<unknown>".
std::string age_since(const Json& timestamp);

}  // namespace plimsoll::testing::fake
