#include "webhook/profile_quota.h"

#include <gtest/gtest.h>

#include "base/log.h"

namespace plimsoll::webhook {
namespace {

Json profile(const std::string& namespace_name, const std::string& name, std::size_t text = 0) {
  Json object;
  object["metadata"]["namespace"] = namespace_name;
  object["metadata"]["name"] = name;
  object["metadata"]["annotations"]["long"] = std::string(text, 'x');
  object["spec"]["family"] = name;
  object["status"]["samples"] = std::string(text, 'y');
  return object;
}

bool is_kept(const Json& projected) {
  return projected.isMember("spec");
}

TEST(ProfileQuota, KeepsWhatDecisionsRead) {
  ProfileQuota quota({});
  const Json kept = quota.project(profile("ads", "a", 100'000));
  EXPECT_EQ(text_member(kept, {"spec", "family"}), "a");
  EXPECT_FALSE(member(kept, {"status"}).isMember("samples"));
  EXPECT_FALSE(kept["metadata"].isMember("annotations"));
  EXPECT_LT(quota.kept(), 1_KiB);
}

TEST(ProfileQuota, LeavesOutWhatANamespaceHasBeyondItsShare) {
  configure_log(LogLevel::kError, LogFormat::kText);
  ProfileQuota quota({.of_namespace = 2});
  EXPECT_TRUE(is_kept(quota.project(profile("ads", "a"))));
  EXPECT_TRUE(is_kept(quota.project(profile("ads", "b"))));
  EXPECT_TRUE(is_kept(quota.project(profile("ads", "b"))));  // written again
  const Json left_out = quota.project(profile("ads", "c"));
  EXPECT_FALSE(is_kept(left_out));
  EXPECT_EQ(text_member(left_out, {"metadata", "name"}), "c");
  EXPECT_TRUE(is_kept(quota.project(profile("other", "c"))));
  quota.forget("ads/a");
  quota.forget("ads/a");
  EXPECT_TRUE(is_kept(quota.project(profile("ads", "c"))));
  for (const char* key : {"ads/b", "ads/c", "other/c", "other/unknown"}) {
    quota.forget(key);
  }
  EXPECT_EQ(quota.kept(), Bytes());
}

TEST(ProfileQuota, BoundsTheBytesOfANamespaceAndOfAll) {
  configure_log(LogLevel::kError, LogFormat::kText);
  ProfileQuota quota({.bytes_of_namespace = 400_B, .total = 700_B});
  const auto kept_of = [&](const std::string& namespace_name) {
    int kept = 0;
    for (int i = 0; i < 100; ++i) {
      kept += is_kept(quota.project(profile(namespace_name, std::to_string(i)))) ? 1 : 0;
    }
    return kept;
  };
  const int first = kept_of("a");
  EXPECT_GT(first, 0);
  EXPECT_LT(first, 20);
  EXPECT_GT(kept_of("b"), 0);
  kept_of("c");
  EXPECT_LE(quota.kept(), 700_B);
}

}  // namespace
}  // namespace plimsoll::webhook
