#include "tests/fake_apiserver/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace plimsoll::testing::fake {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

Json named(const std::string& name, int value = 0) {
  Json object(::Json::objectValue);
  object["metadata"]["name"] = name;
  object["value"] = value;
  return object;
}

const auto never = [] { return false; };

TEST(Store, CountsOneVersionForAllObjects) {
  Store store;
  const std::uint64_t start = store.version();
  const auto a = store.create({"pods", "x", "a"}, named("a"));
  const auto b = store.create({"jobs", "x", "b"}, named("b"));
  EXPECT_EQ(a.object->version, start + 1);
  EXPECT_EQ(b.object->version, start + 2);
  EXPECT_EQ(text_member(b.object->json, {"metadata", "resourceVersion"}), std::to_string(start + 2));
  EXPECT_EQ(b.object->text, write_json(b.object->json));
}

TEST(Store, RefusesWritesOnOldVersions) {
  Store store;
  const Key key{"pods", "x", "a"};
  const auto first = store.create(key, named("a"));
  EXPECT_EQ(store.create(key, named("a")).result, Store::Write::kExists);
  const auto second = store.replace(key, first.object->version, named("a", 1));
  EXPECT_EQ(second.result, Store::Write::kDone);
  EXPECT_EQ(store.replace(key, first.object->version, named("a", 2)).result, Store::Write::kChanged);
  EXPECT_EQ(store.remove(key, first.object->version).result, Store::Write::kChanged);
  EXPECT_EQ(store.remove(key, second.object->version).result, Store::Write::kDone);
  EXPECT_EQ(store.remove(key, second.object->version).result, Store::Write::kMissing);
  EXPECT_EQ(store.get(key), nullptr);
}

TEST(Store, ListsByNamespaceAndName) {
  Store store;
  for (const char* name : {"c", "a", "b"}) {
    store.create({"pods", "y", name}, named(name));
    store.create({"pods", "x", name}, named(name));
    store.create({"podsandmore", "x", name}, named(name));
  }
  EXPECT_EQ(store.list("pods", "").objects.size(), 6U);
  const Snapshot x = store.list("pods", "x");
  ASSERT_EQ(x.objects.size(), 3U);
  EXPECT_EQ(text_member(x.objects[0]->json, {"metadata", "name"}), "a");
  EXPECT_EQ(x.version, store.version());
  EXPECT_TRUE(store.list("pods", "z").objects.empty());
}

TEST(Store, ShowsThePastAsItWas) {
  Store store;
  const Key key{"pods", "x", "a"};
  const auto first = store.create(key, named("a", 1));
  const auto second = store.replace(key, first.object->version, named("a", 2));
  store.create({"pods", "x", "b"}, named("b"));
  store.remove(key, second.object->version);
  const auto then = store.list_at("pods", "", first.object->version);
  ASSERT_TRUE(then.has_value());
  ASSERT_EQ(then->objects.size(), 1U);
  EXPECT_EQ(then->objects[0]->json["value"].asInt(), 1);
  store.forget_history();
  EXPECT_FALSE(store.list_at("pods", "", first.object->version).has_value());
}

TEST(Store, TellsChangesInOrderAndOnlyOfTheStorageAskedFor) {
  Store store;
  const std::uint64_t start = store.version();
  const auto a = store.create({"pods", "x", "a"}, named("a"));
  store.create({"jobs", "x", "j"}, named("j"));
  store.remove({"pods", "x", "a"}, a.object->version);
  const auto news = store.wait_changes("pods", start, steady_clock::now(), never);
  ASSERT_EQ(news.changes.size(), 2U);
  EXPECT_EQ(news.changes[0].type, ChangeType::kAdded);
  EXPECT_EQ(news.changes[1].type, ChangeType::kDeleted);
  // A deletion has a version of its own.
  EXPECT_EQ(news.changes[1].object->version, store.version());
  EXPECT_EQ(news.up_to, store.version());
}

TEST(Store, ForgetsBeyondItsHistory) {
  StoreOptions options;
  options.history_changes = 3;
  Store store(options);
  const std::uint64_t start = store.version();
  for (int i = 0; i < 5; ++i) {
    store.create({"pods", "x", std::to_string(i)}, named(std::to_string(i)));
  }
  EXPECT_TRUE(store.wait_changes("pods", start, steady_clock::now(), never).expired);
  EXPECT_EQ(store.oldest_version(), start + 2);
  EXPECT_FALSE(store.wait_changes("pods", start + 2, steady_clock::now(), never).expired);
}

TEST(Store, BoundsTheHistoryByBytes) {
  StoreOptions options;
  options.history_bytes = 1000;
  Store store(options);
  for (int i = 0; i < 5; ++i) {
    Json object = named(std::to_string(i));
    object["ballast"] = std::string(400, 'x');
    store.create({"pods", "x", std::to_string(i)}, std::move(object));
  }
  EXPECT_EQ(store.version() - store.oldest_version(), 2U);
}

TEST(Store, WakesWhoWaits) {
  Store store;
  const std::uint64_t start = store.version();
  std::thread writer([&] {
    std::this_thread::sleep_for(milliseconds(20));
    store.create({"jobs", "x", "j"}, named("j"));
    store.create({"pods", "x", "a"}, named("a"));
  });
  const auto news = store.wait_changes("pods", start, steady_clock::now() + std::chrono::seconds(20), never);
  writer.join();
  ASSERT_EQ(news.changes.size(), 1U);
  EXPECT_EQ(news.changes[0].key.name, "a");
}

TEST(Store, StopsWaitingWhenToldTo) {
  Store store;
  std::atomic<bool> stop = false;
  std::thread stopper([&] {
    std::this_thread::sleep_for(milliseconds(20));
    stop = true;
    store.wake();
  });
  const auto news = store.wait_changes(
      "pods", store.version(), steady_clock::now() + std::chrono::seconds(20), [&] { return stop.load(); });
  stopper.join();
  EXPECT_TRUE(news.changes.empty());
  EXPECT_FALSE(news.expired);
}

}  // namespace
}  // namespace plimsoll::testing::fake
