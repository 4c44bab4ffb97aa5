#include "kube/object_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <thread>

#include "tests/testing/random_seed.h"

namespace plimsoll::kube {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Json object(const std::string& namespace_name, const std::string& name) {
  Json made;
  made["metadata"]["name"] = name;
  if (!namespace_name.empty()) {
    made["metadata"]["namespace"] = namespace_name;
  }
  return made;
}

SharedObject share(const Json& object) {
  return SharedObject(object);
}

std::vector<std::string> keys_of(const std::vector<SharedObject>& objects) {
  std::vector<std::string> keys;
  for (const SharedObject& each : objects) {
    keys.push_back(key_of(*each));
  }
  return keys;
}

TEST(ObjectStore, GivesBackWhatWasBefore) {
  ObjectStore store;
  const SharedObject first = share(object("ns", "a"));
  const SharedObject second = share(object("ns", "a"));
  EXPECT_EQ(store.set("ns/a", first), nullptr);
  EXPECT_EQ(store.set("ns/a", second), first);
  EXPECT_EQ(store.find("ns/a"), second);
  EXPECT_EQ(store.remove("ns/a"), second);
  EXPECT_EQ(store.remove("ns/a"), nullptr);
  EXPECT_EQ(store.size(), 0U);
}

TEST(ObjectStore, FindsByIndexInTheOrderOfKeys) {
  ObjectStore store({{"namespace", index_by_namespace}});
  for (const char* name : {"c", "a", "b"}) {
    store.set(std::string("one/") + name, share(object("one", name)));
  }
  store.set("two/a", share(object("two", "a")));
  EXPECT_THAT(keys_of(store.by_index("namespace", "one")), ElementsAre("one/a", "one/b", "one/c"));
  store.remove("one/b");
  EXPECT_THAT(keys_of(store.by_index("namespace", "one")), ElementsAre("one/a", "one/c"));
  EXPECT_THAT(store.by_index("namespace", "three"), IsEmpty());
  EXPECT_THAT(store.keys(), ElementsAre("one/a", "one/c", "two/a"));
}

TEST(ObjectStore, AnObjectMayStandUnderSeveralValuesOrNone) {
  const IndexFunction by_letters = [](const JsonView& made) {
    std::vector<std::string> letters;
    for (const char letter : text_member(made, {"letters"})) {
      letters.emplace_back(1, letter);
    }
    return letters;
  };
  ObjectStore store({{"letter", by_letters}});
  Json made = object("", "a");
  made["letters"] = "xyx";
  store.set("a", share(made));
  EXPECT_EQ(store.by_index("letter", "x").size(), 1U);
  EXPECT_EQ(store.by_index("letter", "y").size(), 1U);
  made["letters"] = "z";
  store.set("a", share(made));
  EXPECT_THAT(store.by_index("letter", "x"), IsEmpty());
  EXPECT_EQ(store.by_index("letter", "z").size(), 1U);
  made["letters"] = "";
  store.set("a", share(made));
  EXPECT_THAT(store.by_index("letter", "z"), IsEmpty());
  EXPECT_EQ(store.size(), 1U);
}

TEST(IndexFunctions, NameNamespaceControllerAndLabel) {
  Json pod = object("ns", "a");
  EXPECT_THAT(index_by_namespace(pod), ElementsAre("ns"));
  EXPECT_THAT(index_by_owner(pod), IsEmpty());
  EXPECT_THAT(index_by_label("plimsoll.dev/job-name")(pod), IsEmpty());
  pod["metadata"]["ownerReferences"][0]["uid"] = "a bystander";
  pod["metadata"]["ownerReferences"][1]["uid"] = "the controller";
  pod["metadata"]["ownerReferences"][1]["controller"] = true;
  pod["metadata"]["labels"]["plimsoll.dev/job-name"] = "ads";
  EXPECT_THAT(index_by_owner(pod), ElementsAre("the controller"));
  EXPECT_THAT(index_by_label("plimsoll.dev/job-name")(pod), ElementsAre("ns/ads"));
  Json node = object("", "node");
  node["metadata"]["labels"]["zone"] = "z1";
  EXPECT_THAT(index_by_label("zone")(node), ElementsAre("z1"));
}

TEST(IndexFunctions, BearObjectsOfOddShapes) {
  for (const char* text : {"{}", "[]", "5", "null", R"({"metadata":5})", R"({"metadata":{"labels":[1]}})",
                           R"({"metadata":{"ownerReferences":"x","labels":{"l":7}}})",
                           R"({"metadata":{"ownerReferences":[5,null,{"controller":"yes"}]}})"}) {
    const Json odd = *parse_json(text);
    EXPECT_THAT(index_by_owner(odd), IsEmpty()) << text;
    EXPECT_THAT(index_by_label("l")(odd), IsEmpty()) << text;
    EXPECT_THAT(index_by_namespace(odd), ElementsAre("")) << text;
  }
}

TEST(ObjectStore, IndexesAgreeWithAScanAfterAnyHistory) {
  const std::uint64_t seed = plimsoll::testing::random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto roll = [&](int sides) { return static_cast<int>(random() % static_cast<unsigned>(sides)); };
  ObjectStore store({{"label", index_by_label("l")}});
  for (int step = 0; step < 5'000; ++step) {
    const std::string name = "o" + std::to_string(roll(40));
    if (roll(4) == 0) {
      store.remove("ns/" + name);
    } else {
      Json made = object("ns", name);
      if (roll(5) != 0) {
        made["metadata"]["labels"]["l"] = std::to_string(roll(6));
      }
      store.set("ns/" + name, share(made));
    }
    const std::string value = "ns/" + std::to_string(roll(6));
    std::vector<std::string> expected;
    for (const SharedObject& each : store.snapshot()) {
      if (index_by_label("l")(*each) == std::vector<std::string>{value}) {
        expected.push_back(key_of(*each));
      }
    }
    ASSERT_EQ(keys_of(store.by_index("label", value)), expected) << "step " << step;
  }
}

TEST(ObjectStore, IsReadWhileItIsWritten) {
  ObjectStore store({{"namespace", index_by_namespace}});
  std::jthread reader([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      for (const SharedObject& each : store.by_index("namespace", "ns")) {
        EXPECT_EQ(text_member(*each, {"metadata", "namespace"}), "ns");
      }
    }
  });
  for (int i = 0; i < 20'000; ++i) {
    const std::string name = std::to_string(i % 50);
    i % 3 == 0 ? store.remove(name) : store.set(name, share(object("ns", name)));
  }
}

}  // namespace
}  // namespace plimsoll::kube
