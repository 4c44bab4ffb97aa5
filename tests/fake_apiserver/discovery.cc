#include "tests/fake_apiserver/discovery.h"

#include <map>
#include <set>

namespace plimsoll::testing::fake {
namespace {

constexpr const char* kServerVersion = "v1.36.0";

Json list_of(std::initializer_list<const char*> words) {
  Json list(::Json::arrayValue);
  for (const char* word : words) {
    list.append(word);
  }
  return list;
}

Json list_of(const std::vector<std::string>& words) {
  Json list(::Json::arrayValue);
  for (const std::string& word : words) {
    list.append(word);
  }
  return list;
}

Json group_version_of(const std::string& group_name, const std::string& version) {
  Json json(::Json::objectValue);
  json["groupVersion"] = group_name + "/" + version;
  json["version"] = version;
  return json;
}

Json resource_of(const ResourceType& type) {
  Json resource(::Json::objectValue);
  resource["name"] = type.plural;
  resource["singularName"] = type.singular;
  resource["namespaced"] = type.namespaced;
  resource["kind"] = type.kind;
  resource["verbs"] =
      type.create_only
          ? list_of({"create"})
          : list_of({"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"});
  if (!type.short_names.empty()) {
    resource["shortNames"] = list_of(type.short_names);
  }
  if (!type.categories.empty()) {
    resource["categories"] = list_of(type.categories);
  }
  return resource;
}

Json subresource_of(const ResourceType& type, const std::string& name) {
  Json resource(::Json::objectValue);
  resource["name"] = type.plural + "/" + name;
  resource["singularName"] = "";
  resource["namespaced"] = type.namespaced;
  resource["kind"] = type.kind;
  resource["verbs"] = list_of({"get", "patch", "update"});
  return resource;
}

}  // namespace

Json core_versions(const std::string& server_address) {
  Json versions(::Json::objectValue);
  versions["kind"] = "APIVersions";
  versions["versions"] = list_of({"v1"});
  Json address(::Json::objectValue);
  address["clientCIDR"] = "0.0.0.0/0";
  address["serverAddress"] = server_address;
  versions["serverAddressByClientCIDRs"].append(std::move(address));
  return versions;
}

Json group(const Registry& registry, const std::string& name) {
  std::set<std::string> versions;
  for (const TypePtr& type : registry.all()) {
    if (type->group == name && !name.empty()) {
      versions.insert(type->version);
    }
  }
  if (versions.empty()) {
    return Json();
  }
  Json json(::Json::objectValue);
  json["kind"] = "APIGroup";
  json["apiVersion"] = "v1";
  json["name"] = name;
  for (const std::string& version : versions) {
    json["versions"].append(group_version_of(name, version));
  }
  json["preferredVersion"] = group_version_of(name, *versions.rbegin());
  return json;
}

Json group_list(const Registry& registry) {
  Json list(::Json::objectValue);
  list["kind"] = "APIGroupList";
  list["apiVersion"] = "v1";
  list["groups"] = Json(::Json::arrayValue);
  std::set<std::string> seen;
  for (const TypePtr& type : registry.all()) {
    if (!type->group.empty() && seen.insert(type->group).second) {
      Json entry = group(registry, type->group);
      entry.removeMember("kind");
      entry.removeMember("apiVersion");
      list["groups"].append(std::move(entry));
    }
  }
  return list;
}

Json resource_list(const Registry& registry, const std::string& group_name, const std::string& version) {
  Json list(::Json::objectValue);
  list["kind"] = "APIResourceList";
  list["apiVersion"] = "v1";
  list["groupVersion"] = group_name.empty() ? version : group_name + "/" + version;
  list["resources"] = Json(::Json::arrayValue);
  for (const TypePtr& type : registry.all()) {
    if (type->group != group_name || type->version != version) {
      continue;
    }
    list["resources"].append(resource_of(*type));
    if (type->has_status) {
      list["resources"].append(subresource_of(*type, "status"));
    }
  }
  return list;
}

Json server_version() {
  Json version(::Json::objectValue);
  version["major"] = "1";
  version["minor"] = "36";
  version["gitVersion"] = kServerVersion;
  version["gitCommit"] = "";
  version["gitTreeState"] = "clean";
  version["buildDate"] = "1970-01-01T00:00:00Z";
  version["goVersion"] = "";
  version["compiler"] = "";
  version["platform"] = "linux/amd64";
  return version;
}

}  // namespace plimsoll::testing::fake
