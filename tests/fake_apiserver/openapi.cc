#include <algorithm>
#include <string>

#include "tests/fake_apiserver/discovery.h"

namespace plimsoll::testing::fake {
namespace {

constexpr const char* kTitle = "Kubernetes";
constexpr const char* kVersion = "v1.36.0";

// One length-delimited protobuf field (wire type 2).
std::string protobuf_field(unsigned number, const std::string& bytes) {
  std::string field(1, static_cast<char>(number << 3 | 2));
  std::size_t size = bytes.size();
  for (; size > 0x7F; size >>= 7) {
    field += static_cast<char>((size & 0x7F) | 0x80);
  }
  return field + static_cast<char>(size) + bytes;
}

std::string path_of_version(const std::string& group_name, const std::string& version) {
  return group_name.empty() ? "api/" + version : "apis/" + group_name + "/" + version;
}

Json kind_of(const ResourceType& type) {
  Json kind(::Json::objectValue);
  kind["group"] = type.group;
  kind["version"] = type.version;
  kind["kind"] = type.kind;
  return kind;
}

// "dev.plimsoll.v1alpha1.TrainingJob": the group's words reversed.
std::string schema_name(const ResourceType& type) {
  std::string name;
  std::string word;
  for (const char c : type.group + ".") {
    if (c == '.') {
      name = name.empty() ? word : word + "." + name;
      word.clear();
    } else {
      word += c;
    }
  }
  return (name.empty() ? "io.k8s.api.core" : name) + "." + type.version + "." + type.kind;
}

// The schema as stored: kubectl explain ignores the extensions of structural schemas.
Json schema_of(const ResourceType& type) {
  Json schema = type.custom ? type.schema : Json(::Json::objectValue);
  schema["type"] = "object";
  schema["x-kubernetes-group-version-kind"].append(kind_of(type));
  Json& properties = schema["properties"];
  for (const char* field : {"apiVersion", "kind"}) {
    if (!member(properties, {field}).isObject()) {
      properties[field]["type"] = "string";
    }
  }
  if (!member(properties, {"metadata"}).isObject()) {
    properties["metadata"]["type"] = "object";
  }
  return schema;
}

Json operation_of(const ResourceType& type, const char* action, bool writes) {
  Json operation(::Json::objectValue);
  operation["x-kubernetes-action"] = action;
  operation["x-kubernetes-group-version-kind"] = kind_of(type);
  operation["responses"]["200"]["description"] = "OK";
  operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"] =
      "#/components/schemas/" + schema_name(type);
  if (writes) {
    // With this parameter clients leave validation to the server.
    for (const char* name : {"dryRun", "fieldManager", "fieldValidation"}) {
      Json parameter(::Json::objectValue);
      parameter["name"] = name;
      parameter["in"] = "query";
      parameter["schema"]["type"] = "string";
      operation["parameters"].append(std::move(parameter));
    }
  }
  return operation;
}

}  // namespace

Json openapi_v2() {
  Json document(::Json::objectValue);
  document["swagger"] = "2.0";
  document["info"]["title"] = kTitle;
  document["info"]["version"] = kVersion;
  document["paths"] = Json(::Json::objectValue);
  document["definitions"] = Json(::Json::objectValue);
  return document;
}

// Field numbers of gnostic's openapi.v2 messages. Operations contain only what kubectl checks
// before a server-side dry run: PATCH of this kind has a query parameter dryRun.
std::string openapi_v2_protobuf(const Registry& registry) {
  const std::string query_parameter = protobuf_field(2, "query") + protobuf_field(4, "dryRun");
  const std::string non_body_parameter = protobuf_field(3, query_parameter);
  const std::string parameter = protobuf_field(2, non_body_parameter);
  const std::string parameters_item = protobuf_field(1, parameter);
  std::string paths;
  for (const TypePtr& type : registry.all()) {
    const std::string yaml =
        "group: \"" + type->group + "\"\nkind: " + type->kind + "\nversion: " + type->version + "\n";
    const std::string extension =
        protobuf_field(1, "x-kubernetes-group-version-kind") + protobuf_field(2, protobuf_field(2, yaml));
    const std::string operation = protobuf_field(8, parameters_item) + protobuf_field(13, extension);
    const std::string path_item = protobuf_field(8, operation);
    const std::string path =
        "/" + path_of_version(type->group, type->version) + "/" + type->plural + "/{name}";
    paths += protobuf_field(2, protobuf_field(1, path) + protobuf_field(2, path_item));
  }
  const std::string info = protobuf_field(1, kTitle) + protobuf_field(2, kVersion);
  return protobuf_field(1, "2.0") + protobuf_field(2, info) + protobuf_field(8, paths);
}

Json openapi_v3_index(const Registry& registry) {
  Json index(::Json::objectValue);
  for (const TypePtr& type : registry.all()) {
    const std::string path = path_of_version(type->group, type->version);
    index["paths"][path]["serverRelativeURL"] = "/openapi/v3/" + path;
  }
  return index;
}

Json openapi_v3(const Registry& registry, const std::string& group_name, const std::string& version) {
  Json document(::Json::objectValue);
  document["openapi"] = "3.0.0";
  document["info"]["title"] = kTitle;
  document["info"]["version"] = kVersion;
  document["paths"] = Json(::Json::objectValue);
  for (const TypePtr& type : registry.all()) {
    if (type->group != group_name || type->version != version) {
      continue;
    }
    const std::string collection = "/" + path_of_version(group_name, version) +
                                   (type->namespaced ? "/namespaces/{namespace}/" : "/") + type->plural;
    Json& paths = document["paths"];
    paths[collection]["get"] = operation_of(*type, "list", false);
    paths[collection]["post"] = operation_of(*type, "post", true);
    Json& one = paths[collection + "/{name}"];
    one["get"] = operation_of(*type, "get", false);
    one["put"] = operation_of(*type, "put", true);
    one["patch"] = operation_of(*type, "patch", true);
    document["components"]["schemas"][schema_name(*type)] = schema_of(*type);
  }
  return document;
}

}  // namespace plimsoll::testing::fake
