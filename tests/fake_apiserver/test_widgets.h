// A custom type that uses every feature of structural schemas, and an Api that serves it, for tests.
#pragma once

#include <string>

#include "base/json/json.h"
#include "tests/fake_apiserver/api.h"

namespace plimsoll::testing::fake {

// The CustomResourceDefinition of widgets.example.dev (widgets.yaml).
Json widget_definition();

inline constexpr const char* kWidgets = "/apis/example.dev/v1/namespaces/default/widgets";

struct Called {
  int code = 0;
  Json body;
  std::vector<std::string> warnings;

  std::string message() const { return text_member(body, {"message"}); }
};

// An Api with widgets installed. Bodies and answers are JSON.
class WidgetApi {
 public:
  WidgetApi();

  Called call(const std::string& method, const std::string& path, const std::string& body = {},
              const std::map<std::string, std::string>& query = {},
              const std::string& content_type = "application/json");
  Called create(const std::string& name, const std::string& spec);
  Called merge(const std::string& name, const std::string& patch, const std::string& subresource = {});
  Called apply(const std::string& name, const std::string& spec, const std::string& manager,
               bool force = false);

  Api api;
};

}  // namespace plimsoll::testing::fake
