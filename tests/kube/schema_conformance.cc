// What structural schemas do to custom resources, on the real API server and on the fake one: defaults,
// pruning, and the causes of each refusal. schema_cases.yaml holds the cases.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/file.h"
#include "base/yaml.h"
#include "kube/http_exchange.h"
#include "kube/kubeconfig.h"
#include "kube/tls.h"
#include "tests/checkout.h"
#include "tests/kube/client_conformance.h"
#include "tests/testing/eventually.h"
#include "tests/testing/patience.h"

namespace plimsoll::kube {
namespace {

using plimsoll::testing::ApiServer;
using plimsoll::testing::ApiServerKind;
using plimsoll::testing::eventually;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kDefinitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

Json read_yaml(const std::string& path) {
  const Result<std::string> text = read_file(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/" + path);
  EXPECT_TRUE(text) << path;
  const Result<std::vector<Json>> documents = parse_yaml_documents(text ? *text : "");
  EXPECT_TRUE(documents && documents->size() == 1) << path;
  return documents && !documents->empty() ? documents->front() : Json();
}

struct Answer {
  int status = 0;
  Json body;

  std::multiset<std::string> causes() const {
    std::multiset<std::string> texts;
    for (const Json& cause : member(body, {"details", "causes"})) {
      texts.insert(text_member(cause, {"reason"}) + " " + text_member(cause, {"field"}) + ": " +
                   text_member(cause, {"message"}));
    }
    return texts;
  }
};

// Requests as they are: the production client keeps only the message of a status.
class SchemaConformance : public ::testing::TestWithParam<ApiServerKind> {
 protected:
  void SetUp() override {
    std::string why;
    server_ = conformance_server(why);
    if (server_ == nullptr) {
      GTEST_SKIP() << why;
    }
    config_ = *load_client_config(sources_from_environment(server_->kubeconfig()));
    endpoint_ = *HttpEndpoint::make(config_, *TlsMaterial::make(config_));
  }

  Answer call(const std::string& method, const std::string& target, const std::string& body) {
    const auto deadline = std::chrono::steady_clock::now() + plimsoll::testing::kPatience;
    HttpExchange exchange(*endpoint_, {method, target, config_.token, "application/json", body});
    const auto failure = exchange.wait_for_head(deadline);
    EXPECT_FALSE(failure) << failure->reason;
    std::string text;
    while (!failure && exchange.read(text, deadline) == HttpExchange::Read::kData) {
    }
    const Result<Json> parsed = parse_json(text);
    return {failure ? 0 : exchange.status(), parsed ? *parsed : Json(text)};
  }

  // Returns when the server serves the kind; it needs a moment.
  void define(const Json& definition, const std::string& collection) {
    const Answer defined = call("POST", kDefinitions, write_json(definition));
    ASSERT_TRUE(defined.status == 201 || defined.status == 409) << write_json(defined.body);
    ASSERT_TRUE(eventually(
        "the kind is served", [&] { return call("GET", collection, "").status; }, 200));
  }

  ApiServer* server_ = nullptr;
  ClientConfig config_;
  std::unique_ptr<HttpEndpoint> endpoint_;
};

TEST_P(SchemaConformance, DefaultsPrunesAndRefuses) {
  const std::string widgets = "/apis/example.dev/v1/namespaces/default/widgets";
  define(read_yaml("fake_apiserver/widgets.yaml"), widgets);
  const Json cases = read_yaml("kube/schema_cases.yaml");
  ASSERT_GT(cases.size(), 100U);
  for (const Json& each : cases) {
    const std::string spec = text_member(each, {"spec"});
    SCOPED_TRACE(spec);
    const std::string widget =
        R"({"apiVersion":"example.dev/v1","kind":"Widget","metadata":{"name":"a"},"spec":)" + spec + "}";
    const Answer answer = call("POST", widgets + "?dryRun=All", widget);
    std::multiset<std::string> causes;
    for (const Json& cause : each["causes"]) {
      causes.insert(cause.asString());
    }
    EXPECT_EQ(answer.status, causes.empty() ? 201 : 422) << write_json(answer.body);
    EXPECT_EQ(answer.causes(), causes);
    if (causes.empty()) {
      EXPECT_EQ(write_json(answer.body["spec"]), write_json(*parse_json(text_member(each, {"stored"}))));
    }
    const Answer strict = call("POST", widgets + "?dryRun=All&fieldValidation=Strict", widget);
    EXPECT_EQ(strict.status, each.isMember("unknown") ? 400 : answer.status);
    for (const Json& field : each["unknown"]) {
      EXPECT_THAT(text_member(strict.body, {"message"}),
                  HasSubstr("unknown field \"" + field.asString() + "\""));
    }
  }
}

TEST_P(SchemaConformance, CelRulesAreEvaluatedOrListed) {
  const Json definition = parse_yaml_documents(R"(
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ranges.example.dev}
spec:
  group: example.dev
  scope: Namespaced
  names: {plural: ranges, kind: Range}
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              properties: {low: {type: integer}, high: {type: integer}}
              x-kubernetes-validations: [{rule: self.low <= self.high, message: low is above high, fieldPath: .low}]
)")
                              ->front();
  const std::string ranges = "/apis/example.dev/v1/namespaces/default/ranges";
  define(definition, ranges);
  const auto create = [&](const std::string& spec) {
    return call(
        "POST", ranges + "?dryRun=All",
        R"({"apiVersion":"example.dev/v1","kind":"Range","metadata":{"name":"a"},"spec":)" + spec + "}");
  };
  EXPECT_EQ(create(R"({"low":1,"high":2})").status, 201);
  // An object that breaks its schema is not held to its rules.
  EXPECT_EQ(
      create(R"({"low":"a","high":2})").causes(),
      (std::multiset<std::string>{
          R"(FieldValueTypeInvalid spec.low: Invalid value: "string": spec.low in body must be of type integer: "string")",
          "FieldValueInvalid <nil>: Invalid value: null: some validation rules were not checked because the "
          "object was "
          "invalid; correct the existing errors to complete validation"}));
  const Answer broken = create(R"({"low":2,"high":1})");
  if (GetParam() == ApiServerKind::kReal) {
    EXPECT_THAT(server_->unevaluated_rules(), IsEmpty());
    EXPECT_EQ(broken.causes(),
              std::multiset<std::string>{"FieldValueInvalid spec.low: Invalid value: low is above high"});
    return;
  }
  EXPECT_EQ(broken.status, 201);
  std::vector<std::string> listed;
  for (const auto& rule : server_->unevaluated_rules()) {
    if (rule.resource == "ranges.example.dev") {
      listed.push_back(rule.construct + " " + rule.field + ": " + rule.message);
    }
  }
  EXPECT_EQ(listed, std::vector<std::string>{"x-kubernetes-validations spec.low: low is above high"});
}

INSTANTIATE_TEST_SUITE_P(Server, SchemaConformance, ::testing::Values(conformance_kind()));

}  // namespace
}  // namespace plimsoll::kube
