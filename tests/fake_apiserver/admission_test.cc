#include "tests/fake_apiserver/admission.h"

#include <cpprest/http_listener.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "base/base64.h"
#include "tests/controlplane/certificates.h"
#include "tests/fake_apiserver/test_widgets.h"

namespace plimsoll::testing::fake {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using web::http::experimental::listener::http_listener;
using web::http::experimental::listener::http_listener_config;

// A webhook over TLS that answers with what the test says.
class Webhook {
 public:
  using Respond = std::function<Json(const Json& request)>;

  Webhook() : authority_(*CertificateAuthority::create("webhook CA")) {
    const auto pair = authority_.issue("webhook", {"127.0.0.1"});
    pair_ = *pair;
    http_listener_config config;
    config.set_ssl_context_callback([this](boost::asio::ssl::context& tls) {
      boost::system::error_code error;
      tls.use_certificate_chain(boost::asio::buffer(pair_.certificate_pem), error);
      tls.use_private_key(boost::asio::buffer(pair_.key_pem), boost::asio::ssl::context::pem, error);
    });
    for (int port = 30000 + getpid() % 20000; url_.empty() && port < 65535; ++port) {
      try {
        const std::string address = "https://127.0.0.1:" + std::to_string(port) + "/";
        listener_ = http_listener(address, config);
        listener_.support([this](web::http::http_request request) { answer(std::move(request)); });
        listener_.open().get();
        url_ = address + "mutate";
      } catch (const std::exception&) {
        // Taken; the next one.
      }
    }
  }

  ~Webhook() { listener_.close().get(); }

  void answer_with(Respond respond) {
    const std::lock_guard lock(mutex_);
    respond_ = std::move(respond);
  }
  void answer_with_text(std::string text, int code = 200) {
    const std::lock_guard lock(mutex_);
    text_ = std::move(text);
    code_ = code;
  }
  std::vector<Json> reviews() const {
    const std::lock_guard lock(mutex_);
    return reviews_;
  }
  std::vector<std::string> queries() const {
    const std::lock_guard lock(mutex_);
    return queries_;
  }
  std::string url() const { return url_; }
  std::string ca_bundle() const { return base64_encode(authority_.certificate_pem()); }

 private:
  void answer(web::http::http_request message) {
    message.extract_string(true).then([this, message](const std::string& body) {
      const std::lock_guard lock(mutex_);
      const Json review = *parse_json(body);
      reviews_.push_back(review["request"]);
      queries_.push_back(message.request_uri().query());
      std::string text = text_;
      if (text.empty()) {
        Json response = respond_ ? respond_(review["request"]) : Json(::Json::objectValue);
        if (!response.isMember("uid")) {
          response["uid"] = review["request"]["uid"];
        }
        if (!response.isMember("allowed")) {
          response["allowed"] = true;
        }
        Json answer(::Json::objectValue);
        answer["apiVersion"] = "admission.k8s.io/v1";
        answer["kind"] = "AdmissionReview";
        answer["response"] = std::move(response);
        text = write_json(answer);
      }
      message.reply(static_cast<web::http::status_code>(code_), text, "application/json");
    });
  }

  CertificateAuthority authority_;
  KeyPair pair_;
  http_listener listener_;
  std::string url_;
  mutable std::mutex mutex_;
  Respond respond_;
  std::string text_;
  int code_ = 200;
  std::vector<Json> reviews_;
  std::vector<std::string> queries_;
};

Json with_patch(const std::string& patch) {
  Json response(::Json::objectValue);
  response["patchType"] = "JSONPatch";
  response["patch"] = base64_encode(patch);
  return response;
}

class Admission : public ::testing::Test {
 protected:
  // Registers the webhook; `change` may alter its entry first.
  void install(
      const std::string& kind, const std::function<void(Json&)>& change = [](Json&) {}) {
    Json configuration(::Json::objectValue);
    configuration["apiVersion"] = "admissionregistration.k8s.io/v1";
    configuration["kind"] = kind + "WebhookConfiguration";
    configuration["metadata"]["name"] = "hook";
    Json& webhook = configuration["webhooks"][0];
    webhook = *parse_json(R"({"name":"hook.example.dev","sideEffects":"None","admissionReviewVersions":["v1"],
      "timeoutSeconds":3,"rules":[{"apiGroups":["example.dev"],"apiVersions":["v1"],
      "operations":["CREATE","UPDATE"],"resources":["widgets"]}]})");
    webhook["clientConfig"]["url"] = webhook_.url();
    webhook["clientConfig"]["caBundle"] = webhook_.ca_bundle();
    change(webhook);
    const std::string plural =
        kind == "Mutating" ? "mutatingwebhookconfigurations" : "validatingwebhookconfigurations";
    const Called made =
        server_.call("POST", "/apis/admissionregistration.k8s.io/v1/" + plural, write_json(configuration));
    ASSERT_EQ(made.code, 201) << made.message();
  }

  Webhook webhook_;
  WidgetApi server_;
};

TEST_F(Admission, ShowsTheWebhookTheWholeRequest) {
  install("Mutating");
  server_.create("a", R"({"size":2})");
  server_.merge("a", R"({"spec":{"size":3}})");
  const std::vector<Json> reviews = webhook_.reviews();
  ASSERT_EQ(reviews.size(), 2U);
  EXPECT_EQ(reviews[0]["operation"].asString(), "CREATE");
  EXPECT_EQ(reviews[0]["kind"]["kind"].asString(), "Widget");
  EXPECT_EQ(reviews[0]["resource"]["resource"].asString(), "widgets");
  EXPECT_EQ(reviews[0]["namespace"].asString(), "default");
  EXPECT_EQ(reviews[0]["name"].asString(), "a");
  EXPECT_EQ(reviews[0]["object"]["spec"]["color"].asString(), "Red") << "defaults come before webhooks";
  EXPECT_TRUE(reviews[0]["oldObject"].isNull());
  EXPECT_FALSE(reviews[0]["dryRun"].asBool());
  EXPECT_EQ(reviews[1]["operation"].asString(), "UPDATE");
  EXPECT_EQ(reviews[1]["oldObject"]["spec"]["size"].asInt(), 2);
  EXPECT_EQ(reviews[1]["object"]["spec"]["size"].asInt(), 3);
  EXPECT_EQ(webhook_.queries()[0], "timeout=3s");
}

TEST_F(Admission, AppliesPatchesAndReturnsWarnings) {
  webhook_.answer_with([](const Json&) {
    Json response = with_patch(R"([{"op":"replace","path":"/spec/size","value":7},
                                   {"op":"add","path":"/metadata/annotations","value":{"why":"seven"}}])");
    response["warnings"].append("cut to 7");
    return response;
  });
  install("Mutating");
  const Called made = server_.create("a", R"({"size":2})");
  ASSERT_EQ(made.code, 201) << made.message();
  EXPECT_EQ(made.body["spec"]["size"].asInt(), 7);
  EXPECT_EQ(made.body["metadata"]["annotations"]["why"].asString(), "seven");
  EXPECT_THAT(made.warnings, ElementsAre("cut to 7"));
}

TEST_F(Admission, ValidatesWhatTheWebhookMade) {
  webhook_.answer_with(
      [](const Json&) { return with_patch(R"([{"op":"replace","path":"/spec/size","value":99}])"); });
  install("Mutating");
  EXPECT_THAT(server_.create("a", R"({"size":2})").message(),
              HasSubstr("spec.size in body should be less than"));
}

TEST_F(Admission, TellsDryRunsApart) {
  install("Mutating");
  const Called dry = server_.call(
      "POST", kWidgets,
      R"({"apiVersion":"example.dev/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"size":1}})",
      {{"dryRun", "All"}});
  EXPECT_EQ(dry.code, 201);
  EXPECT_TRUE(webhook_.reviews()[0]["dryRun"].asBool());
}

TEST_F(Admission, ReturnsTheRefusal) {
  webhook_.answer_with([](const Json&) {
    Json response(::Json::objectValue);
    response["allowed"] = false;
    response["status"]["message"] = "too many";
    response["status"]["code"] = 422;
    response["status"]["reason"] = "Invalid";
    return response;
  });
  install("Validating");
  const Called refused = server_.create("a", R"({"size":2})");
  EXPECT_EQ(refused.code, 422);
  EXPECT_EQ(refused.message(), R"(admission webhook "hook.example.dev" denied the request: too many)");
  EXPECT_EQ(server_.call("GET", std::string(kWidgets) + "/a").code, 404);
}

TEST_F(Admission, AsksOnlyWhenTheRulesMatch) {
  install("Mutating", [](Json& webhook) {
    webhook["objectSelector"]["matchLabels"]["sized"] = "yes";
    webhook["namespaceSelector"] = *parse_json(
        R"({"matchExpressions":[{"key":"kubernetes.io/metadata.name","operator":"NotIn","values":["kube-system"]}]})");
  });
  server_.create("a", R"({"size":2})");
  EXPECT_TRUE(webhook_.reviews().empty());
  const auto make = [&](const std::string& namespace_name) {
    return server_
        .call(
            "POST", "/apis/example.dev/v1/namespaces/" + namespace_name + "/widgets",
            R"({"apiVersion":"example.dev/v1","kind":"Widget","metadata":{"name":"b","labels":{"sized":"yes"}},"spec":{"size":1}})")
        .code;
  };
  EXPECT_EQ(make("kube-system"), 201);
  EXPECT_TRUE(webhook_.reviews().empty());
  EXPECT_EQ(make("default"), 201);
  EXPECT_EQ(webhook_.reviews().size(), 1U);
  server_.merge("b", R"({"status":{"x":1}})", "status");
  server_.call("DELETE", std::string(kWidgets) + "/b");
  EXPECT_EQ(webhook_.reviews().size(), 1U) << "neither the status nor DELETE is in the rules";
}

TEST_F(Admission, ListsMatchConditionsAndCountsThemAsMet) {
  install("Validating", [](Json& webhook) {
    webhook["matchConditions"][0]["name"] = "not-a";
    webhook["matchConditions"][0]["expression"] = "object.metadata.name != 'a'";
  });
  server_.create("a", R"({"size":2})");
  EXPECT_EQ(webhook_.reviews().size(), 1U);
  const UnevaluatedRules rules = server_.api.unevaluated_rules();
  const auto listed = std::find_if(rules.begin(), rules.end(), [](const UnevaluatedRule& rule) {
    return rule.construct == "matchConditions";
  });
  ASSERT_NE(listed, rules.end());
  EXPECT_EQ(listed->resource, "ValidatingWebhookConfiguration/hook");
  EXPECT_EQ(listed->field, "hook.example.dev");
  EXPECT_EQ(listed->rule, "object.metadata.name != 'a'");
}

TEST_F(Admission, FollowsTheFailurePolicy) {
  install("Mutating");
  for (
      const char* wrong :
      {"", "not JSON", "{}", R"({"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"})",
       R"({"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"other","allowed":true}})"}) {
    webhook_.answer_with_text(*wrong == '\0' ? " " : wrong);
    const Called failed = server_.create("a", R"({"size":2})");
    EXPECT_EQ(failed.code, 500) << wrong;
    EXPECT_THAT(failed.message(), HasSubstr(R"(failed calling webhook "hook.example.dev")")) << wrong;
  }
  webhook_.answer_with_text("{}", 503);
  EXPECT_EQ(server_.create("a", R"({"size":2})").code, 500);
  server_.call("PATCH", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/hook",
               R"([{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"}])", {},
               "application/json-patch+json");
  EXPECT_EQ(server_.create("a", R"({"size":2})").code, 201);
}

TEST_F(Admission, RefusesMalformedPatches) {
  install("Mutating");
  for (const char* wrong : {"{}", "not JSON", R"([{"op":"remove","path":"/spec/nothing"}])"}) {
    webhook_.answer_with([wrong](const Json&) { return with_patch(wrong); });
    EXPECT_EQ(server_.create("a", R"({"size":2})").code, 500) << wrong;
  }
  webhook_.answer_with([](const Json&) {
    Json response(::Json::objectValue);
    response["patchType"] = "JSONPatch";
    return response;
  });
  EXPECT_THAT(server_.create("a", R"({"size":2})").message(), HasSubstr("but not both"));
}

TEST_F(Admission, TrustsOnlyTheBundle) {
  install("Mutating", [](Json& webhook) {
    webhook["clientConfig"]["caBundle"] =
        base64_encode(CertificateAuthority::create("another CA")->certificate_pem());
  });
  EXPECT_THAT(server_.create("a", R"({"size":2})").message(), HasSubstr("tls: failed to verify certificate"));
}

TEST_F(Admission, FailsWhereNobodyListens) {
  install("Mutating", [](Json& webhook) { webhook["clientConfig"]["url"] = "https://127.0.0.1:1/x"; });
  EXPECT_THAT(server_.create("a", R"({"size":2})").message(),
              HasSubstr("dial tcp 127.0.0.1:1: connect: connection refused"));
}

}  // namespace
}  // namespace plimsoll::testing::fake
