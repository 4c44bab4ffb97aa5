// Ten minutes of an API server's worst, compressed into half a minute: behind a proxy that breaks connections
// in every way, it is slow, partitioned, restarted, and answers 410, 429 and 500 at random, while writers
// change its objects. When the storm is over, every cache must equal a fresh list, and so must what its
// handlers were told.
//
// What is compressed, by 25: all of the reflectors' times (back-off, idle time-out, length of a watch, list
// time-out) and the fake's bookmarks. The writers and the faults keep their own pace.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <iostream>
#include <random>
#include <thread>

#include "base/log.h"
#include "kube/http_client.h"
#include "kube/kubeconfig.h"
#include "kube/reflector.h"
#include "tests/controlplane/fake_api_server.h"
#include "tests/kube/client_conformance.h"
#include "tests/kube/fault_proxy.h"
#include "tests/kube/simulation.h"
#include "tests/testing/eventually.h"
#include "tests/testing/random_seed.h"

namespace plimsoll::kube {
namespace {

using plimsoll::testing::ApiServer;
using plimsoll::testing::ApiServerKind;
using plimsoll::testing::Dice;
using plimsoll::testing::eventually;
using plimsoll::testing::FakeApiServer;
using plimsoll::testing::Fault;
using plimsoll::testing::FaultProxy;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr int kCompression = 25;
constexpr milliseconds kStorm = milliseconds(std::chrono::minutes(10)) / kCompression;
constexpr const char* kNamespace = "storm";
const Resource kMaps{"", "v1", "configmaps", true};
const Resource kSecrets{"", "v1", "secrets", true};
const Resource kNamespaces{"", "v1", "namespaces", false};

// The client under test, answering lists and watches with errors of its own now and then: what an API server
// under TLS cannot be made to answer.
class UnreliableClient final : public Client {
 public:
  UnreliableClient(std::unique_ptr<Client> real, unsigned seed) : real_(std::move(real)), dice_(seed) {}

  void set_one_in(int calls) { one_in_ = calls; }  // 0: never
  int errors() const { return errors_; }

  Result<Json> get(const Resource& resource, const std::string& namespace_name, const std::string& name,
                   const CallOptions& options) override {
    return real_->get(resource, namespace_name, name, options);
  }
  Result<Json> list(const Resource& resource, const std::string& namespace_name, const ListOptions& what,
                    const CallOptions& options) override {
    if (std::optional<Error> error = draw()) {
      return *error;
    }
    return real_->list(resource, namespace_name, what, options);
  }
  Result<Json> list_each(const Resource& resource, const std::string& namespace_name, const ListOptions& what,
                         const ItemReader& reader, const CallOptions& options) override {
    if (std::optional<Error> error = draw()) {
      return *error;
    }
    return real_->list_each(resource, namespace_name, what, reader, options);
  }
  Result<Json> create(const Resource& resource, const std::string& namespace_name, const Json& object,
                      const CallOptions& options) override {
    return real_->create(resource, namespace_name, object, options);
  }
  Result<Json> update(const Resource& resource, const std::string& namespace_name, const Json& object,
                      const std::string& subresource, const CallOptions& options) override {
    return real_->update(resource, namespace_name, object, subresource, options);
  }
  Result<Json> patch(const Resource& resource, const std::string& namespace_name, const std::string& name,
                     PatchType type, const Json& patch, const std::string& subresource,
                     const CallOptions& options) override {
    return real_->patch(resource, namespace_name, name, type, patch, subresource, options);
  }
  Result<void> remove(const Resource& resource, const std::string& namespace_name, const std::string& name,
                      const CallOptions& options) override {
    return real_->remove(resource, namespace_name, name, options);
  }
  // An error comes in place of the watch, or in place of one of its events.
  Result<void> watch(const Resource& resource, const std::string& namespace_name, const WatchOptions& options,
                     const std::function<void(const WatchEvent&)>& on_event, std::stop_token stop) override {
    if (std::optional<Error> error = draw()) {
      return *error;
    }
    std::optional<Error> error;
    std::stop_source end;
    const std::stop_callback forward(stop, [&] { end.request_stop(); });
    const Result<void> ended = real_->watch(
        resource, namespace_name, options,
        [&](const WatchEvent& event) {
          error = draw(3);
          error ? static_cast<void>(end.request_stop()) : on_event(event);
        },
        end.get_token());
    return error ? Result<void>(*error) : ended;
  }
  Result<std::string> get_raw(const std::string& path, const CallOptions& options) override {
    return real_->get_raw(path, options);
  }

 private:
  std::optional<Error> draw(int more_seldom = 1) {
    const std::lock_guard lock(mutex_);
    if (one_in_ == 0 || dice_.roll(one_in_ * more_seldom) != 0) {
      return std::nullopt;
    }
    ++errors_;
    switch (dice_.roll(3)) {
      case 0: return Error(ErrorCode::kExpired, "410 at random");
      case 1: return Error(ErrorCode::kTooManyRequests, "429 at random");
      default: return Error(ErrorCode::kUnavailable, "500 at random");
    }
  }

  const std::unique_ptr<Client> real_;
  std::atomic<int> one_in_ = 0;
  std::atomic<int> errors_ = 0;
  std::mutex mutex_;
  Dice dice_;
};

class Counts final : public ReflectorObserver {
 public:
  void list_began() override { ++lists; }
  void listed(std::chrono::nanoseconds, std::size_t) override { ++whole_lists; }
  void watch_began() override { ++watches; }
  void watched(std::chrono::nanoseconds, std::size_t count) override { events += static_cast<int>(count); }
  void watch_was_short() override {}
  void version(const std::string&) override {}

  std::atomic<int> lists = 0;
  std::atomic<int> whole_lists = 0;
  std::atomic<int> watches = 0;
  std::atomic<int> events = 0;
};

using State = std::map<std::string, std::string>;  // key to the whole object

// A reflector with what its handler made of what it was told.
class Cache {
 public:
  Cache(Client& client, const Resource& resource, const std::string& labels, bool streams)
      : resource_(resource), labels_(labels), reflector_(client, options(streams)) {
    reflector_.add_handler([this](const Reflector::Change& change) {
      const std::lock_guard lock(mutex_);
      if (change.kind == Reflector::Change::Kind::kSet) {
        told_[change.key] = write_json(change.object.tree());
      } else if (told_.erase(change.key) != 1) {
        ++removed_twice_;
      }
    });
    reflector_.start();
  }

  State copied() const { return state_of(reflector_.snapshot()); }
  State indexed() const {
    State state;
    for (const char* group : {"a", "b", "c"}) {
      state.merge(state_of(reflector_.by_index("group", std::string(kNamespace) + "/" + group)));
    }
    return state;
  }
  State told() const {
    const std::lock_guard lock(mutex_);
    return told_;
  }
  int removed_twice() const {
    const std::lock_guard lock(mutex_);
    return removed_twice_;
  }
  const Counts& counts() const { return counts_; }

  // By a client that goes around the proxy.
  std::optional<State> truth(Client& direct) const {
    ListOptions what;
    what.label_selector = labels_;
    const Result<Json> list = direct.list(resource_, kNamespace, what);
    if (!list) {
      return std::nullopt;
    }
    State state;
    for (const Json& item : (*list)["items"]) {
      state[key_of(item)] = write_json(item);
    }
    return state;
  }

 private:
  static State state_of(const std::vector<SharedObject>& objects) {
    State state;
    for (const SharedObject& object : objects) {
      state[key_of(*object)] = write_json(object.tree());
    }
    return state;
  }

  Reflector::Options options(bool streams) {
    Reflector::Options options;
    options.resource = resource_;
    options.namespace_name = kNamespace;
    options.label_selector = labels_;
    options.indexers = {{"group", index_by_label("group")}};
    options.stream_lists = streams;
    options.observer = &counts_;
    options.page_size = 10;
    options.min_watch_time /= kCompression;
    options.list_timeout /= kCompression;
    options.idle_timeout /= kCompression;
    options.backoff.initial /= kCompression;
    options.backoff.cap /= kCompression;
    options.healthy_after /= kCompression;
    return options;
  }

  const Resource resource_;
  const std::string labels_;
  Counts counts_;
  mutable std::mutex mutex_;
  State told_;
  int removed_twice_ = 0;
  Reflector reflector_;
};

class FaultStorm : public ::testing::Test {
 protected:
  void SetUp() override {
    configure_log(LogLevel::kError, LogFormat::kText);
    std::string why;
    if (conformance_kind() == ApiServerKind::kFake) {
      Result<std::unique_ptr<FakeApiServer>> fake = FakeApiServer::start(
          {.history_changes = 300, .bookmark_interval = milliseconds(60'000) / kCompression});
      ASSERT_TRUE(fake) << to_string(fake.error());
      fake_ = fake->get();
      server_ = *std::move(fake);
    } else {
      server_ = plimsoll::testing::start_api_server(ApiServerKind::kReal, {}, &why);
    }
    if (server_ == nullptr) {
      GTEST_SKIP() << why;
    }
    direct_ = server_->make_client();
    Json made;
    made["apiVersion"] = "v1";
    made["kind"] = "Namespace";
    made["metadata"]["name"] = kNamespace;
    const Result<Json> created = direct_->create(kNamespaces, "", made);
    ASSERT_TRUE(created) << to_string(created.error());
    Result<ClientConfig> config = load_client_config(sources_from_environment(server_->kubeconfig()));
    ASSERT_TRUE(config) << to_string(config.error());
    const std::string::size_type colon = config->server.rfind(':');
    proxy_ = std::make_unique<FaultProxy>(std::stoi(config->server.substr(colon + 1)), seed_);
    config->server = config->server.substr(0, colon + 1) + std::to_string(proxy_->port());
    Result<std::unique_ptr<Client>> client = connect(*config);
    ASSERT_TRUE(client) << to_string(client.error());
    client_ = std::make_unique<UnreliableClient>(*std::move(client), seed_);
  }
  void TearDown() override { configure_log(LogLevel::kInfo, LogFormat::kText); }

  // Creates, relabels, rewrites and deletes until it is stopped. What fails is tried as something else.
  void write(const std::stop_token& stop, Client& client, const Resource& resource, unsigned seed) {
    Dice dice(seed);
    CallOptions call;
    call.stop = stop;
    call.timeout = milliseconds(2'000);
    while (!stop.stop_requested()) {
      const std::string name = "o" + std::to_string(dice.roll(40));
      Json object;
      object["apiVersion"] = "v1";
      object["kind"] = resource.plural == "secrets" ? "Secret" : "ConfigMap";
      object["metadata"]["name"] = name;
      object["metadata"]["labels"]["group"] = std::string(1, "abc"[dice.roll(3)]);
      object["metadata"]["annotations"]["written"] = std::to_string(dice.roll(1'000'000));
      const bool done =
          dice.roll(4) == 0
              ? client.remove(resource, kNamespace, name, call).ok()
              : client.patch(resource, kNamespace, name, PatchType::kApply, object, "", call).ok();
      writes_ += done ? 1 : 0;
      std::this_thread::sleep_for(milliseconds(5 + dice.roll(10)));
    }
  }

  // One of the storm's spells.
  void strike(int spell, Dice& dice) {
    client_->set_one_in(0);
    switch (spell % 7) {
      case 0: proxy_->set({.reset = 0.1, .cut = 0.1}); break;
      case 1: proxy_->set({.dribble = 0.5, .most_delay = milliseconds(100)}); break;
      case 2: proxy_->set({.stall = 0.1, .most_stall = seconds(6)}); break;
      case 3: proxy_->partition(true); break;
      case 4: proxy_->reset_all(); break;
      case 5: answer_with_errors(); break;
      default: answer_badly(dice); break;
    }
  }

  void answer_with_errors() {
    client_->set_one_in(2);
    proxy_->reset_all();  // so that there are calls to answer
  }

  // 410, 429, 500 and broken answers over HTTP, which only the fake can be told to give.
  void answer_badly(Dice& dice) {
    if (fake_ == nullptr) {
      answer_with_errors();
      return;
    }
    const Fault faults[] = {
        {.kind = Fault::Kind::kStatus, .verb = "list|watch", .status = 500},
        {.kind = Fault::Kind::kStatus,
         .verb = "list|watch",
         .status = 429,
         .reason = "TooManyRequests",
         .retry_after_seconds = 1},
        {.kind = Fault::Kind::kExpired, .verb = "list|watch", .after_events = dice.roll(5)},
        {.kind = Fault::Kind::kDropWatch, .verb = "watch", .after_events = dice.roll(5)},
        {.kind = Fault::Kind::kTruncate, .verb = "list"},
        {.kind = Fault::Kind::kDelay, .verb = "list|watch", .delay = milliseconds(500)},
    };
    Fault fault = faults[dice.roll(6)];
    fault.count = 1 + dice.roll(5);
    fake_->inject(fault);
    fake_->drop_watches();
  }

  void restart() {
    if (fake_ != nullptr) {
      proxy_->partition(true);
      fake_->drop_watches();
      fake_->forget_history();
      proxy_->reset_all();
      std::this_thread::sleep_for(milliseconds(500));
      relent();
    } else {
      const Result<void> restarted = server_->restart(milliseconds(500));
      ASSERT_TRUE(restarted) << to_string(restarted.error());
    }
    ++restarts_;
  }

  // What the client answers itself goes on until the next spell: its calls come after their back-off.
  void relent() {
    proxy_->set({});
    proxy_->partition(false);
    if (fake_ != nullptr) {
      fake_->clear_faults();
    }
  }

  const unsigned seed_ = plimsoll::testing::random_seed();
  std::unique_ptr<ApiServer> server_;
  FakeApiServer* fake_ = nullptr;
  std::unique_ptr<Client> direct_;
  std::unique_ptr<FaultProxy> proxy_;
  std::unique_ptr<UnreliableClient> client_;
  std::atomic<int> writes_ = 0;
  int restarts_ = 0;
};

TEST_F(FaultStorm, CachesConvergeToTheTruth) {
  SCOPED_TRACE("seed " + std::to_string(seed_));
  Cache streamed(*client_, kMaps, "", true);
  Cache selected(*client_, kMaps, "group=a", false);
  Cache secrets(*client_, kSecrets, "group in (a,b)", true);
  const std::vector<std::pair<const char*, const Cache*>> caches = {
      {"streamed", &streamed}, {"selected", &selected}, {"secrets", &secrets}};
  {
    std::vector<std::jthread> writers;
    const std::pair<Client*, const Resource*> hands[] = {
        {direct_.get(), &kMaps}, {direct_.get(), &kSecrets}, {client_.get(), &kMaps}};
    for (unsigned i = 0; i < std::size(hands); ++i) {
      writers.emplace_back([this, hand = hands[i], i](const std::stop_token& stop) {
        write(stop, *hand.first, *hand.second, seed_ + i);
      });
    }
    Dice dice(seed_);
    int spell = dice.roll(7);
    for (int quarter = 1; quarter <= 4; ++quarter) {
      const auto end = steady_clock::now() + kStorm / 4;
      while (steady_clock::now() < end) {
        strike(spell++, dice);
        std::this_thread::sleep_for(milliseconds(100 + dice.roll(300)));
        relent();
        std::this_thread::sleep_for(milliseconds(100 + dice.roll(500)));
      }
      if (quarter < 4) {
        restart();
      }
    }
    client_->set_one_in(0);
  }

  int whole_lists = 0;
  for (const auto& [name, cache] : caches) {
    SCOPED_TRACE(name);
    State copied;
    State truth;
    EXPECT_TRUE(eventually("the cache equals a fresh list", [&] {
      copied = cache->copied();
      const std::optional<State> fresh = cache->truth(*direct_);
      truth = fresh.value_or(State());
      return fresh && copied == truth && cache->told() == truth;
    }));
    EXPECT_EQ(copied, truth);
    EXPECT_EQ(cache->indexed(), truth);
    EXPECT_EQ(cache->told(), truth);
    EXPECT_EQ(cache->removed_twice(), 0);
    EXPECT_FALSE(truth.empty());
    whole_lists += cache->counts().whole_lists;
    std::cout << name << ": " << truth.size() << " objects, " << cache->counts().lists << " lists of which "
              << cache->counts().whole_lists << " whole, " << cache->counts().watches << " watches, "
              << cache->counts().events << " events\n";
  }
  // A storm makes caches list anew. It need not make each of them: a list that is cut off is begun again where it was, and a watch is
  // resumed, so that one cache may come through with its first list.
  EXPECT_GT(whole_lists, static_cast<int>(caches.size()));
  const FaultProxy::Counts harm = proxy_->counts();
  std::cout << writes_ << " writes, " << restarts_ << " restarts, " << client_->errors()
            << " errors of 410, 429 and 500, " << harm.connections << " connections, " << harm.resets
            << " resets, " << harm.cuts << " cuts, " << harm.stalls << " stalls, " << harm.dribbles
            << " dribbled pieces (seed " << seed_ << ")\n";
  EXPECT_GT(writes_, 100);
  EXPECT_EQ(restarts_, 3);
  EXPECT_GT(client_->errors(), 0);
  EXPECT_GT(harm.resets + harm.cuts + harm.stalls + harm.dribbles, 0);
}

}  // namespace
}  // namespace plimsoll::kube
