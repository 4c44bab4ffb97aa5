#include "tests/fake_apiserver/apply.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "tests/fake_apiserver/field_set.h"
#include "tests/fake_apiserver/metadata.h"

namespace plimsoll::testing::fake {
namespace {

struct Entry {
  std::string manager;
  std::string operation;  // Apply or Update
  std::string api_version;
  std::string subresource;
  std::string time;
  FieldSet fields;

  bool belongs_to(const Writer& writer, const char* how) const {
    return manager == writer.manager && operation == how && subresource == writer.subresource;
  }
};

std::vector<Entry> read_entries(const Json& object) {
  std::vector<Entry> entries;
  for (const Json& each : member(object, {"metadata", "managedFields"})) {
    Entry entry;
    entry.manager = text_member(each, {"manager"});
    entry.operation = text_member(each, {"operation"});
    entry.api_version = text_member(each, {"apiVersion"});
    entry.subresource = text_member(each, {"subresource"});
    entry.time = text_member(each, {"time"});
    entry.fields = FieldSet::of(member(each, {"fieldsV1"}));
    entries.push_back(std::move(entry));
  }
  return entries;
}

void write_entries(Json& object, std::vector<Entry> entries) {
  std::erase_if(entries, [](const Entry& entry) { return entry.fields.empty(); });
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.operation, a.time, a.manager, a.subresource) <
           std::tie(b.operation, b.time, b.manager, b.subresource);
  });
  Json list(::Json::arrayValue);
  for (const Entry& entry : entries) {
    Json json(::Json::objectValue);
    json["manager"] = entry.manager;
    json["operation"] = entry.operation;
    json["apiVersion"] = entry.api_version;
    json["time"] = entry.time;
    json["fieldsType"] = "FieldsV1";
    json["fieldsV1"] = entry.fields.to_fields_v1();
    if (!entry.subresource.empty()) {
      json["subresource"] = entry.subresource;
    }
    list.append(std::move(json));
  }
  if (list.empty()) {
    object["metadata"].removeMember("managedFields");
  } else {
    object["metadata"]["managedFields"] = std::move(list);
  }
}

// Without the fields that have no owner: identity, and what the server sets.
Json ownable(const Json& object) {
  Json copy = object;
  copy.removeMember("apiVersion");
  copy.removeMember("kind");
  if (copy.isMember("metadata")) {
    for (const char* field :
         {"name", "namespace", "uid", "resourceVersion", "generation", "selfLink", "creationTimestamp",
          "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "generateName"}) {
      copy["metadata"].removeMember(field);
    }
    if (copy["metadata"].empty()) {
      copy.removeMember("metadata");
    }
  }
  return copy;
}

Json merge(const Json& live, const Json& applied, const FieldType& type) {
  if (live.isObject() && applied.isObject() && !type.is_atomic_map()) {
    Json result = live;
    for (const std::string& name : applied.getMemberNames()) {
      if (applied[name].isNull()) {
        result.removeMember(name);
      } else {
        result[name] =
            live.isMember(name) ? merge(live[name], applied[name], type.member_of(name)) : applied[name];
      }
    }
    return result;
  }
  if (!live.isArray() || !applied.isArray()) {
    return applied;
  }
  const MapKeys keys = type.map_keys(applied);
  if (keys.empty() && !type.is_set()) {
    return applied;
  }
  const auto element = [&](const Json& item) {
    return type.is_set() ? value_element(item) : key_element(item, keys);
  };
  Json result = live;
  for (const Json& item : applied) {
    const auto same = std::find_if(result.begin(), result.end(),
                                   [&](const Json& other) { return element(other) == element(item); });
    if (same == result.end()) {
      result.append(item);
    } else {
      *same = merge(*same, item, type.item());
    }
  }
  return result;
}

// Removes the fields of the set except those in `kept`, and the containers that become empty.
void remove_fields(Json& value, const FieldSet& fields, const FieldSet& kept, const FieldType& type) {
  static const FieldSet kNothing;
  const auto kept_below = [&](const std::string& element) -> const FieldSet& {
    const auto found = kept.children.find(element);
    return found == kept.children.end() ? kNothing : found->second;
  };
  if (value.isObject()) {
    for (const auto& [element, child] : fields.children) {
      const std::string name = element.substr(2);
      if (!value.isMember(name)) {
        continue;
      }
      const FieldSet& rest = kept_below(element);
      remove_fields(value[name], child, rest, type.member_of(name));
      const bool emptied = !child.children.empty() && value[name].empty();
      if (rest.empty() && ((child.self && child.children.empty()) || emptied)) {
        value.removeMember(name);
      }
    }
  } else if (value.isArray()) {
    const MapKeys keys = type.map_keys(value);
    Json remaining(::Json::arrayValue);
    for (Json& item : value) {
      const std::string element = type.is_set() ? value_element(item) : key_element(item, keys);
      const auto found = fields.children.find(element);
      const FieldSet& rest = kept_below(element);
      if (found != fields.children.end() && (!found->second.self || !rest.empty())) {
        remove_fields(item, found->second, rest, type.item());
      }
      if (found == fields.children.end() || !found->second.self || !rest.empty()) {
        remaining.append(std::move(item));
      }
    }
    value = std::move(remaining);
  }
}

std::string described(const Entry& entry) {
  std::string text = "\"" + entry.manager + "\"";
  if (!entry.subresource.empty()) {
    text += " with subresource \"" + entry.subresource + "\"";
  }
  return text + " using " + entry.api_version;
}

struct Clash {
  const Entry* owner = nullptr;
  std::vector<std::string> paths;
};

Status conflict_status(const std::vector<Clash>& clashes) {
  std::size_t count = 0;
  std::string by_owner;
  Status status;
  status.code = 409;
  status.reason = "Conflict";
  status.details = Json(::Json::objectValue);
  for (const Clash& clash : clashes) {
    by_owner += (by_owner.empty() ? "" : "\n");
    by_owner += "conflicts with " + described(*clash.owner) + ":";
    for (const std::string& path : clash.paths) {
      by_owner += "\n- " + path;
      Json cause(::Json::objectValue);
      cause["reason"] = "FieldManagerConflict";
      cause["message"] = "conflict with " + described(*clash.owner);
      cause["field"] = path;
      status.details["causes"].append(std::move(cause));
      ++count;
    }
  }
  if (count == 1) {
    by_owner = "conflict with " + described(*clashes[0].owner) + ": " + clashes[0].paths[0];
  }
  status.message =
      "Apply failed with " + std::to_string(count) + (count == 1 ? " conflict: " : " conflicts: ") + by_owner;
  return status;
}

}  // namespace

void track_update(Json& object, const Json& before, const ResourceType& type, const Writer& writer) {
  const FieldType fields(type);
  const bool creates = before.isNull();
  const Json old = creates ? Json(::Json::objectValue) : ownable(before);
  Difference difference = compare(old, ownable(object), fields);
  // Every object has metadata, so no writer owns it as a whole.
  if (const auto metadata = difference.changed.children.find("f:metadata");
      metadata != difference.changed.children.end()) {
    metadata->second.self = false;
  }
  // A client may write managedFields itself (kubectl does when it moves an object to server-side apply).
  const bool given = writer.subresource.empty() && !member(object, {"metadata", "managedFields"}).empty();
  std::vector<Entry> entries = creates ? std::vector<Entry>() : read_entries(given ? object : before);
  const FieldSet touched = unite(difference.changed, difference.removed);
  Entry* mine = nullptr;
  for (Entry& entry : entries) {
    if (entry.belongs_to(writer, "Update")) {
      mine = &entry;
      entry.fields = subtract(entry.fields, difference.removed);
    } else {
      entry.fields = subtract(entry.fields, touched);
    }
  }
  if (!difference.changed.empty()) {
    if (mine == nullptr) {
      entries.push_back({writer.manager, "Update", "", writer.subresource, "", {}});
      mine = &entries.back();
    }
    mine->api_version = type.api_version();
    mine->time = now_text();
    mine->fields = unite(std::move(mine->fields), difference.changed);
  }
  write_entries(object, std::move(entries));
}

Outcome<Json> server_side_apply(const Json& live, Json configuration, const ResourceType& type,
                                const Writer& writer, bool force) {
  const FieldType fields(type);
  if (type.has_status && writer.subresource.empty()) {
    configuration.removeMember("status");
  }
  Json wanted = ownable(configuration);
  if (writer.subresource == "status") {
    const Json status = member(wanted, {"status"});
    wanted = Json(::Json::objectValue);
    wanted["status"] = status;
  }
  const FieldSet applied = fields_of(wanted, fields);
  const Json base = live.isNull() ? Json(::Json::objectValue) : live;
  Json merged = merge(base, wanted, fields);
  const Difference difference = compare(ownable(base), ownable(merged), fields);

  std::vector<Entry> entries = live.isNull() ? std::vector<Entry>() : read_entries(live);
  std::vector<Clash> clashes;
  Entry* mine = nullptr;
  FieldSet of_others;
  for (Entry& entry : entries) {
    if (entry.belongs_to(writer, "Apply")) {
      mine = &entry;
      continue;
    }
    const FieldSet clash = intersect(entry.fields, difference.changed);
    if (!clash.empty()) {
      clashes.push_back({&entry, clash.paths()});
    }
    entry.fields = subtract(entry.fields, difference.changed);
    of_others = unite(std::move(of_others), entry.fields);
  }
  if (!clashes.empty() && !force) {
    return conflict_status(clashes);
  }
  if (mine == nullptr) {
    entries.push_back({writer.manager, "Apply", type.api_version(), writer.subresource, now_text(), {}});
    mine = &entries.back();
  }
  const FieldSet kept = unite(of_others, applied);
  remove_fields(merged, subtract(mine->fields, kept), kept, fields);
  if (mine->fields != applied || mine->api_version != type.api_version()) {
    mine->fields = applied;
    mine->api_version = type.api_version();
    mine->time = now_text();
  }
  merged["apiVersion"] = configuration["apiVersion"];
  merged["kind"] = configuration["kind"];
  for (const char* identity : {"name", "namespace"}) {
    const Json& value = member(configuration, {"metadata", identity});
    if (live.isNull() && !value.isNull()) {
      merged["metadata"][identity] = value;
    }
  }
  write_entries(merged, std::move(entries));
  return merged;
}

}  // namespace plimsoll::testing::fake
