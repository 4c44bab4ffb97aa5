// What the production client may expect of any API server, run on the real control plane and on the embedded
// fake: where the two differ, the fake is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <thread>

#include "base/file.h"
#include "base/yaml.h"
#include "kube/client.h"
#include "kube/event_recorder.h"
#include "kube/http_client.h"
#include "kube/kubeconfig.h"
#include "kube/leader_elector.h"
#include "kube/reflector.h"
#include "tests/checkout.h"
#include "tests/controlplane/api_server.h"
#include "tests/controlplane/fake_api_server.h"
#include "tests/kube/client_conformance.h"
#include "tests/testing/eventually.h"
#include "tests/testing/patience.h"

namespace plimsoll::kube {
namespace {

using plimsoll::testing::ApiServer;
using plimsoll::testing::ApiServerKind;
using plimsoll::testing::eventually;
using plimsoll::testing::FakeApiServer;
using plimsoll::testing::start_api_server;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

const Resource kMaps{"", "v1", "configmaps", true};
const Resource kNamespaces{"", "v1", "namespaces", false};
const Resource kNodes{"", "v1", "nodes", false};
const Resource kPods{"", "v1", "pods", true};
const Resource kCrds{"apiextensions.k8s.io", "v1", "customresourcedefinitions", false};
const Resource kGpuModels{"plimsoll.dev", "v1alpha1", "gpumodels", false};

Json json(const std::string& text) {
  Result<Json> parsed = parse_json(text);
  EXPECT_TRUE(parsed) << text;
  return parsed ? *parsed : Json();
}

Json map(const std::string& name, const std::string& data = "{}") {
  return json(R"({"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":")" + name + R"("},"data":)" +
              data + "}");
}

std::string version_of(const JsonView& object) {
  return text_member(object, {"metadata", "resourceVersion"});
}

// One server for the whole program: starting the real one takes seconds.
class Server : public ::testing::Environment {
 public:
  void SetUp() override { server_ = start_api_server(conformance_kind(), {}, &why_); }
  void TearDown() override { server_.reset(); }
  ApiServer* get() const { return server_.get(); }
  const std::string& why() const { return why_; }

 private:
  std::unique_ptr<ApiServer> server_;
  std::string why_;
};

// GoogleTest owns it.
const Server* const kServer = static_cast<Server*>(::testing::AddGlobalTestEnvironment(new Server));

}  // namespace

ApiServer* conformance_server(std::string& why) {
  why = kServer->why();
  return kServer->get();
}

namespace {

class Conformance : public ::testing::TestWithParam<ApiServerKind> {
 protected:
  void SetUp() override {
    std::string why;
    server_ = conformance_server(why);
    if (server_ == nullptr) {
      GTEST_SKIP() << why;
    }
    client_ = server_->make_client();
    // A namespace a test, so that no test sees another's objects.
    static std::atomic<int> count = 0;
    namespace_ = "conformance-" + std::to_string(++count);
    const Result<Json> made = client_->create(
        kNamespaces, "",
        json(R"({"apiVersion":"v1","kind":"Namespace","metadata":{"name":")" + namespace_ + "\"}}"));
    ASSERT_TRUE(made) << to_string(made.error());
  }

  Json must_create(const Json& object) {
    Result<Json> made = client_->create(kMaps, namespace_, object);
    EXPECT_TRUE(made) << to_string(made.error());
    return made ? *made : Json();
  }

  ApiServer* server_ = nullptr;
  std::unique_ptr<Client> client_;
  std::string namespace_;
};

TEST_P(Conformance, KubeconfigLeadsToTheServer) {
  KubeconfigSources sources;
  sources.path = server_->kubeconfig();
  const Result<ClientConfig> config = load_client_config(sources);
  ASSERT_TRUE(config) << to_string(config.error());
  Result<std::unique_ptr<Client>> client = connect(*config);
  ASSERT_TRUE(client) << to_string(client.error());
  const Result<std::string> version = (*client)->get_raw("/version");
  ASSERT_TRUE(version) << to_string(version.error());
  EXPECT_FALSE(text_member(json(*version), {"gitVersion"}).empty());
  EXPECT_TRUE((*client)->get_raw("/readyz"));
  EXPECT_EQ((*client)->get_raw("/no-such-path").error().code, ErrorCode::kNotFound);
}

TEST_P(Conformance, ATokenNobodyKnowsIsUnauthorized) {
  KubeconfigSources sources;
  sources.path = server_->kubeconfig();
  Result<ClientConfig> config = load_client_config(sources);
  ASSERT_TRUE(config);
  config->token = "nobody";
  config->token_file.clear();
  config->client_certificate_pem.clear();
  config->client_key_pem.clear();
  Result<std::unique_ptr<Client>> client = connect(*config);
  ASSERT_TRUE(client);
  const Result<Json> listed = (*client)->list(kMaps, namespace_);
  ASSERT_FALSE(listed);
  EXPECT_EQ(listed.error().code, ErrorCode::kUnauthorized);
}

TEST_P(Conformance, CreatesReadsReplacesAndDeletes) {
  const Json made = must_create(map("a", R"({"x":"1"})"));
  EXPECT_FALSE(version_of(made).empty());
  EXPECT_FALSE(text_member(made, {"metadata", "uid"}).empty());
  EXPECT_EQ(client_->create(kMaps, namespace_, map("a")).error().code, ErrorCode::kAlreadyExists);

  Result<Json> read = client_->get(kMaps, namespace_, "a");
  ASSERT_TRUE(read) << to_string(read.error());
  EXPECT_EQ(text_member(*read, {"data", "x"}), "1");
  EXPECT_EQ(text_member(*read, {"kind"}), "ConfigMap");

  (*read)["data"]["x"] = "2";
  const Result<Json> replaced = client_->update(kMaps, namespace_, *read);
  ASSERT_TRUE(replaced) << to_string(replaced.error());
  EXPECT_NE(version_of(*replaced), version_of(made));

  EXPECT_TRUE(client_->remove(kMaps, namespace_, "a"));
  EXPECT_EQ(client_->get(kMaps, namespace_, "a").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(client_->remove(kMaps, namespace_, "a").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(client_->update(kMaps, namespace_, *read).error().code, ErrorCode::kNotFound);
}

TEST_P(Conformance, ADeleteOfAnotherObjectOfTheNameIsAConflict) {
  const Json made = must_create(map("a"));
  CallOptions options;
  options.uid = "11111111-2222-3333-4444-555555555555";
  const Result<void> refused = client_->remove(kMaps, namespace_, "a", options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kConflict);
  options.uid = text_member(made, {"metadata", "uid"});
  EXPECT_TRUE(client_->remove(kMaps, namespace_, "a", options));
}

TEST_P(Conformance, AStaleReplaceIsAConflictAndAnUnconditionalOneIsNot) {
  const Json first = must_create(map("a"));
  Json second = first;
  second["data"]["x"] = "2";
  ASSERT_TRUE(client_->update(kMaps, namespace_, second));
  Json third = first;
  third["data"]["x"] = "3";
  const Result<Json> stale = client_->update(kMaps, namespace_, third);
  ASSERT_FALSE(stale);
  EXPECT_EQ(stale.error().code, ErrorCode::kConflict);
  EXPECT_THAT(stale.error().message, ::testing::HasSubstr("modified"));
  third["metadata"].removeMember("resourceVersion");
  EXPECT_TRUE(client_->update(kMaps, namespace_, third));
}

TEST_P(Conformance, AWriteThatChangesNothingKeepsTheVersion) {
  const Json made = must_create(map("a", R"({"x":"1"})"));
  const Result<Json> again = client_->update(kMaps, namespace_, made);
  ASSERT_TRUE(again) << to_string(again.error());
  EXPECT_EQ(version_of(*again), version_of(made));
}

TEST_P(Conformance, PatchesInAllFourWays) {
  must_create(map("a", R"({"x":"1","y":"1"})"));
  Result<Json> patched =
      client_->patch(kMaps, namespace_, "a", PatchType::kMerge, json(R"({"data":{"x":null,"z":"1"}})"));
  ASSERT_TRUE(patched) << to_string(patched.error());
  EXPECT_EQ(write_json((*patched)["data"]), R"({"y":"1","z":"1"})");

  patched = client_->patch(
      kMaps, namespace_, "a", PatchType::kJson,
      json(R"([{"op":"test","path":"/data/y","value":"1"},{"op":"replace","path":"/data/y","value":"2"}])"));
  ASSERT_TRUE(patched) << to_string(patched.error());
  EXPECT_EQ(text_member(*patched, {"data", "y"}), "2");
  EXPECT_FALSE(client_->patch(kMaps, namespace_, "a", PatchType::kJson,
                              json(R"([{"op":"test","path":"/data/y","value":"1"}])")));

  patched = client_->patch(kMaps, namespace_, "a", PatchType::kStrategicMerge, json(R"({"data":{"y":"3"}})"));
  ASSERT_TRUE(patched) << to_string(patched.error());
  EXPECT_EQ(text_member(*patched, {"data", "y"}), "3");

  patched = client_->patch(kMaps, namespace_, "a", PatchType::kApply, map("a", R"({"y":"4"})"));
  ASSERT_TRUE(patched) << to_string(patched.error());
  EXPECT_EQ(text_member(*patched, {"data", "y"}), "4");
  EXPECT_EQ(client_->patch(kMaps, namespace_, "none", PatchType::kMerge, json("{}")).error().code,
            ErrorCode::kNotFound);
}

TEST_P(Conformance, ApplyCreatesOwnsAndLetsGo) {
  CallOptions us;
  us.field_manager = "us";
  Result<Json> applied =
      client_->patch(kMaps, namespace_, "a", PatchType::kApply, map("a", R"({"x":"1","y":"1"})"), "", us);
  ASSERT_TRUE(applied) << to_string(applied.error());
  const std::string version = version_of(*applied);
  applied =
      client_->patch(kMaps, namespace_, "a", PatchType::kApply, map("a", R"({"x":"1","y":"1"})"), "", us);
  ASSERT_TRUE(applied);
  EXPECT_EQ(version_of(*applied), version);

  CallOptions them;
  them.field_manager = "them";
  applied = client_->patch(kMaps, namespace_, "a", PatchType::kApply, map("a", R"({"z":"1"})"), "", them);
  ASSERT_TRUE(applied);
  EXPECT_EQ(write_json((*applied)["data"]), R"({"x":"1","y":"1","z":"1"})");
  applied = client_->patch(kMaps, namespace_, "a", PatchType::kApply, map("a", R"({"x":"2"})"), "", us);
  ASSERT_TRUE(applied);
  EXPECT_EQ(write_json((*applied)["data"]), R"({"x":"2","z":"1"})");
}

TEST_P(Conformance, ADryRunLeavesNothing) {
  CallOptions dry;
  dry.dry_run = true;
  const Result<Json> made = client_->create(kMaps, namespace_, map("a"), dry);
  EXPECT_TRUE(made) << to_string(made.error());
  EXPECT_EQ(client_->get(kMaps, namespace_, "a").error().code, ErrorCode::kNotFound);
  must_create(map("a", R"({"x":"1"})"));
  ASSERT_TRUE(client_->remove(kMaps, namespace_, "a", dry));
  ASSERT_TRUE(
      client_->patch(kMaps, namespace_, "a", PatchType::kMerge, json(R"({"data":{"x":"2"}})"), "", dry));
  EXPECT_EQ(text_member(*client_->get(kMaps, namespace_, "a"), {"data", "x"}), "1");
}

TEST_P(Conformance, RefusesWhatIsMalformedWithAMessage) {
  const auto refusal = [](const Result<Json>& result) {
    return result ? "accepted" : std::string(name_of(result.error().code)) + ": " + result.error().message;
  };
  if (GetParam() == ApiServerKind::kReal) {  // the fake knows no schemas of built-in kinds
    Json wrong = map("a");
    wrong["data"] = 5;
    EXPECT_THAT(refusal(client_->create(kMaps, namespace_, wrong)), ::testing::StartsWith("Invalid: "));
  }
  const std::string bad_name = refusal(client_->create(kMaps, namespace_, map("Not_A_Name")));
  EXPECT_THAT(bad_name, ::testing::StartsWith("Invalid: "));
  EXPECT_THAT(bad_name, ::testing::HasSubstr("metadata.name"));
  EXPECT_THAT(refusal(client_->create(kMaps, "no-such-namespace", map("a"))),
              ::testing::StartsWith("NotFound: "));
  EXPECT_THAT(refusal(client_->list({"no.such.group", "v1", "things", true}, "")),
              ::testing::StartsWith("NotFound: "));
}

TEST_P(Conformance, ListsInPagesAndBySelectors) {
  for (int i = 0; i < 7; ++i) {
    Json object = map("m" + std::to_string(i));
    object["metadata"]["labels"]["parity"] = i % 2 == 0 ? "even" : "odd";
    must_create(object);
  }
  ListOptions pages;
  pages.limit = 2;
  pages.label_selector = "parity";
  Result<Json> all = client_->list(kMaps, namespace_, pages);
  ASSERT_TRUE(all) << to_string(all.error());
  EXPECT_EQ((*all)["items"].size(), 7U);
  EXPECT_EQ(text_member((*all)["items"][0], {"kind"}), "ConfigMap");
  EXPECT_FALSE(version_of(*all).empty());
  const auto count = [&](const std::string& labels, const std::string& fields) {
    ListOptions what;
    what.label_selector = labels;
    what.field_selector = fields;
    Result<Json> some = client_->list(kMaps, namespace_, what);
    EXPECT_TRUE(some) << to_string(some.error());
    return some ? static_cast<int>((*some)["items"].size()) : -1;
  };
  EXPECT_EQ(count("parity=even", ""), 4);
  EXPECT_EQ(count("parity!=even,parity", ""), 3);
  EXPECT_EQ(count("parity in (odd, even)", "metadata.name=m3"), 1);
  EXPECT_EQ(count("!parity", "metadata.name!=kube-root-ca.crt"), 0);
  ListOptions cached;
  cached.resource_version = "0";
  EXPECT_TRUE(client_->list(kMaps, namespace_, cached));
}

// Events of a watch on another thread.
class Watching {
 public:
  Watching(Client& client, const std::string& namespace_name, const WatchOptions& options,
           const Resource& resource = kMaps)
      : thread_([=, this, &client](const std::stop_token& stop) {
          const Result<void> ended = client.watch(
              resource, namespace_name, options,
              [this](const WatchEvent& event) {
                static const char* const kNames[] = {"ADDED", "MODIFIED", "DELETED", "BOOKMARK"};
                const std::lock_guard lock(mutex_);
                if (event.type == WatchEventType::kBookmark) {
                  ++bookmarks_;
                } else {
                  events_.push_back(std::string(kNames[static_cast<int>(event.type)]) + " " +
                                    text_member(event.object, {"metadata", "name"}));
                }
              },
              stop);
          const std::lock_guard lock(mutex_);
          ended_ = ended;
        }) {}

  std::vector<std::string> events() const {
    const std::lock_guard lock(mutex_);
    return events_;
  }
  int bookmarks() const {
    const std::lock_guard lock(mutex_);
    return bookmarks_;
  }
  std::optional<Result<void>> ended() const {
    const std::lock_guard lock(mutex_);
    return ended_;
  }
  void stop() {
    thread_.request_stop();
    thread_.join();
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> events_;
  int bookmarks_ = 0;
  std::optional<Result<void>> ended_;
  std::jthread thread_;
};

TEST_P(Conformance, WatchesFromAVersionOn) {
  must_create(map("before"));
  const Result<Json> listed = client_->list(kMaps, namespace_);
  ASSERT_TRUE(listed);
  WatchOptions options;
  options.resource_version = version_of(*listed);
  options.field_selector = "metadata.name!=kube-root-ca.crt";
  Watching watching(*client_, namespace_, options);
  must_create(map("a"));
  ASSERT_TRUE(client_->patch(kMaps, namespace_, "a", PatchType::kMerge, json(R"({"data":{"x":"1"}})")));
  ASSERT_TRUE(client_->remove(kMaps, namespace_, "before"));
  ASSERT_TRUE(client_->remove(kMaps, namespace_, "a"));
  EXPECT_TRUE(eventually(
      "four events", [&] { return watching.events(); }, SizeIs(Ge(4U))));
  watching.stop();
  EXPECT_THAT(watching.events(), ElementsAre("ADDED a", "MODIFIED a", "DELETED before", "DELETED a"));
  EXPECT_EQ(watching.ended()->error().code, ErrorCode::kCancelled);
}

TEST_P(Conformance, ASelectorTurnsChangesIntoAdditionsAndDeletions) {
  must_create(map("a"));
  WatchOptions options;
  options.label_selector = "wanted=yes";
  options.resource_version = version_of(*client_->list(kMaps, namespace_));
  Watching watching(*client_, namespace_, options);
  ASSERT_TRUE(client_->patch(kMaps, namespace_, "a", PatchType::kMerge,
                             json(R"({"metadata":{"labels":{"wanted":"yes"}}})")));
  ASSERT_TRUE(client_->patch(kMaps, namespace_, "a", PatchType::kMerge,
                             json(R"({"metadata":{"labels":{"wanted":"no"}}})")));
  EXPECT_TRUE(eventually(
      "two events", [&] { return watching.events(); }, SizeIs(Ge(2U))));
  watching.stop();
  EXPECT_THAT(watching.events(), ElementsAre("ADDED a", "DELETED a"));
}

TEST_P(Conformance, AWatchEndsCleanlyWhenItsTimeIsUp) {
  WatchOptions options;
  options.server_timeout = std::chrono::seconds(2);
  options.resource_version = version_of(*client_->list(kMaps, namespace_));
  Watching watching(*client_, namespace_, options);
  EXPECT_TRUE(eventually("the watch ends", [&] { return watching.ended().has_value(); }));
  EXPECT_TRUE(*watching.ended()) << to_string(watching.ended()->error());
}

// A server's watches begin with the changes that it remembers: the fake one forgets them on request, and the real one when it is
// started again.
void forget_history(ApiServer& server) {
  if (server.kind() == ApiServerKind::kFake) {
    dynamic_cast<FakeApiServer&>(server).forget_history();
  } else {
    const Result<void> restarted = server.restart(milliseconds(0));
    ASSERT_TRUE(restarted) << to_string(restarted.error());
  }
}

TEST_P(Conformance, AWatchFromLongAgoIsExpired) {
  WatchOptions options;
  options.resource_version = version_of(must_create(map("first")));
  options.server_timeout = std::chrono::seconds(10);
  must_create(map("second"));
  ASSERT_NO_FATAL_FAILURE(forget_history(*server_));
  client_ = server_->make_client();
  must_create(map("third"));
  const Result<void> ended = client_->watch(
      kMaps, namespace_, options, [](const WatchEvent&) {}, std::stop_token());
  ASSERT_FALSE(ended) << "it was served";
  EXPECT_EQ(ended.error().code, ErrorCode::kExpired) << to_string(ended.error());
}

TEST_P(Conformance, BookmarksArriveOnRequest) {
  WatchOptions options;
  options.resource_version = version_of(*client_->list(kMaps, namespace_));
  // The server sends one about 2 s before it ends a watch, where the watch is old enough by then.
  options.server_timeout = std::chrono::seconds(10);
  Watching watching(*client_, namespace_, options);
  // The server sends no bookmark of a version that the watch began with, so one change must come after its
  // start.
  must_create(map("a"));
  EXPECT_TRUE(eventually(
      "the first event", [&] { return watching.events(); }, Not(IsEmpty())));
  must_create(map("b"));
  EXPECT_TRUE(eventually("the watch ends", [&] { return watching.ended().has_value(); }));
  EXPECT_GE(watching.bookmarks(), 1);
}

TEST_P(Conformance, TheStatusSubresourceIsApart) {
  Json node = json(R"({"apiVersion":"v1","kind":"Node","metadata":{"name":")" + namespace_ +
                   R"("},"spec":{"unschedulable":true}})");
  const Result<Json> made = client_->create(kNodes, "", node);
  ASSERT_TRUE(made) << to_string(made.error());
  Json changed = *made;
  changed["spec"]["unschedulable"] = false;
  changed["status"]["allocatable"]["nvidia.com/gpu"] = "8";
  changed["status"]["capacity"]["nvidia.com/gpu"] = "8";
  const Result<Json> status = client_->update(kNodes, "", changed, "status");
  ASSERT_TRUE(status) << to_string(status.error());
  EXPECT_EQ(text_member(*status, {"status", "allocatable", "nvidia.com/gpu"}), "8");
  EXPECT_TRUE(member(*status, {"spec", "unschedulable"}).asBool());
  const Result<Json> merged =
      client_->patch(kNodes, "", namespace_, PatchType::kMerge,
                     json(R"({"status":{"allocatable":{"nvidia.com/gpu":"4"}}})"), "status");
  ASSERT_TRUE(merged) << to_string(merged.error());
  EXPECT_EQ(text_member(*merged, {"status", "allocatable", "nvidia.com/gpu"}), "4");
  EXPECT_TRUE(client_->remove(kNodes, "", namespace_));
}

TEST_P(Conformance, PodsAreSelectedByNodeAndPhase) {
  const auto pod = [](const std::string& name, const std::string& node) {
    Json made = json(R"({"apiVersion":"v1","kind":"Pod","spec":{"containers":[{"name":"c","image":"i"}]}})");
    made["metadata"]["name"] = name;
    if (!node.empty()) {
      made["spec"]["nodeName"] = node;
    }
    return made;
  };
  for (const auto& [name, node] :
       {std::pair("bound", "n1"), std::pair("done", "n1"), std::pair("waiting", "")}) {
    const Result<Json> made = client_->create(kPods, namespace_, pod(name, node));
    if (!made && made.error().code == ErrorCode::kForbidden) {
      GTEST_SKIP() << "pods need a service account here: " << made.error().message;
    }
    ASSERT_TRUE(made) << to_string(made.error());
  }
  const Result<Json> ended = client_->patch(kPods, namespace_, "done", PatchType::kMerge,
                                            json(R"({"status":{"phase":"Succeeded"}})"), "status");
  ASSERT_TRUE(ended) << to_string(ended.error());
  ListOptions what;
  what.field_selector = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";
  Result<Json> some = client_->list(kPods, namespace_, what);
  ASSERT_TRUE(some) << to_string(some.error());
  ASSERT_EQ((*some)["items"].size(), 1U);
  EXPECT_EQ(text_member((*some)["items"][0], {"metadata", "name"}), "bound");
}

TEST_P(Conformance, CustomResourcesLiveAsTheirDefinitionSays) {
  const Result<std::string> text =
      read_file(std::string(PLIMSOLL_SOURCE_DIR) + "/crds/plimsoll.dev_gpumodels.yaml");
  ASSERT_TRUE(text) << to_string(text.error());
  const Result<Json> defined = client_->patch(kCrds, "", "gpumodels.plimsoll.dev", PatchType::kApply,
                                              parse_yaml_documents(*text)->front());
  ASSERT_TRUE(defined) << to_string(defined.error());
  const std::string name = "model-" + namespace_;
  const Json model = json(R"({"apiVersion":"plimsoll.dev/v1alpha1","kind":"GPUModel","metadata":{"name":")" +
                          name + R"("},"spec":{"memory":"80Gi"},"status":{"totalGPUs":5}})");
  Result<Json> made = Error(ErrorCode::kNotFound, "not asked yet");
  EXPECT_TRUE(eventually("the server serves the new kind", [&] {
    made = client_->create(kGpuModels, "", model);
    return made.ok() || made.error().code != ErrorCode::kNotFound;
  }));
  ASSERT_TRUE(made) << to_string(made.error());
  EXPECT_FALSE(made->isMember("status"));
  (*made)["status"]["totalGPUs"] = 8;
  (*made)["status"]["freeGPUs"] = 3;
  const Result<Json> status = client_->update(kGpuModels, "", *made, "status");
  ASSERT_TRUE(status) << to_string(status.error());
  EXPECT_EQ(member(*status, {"status", "totalGPUs"}).asInt(), 8);
  Json broken = *status;
  broken["spec"]["memory"] = "lots";
  const Result<Json> refused = client_->update(kGpuModels, "", broken);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("spec.memory"));
  Result<Json> all = client_->list(kGpuModels, "");
  ASSERT_TRUE(all);
  EXPECT_EQ(text_member((*all)["items"][0], {"kind"}), "GPUModel");
  EXPECT_TRUE(client_->remove(kGpuModels, "", name));
}

TEST_P(Conformance, AListCanComeAsAWatch) {
  must_create(map("b"));
  must_create(map("a"));
  WatchOptions options;
  options.send_initial_events = true;
  options.field_selector = "metadata.name!=kube-root-ca.crt";
  std::vector<std::string> names;
  std::string end_version;
  std::stop_source stop;
  const Result<void> ended = client_->watch(
      kMaps, namespace_, options,
      [&](const WatchEvent& event) {
        if (event.type == WatchEventType::kBookmark) {
          EXPECT_EQ(text_member(event.object, {"metadata", "annotations", kInitialEventsEnd}), "true");
          end_version = version_of(event.object);
          stop.request_stop();
        } else {
          EXPECT_EQ(event.type, WatchEventType::kAdded);
          names.push_back(text_member(event.object, {"metadata", "name"}));
        }
      },
      stop.get_token());
  EXPECT_EQ(ended.error().code, ErrorCode::kCancelled) << to_string(ended.error());
  EXPECT_THAT(names, UnorderedElementsAre("a", "b"));
  EXPECT_FALSE(end_version.empty());
}

class CountingLists final : public ReflectorObserver {
 public:
  void list_began() override { ++begun; }
  void listed(std::chrono::nanoseconds, std::size_t) override { ++done; }
  void watch_began() override { ++watches; }
  void watched(std::chrono::nanoseconds, std::size_t) override {}
  void watch_was_short() override {}
  void version(const std::string&) override {}

  std::atomic<int> begun = 0;
  std::atomic<int> done = 0;
  std::atomic<int> watches = 0;
};

TEST_P(Conformance, AReflectorGetsItsListByTheWatchThatFollowsIt) {
  must_create(map("a"));
  CountingLists counted;
  Reflector reflector(*client_, {.resource = kMaps, .namespace_name = namespace_, .observer = &counted});
  reflector.start();
  ASSERT_TRUE(eventually("the first list", [&] { return reflector.find(namespace_ + "/a") != nullptr; }));
  must_create(map("b"));
  EXPECT_TRUE(eventually("the addition", [&] { return reflector.find(namespace_ + "/b") != nullptr; }));
  EXPECT_EQ(counted.begun, 1);
  EXPECT_EQ(counted.done, 1);
  EXPECT_EQ(counted.watches, 1);
}

TEST_P(Conformance, AReflectorKeepsUp) {
  std::mutex mutex;
  std::vector<std::string> changes;
  Reflector::Options options;
  options.stream_lists = false;
  options.resource = kMaps;
  options.namespace_name = namespace_;
  options.field_selector = "metadata.name!=kube-root-ca.crt";
  options.on_change = [&](const Reflector::Change& change) {
    const std::lock_guard lock(mutex);
    changes.push_back((change.kind == Reflector::Change::Kind::kSet ? "+" : "-") + change.key);
  };
  must_create(map("a"));
  Reflector reflector(*client_, options);
  reflector.start();
  ASSERT_TRUE(eventually("the first list", [&] { return reflector.has_synced() && reflector.size() == 1; }));
  must_create(map("b"));
  ASSERT_TRUE(client_->remove(kMaps, namespace_, "a"));
  EXPECT_TRUE(eventually("the addition and the deletion", [&] {
    return reflector.size() == 1 && reflector.find(namespace_ + "/b") != nullptr;
  }));
  reflector.stop();
  EXPECT_THAT(changes,
              ElementsAre("+" + namespace_ + "/a", "+" + namespace_ + "/b", "-" + namespace_ + "/a"));
}

TEST_P(Conformance, ALeaseGivenBackIsTakenByTheNext) {
  const auto elector = [&](const char* identity) {
    return LeaderElector(*client_, {.lease = {.namespace_name = namespace_,
                                              .name = "operator",
                                              .identity = identity,
                                              .durations = {.lease_duration = std::chrono::seconds(30),
                                                            .renew_deadline = milliseconds(20'000),
                                                            .retry_period = milliseconds(20)}}});
  };
  LeaderElector first = elector("first");
  LeaderElector second = elector("second");
  std::stop_source end_of_first;
  std::stop_source end_of_second;
  std::atomic<bool> second_leads = false;
  std::optional<std::jthread> rival;
  EXPECT_EQ(first.run(end_of_first.get_token(),
                      [&] {
                        rival.emplace([&] {
                          second.run(end_of_second.get_token(), [&] {
                            EXPECT_FALSE(first.leading());
                            second_leads = true;
                            end_of_second.request_stop();
                          });
                        });
                        EXPECT_TRUE(first.leading());
                        EXPECT_FALSE(second_leads);
                        end_of_first.request_stop();
                      }),
            LeaderElector::End::kStopped);
  rival.reset();
  EXPECT_TRUE(second_leads);
  const Resource leases{"coordination.k8s.io", "v1", "leases", true};
  const Result<Json> lease = client_->get(leases, namespace_, "operator");
  ASSERT_TRUE(lease) << to_string(lease.error());
  EXPECT_EQ(text_member(*lease, {"spec", "holderIdentity"}), "");
  EXPECT_EQ(member(*lease, {"spec", "leaseTransitions"}).asInt(), 1);
}

TEST_P(Conformance, EventsAreKeptAndCountedUp) {
  const Json object = must_create(map("told"));
  const ObjectReference about{.api_version = "v1",
                              .kind = "ConfigMap",
                              .namespace_name = namespace_,
                              .name = "told",
                              .uid = text_member(object, {"metadata", "uid"})};
  EventRecorder events(*client_, {.component = "conformance", .instance = "one"});
  events.start();
  for (int i = 0; i < 3; ++i) {
    events.record(about, EventType::kWarning, "Repeated", "the same again");
  }
  events.record(about, EventType::kNormal, "Once", "something else");
  events.stop(plimsoll::testing::kPatience);
  const Result<Json> list = client_->list({"", "v1", "events", true}, namespace_);
  ASSERT_TRUE(list) << to_string(list.error());
  std::vector<std::string> told;
  for (const Json& event : (*list)["items"]) {
    told.push_back(text_member(event, {"reason"}) + " x" + member(event, {"count"}).asString());
  }
  EXPECT_THAT(told, UnorderedElementsAre("Repeated x3", "Once x1"));
}

TEST_P(Conformance, ManyThreadsShareOneClient) {
  std::atomic<int> good = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (int j = 0; j < 10; ++j) {
        const std::string name = "t" + std::to_string(i) + "-" + std::to_string(j);
        good +=
            client_->create(kMaps, namespace_, map(name)).ok() && client_->get(kMaps, namespace_, name).ok();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(good, 80);
}

INSTANTIATE_TEST_SUITE_P(Server, Conformance, ::testing::Values(conformance_kind()));

}  // namespace
}  // namespace plimsoll::kube
