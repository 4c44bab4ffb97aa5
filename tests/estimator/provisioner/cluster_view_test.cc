#include "estimator/provisioner/cluster_view.h"

#include <gtest/gtest.h>

#include <tuple>

#include "crds/gpu_model.h"
#include "tests/estimator/provisioner_fixture.h"

namespace plimsoll::estimator {
namespace {

using plimsoll::testing::parse;

// GPUModel resources as the operator writes them: 64 nodes of 8 GPUs each.
std::vector<Json> gpu_models() {
  std::vector<Json> models;
  for (const auto& [name, label, memory] : {std::tuple("a100-40gb", "NVIDIA-A100-SXM4-40GB", 40_GiB),
                                            {"a100-80gb", "NVIDIA-A100-SXM4-80GB", 80_GiB},
                                            {"h100-80gb", "NVIDIA-H100-80GB-HBM3", 80_GiB},
                                            {"v100-32gb", "Tesla-V100-SXM2-32GB", 32_GiB}}) {
    Json object = parse(R"({"apiVersion": "plimsoll.dev/v1alpha1", "kind": "GPUModel"})");
    object["metadata"]["name"] = name;
    object["status"] = crds::encode_status({.total_gpus = 512,
                                            .free_gpus = 512,
                                            .nodes = {{.gpus_per_node = 8, .nodes = 64}},
                                            .product_labels = {label},
                                            .memory = memory});
    models.push_back(std::move(object));
  }
  return models;
}

Json profile(const std::string& name, const std::string& namespace_name, const std::string& family) {
  Json object;
  object["apiVersion"] = "plimsoll.dev/v1alpha1";
  object["kind"] = "MemoryProfile";
  object["metadata"]["name"] = name;
  object["metadata"]["namespace"] = namespace_name;
  object["spec"]["family"] = family;
  return object;
}

std::shared_ptr<const ClusterView> view_of(const std::vector<Json>& gpus, const std::vector<Json>& profiles) {
  return make_cluster_view(GpuCatalog::built_in(), gpus, profiles);
}

TEST(ClusterView, HoldsTheGpusThatAreThere) {
  const auto view = view_of(gpu_models(), {});
  ASSERT_EQ(view->gpus.size(), 4U);
  EXPECT_EQ(view->gpus[0].model.name, "A100-40GB");
  EXPECT_EQ(view->gpus[0].total_gpus, 512);
  EXPECT_EQ(view->gpus[0].gpus_per_node, 8);
}

TEST(ClusterView, AnObjectThatCannotBeReadLeavesTheOthers) {
  std::vector<Json> gpus = gpu_models();
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
  ClusterViewBuilder builder(GpuCatalog::built_in());
  for (int i = 0; i < 598; ++i) {
    builder.set_profile(PackedJson(
        profile("p" + std::to_string(i), i % 2 == 0 ? "ads" : "news", "family-" + std::to_string(i))));
  }
  const auto before = builder.view();
  std::map<const LearnedProfile*, int> known;
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
  ClusterViewBuilder builder(GpuCatalog::built_in());
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
  ClusterViewStore store;
  ASSERT_NE(store.get(), nullptr);
  EXPECT_TRUE(store.get()->gpus.empty());
  const auto held = store.get();
  store.set(view_of(gpu_models(), {}));
  EXPECT_EQ(store.get()->gpus.size(), 4U);
  EXPECT_TRUE(held->gpus.empty());
}

}  // namespace
}  // namespace plimsoll::estimator
