#include "webhook/cluster_objects.h"

#include <gtest/gtest.h>

#include <chrono>

#include "tests/kube/partial_client.h"

namespace plimsoll::webhook {
namespace {

using namespace std::chrono_literals;

// Answers with the path that was asked for.
class Paths : public testing::PartialClient {
 public:
  Result<Json> get(const kube::Resource& resource, const std::string& namespace_name, const std::string& name,
                   const kube::CallOptions& options) override {
    timeout = options.timeout;
    return Json(kube::path_of(resource, namespace_name, name));
  }

  std::chrono::milliseconds timeout{};
};

TEST(ClusterObjects, ReadsObjectsOfANamespaceAndOfTheCluster) {
  Paths client;
  ClusterObjects objects(client);
  Result<Json> object =
      objects.object({"trainer.kubeflow.org", "v1alpha1", "trainingruntimes", "ml", "torch"}, nullptr);
  ASSERT_TRUE(object) << object.error().message;
  EXPECT_EQ(*object, Json("/apis/trainer.kubeflow.org/v1alpha1/namespaces/ml/trainingruntimes/torch"));
  object =
      objects.object({"trainer.kubeflow.org", "v1alpha1", "clustertrainingruntimes", "", "torch"}, nullptr);
  ASSERT_TRUE(object) << object.error().message;
  EXPECT_EQ(*object, Json("/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes/torch"));
}

TEST(ClusterObjects, TakesAtMostAShareOfTheTimeThatIsLeft) {
  Paths client;
  ClusterObjects objects(client);
  const workloads::ObjectName name{"trainer.kubeflow.org", "v1alpha1", "trainingruntimes", "ml", "torch"};
  Budget budget({.deadline = std::chrono::steady_clock::now() + 4s});
  ASSERT_TRUE(objects.object(name, &budget));
  EXPECT_LE(client.timeout, 2s);
  EXPECT_GT(client.timeout, 0s);
  Budget spent({.deadline = std::chrono::steady_clock::now() - 1s});
  EXPECT_EQ(objects.object(name, &spent).error().code, ErrorCode::kTimeout);
}

}  // namespace
}  // namespace plimsoll::webhook
