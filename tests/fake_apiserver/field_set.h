// FieldSet: a set of paths into objects, as metadata.managedFields keeps them (FieldsV1): "f:name" for a
// member, `k:{"name":"a"}` for an item of a keyed list, `v:"x"` for an item of a set. And FieldType:
// how the value at a path merges. Plain values; any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "tests/fake_apiserver/resource_type.h"

namespace plimsoll::testing::fake {

struct FieldSet {
  bool self = false;  // the path to here is in the set
  std::map<std::string, FieldSet> children;

  bool empty() const { return !self && children.empty(); }
  bool operator==(const FieldSet&) const = default;

  static FieldSet of(const Json& fields_v1);
  Json to_fields_v1() const;
  std::vector<std::string> paths() const;  // ".spec.size", `.spec.parts[name="p"].count`
};

FieldSet unite(FieldSet a, const FieldSet& b);
FieldSet subtract(const FieldSet& a, const FieldSet& b);
FieldSet intersect(const FieldSet& a, const FieldSet& b);

// The keys of a list that merges by key, with their defaults (null: none).
using MapKeys = std::map<std::string, Json>;

// The type of the value at one path of an object.
class FieldType {
 public:
  explicit FieldType(const ResourceType& type);

  FieldType member_of(const std::string& name) const;
  FieldType item() const;

  bool is_atomic_map() const;
  bool is_set() const;
  // Empty for lists that do not merge by key.
  MapKeys map_keys(const Json& list) const;

 private:
  FieldType() = default;

  const Json* schema_ = nullptr;  // of a custom type; null below what its schema describes
  bool builtin_ = false;
  std::string field_;  // the last member on the path
};

// The path elements of list items; empty when the item lacks a key.
std::string key_element(const Json& item, const MapKeys& keys);
std::string value_element(const Json& item);

// The fields that an applied configuration names.
FieldSet fields_of(const Json& value, const FieldType& type);

struct Difference {
  FieldSet changed;  // added or of another value
  FieldSet removed;
};
Difference compare(const Json& before, const Json& now, const FieldType& type);

}  // namespace plimsoll::testing::fake
