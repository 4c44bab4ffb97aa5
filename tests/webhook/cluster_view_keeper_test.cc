#include "webhook/cluster_view_keeper.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/yaml.h"
#include "tests/checkout.h"
#include "tests/controlplane/fake_api_server.h"
#include "tests/testing/eventually.h"
#include "tests/webhook/samples.h"

namespace plimsoll::webhook {
namespace {

using testing::eventually;

const kube::Resource kCrds{.group = "apiextensions.k8s.io",
                           .version = "v1",
                           .plural = "customresourcedefinitions",
                           .namespaced = false};
const kube::Resource kGpuModels{
    .group = "plimsoll.dev", .version = "v1alpha1", .plural = "gpumodels", .namespaced = false};
const kube::Resource kProfiles{.group = "plimsoll.dev", .version = "v1alpha1", .plural = "memoryprofiles"};

// An API server with the GPUs of the samples.
class ClusterViewKeeperTest : public ::testing::Test {
 protected:
  ClusterViewKeeperTest() {
    for (const char* name : {"gpumodels", "memoryprofiles"}) {
      const Result<std::string> text =
          read_file(PLIMSOLL_SOURCE_DIR "/crds/plimsoll.dev_" + std::string(name) + ".yaml");
      EXPECT_TRUE(text && client_->create(kCrds, "", parse_yaml_documents(*text)->front())) << name;
    }
    for (const Json& model : testing::sample_gpu_models()) {
      create(model);
    }
  }

  void create(Json model) {
    model["metadata"].removeMember("resourceVersion");
    Result<Json> stored = client_->create(kGpuModels, "", model);
    ASSERT_TRUE(stored) << to_string(stored.error());
    (*stored)["status"] = model["status"];
    ASSERT_TRUE(client_->update(kGpuModels, "", *stored, "status"));
  }

  std::unique_ptr<testing::FakeApiServer> server_ = *testing::FakeApiServer::start();
  std::unique_ptr<kube::Client> client_ = server_->make_client();
};

TEST_F(ClusterViewKeeperTest, HasSyncedOnceTheStoreHasBothLists) {
  estimator::ClusterViewStore store;
  ClusterViewKeeper keeper(*client_, estimator::GpuCatalog::built_in(), store, {});
  EXPECT_FALSE(keeper.has_synced());
  keeper.start();
  ASSERT_TRUE(eventually("both lists are there", [&] { return keeper.has_synced(); }));
  EXPECT_EQ(store.get()->gpus.size(), 4U);
  EXPECT_TRUE(store.get()->profiles.empty());
}

TEST_F(ClusterViewKeeperTest, FollowsGpuModels) {
  estimator::ClusterViewStore store;
  ClusterViewKeeper keeper(*client_, estimator::GpuCatalog::built_in(), store, {});
  keeper.start();
  ASSERT_TRUE(eventually("both lists are there", [&] { return keeper.has_synced(); }));
  const auto before = store.get();
  const std::string name = text_member(testing::sample_gpu_models().front(), {"metadata", "name"});
  ASSERT_TRUE(client_->remove(kGpuModels, "", name));
  EXPECT_TRUE(eventually(
      "the model is gone", [&] { return store.get()->gpus.size(); }, 3U));
  EXPECT_EQ(before->gpus.size(), 4U) << "a view that somebody holds stays as it is";
  create(testing::sample_gpu_models().front());
  EXPECT_TRUE(eventually(
      "the model is back", [&] { return store.get()->gpus.size(); }, 4U));
}

TEST_F(ClusterViewKeeperTest, AStoppedKeeperChangesNothingMore) {
  estimator::ClusterViewStore store;
  ClusterViewKeeper keeper(*client_, estimator::GpuCatalog::built_in(), store, {});
  keeper.stop();  // before it has begun
  keeper.start();
  ASSERT_TRUE(eventually("both lists are there", [&] { return keeper.has_synced(); }));
  keeper.stop();
  const auto view = store.get();
  ASSERT_TRUE(client_->remove(kGpuModels, "",
                              text_member(testing::sample_gpu_models().front(), {"metadata", "name"})));
  keeper.stop();
  EXPECT_EQ(store.get(), view);
}

TEST_F(ClusterViewKeeperTest, FollowsProfiles) {
  estimator::ClusterViewStore store;
  ClusterViewKeeper keeper(*client_, estimator::GpuCatalog::built_in(), store, {});
  keeper.start();
  ASSERT_TRUE(eventually("both lists are there", [&] { return keeper.has_synced(); }));
  EXPECT_EQ(store.get()->gpus.size(), 4U);
  const auto bounds_of = [&](const std::string& family) {  // how many; -1 without a profile
    const auto view = store.get();
    const crds::MemoryProfile* known = view->profile_of("default", family);
    return known == nullptr ? -1 : static_cast<int>(known->bounds.size());
  };
  Json profile;
  profile["apiVersion"] = "plimsoll.dev/v1alpha1";
  profile["kind"] = "MemoryProfile";
  profile["metadata"]["name"] = "one";
  profile["spec"]["family"] = "ads";
  Result<Json> stored = client_->create(kProfiles, "default", profile);
  ASSERT_TRUE(stored.ok()) << stored.error().message;
  EXPECT_TRUE(eventually(
      "the profile is known", [&] { return bounds_of("ads"); }, 0));
  const auto before = store.get();
  (*stored)["spec"]["bounds"][0]["gpuModel"] = "A100-80GB";
  (*stored)["spec"]["bounds"][0]["shortfall"] = "4Gi";
  ASSERT_TRUE(client_->update(kProfiles, "default", *stored).ok());
  EXPECT_TRUE(eventually(
      "its bound is known", [&] { return bounds_of("ads"); }, 1));
  EXPECT_TRUE(before->profile_of("default", "ads")->bounds.empty());
  ASSERT_TRUE(client_->remove(kProfiles, "default", "one").ok());
  EXPECT_TRUE(eventually(
      "the profile is gone", [&] { return bounds_of("ads"); }, -1));
  keeper.stop();
}

}  // namespace
}  // namespace plimsoll::webhook
