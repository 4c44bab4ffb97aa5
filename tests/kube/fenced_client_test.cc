#include "kube/fenced_client.h"

#include <gtest/gtest.h>

#include "tests/kube/partial_client.h"

namespace plimsoll::kube {
namespace {

class CountingClient final : public testing::PartialClient {
 public:
  Result<Json> get(const Resource&, const std::string&, const std::string&, const CallOptions&) override {
    ++reads;
    return Json();
  }
  Result<Json> create(const Resource&, const std::string&, const Json&, const CallOptions&) override {
    ++writes;
    return Json();
  }
  Result<Json> update(const Resource&, const std::string&, const Json&, const std::string&,
                      const CallOptions&) override {
    ++writes;
    return Json();
  }
  Result<Json> patch(const Resource&, const std::string&, const std::string&, PatchType, const Json&,
                     const std::string&, const CallOptions&) override {
    ++writes;
    return Json();
  }
  Result<void> remove(const Resource&, const std::string&, const std::string&, const CallOptions&) override {
    ++writes;
    return {};
  }

  int reads = 0;
  int writes = 0;
};

TEST(FencedClientTest, WritesOnlyWhileItMay) {
  CountingClient to;
  bool leads = true;
  FencedClient client(to, [&] { return leads; });
  const Resource maps{"", "v1", "configmaps", true};
  const auto write_all = [&] {
    return std::vector<bool>{client.create(maps, "n", Json(), {}).ok(),
                             client.update(maps, "n", Json(), "", {}).ok(),
                             client.patch(maps, "n", "a", PatchType::kMerge, Json(), "", {}).ok(),
                             client.remove(maps, "n", "a", {}).ok()};
  };
  EXPECT_EQ(write_all(), std::vector<bool>(4, true));
  leads = false;
  EXPECT_EQ(write_all(), std::vector<bool>(4, false));
  EXPECT_EQ(to.writes, 4);
  EXPECT_EQ(client.create(maps, "n", Json(), {}).error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(client.get(maps, "n", "a", {}).ok());
  EXPECT_EQ(to.reads, 1);
}

}  // namespace
}  // namespace plimsoll::kube
