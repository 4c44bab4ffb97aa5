#include "tests/fake_apiserver/test_widgets.h"

#include <gtest/gtest.h>

namespace plimsoll::testing::fake {

const char* const kWidgetDefinition = R"({
  "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
  "metadata": {"name": "widgets.example.dev"},
  "spec": {
    "group": "example.dev", "scope": "Namespaced",
    "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"],
              "categories": ["all", "things"]},
    "versions": [{
      "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
      "additionalPrinterColumns": [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
        {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}],
      "schema": {"openAPIV3Schema": {
        "type": "object", "required": ["spec"],
        "properties": {
          "spec": {"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 10},
            "big": {"type": "integer", "format": "int32"},
            "half": {"type": "number", "exclusiveMinimum": true, "minimum": 0},
            "color": {"type": "string", "enum": ["Red", "Green"], "default": "Red"},
            "name": {"type": "string", "maxLength": 5, "minLength": 2, "pattern": "^[a-z]+$"},
            "flag": {"type": "boolean"},
            "when": {"type": "string", "format": "date-time"},
            "list": {"type": "array", "maxItems": 2, "minItems": 1, "items": {"type": "integer"}},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "amount": {"x-kubernetes-int-or-string": true},
            "maybe": {"type": "string", "nullable": true},
            "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
              "items": {"type": "object", "required": ["name"],
                        "properties": {"name": {"type": "string"}, "count": {"type": "integer", "default": 1}}}},
            "labels": {"type": "object", "maxProperties": 1, "additionalProperties": {"type": "string"}},
            "either": {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
                       "properties": {"a": {"type": "string"}, "b": {"type": "string"}}},
            "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
          "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}]}})";

WidgetApi::WidgetApi() {
  const Called installed =
      call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", kWidgetDefinition);
  EXPECT_EQ(installed.code, 201) << write_json(installed.body);
}

Called WidgetApi::call(const std::string& method, const std::string& path, const std::string& body,
                       const std::map<std::string, std::string>& query, const std::string& content_type) {
  Request request;
  request.method = method;
  request.path = path;
  request.query = query;
  request.content_type = content_type;
  request.user_agent = "tester/1.0";
  request.body = body;
  const Answer answer = api.handle(request);
  const Reply* reply = std::get_if<Reply>(&answer);
  if (reply == nullptr) {
    ADD_FAILURE() << path << " answered with a watch";
    return {};
  }
  const auto parsed = parse_json(reply->body);
  return {reply->code, parsed ? *parsed : Json(reply->body), reply->warnings};
}

Called WidgetApi::create(const std::string& name, const std::string& spec) {
  return call("POST", kWidgets,
              R"({"apiVersion":"example.dev/v1","kind":"Widget","metadata":{"name":")" + name +
                  R"("},"spec":)" + spec + "}");
}

Called WidgetApi::merge(const std::string& name, const std::string& patch, const std::string& subresource) {
  const std::string path = std::string(kWidgets) + "/" + name;
  return call("PATCH", subresource.empty() ? path : path + "/" + subresource, patch, {},
              "application/merge-patch+json");
}

Called WidgetApi::apply(const std::string& name, const std::string& spec, const std::string& manager,
                        bool force) {
  return call("PATCH", std::string(kWidgets) + "/" + name,
              R"({"apiVersion":"example.dev/v1","kind":"Widget","metadata":{"name":")" + name +
                  R"("},"spec":)" + spec + "}",
              {{"fieldManager", manager}, {"force", force ? "true" : "false"}},
              "application/apply-patch+yaml");
}

}  // namespace plimsoll::testing::fake
