#include "kube/resource.h"

#include <gtest/gtest.h>

namespace plimsoll::kube {
namespace {

const Resource kJobs{"plimsoll.dev", "v1alpha1", "trainingjobs", true};
const Resource kPods{"", "v1", "pods", true};
const Resource kNodes{"", "v1", "nodes", false};

TEST(PathOf, NamesGroupsCoreAndSubresources) {
  EXPECT_EQ(path_of(kJobs, "ns", "ads", "status"),
            "/apis/plimsoll.dev/v1alpha1/namespaces/ns/trainingjobs/ads/status");
  EXPECT_EQ(path_of(kJobs, "ns"), "/apis/plimsoll.dev/v1alpha1/namespaces/ns/trainingjobs");
  EXPECT_EQ(path_of(kJobs, ""), "/apis/plimsoll.dev/v1alpha1/trainingjobs");
  EXPECT_EQ(path_of(kPods, "ns", "a"), "/api/v1/namespaces/ns/pods/a");
  EXPECT_EQ(path_of(kNodes, "", "n1"), "/api/v1/nodes/n1");
}

TEST(PathOf, IgnoresANamespaceWhereThereIsNone) {
  EXPECT_EQ(path_of(kNodes, "default", "n1"), "/api/v1/nodes/n1");
}

TEST(PathOf, KeepsHostileNamesInsideTheirSegment) {
  EXPECT_EQ(path_of(kPods, "a/../b", "x?watch=1#&%"),
            "/api/v1/namespaces/a%2F..%2Fb/pods/x%3Fwatch%3D1%23%26%25");
}

TEST(PercentEncode, LeavesOnlyUnreservedCharacters) {
  EXPECT_EQ(percent_encode("aZ09-._~"), "aZ09-._~");
  EXPECT_EQ(percent_encode("a=b,c!=d \n\xff"), "a%3Db%2Cc%21%3Dd%20%0A%FF");
  EXPECT_EQ(percent_encode(""), "");
}

}  // namespace
}  // namespace plimsoll::kube
