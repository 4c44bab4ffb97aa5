// ResourceType: one served collection (group, version, plural), built in or installed by a CRD; and Registry,
// the set of them. Types are immutable and shared; the registry may be used from any thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "tests/fake_apiserver/status.h"
#include "tests/fake_apiserver/unevaluated_rule.h"

namespace plimsoll::testing::fake {

struct Column {
  std::string name = {};
  std::string type = "string";
  std::string format = {};
  std::string description = {};
  std::string json_path = {};                  // ".spec.size"; or
  std::function<Json(const Json&)> cell = {};  // computed, of built-in kinds
  int priority = 0;                            // above 0: only in wide output
};

struct ResourceType {
  std::string group;
  std::string version;
  std::string plural;
  std::string singular;
  std::string kind;
  std::vector<std::string> short_names;
  std::vector<std::string> categories;
  bool namespaced = true;
  bool has_status = false;      // status is a subresource
  bool create_only = false;     // a review: answered, never stored
  std::vector<Column> columns;  // after NAME
  bool custom = false;
  Json schema;                                 // openAPIV3Schema of a custom type
  UnevaluatedRules unevaluated_rules;          // of the schema
  std::vector<std::string> selectable_fields;  // beyond metadata.name and metadata.namespace

  std::string api_version() const { return group.empty() ? version : group + "/" + version; }
  std::string group_resource() const { return group.empty() ? plural : plural + "." + group; }
  // The versions of a type share their objects; so do the two groups of Event.
  std::string storage() const { return kind == "Event" ? "events" : group_resource(); }
  Subject subject(const std::string& name) const { return {group, plural, kind, name}; }
};

using TypePtr = std::shared_ptr<const ResourceType>;

std::vector<ResourceType> builtin_types();

// The types that a CustomResourceDefinition serves, one for each served version.
std::vector<ResourceType> types_of_definition(const Json& definition);

class Registry {
 public:
  Registry();

  TypePtr find(const std::string& group, const std::string& version, const std::string& plural) const;
  TypePtr find_kind(const std::string& api_version, const std::string& kind) const;
  std::vector<TypePtr> all() const;
  bool has_group_version(const std::string& group, const std::string& version) const;
  void install(const std::vector<ResourceType>& types);
  void remove_group_resource(const std::string& group_resource);

 private:
  mutable std::shared_mutex mutex_;
  std::vector<TypePtr> types_;
};

}  // namespace plimsoll::testing::fake
