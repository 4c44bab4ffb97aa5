#include "kube/reflector_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <set>

#include "tests/kube/partial_client.h"

namespace plimsoll::kube {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Lists an object "ads" in each namespace that is asked for, and in all of them those of two; its watches last.
class TwoNamespaces final : public plimsoll::testing::PartialClient {
 public:
  Result<Json> list(const Resource&, const std::string& namespace_name, const ListOptions&,
                    const CallOptions&) override {
    const std::lock_guard lock(mutex_);
    listed_.insert(namespace_name.empty() ? "all" : namespace_name);
    Json list;
    list["metadata"]["resourceVersion"] = "7";
    list["items"] = Json(::Json::arrayValue);
    for (const char* name : {"team", "team-a"}) {
      if (namespace_name.empty() || namespace_name == name) {
        Json object;
        object["metadata"]["name"] = "ads";
        object["metadata"]["namespace"] = name;
        object["metadata"]["resourceVersion"] = "7";
        object["metadata"]["labels"]["family"] = "ads";
        list["items"].append(object);
      }
    }
    return list;
  }
  Result<void> watch(const Resource&, const std::string&, const WatchOptions&,
                     const std::function<void(const WatchEvent&)>&, std::stop_token stop) override {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, stop, [] { return false; });
    return {};
  }
  std::set<std::string> listed() {
    const std::lock_guard lock(mutex_);
    return listed_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable_any ended_;
  std::set<std::string> listed_;
};

std::vector<std::string> keys_of(const std::vector<SharedObject>& objects) {
  std::vector<std::string> keys;
  for (const SharedObject& object : objects) {
    keys.push_back(key_of(*object));
  }
  return keys;
}

Reflector::Options options() {
  Reflector::Options options;
  options.resource = {"", "v1", "configmaps", true};
  options.stream_lists = false;
  options.indexers = {
      {"family", [](const JsonView& object) {
         return std::vector<std::string>{text_member(object, {"metadata", "labels", "family"})};
       }}};
  return options;
}

TEST(ReflectorGroup, ListsInEachNamespaceAlone) {
  TwoNamespaces client;
  ReflectorGroup group(client, options(), {"team", "team-a", "empty"});
  EXPECT_FALSE(group.has_synced());
  group.start();
  ASSERT_TRUE(group.wait_for_sync({}));
  EXPECT_TRUE(group.has_synced());
  EXPECT_THAT(client.listed(), ElementsAre("empty", "team", "team-a"));
  EXPECT_THAT(keys_of(group.snapshot()), ElementsAre("team-a/ads", "team/ads"))
      << "as a reflector orders keys";
  EXPECT_THAT(keys_of(group.by_index("family", "ads")),
              ::testing::UnorderedElementsAre("team/ads", "team-a/ads"));
  EXPECT_EQ(group.size(), 2U);
  EXPECT_TRUE(group.find("team-a/ads"));
  EXPECT_FALSE(group.find("team-a/other"));
  EXPECT_FALSE(group.find("elsewhere/ads"));
  group.stop();
}

TEST(ReflectorGroup, WithoutNamespacesItIsOneReflectorOverAll) {
  TwoNamespaces client;
  ReflectorGroup group(client, options(), {});
  group.start();
  ASSERT_TRUE(group.wait_for_sync({}));
  EXPECT_THAT(client.listed(), ElementsAre("all"));
  EXPECT_THAT(keys_of(group.snapshot()), ElementsAre("team-a/ads", "team/ads"));
  EXPECT_TRUE(group.find("team/ads"));
  group.stop();
}

TEST(ReflectorGroup, CallsItsHandlerOneAtATime) {
  TwoNamespaces client;
  std::atomic<int> inside = 0;
  std::atomic<int> most = 0;
  std::vector<std::string> seen;  // not synchronised on purpose: the group must
  Reflector::Options watched = options();
  watched.project = [&](const JsonView& object) {
    most = std::max(most.load(), ++inside);
    --inside;
    return tree_of(object);
  };
  watched.on_change = [&](const Reflector::Change& change) {
    most = std::max(most.load(), ++inside);
    seen.push_back(change.key);
    --inside;
  };
  ReflectorGroup group(client, watched, {"team", "team-a"});
  group.start();
  ASSERT_TRUE(group.wait_for_sync({}));
  group.stop();
  EXPECT_EQ(most, 1);
  EXPECT_THAT(seen, ::testing::UnorderedElementsAre("team/ads", "team-a/ads"));
}

TEST(ReflectorGroup, AStopEndsTheWaitForNamespacesThatCannotBeListed) {
  plimsoll::testing::PartialClient nothing;
  ReflectorGroup group(nothing, options(), {"team", "team-a"});
  group.start();
  std::stop_source stop;
  stop.request_stop();
  EXPECT_FALSE(group.wait_for_sync(stop.get_token()));
  EXPECT_FALSE(group.has_synced());
  EXPECT_THAT(group.snapshot(), IsEmpty());
  group.stop();
}

}  // namespace
}  // namespace plimsoll::kube
