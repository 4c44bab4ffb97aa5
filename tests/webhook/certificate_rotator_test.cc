#include "webhook/certificate_rotator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <shared_mutex>
#include <thread>

#include "base/base64.h"
#include "http/certificate_authority.h"
#include "http/server.h"
#include "tests/controlplane/api_server.h"
#include "tests/fake_apiserver/patch.h"
#include "tests/http/peer.h"
#include "tests/http/test_certificates.h"
#include "tests/kube/partial_client.h"
#include "tests/kube/virtual_clock.h"
#include "tests/testing/eventually.h"

namespace plimsoll::webhook {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using testing::eventually;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Ne;
using ::testing::NotNull;

constexpr const char* kHost = "webhook.ns.svc";
constexpr const char* kMutating = "mutatingwebhookconfigurations";
constexpr const char* kValidating = "validatingwebhookconfigurations";

kube::Resource secrets() {
  return {.group = "", .version = "v1", .plural = "secrets", .namespaced = true};
}

CertificateRotatorOptions options_with(const Clock& clock) {
  return {.secret_namespace = "ns",
          .secret_name = "tls",
          .configuration = "plimsoll",
          .policy = {.names = {kHost}},
          .trust_delay = 5min,
          .clock = &clock};
}

Json empty_secret() {
  Json secret;
  secret["apiVersion"] = "v1";
  secret["kind"] = "Secret";
  secret["metadata"]["name"] = "tls";
  return secret;
}

Json configuration_with(const std::vector<std::string>& webhooks) {
  Json object;
  object["metadata"]["name"] = "plimsoll";
  for (const std::string& name : webhooks) {
    Json webhook;
    webhook["name"] = name;
    webhook["clientConfig"]["url"] = "https://127.0.0.1:1";
    object["webhooks"].append(webhook);
  }
  return object;
}

// The objects that a rotator keeps, as an API server has them. Thread-safe.
class Cluster : public testing::PartialClient {
 public:
  Cluster() {
    objects_["secrets"] = empty_secret();
    objects_[kMutating] = configuration_with({"size.plimsoll.dev", "advise.plimsoll.dev"});
    objects_[kValidating] = configuration_with({"validate.plimsoll.dev"});
  }

  Result<Json> get(const kube::Resource& resource, const std::string&, const std::string&,
                   const kube::CallOptions&) override {
    const std::lock_guard lock(mutex_);
    if (down_ || !objects_.contains(resource.plural)) {
      return down_ ? Error(ErrorCode::kUnavailable, "down") : Error(ErrorCode::kNotFound, "there is none");
    }
    return objects_[resource.plural];
  }

  Result<Json> update(const kube::Resource& resource, const std::string&, const Json& object,
                      const std::string&, const kube::CallOptions&) override {
    if (before_update_) {
      std::exchange(before_update_, nullptr)();
    }
    const std::lock_guard lock(mutex_);
    Json& stored = objects_[resource.plural];
    if (stored["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"]) {
      return Error(ErrorCode::kConflict, "it has changed");
    }
    ++writes_;
    stored = object;
    stored["metadata"]["resourceVersion"] = std::to_string(++version_);
    return stored;
  }

  Result<Json> patch(const kube::Resource& resource, const std::string&, const std::string&, kube::PatchType,
                     const Json& patch, const std::string&, const kube::CallOptions&) override {
    const std::lock_guard lock(mutex_);
    if (forbidden_) {
      return Error(ErrorCode::kForbidden, "no right to patch");
    }
    auto patched = testing::fake::apply_json_patch(objects_[resource.plural], patch);
    if (!patched) {
      return invalid("the patch does not fit");
    }
    ++writes_;
    objects_[resource.plural] = *patched;
    return objects_[resource.plural];
  }

  void edit(const std::string& plural, const std::function<void(Json&)>& change) {
    const std::lock_guard lock(mutex_);
    change(objects_[plural]);
    objects_[plural]["metadata"]["resourceVersion"] = std::to_string(++version_);
  }
  void erase(const std::string& plural) { objects_.erase(plural); }
  void set_down(bool down) { down_ = down; }
  void set_forbidden(bool forbidden) { forbidden_ = forbidden; }
  void before_next_update(std::function<void()> call) { before_update_ = std::move(call); }

  std::string secret(const char* key) {
    const std::lock_guard lock(mutex_);
    return *base64_decode(text_member(objects_["secrets"], {"data", key}));
  }
  // Of all webhooks, in order; equal ones once.
  std::vector<std::string> bundles() {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> bundles;
    for (const char* plural : {kMutating, kValidating}) {
      for (const Json& webhook : objects_[plural]["webhooks"]) {
        std::string bundle = *base64_decode(text_member(webhook, {"clientConfig", "caBundle"}));
        if (bundles.empty() || bundles.back() != bundle) {
          bundles.push_back(std::move(bundle));
        }
      }
    }
    return bundles;
  }
  int writes() const { return writes_; }

 private:
  std::mutex mutex_;
  std::map<std::string, Json> objects_;
  std::function<void()> before_update_;
  std::atomic<bool> down_ = false;
  std::atomic<bool> forbidden_ = false;
  std::atomic<int> writes_ = 0;
  int version_ = 0;
};

class CertificateRotatorTest : public ::testing::Test {
 protected:
  CertificateRotatorTest() { clock_.pass(24h * 365 * 56); }

  Result<Clock::WallTime> pass() { return rotator_.renew({}); }
  std::string problem() {
    const auto done = pass();
    return done ? "" : to_string(done.error());
  }

  testing::VirtualClock clock_;
  Cluster cluster_;
  CertificateRotator rotator_{cluster_, options_with(clock_)};
};

TEST_F(CertificateRotatorTest, TheFirstPassMakesAllAndIsReady) {
  EXPECT_FALSE(rotator_.ready().ok());
  EXPECT_EQ(rotator_.current(), nullptr);
  const auto due = pass();
  ASSERT_TRUE(due.ok()) << due.error().message;
  EXPECT_EQ(*due, clock_.wall_now() + 5min);  // the authority is trusted then
  EXPECT_TRUE(rotator_.ready().ok());
  EXPECT_NE(rotator_.current(), nullptr);
  EXPECT_EQ(rotator_.status().loads, 1U);
  EXPECT_EQ(rotator_.status().not_after, clock_.wall_now() + 24h * 90);
  EXPECT_THAT(cluster_.bundles(), ElementsAre(cluster_.secret("ca.crt")));

  const int writes = cluster_.writes();
  clock_.pass(5min);
  EXPECT_EQ(*pass(), clock_.wall_now() + 24h * 60 - 5min);
  EXPECT_EQ(cluster_.writes(), writes);
}

TEST_F(CertificateRotatorTest, WhatSomebodyChangesIsRepaired) {
  ASSERT_TRUE(pass().ok());
  cluster_.edit(kMutating,
                [](Json& object) { object["webhooks"][1]["clientConfig"].removeMember("caBundle"); });
  EXPECT_TRUE(pass().ok());
  EXPECT_THAT(cluster_.bundles(), ElementsAre(cluster_.secret("ca.crt")));
  const auto before = rotator_.current();
  const std::string old_authority = cluster_.secret("ca.crt");
  cluster_.edit("secrets", [](Json& object) { object.removeMember("data"); });
  EXPECT_TRUE(pass().ok());
  EXPECT_NE(rotator_.current(), before);
  EXPECT_THAT(cluster_.bundles(), ElementsAre(cluster_.secret("ca.crt")));
  EXPECT_THAT(cluster_.secret("ca.crt"),
              HasSubstr(old_authority));  // other replicas may still serve its certificate
  EXPECT_THAT(cluster_.bundles().front(), Ne(""));
}

// The release before had its certificate from elsewhere, and its replicas serve it until they are replaced.
TEST_F(CertificateRotatorTest, WhoWasTrustedBeforeAnUpgradeStaysTrustedForADay) {
  const std::string before =
      http::make_authority("before", {clock_.wall_now() - 1h, clock_.wall_now() + 24h * 365})
          ->certificate_pem;
  for (const char* plural : {kMutating, kValidating}) {
    cluster_.edit(plural, [&](Json& object) {
      for (Json& webhook : object["webhooks"]) {
        webhook["clientConfig"]["caBundle"] = base64_encode(before);
      }
    });
  }
  ASSERT_TRUE(pass().ok());
  EXPECT_THAT(cluster_.bundles(), ElementsAre(newest_authority(cluster_.secret("ca.crt")) + before));
  clock_.pass(24h);
  ASSERT_TRUE(pass().ok());
  EXPECT_THAT(cluster_.bundles(), ElementsAre(newest_authority(cluster_.secret("ca.crt"))));
}

TEST_F(CertificateRotatorTest, WhatElseTheSecretHoldsStays) {
  cluster_.edit("secrets", [](Json& object) {
    object["data"]["other"] = "b3RoZXI=";
    object["metadata"]["labels"]["team"] = "ml";
  });
  ASSERT_TRUE(pass().ok());
  EXPECT_EQ(cluster_.secret("other"), "other");
  EXPECT_EQ(text_member(*cluster_.get(secrets(), "", "", {}), {"metadata", "labels", "team"}), "ml");
}

TEST_F(CertificateRotatorTest, SecretsOfWrongTypesAreMadeAnew) {
  for (const char* data : {"[]", "\"text\"", R"({"ca.crt": 1, "tls.crt": {}, "tls.key": "%"})"}) {
    cluster_.edit("secrets", [&](Json& object) { object["data"] = *parse_json(data); });
    EXPECT_EQ(problem(), "") << data;
    EXPECT_THAT(cluster_.bundles(), ElementsAre(cluster_.secret("ca.crt")));
  }
}

// Two start at once on an empty Secret: the one whose write comes second takes what the first one made.
TEST_F(CertificateRotatorTest, OfTwoReplicasOneMakesTheCertificates) {
  CertificateRotator other(cluster_, options_with(clock_));
  cluster_.before_next_update([&] { EXPECT_TRUE(other.renew({}).ok()); });
  EXPECT_EQ(*pass(), clock_.wall_now());
  EXPECT_FALSE(rotator_.ready().ok());
  const std::string authority = cluster_.secret("ca.crt");
  EXPECT_TRUE(pass().ok());
  EXPECT_TRUE(rotator_.ready().ok());
  EXPECT_EQ(cluster_.secret("ca.crt"), authority);
}

TEST_F(CertificateRotatorTest, SaysWhatIsMissing) {
  cluster_.erase(kValidating);
  EXPECT_THAT(problem(), HasSubstr("read validatingwebhookconfigurations/plimsoll"));
  EXPECT_NE(rotator_.current(), nullptr);  // served, but nobody trusts it
  EXPECT_FALSE(rotator_.ready().ok());
  cluster_.erase("secrets");
  EXPECT_THAT(problem(), HasSubstr("read the Secret ns/tls, which the chart makes"));
}

// A denied right must not lead to a certificate that no API server trusts.
TEST_F(CertificateRotatorTest, WithoutTheRightToPatchTheOldAuthorityGoesOnSigning) {
  ASSERT_TRUE(pass().ok());
  const std::string trusted = cluster_.bundles().front();
  const std::string served = cluster_.secret("tls.crt");
  cluster_.set_forbidden(true);
  cluster_.edit("secrets", [](Json& object) { object["data"].removeMember("ca.key"); });
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(problem(), HasSubstr("write caBundle of mutatingwebhookconfigurations/plimsoll"));
    clock_.pass(10min);
  }
  EXPECT_EQ(cluster_.secret("tls.crt"), served);
  EXPECT_THAT(cluster_.bundles(), ElementsAre(trusted));
  EXPECT_TRUE(rotator_.ready().ok());

  cluster_.set_forbidden(false);
  EXPECT_EQ(problem(), "");
  EXPECT_EQ(cluster_.secret("tls.crt"), served);
  clock_.pass(5min);
  EXPECT_EQ(problem(), "");
  EXPECT_NE(cluster_.secret("tls.crt"), served);
}

TEST_F(CertificateRotatorTest, AnOutageOfTheApiServerKeepsTheCertificate) {
  ASSERT_TRUE(pass().ok());
  const auto served = rotator_.current();
  cluster_.set_down(true);
  EXPECT_THAT(problem(), HasSubstr("down"));
  EXPECT_EQ(rotator_.current(), served);
  EXPECT_TRUE(rotator_.ready().ok());
}

// Fifteen years, in which the authority changes three times and the certificate ninety times, with two replicas and an API
// server that learns of each configuration only just within the trust delay. Clients never stop calling both.
TEST_F(CertificateRotatorTest, ThreeRotationsUnderLoadLoseNoAdmission) {
  CertificateRotator other(cluster_, options_with(clock_));
  const auto shared = [](CertificateRotator& rotator) {
    return std::shared_ptr<http::CertificateSource>(&rotator, [](auto*) {});
  };
  const auto answer = [](const http::Request&) { return http::Response{.status = 200, .body = "allowed"}; };
  http::Server server(testing::test_options(), answer, shared(rotator_));
  http::Server other_server(testing::test_options(), answer, shared(other));
  ASSERT_TRUE(server.start().ok());
  ASSERT_TRUE(other_server.start().ok());
  ASSERT_TRUE(pass().ok());
  ASSERT_TRUE(other.renew({}).ok());

  // What the API server trusts; time passes only between two admissions. Clients wait for it, or they would never let it pass.
  std::shared_mutex time;
  std::atomic<bool> time_passes = false;
  std::string trusted = cluster_.bundles().front();
  std::deque<std::pair<Clock::SteadyTime, std::string>> configured = {{clock_.steady_now(), trusted}};
  std::atomic<int> admissions = 0;
  std::atomic<int> lost = 0;
  const auto admit = [&](std::uint16_t port) {
    const std::shared_lock lock(time);
    testing::Peer peer(port);
    const bool connected = peer.start_tls({.alpn = {},
                                           .host = kHost,
                                           .authorities = trusted,
                                           .time = std::chrono::system_clock::to_time_t(clock_.wall_now())});
    const auto response =
        connected ? peer.exchange("POST", "/", "application/json", "{}") : std::optional<testing::Response>();
    ++(response && response->status == 200 ? admissions : lost);
  };
  std::vector<std::jthread> clients;
  for (const std::uint16_t port : {server.port(), other_server.port()}) {
    clients.emplace_back([&, port](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        time_passes.wait(true);
        admit(port);
      }
    });
  }

  std::vector<std::string> authorities = {newest_authority(trusted)};
  const Clock::WallTime begin = clock_.wall_now();
  Clock::WallTime due = begin;
  while (clock_.wall_now() < begin + 24h * 365 * 16) {
    time_passes = true;
    {
      const std::unique_lock lock(time);
      const auto step = std::max<Clock::WallTime::duration>(due - clock_.wall_now(), 1s);
      clock_.pass(step);
      while (configured.size() > 1 && configured[1].first <= clock_.steady_now() - (5min - 1s)) {
        configured.pop_front();
      }
      trusted = configured.front().second;
    }
    time_passes = false;
    time_passes.notify_all();
    const auto first = pass();
    ASSERT_TRUE(first.ok()) << first.error().message;
    admit(other_server.port());  // before it sees what changed
    const auto second = other.renew({});
    ASSERT_TRUE(second.ok()) << second.error().message;
    due = std::min(*first, *second);
    admit(server.port());
    admit(other_server.port());
    if (const std::string bundle = cluster_.bundles().front(); bundle != configured.back().second) {
      configured.emplace_back(clock_.steady_now(), bundle);
    }
    if (const std::string newest = newest_authority(cluster_.secret("ca.crt"));
        newest != authorities.back()) {
      authorities.push_back(newest);
    }
  }
  clients.clear();
  server.stop(0ms);
  other_server.stop(0ms);
  EXPECT_GE(authorities.size(), 4U);  // the first, and three rotations
  EXPECT_GE(rotator_.status().loads, 90U);
  EXPECT_GT(admissions, 300);
  EXPECT_EQ(lost, 0);
}

// The whole activity, on an API server: watches, writes, and what others change.
class RotatorOnAServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    server_ = testing::start_api_server(testing::ApiServerKind::kFake);
    ASSERT_NE(server_, nullptr);
    client_ = server_->make_client();
    const Result<Json> made = client_->create(secrets(), "default", empty_secret());
    ASSERT_TRUE(made.ok()) << made.error().message;
    for (const char* plural : {kMutating, kValidating}) {
      Json object = configuration_with({"one.plimsoll.dev"});
      object["apiVersion"] = "admissionregistration.k8s.io/v1";
      object["kind"] = std::string_view(plural) == kMutating ? "MutatingWebhookConfiguration"
                                                             : "ValidatingWebhookConfiguration";
      Json& webhook = object["webhooks"][0];
      webhook["sideEffects"] = "None";
      webhook["admissionReviewVersions"].append("v1");
      const Result<Json> created = client_->create(configurations(plural), "", object);
      ASSERT_TRUE(created.ok()) << created.error().message;
    }
  }

  static kube::Resource configurations(const char* plural) {
    return {.group = "admissionregistration.k8s.io", .version = "v1", .plural = plural, .namespaced = false};
  }
  std::string bundle(const char* plural) {
    const Result<Json> object = client_->get(configurations(plural), "", "plimsoll");
    return object ? text_member((*object)["webhooks"][0], {"clientConfig", "caBundle"}) : "";
  }

  std::unique_ptr<testing::ApiServer> server_;
  std::unique_ptr<kube::Client> client_;
};

TEST_F(RotatorOnAServerTest, BecomesReadyAndRepairsWhatOthersChange) {
  CertificateRotatorOptions options = options_with(system_clock());
  options.secret_namespace = "default";
  CertificateRotator rotator(*client_, options);
  ASSERT_TRUE(rotator.start().ok());
  ASSERT_TRUE(eventually("the rotator is ready", [&] { return rotator.ready().ok(); }))
      << rotator.status().problem;
  const std::string good = bundle(kMutating);
  EXPECT_THAT(*base64_decode(good), HasSubstr("BEGIN CERTIFICATE"));
  EXPECT_EQ(bundle(kValidating), good);

  Json removal(::Json::arrayValue);
  removal[0]["op"] = "remove";
  removal[0]["path"] = "/webhooks/0/clientConfig/caBundle";
  ASSERT_TRUE(
      client_->patch(configurations(kValidating), "", "plimsoll", kube::PatchType::kJson, removal).ok());
  EXPECT_TRUE(eventually(
      "caBundle is repaired", [&] { return bundle(kValidating); }, good));

  const auto served = rotator.current();
  Json data;
  data["data"]["tls.crt"] = base64_encode("garbage");
  ASSERT_TRUE(client_->patch(secrets(), "default", "tls", kube::PatchType::kMerge, data).ok());
  EXPECT_TRUE(eventually(
      "another certificate is served", [&] { return rotator.current(); }, Ne(served)));
  rotator.stop();
  rotator.stop();
}

TEST_F(RotatorOnAServerTest, WaitsForASecretThatComesLater) {
  ASSERT_TRUE(client_->remove(secrets(), "default", "tls").ok());
  CertificateRotatorOptions options = options_with(system_clock());
  options.secret_namespace = "default";
  CertificateRotator rotator(*client_, options);
  ASSERT_TRUE(rotator.start().ok());
  EXPECT_TRUE(eventually(
      "the problem", [&] { return rotator.ready().ok() ? "" : rotator.ready().error().message; },
      HasSubstr("which the chart makes")));
  ASSERT_TRUE(client_->create(secrets(), "default", empty_secret()).ok());
  EXPECT_TRUE(eventually("the rotator is ready", [&] { return rotator.ready().ok(); }));
}

}  // namespace
}  // namespace plimsoll::webhook
