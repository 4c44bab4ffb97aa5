#include "tests/fake_apiserver/test_widgets.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/yaml.h"
#include "tests/checkout.h"

namespace plimsoll::testing::fake {

Json widget_definition() {
  std::ostringstream text;
  text << std::ifstream(PLIMSOLL_SOURCE_DIR "/tests/fake_apiserver/widgets.yaml").rdbuf();
  const auto documents = parse_yaml_documents(text.str());
  EXPECT_TRUE(documents && documents->size() == 1);
  return documents ? documents->front() : Json();
}

WidgetApi::WidgetApi() {
  const Called installed = call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                                write_json(widget_definition()));
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
