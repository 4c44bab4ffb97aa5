#include "tests/fake_apiserver/field_set.h"

#include <algorithm>
#include <set>

namespace plimsoll::testing::fake {
namespace {

void drop_empty(FieldSet& set, const std::string& name) {
  if (set.children[name].empty()) {
    set.children.erase(name);
  }
}

// All paths of a value, containers included.
FieldSet whole(const Json& value, const FieldType& type) {
  FieldSet set;
  set.self = true;
  if (value.isObject() && !type.is_atomic_map()) {
    for (const std::string& name : value.getMemberNames()) {
      set.children["f:" + name] = whole(value[name], type.member_of(name));
    }
  } else if (value.isArray() && type.is_set()) {
    for (const Json& item : value) {
      set.children[value_element(item)].self = true;
    }
  } else if (value.isArray()) {
    const MapKeys keys = type.map_keys(value);
    for (const Json& item : value) {
      if (const std::string element = key_element(item, keys); !element.empty()) {
        set.children[element] = whole(item, type.item());
      }
    }
  }
  return set;
}

// The items of a mergeable list by their path element.
std::map<std::string, const Json*> items_by_element(const Json& list, const FieldType& type,
                                                    const MapKeys& keys) {
  std::map<std::string, const Json*> items;
  for (const Json& item : list) {
    items[type.is_set() ? value_element(item) : key_element(item, keys)] = &item;
  }
  return items;
}

void compare_into(const Json* before, const Json* now, const FieldType& type, const std::string& element,
                  Difference& result);

Difference compare_lists(const Json& before, const Json& now, const FieldType& type) {
  Difference result;
  MapKeys keys = type.map_keys(now);
  keys = keys.empty() ? type.map_keys(before) : keys;
  const auto old_items = items_by_element(before, type, keys);
  const auto new_items = items_by_element(now, type, keys);
  for (const auto& [element, item] : old_items) {
    const auto other = new_items.find(element);
    compare_into(item, other == new_items.end() ? nullptr : other->second, type.item(), element, result);
  }
  for (const auto& [element, item] : new_items) {
    if (!old_items.contains(element)) {
      compare_into(nullptr, item, type.item(), element, result);
    }
  }
  return result;
}

void compare_into(const Json* before, const Json* now, const FieldType& type, const std::string& element,
                  Difference& result) {
  if (before == nullptr) {
    result.changed.children[element] = whole(*now, type);
    return;
  }
  if (now == nullptr) {
    result.removed.children[element] = whole(*before, type);
    return;
  }
  Difference inner = compare(*before, *now, type);
  result.changed.children[element] = std::move(inner.changed);
  result.removed.children[element] = std::move(inner.removed);
  drop_empty(result.changed, element);
  drop_empty(result.removed, element);
}

// SSA list-map keys of the built-in kinds (x-kubernetes-list-map-keys of Kubernetes 1.36), by field name.
MapKeys builtin_keys(const std::string& field, const Json& list) {
  static const std::map<std::string, std::vector<std::string>> names = {
      {"addresses", {"type"}},
      {"conditions", {"type"}},
      {"containers", {"name"}},
      {"env", {"name"}},
      {"ephemeralContainers", {"name"}},
      {"hostAliases", {"ip"}},
      {"imagePullSecrets", {"name"}},
      {"initContainers", {"name"}},
      {"ownerReferences", {"uid"}},
      {"topologySpreadConstraints", {"topologyKey", "whenUnsatisfiable"}},
      {"volumeDevices", {"devicePath"}},
      {"volumeMounts", {"mountPath"}},
      {"volumes", {"name"}},
      {"webhooks", {"name"}}};
  if (field == "ports") {
    const bool of_container = std::any_of(list.begin(), list.end(),
                                          [](const Json& item) { return item.isMember("containerPort"); });
    return {{of_container ? "containerPort" : "port", Json()}, {"protocol", "TCP"}};
  }
  MapKeys keys;
  if (const auto found = names.find(field); found != names.end()) {
    for (const std::string& name : found->second) {
      keys[name] = Json();
    }
  }
  return keys;
}

void collect_paths(const FieldSet& set, const std::string& path, std::vector<std::string>& paths) {
  if (set.self) {
    paths.push_back(path);
  }
  for (const auto& [element, child] : set.children) {
    if (element.starts_with("f:")) {
      collect_paths(child, path + "." + element.substr(2), paths);
    } else if (element.starts_with("v:")) {
      collect_paths(child, path + "[=" + element.substr(2) + "]", paths);
    } else {
      std::string keys;
      const auto parsed = parse_json(element.substr(2));
      for (const std::string& name :
           parsed && parsed->isObject() ? parsed->getMemberNames() : Json::Members()) {
        keys += (keys.empty() ? "" : ",") + name + "=" + write_json((*parsed)[name]);
      }
      collect_paths(child, path + "[" + keys + "]", paths);
    }
  }
}

}  // namespace

FieldSet FieldSet::of(const Json& fields_v1) {
  FieldSet set;
  for (const std::string& name : fields_v1.isObject() ? fields_v1.getMemberNames() : Json::Members()) {
    if (name == ".") {
      set.self = true;
    } else {
      FieldSet& child = set.children[name] = of(fields_v1[name]);
      child.self = child.self || child.children.empty();
    }
  }
  return set;
}

Json FieldSet::to_fields_v1() const {
  Json json(::Json::objectValue);
  for (const auto& [element, child] : children) {
    json[element] = child.to_fields_v1();
    if (child.self && !child.children.empty()) {
      json[element]["."] = Json(::Json::objectValue);
    }
  }
  return json;
}

std::vector<std::string> FieldSet::paths() const {
  std::vector<std::string> paths;
  collect_paths(*this, "", paths);
  return paths;
}

FieldSet unite(FieldSet a, const FieldSet& b) {
  a.self = a.self || b.self;
  for (const auto& [element, child] : b.children) {
    a.children[element] = unite(std::move(a.children[element]), child);
  }
  return a;
}

FieldSet subtract(const FieldSet& a, const FieldSet& b) {
  FieldSet result;
  result.self = a.self && !b.self;
  for (const auto& [element, child] : a.children) {
    const auto other = b.children.find(element);
    FieldSet rest = other == b.children.end() ? child : subtract(child, other->second);
    if (!rest.empty()) {
      result.children[element] = std::move(rest);
    }
  }
  return result;
}

FieldSet intersect(const FieldSet& a, const FieldSet& b) {
  FieldSet result;
  result.self = a.self && b.self;
  for (const auto& [element, child] : a.children) {
    const auto other = b.children.find(element);
    if (other != b.children.end()) {
      if (FieldSet common = intersect(child, other->second); !common.empty()) {
        result.children[element] = std::move(common);
      }
    }
  }
  return result;
}

FieldType::FieldType(const ResourceType& type)
    : schema_(type.custom ? &type.schema : nullptr), builtin_(!type.custom) {}

FieldType FieldType::member_of(const std::string& name) const {
  FieldType next;
  next.field_ = name;
  next.builtin_ = builtin_ || (name == "metadata" && field_.empty());
  if (schema_ != nullptr && !next.builtin_) {
    const Json& property = member(*schema_, {"properties", name});
    const Json& rest = member(*schema_, {"additionalProperties"});
    next.schema_ = property.isObject() ? &property : rest.isObject() ? &rest : nullptr;
  }
  return next;
}

FieldType FieldType::item() const {
  FieldType next;
  next.field_ = field_ + "[]";
  next.builtin_ = builtin_;
  if (schema_ != nullptr) {
    const Json& items = member(*schema_, {"items"});
    next.schema_ = items.isObject() ? &items : nullptr;
  }
  return next;
}

bool FieldType::is_atomic_map() const {
  static const std::set<std::string> atomic = {
      "selector",        "nodeSelector", "labelSelector", "matchLabels",       "fieldRef",
      "configMapKeyRef", "secretKeyRef", "roleRef",       "namespaceSelector", "objectSelector"};
  if (builtin_) {
    return atomic.contains(field_);
  }
  return schema_ != nullptr && text_member(*schema_, {"x-kubernetes-map-type"}) == "atomic";
}

bool FieldType::is_set() const {
  if (builtin_) {
    return field_ == "finalizers";
  }
  return schema_ != nullptr && text_member(*schema_, {"x-kubernetes-list-type"}) == "set";
}

MapKeys FieldType::map_keys(const Json& list) const {
  MapKeys keys;
  if (builtin_) {
    keys = builtin_keys(field_, list);
  } else if (schema_ != nullptr && text_member(*schema_, {"x-kubernetes-list-type"}) == "map") {
    for (const Json& key : member(*schema_, {"x-kubernetes-list-map-keys"})) {
      keys[key.asString()] = member(*schema_, {"items", "properties", key.asString(), "default"});
    }
  }
  const bool of_objects =
      std::all_of(list.begin(), list.end(), [](const Json& item) { return item.isObject(); });
  return of_objects ? keys : MapKeys();
}

std::string key_element(const Json& item, const MapKeys& keys) {
  Json identity(::Json::objectValue);
  for (const auto& [key, default_value] : keys) {
    const Json& value = member(item, {key});
    identity[key] = value.isNull() ? default_value : value;
  }
  return keys.empty() ? "" : "k:" + write_json(identity);
}

std::string value_element(const Json& item) {
  return "v:" + write_json(item);
}

FieldSet fields_of(const Json& value, const FieldType& type) {
  FieldSet set;
  if (value.isObject() && !value.empty() && !type.is_atomic_map()) {
    for (const std::string& name : value.getMemberNames()) {
      set.children["f:" + name] = fields_of(value[name], type.member_of(name));
    }
  } else if (value.isArray() && !value.empty() && type.is_set()) {
    for (const Json& item : value) {
      set.children[value_element(item)].self = true;
    }
  } else if (value.isArray() && !value.empty() && !type.map_keys(value).empty()) {
    const MapKeys keys = type.map_keys(value);
    for (const Json& item : value) {
      FieldSet& child = set.children[key_element(item, keys)] = fields_of(item, type.item());
      child.self = true;
    }
  } else {
    set.self = true;
  }
  return set;
}

Difference compare(const Json& before, const Json& now, const FieldType& type) {
  Difference result;
  if (before.isObject() && now.isObject() && !type.is_atomic_map()) {
    for (const std::string& name : before.getMemberNames()) {
      compare_into(&before[name], now.isMember(name) ? &now[name] : nullptr, type.member_of(name),
                   "f:" + name, result);
    }
    for (const std::string& name : now.getMemberNames()) {
      if (!before.isMember(name)) {
        compare_into(nullptr, &now[name], type.member_of(name), "f:" + name, result);
      }
    }
  } else if (before.isArray() && now.isArray() &&
             (type.is_set() || (!type.map_keys(before).empty() && !type.map_keys(now).empty()))) {
    result = compare_lists(before, now, type);
  } else if (before != now) {
    result.changed = whole(now, type);
    result.removed = subtract(whole(before, type), result.changed);
  }
  return result;
}

}  // namespace plimsoll::testing::fake
