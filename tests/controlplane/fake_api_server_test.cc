// The server as its clients see it: over TLS, through the production client.
#include "tests/controlplane/fake_api_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "kube/http_client.h"
#include "kube/kubeconfig.h"
#include "tests/testing/eventually.h"

namespace plimsoll::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const kube::Resource kConfigMaps{"", "v1", "configmaps", true};
const kube::Resource kLeases{"coordination.k8s.io", "v1", "leases", true};

Json config_map(const std::string& name, const std::string& value = "x") {
  Json object(::Json::objectValue);
  object["apiVersion"] = "v1";
  object["kind"] = "ConfigMap";
  object["metadata"]["name"] = name;
  object["data"]["value"] = value;
  return object;
}

class FakeServer : public ::testing::Test {
 protected:
  FakeServer() {
    FakeApiServerOptions options;
    options.bookmark_interval = milliseconds(100);
    auto started = FakeApiServer::start(options);
    EXPECT_TRUE(started) << started.error().message;
    server_ = *std::move(started);
    client_ = server_->make_client();
  }

  std::unique_ptr<FakeApiServer> server_;
  std::unique_ptr<kube::Client> client_;
};

// A watch on a thread of its own, and what it saw.
class Watching {
 public:
  Watching(kube::Client& client, const kube::WatchOptions& options)
      : thread_([this, &client, options](std::stop_token stop) {
          result_ = client.watch(
              kConfigMaps, "default", options,
              [this](const kube::WatchEvent& event) {
                (event.type == kube::WatchEventType::kBookmark ? bookmarks : events)++;
              },
              std::move(stop));
          ended = true;
        }) {}

  Result<void> result() {
    thread_.join();
    return result_;
  }

  std::atomic<int> events = 0;
  std::atomic<int> bookmarks = 0;
  std::atomic<bool> ended = false;

 private:
  Result<void> result_;
  std::jthread thread_;
};

TEST_F(FakeServer, ServesTheProductionClient) {
  ASSERT_TRUE(client_->create(kConfigMaps, "default", config_map("a")));
  const auto found = client_->get(kConfigMaps, "default", "a");
  ASSERT_TRUE(found) << to_string(found.error());
  EXPECT_EQ(text_member(*found, {"data", "value"}), "x");
  EXPECT_EQ(client_->create(kConfigMaps, "default", config_map("a")).error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(client_->get(kConfigMaps, "default", "none").error().code, ErrorCode::kNotFound);
  const auto listed = client_->list(kConfigMaps, "default");
  ASSERT_TRUE(listed);
  EXPECT_EQ((*listed)["items"].size(), 1U);
  EXPECT_EQ(*client_->get_raw("/readyz"), "ok");
  EXPECT_TRUE(client_->remove(kConfigMaps, "default", "a"));
}

TEST_F(FakeServer, RequiresItsToken) {
  std::string text;
  {
    std::ifstream file(server_->kubeconfig());
    text.assign(std::istreambuf_iterator<char>(file), {});
  }
  EXPECT_THAT(text, ::testing::HasSubstr(server_->token()));
  text.replace(text.find(server_->token()), server_->token().size(), "wrong");
  const auto config = kube::parse_kubeconfig(text, "/");
  ASSERT_TRUE(config);
  const auto stranger = kube::connect(*config);
  ASSERT_TRUE(stranger);
  EXPECT_EQ((*stranger)->list(kConfigMaps, "default").error().code, ErrorCode::kUnauthorized);
}

TEST_F(FakeServer, LetsOneOfTwoLeadersWin) {
  Json lease(::Json::objectValue);
  lease["apiVersion"] = "coordination.k8s.io/v1";
  lease["kind"] = "Lease";
  lease["metadata"]["name"] = "leader";
  lease["spec"]["holderIdentity"] = "one";
  const auto made = client_->create(kLeases, "default", lease);
  ASSERT_TRUE(made);
  Json renewed = *made;
  renewed["spec"]["holderIdentity"] = "two";
  EXPECT_TRUE(client_->update(kLeases, "default", renewed));
  renewed["spec"]["holderIdentity"] = "three";
  EXPECT_EQ(client_->update(kLeases, "default", renewed).error().code, ErrorCode::kConflict);
}

TEST_F(FakeServer, StreamsChangesAndBookmarks) {
  kube::WatchOptions options;
  options.resource_version =
      text_member(*client_->list(kConfigMaps, "default"), {"metadata", "resourceVersion"});
  Watching watching(*client_, options);
  EXPECT_TRUE(eventually(
      "the watch is open", [&] { return server_->open_watches(); }, 1U));
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(client_->create(kConfigMaps, "default", config_map("c" + std::to_string(i))));
  }
  EXPECT_TRUE(eventually("all events and a bookmark",
                         [&] { return watching.events == 20 && watching.bookmarks > 0; }));
  server_->drop_watches();
  EXPECT_TRUE(watching.result());
  EXPECT_TRUE(eventually(
      "the watch is closed", [&] { return server_->open_watches(); }, 0U));
}

TEST_F(FakeServer, EndsWatchesWhoseHistoryIsDropped) {
  kube::WatchOptions options;
  options.resource_version =
      text_member(*client_->list(kConfigMaps, "default"), {"metadata", "resourceVersion"});
  ASSERT_TRUE(client_->create(kConfigMaps, "default", config_map("a")));
  server_->forget_history();
  Watching watching(*client_, options);
  EXPECT_EQ(watching.result().error().code, ErrorCode::kExpired);
}

TEST_F(FakeServer, DropsAWatch) {
  Fault fault;
  fault.kind = Fault::Kind::kDropWatch;
  fault.verb = "watch";
  fault.after_events = 1;
  server_->inject(fault);
  ASSERT_TRUE(client_->create(kConfigMaps, "default", config_map("a")));
  kube::WatchOptions options;
  options.resource_version = "0";
  Watching watching(*client_, options);
  EXPECT_FALSE(watching.result());
  EXPECT_EQ(watching.events, 1);
}

TEST_F(FakeServer, TruncatesAnAnswer) {
  ASSERT_TRUE(client_->create(kConfigMaps, "default", config_map("a", std::string(100'000, 'x'))));
  Fault fault;
  fault.kind = Fault::Kind::kTruncate;
  fault.verb = "get";
  fault.count = -1;
  server_->inject(fault);
  kube::CallOptions brief;
  brief.timeout = milliseconds(1500);
  EXPECT_FALSE(client_->get(kConfigMaps, "default", "a", brief));
  server_->clear_faults();
  EXPECT_TRUE(client_->get(kConfigMaps, "default", "a"));
}

TEST_F(FakeServer, NoticesThatAWatchingClientDisconnected) {
  {
    kube::WatchOptions options;
    options.resource_version = "0";
    std::jthread watcher([&](std::stop_token stop) {
      static_cast<void>(client_->watch(
          kConfigMaps, "default", options, [](const kube::WatchEvent&) {}, std::move(stop)));
    });
    EXPECT_TRUE(eventually(
        "the watch is open", [&] { return server_->open_watches(); }, 1U));
  }
  EXPECT_TRUE(eventually(
      "the watch is closed", [&] { return server_->open_watches(); }, 0U));
}

TEST_F(FakeServer, StopsUnderLoad) {
  kube::WatchOptions options;
  options.resource_version = "0";
  Watching watching(*client_, options);
  // Opened before the load: four callers without a pause keep two processors from anything else.
  ASSERT_TRUE(eventually(
      "bookmarks", [&] { return watching.bookmarks.load(); }, ::testing::Gt(0)))
      << (watching.ended ? to_string(watching.result().error()) : "the watch is open");
  std::atomic<bool> stop = false;
  std::vector<std::jthread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&, i] {
      kube::CallOptions brief;
      brief.timeout = seconds(5);
      for (int n = 0; !stop; ++n) {
        static_cast<void>(client_->create(
            kConfigMaps, "default", config_map("c" + std::to_string(i) + "-" + std::to_string(n)), brief));
      }
    });
  }
  EXPECT_TRUE(eventually(
      "events", [&] { return watching.events.load(); }, ::testing::Gt(20)))
      << (watching.ended ? "the watch has ended" : "the watch is open");
  server_.reset();
  stop = true;
  static_cast<void>(watching.result());
}

TEST_F(FakeServer, AnswersManyAtOnce) {
  std::atomic<int> failed = 0;
  std::vector<std::jthread> callers;
  for (int i = 0; i < 16; ++i) {
    callers.emplace_back([&, i] {
      for (int n = 0; n < 10; ++n) {
        const std::string name = "c" + std::to_string(i) + "-" + std::to_string(n);
        failed += client_->create(kConfigMaps, "default", config_map(name)) ? 0 : 1;
        failed += client_->get(kConfigMaps, "default", name) ? 0 : 1;
      }
    });
  }
  callers.clear();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ((*client_->list(kConfigMaps, "default"))["items"].size(), 160U);
}

}  // namespace
}  // namespace plimsoll::testing
