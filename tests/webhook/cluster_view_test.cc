#include "estimator/provisioner/cluster_view.h"

#include <gtest/gtest.h>

#include "tests/webhook/samples.h"

namespace plimsoll::webhook {
namespace {

Json profile(const std::string& name, const std::string& namespace_name, const std::string& family) {
  Json object;
  object["apiVersion"] = "plimsoll.dev/v1alpha1";
  object["kind"] = "MemoryProfile";
  object["metadata"]["name"] = name;
  object["metadata"]["namespace"] = namespace_name;
  object["spec"]["family"] = family;
  return object;
}

std::shared_ptr<const estimator::ClusterView> view_of(const std::vector<Json>& gpus,
                                                      const std::vector<Json>& profiles) {
  return estimator::make_cluster_view(estimator::GpuCatalog::built_in(), gpus, profiles);
}

TEST(ClusterView, HoldsTheGpusThatAreThere) {
  const auto view = view_of(testing::sample_gpu_models(), {});
  ASSERT_EQ(view->gpus.size(), 4U);
  EXPECT_EQ(view->gpus[0].model.name, "A100-40GB");
  EXPECT_EQ(view->gpus[0].total_gpus, 512);
  EXPECT_EQ(view->gpus[0].gpus_per_node, 8);
}

TEST(ClusterView, AnObjectThatCannotBeReadLeavesTheOthers) {
  std::vector<Json> gpus = testing::sample_gpu_models();
  gpus[1]["status"]["totalGPUs"] = "many";
  gpus.push_back("no object at all");
  Json unknown = gpus[0];  // memory is needed for a model that the catalogue does not know
  unknown["metadata"]["name"] = "future-gpu";
  gpus.push_back(unknown);
  const auto view = view_of(gpus, {profile("p", "ads", "f"), Json(12)});
  EXPECT_EQ(view->gpus.size(), 3U);
  EXPECT_EQ(view->profiles.size(), 1U);
}

TEST(ClusterView, FindsTheProfileOfAFamilyInItsNamespace) {
  const auto view =
      view_of({}, {profile("late", "ads", "f"), profile("early", "ads", "f"), profile("x", "other", "f")});
  ASSERT_NE(view->profile_of("ads", "f"), nullptr);
  EXPECT_EQ(view->profile_of("ads", "f")->name, "early");
  EXPECT_EQ(view->profile_of("other", "f")->name, "x");
  EXPECT_EQ(view->profile_of("ads", "g"), nullptr);
  EXPECT_EQ(view->profile_of("ads", ""), nullptr);
}

// 598 profiles took 21 s of processor time and 94 MB: each change decoded all of them anew.
TEST(ClusterView, AChangeOfOneProfileLeavesTheOthersAsTheyWere) {
  estimator::ClusterViewBuilder builder(estimator::GpuCatalog::built_in());
  for (int i = 0; i < 598; ++i) {
    builder.set_profile(PackedJson(
        profile("p" + std::to_string(i), i % 2 == 0 ? "ads" : "news", "family-" + std::to_string(i))));
  }
  const auto before = builder.view();
  std::map<const estimator::LearnedProfile*, int> known;
  for (const auto& [name, of_namespace] : before->profiles) {
    for (const auto& [profile_name, learned] : *of_namespace) {
      ++known[learned.get()];
    }
  }
  ASSERT_EQ(known.size(), 598U);
  builder.set_profile(PackedJson(profile("p4", "ads", "family-4")));
  builder.remove_profile("ads", "p6");
  builder.remove_profile("ads", "unknown");
  const auto after = builder.view();
  EXPECT_EQ(before->profiles.at("news"), after->profiles.at("news"));
  int others = 0;
  for (const auto& [name, learned] : *after->profiles.at("ads")) {
    others += known.contains(learned.get()) ? 0 : 1;
  }
  EXPECT_EQ(others, 1);
  EXPECT_EQ(before->profiles.at("ads")->size(), 299U);
  EXPECT_EQ(after->profiles.at("ads")->size(), 298U);
  // Decoded once for both views.
  EXPECT_NE(before->profile_of("ads", "family-8"), nullptr);
  EXPECT_EQ(before->profile_of("ads", "family-8"), after->profile_of("ads", "family-8"));
  EXPECT_EQ(after->profile_of("ads", "family-6"), nullptr);
}

TEST(ClusterView, ANamespaceWithoutProfilesIsGone) {
  estimator::ClusterViewBuilder builder(estimator::GpuCatalog::built_in());
  builder.set_profile(PackedJson(profile("p", "ads", "f")));
  builder.remove_profile("ads", "p");
  EXPECT_TRUE(builder.view()->profiles.empty());
  builder.set_profile(PackedJson(profile("p", "ads", "f")));
  builder.set_profile(PackedJson(profile("p", "ads", "")));  // its name is all that is left
  EXPECT_TRUE(builder.view()->profiles.empty());
  builder.set_profile(PackedJson(profile("p", "ads", "f")));
  EXPECT_NE(builder.view()->profile_of("ads", "f"), nullptr);
}

TEST(ClusterView, AProfileThatCannotBeReadGivesWayToTheNext) {
  Json broken = profile("a", "ads", "f");
  broken["spec"]["bounds"] = "none";
  const auto view = view_of({}, {broken, profile("b", "ads", "f")});
  ASSERT_NE(view->profile_of("ads", "f"), nullptr);
  EXPECT_EQ(view->profile_of("ads", "f")->name, "b");
}

TEST(ClusterViewStore, HandsOutWhatWasSetLast) {
  estimator::ClusterViewStore store;
  ASSERT_NE(store.get(), nullptr);
  EXPECT_TRUE(store.get()->gpus.empty());
  const auto held = store.get();
  store.set(testing::sample_view());
  EXPECT_EQ(store.get()->gpus.size(), 4U);
  EXPECT_TRUE(held->gpus.empty());
}

}  // namespace
}  // namespace plimsoll::webhook
