#include <algorithm>
#include <map>
#include <optional>

#include "tests/fake_apiserver/patch.h"

namespace plimsoll::testing::fake {
namespace {

// patchMergeKey of the lists in the built-in kinds, by field name; `ports` depends on where it stands.
std::optional<std::string> merge_key(const std::string& field, const Json& items) {
  static const std::map<std::string, std::string> keys = {{"addresses", "type"},
                                                          {"conditions", "type"},
                                                          {"containers", "name"},
                                                          {"env", "name"},
                                                          {"ephemeralContainers", "name"},
                                                          {"hostAliases", "ip"},
                                                          {"imagePullSecrets", "name"},
                                                          {"initContainers", "name"},
                                                          {"ownerReferences", "uid"},
                                                          {"resourceClaims", "name"},
                                                          {"secrets", "name"},
                                                          {"topologySpreadConstraints", "topologyKey"},
                                                          {"volumeDevices", "devicePath"},
                                                          {"volumeMounts", "mountPath"},
                                                          {"volumes", "name"},
                                                          {"webhooks", "name"}};
  if (field == "ports") {
    const bool of_container = std::any_of(items.begin(), items.end(),
                                          [](const Json& item) { return item.isMember("containerPort"); });
    return of_container ? "containerPort" : "port";
  }
  const auto found = keys.find(field);
  return found == keys.end() ? std::nullopt : std::optional(found->second);
}

bool merges_as_set(const std::string& field) {
  return field == "finalizers";
}

Json merge_object(Json object, const Json& patch);

bool is_directive(const std::string& key) {
  return key.starts_with("$");
}

// Items of `list` in the order that $setElementOrder gives; items that it does not name
// stay behind the item before them.
Json ordered(const Json& list, const Json& order, const std::string& key) {
  const auto rank = [&](const Json& item) {
    for (Json::ArrayIndex i = 0; i < order.size(); ++i) {
      const bool same = key.empty() ? order[i] == item : member(order[i], {key}) == member(item, {key});
      if (same) {
        return static_cast<int>(i);
      }
    }
    return -1;
  };
  std::vector<std::pair<int, Json>> ranked;
  int last = -1;
  for (const Json& item : list) {
    const int place = rank(item);
    last = place < 0 ? last : place;
    ranked.emplace_back(place < 0 ? last : place, item);
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  Json result(::Json::arrayValue);
  for (auto& [place, item] : ranked) {
    result.append(std::move(item));
  }
  return result;
}

Json merge_keyed_list(Json list, const Json& patch, const std::string& key) {
  if (!list.isArray()) {
    list = Json(::Json::arrayValue);
  }
  for (const Json& item : patch) {
    if (text_member(item, {"$patch"}) == "replace") {
      Json replaced(::Json::arrayValue);
      for (const Json& each : patch) {
        if (!each.isMember("$patch")) {
          replaced.append(each);
        }
      }
      return replaced;
    }
  }
  for (const Json& item : patch) {
    Json::ArrayIndex at = 0;
    while (at < list.size() && member(list[at], {key}) != member(item, {key})) {
      ++at;
    }
    if (text_member(item, {"$patch"}) == "delete") {
      if (at < list.size()) {
        list.removeIndex(at, nullptr);
      }
    } else if (at < list.size()) {
      list[at] = merge_object(list[at], item);
    } else {
      list.append(merge_object(Json(::Json::objectValue), item));
    }
  }
  return list;
}

Json merge_set(Json list, const Json& patch) {
  if (!list.isArray()) {
    list = Json(::Json::arrayValue);
  }
  for (const Json& item : patch) {
    if (std::find(list.begin(), list.end(), item) == list.end()) {
      list.append(item);
    }
  }
  return list;
}

// Executes the directives of a patch.
void run_directives(Json& object, const Json& patch) {
  static const std::string kDelete = "$deleteFromPrimitiveList/";
  static const std::string kOrder = "$setElementOrder/";
  for (const std::string& directive : patch.getMemberNames()) {
    if (directive.starts_with(kDelete)) {
      Json& list = object[directive.substr(kDelete.size())];
      Json kept(::Json::arrayValue);
      for (const Json& item : list) {
        if (std::find(patch[directive].begin(), patch[directive].end(), item) == patch[directive].end()) {
          kept.append(item);
        }
      }
      list = std::move(kept);
    } else if (directive.starts_with(kOrder)) {
      const std::string field = directive.substr(kOrder.size());
      if (member(object, {field}).isArray()) {
        object[field] =
            ordered(object[field], patch[directive], merge_key(field, object[field]).value_or(""));
      }
    } else if (directive == "$retainKeys") {
      for (const std::string& name : object.getMemberNames()) {
        if (std::find(patch[directive].begin(), patch[directive].end(), Json(name)) ==
            patch[directive].end()) {
          object.removeMember(name);
        }
      }
    }
  }
}

Json merge_object(Json object, const Json& patch) {
  if (!patch.isObject()) {
    return patch;
  }
  const std::string how = text_member(patch, {"$patch"});
  if (how == "delete") {
    return Json(::Json::objectValue);
  }
  if (!object.isObject() || how == "replace") {
    object = Json(::Json::objectValue);
  }
  for (const std::string& field : patch.getMemberNames()) {
    const Json& value = patch[field];
    if (is_directive(field)) {
      continue;
    }
    if (value.isNull()) {
      object.removeMember(field);
    } else if (value.isObject()) {
      object[field] = merge_object(object.get(field, Json()), value);
    } else if (value.isArray() && merges_as_set(field)) {
      object[field] = merge_set(object.get(field, Json()), value);
    } else if (const auto key = merge_key(field, value);
               value.isArray() && key && (value.empty() || value[0].isObject())) {
      object[field] = merge_keyed_list(object.get(field, Json()), value, *key);
    } else {
      object[field] = value;
    }
  }
  run_directives(object, patch);
  return object;
}

}  // namespace

Outcome<Json> apply_strategic_merge(Json object, const Json& patch) {
  if (!patch.isObject()) {
    return bad_request("error decoding patch: a strategic merge patch must be an object");
  }
  return merge_object(std::move(object), patch);
}

}  // namespace plimsoll::testing::fake
