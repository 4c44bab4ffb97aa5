// What Client itself does; what every client must do is in client_conformance.cc.
#include "kube/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/kube/partial_client.h"

namespace plimsoll::kube {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const Resource kMaps{"", "v1", "configmaps", true};

class ListClient final : public testing::PartialClient {
 public:
  explicit ListClient(Result<Json> answer) : answer_(std::move(answer)) {}

  Result<Json> list(const Resource& resource, const std::string& namespace_name, const ListOptions& what,
                    const CallOptions& options) override {
    requested = path_of(resource, namespace_name) + "?" + what.label_selector + " " + options.field_manager;
    return answer_;
  }

  std::string requested;

 private:
  Result<Json> answer_;
};

class ClientListEach : public ::testing::Test {
 protected:
  const ItemReader reader_{
      .begin = [this] { seen_.emplace_back("begin"); },
      .take = [this](const JsonView& item) { seen_.push_back(write_json(tree_of(item))); }};
  std::vector<std::string> seen_;
};

TEST_F(ClientListEach, PassesOnTheItemsOfOneListAndReturnsTheRest) {
  ListClient client(parse_json(R"({"metadata":{"resourceVersion":"5"},"items":[{"a":1},{"b":2}]})"));
  ListOptions what;
  what.label_selector = "app=x";
  CallOptions call;
  call.field_manager = "me";
  const Result<Json> rest = client.list_each(kMaps, "ns", what, reader_, call);
  ASSERT_TRUE(rest);
  EXPECT_EQ(client.requested, "/api/v1/namespaces/ns/configmaps?app=x me");
  EXPECT_THAT(seen_, ElementsAre("begin", R"({"a":1})", R"({"b":2})"));
  EXPECT_EQ(write_json(*rest), R"({"metadata":{"resourceVersion":"5"}})");
}

TEST_F(ClientListEach, AnEmptyListBeginsAndEnds) {
  for (const char* body : {"{}", R"({"items":null})", R"({"items":[]})"}) {
    seen_.clear();
    ListClient client(parse_json(body));
    ASSERT_TRUE(client.list_each(kMaps, "ns", {}, reader_)) << body;
    EXPECT_THAT(seen_, ElementsAre("begin")) << body;
  }
}

TEST_F(ClientListEach, AnErrorIsReturnedAndNothingIsRead) {
  ListClient client(Error(ErrorCode::kForbidden, "no"));
  EXPECT_EQ(client.list_each(kMaps, "ns", {}, reader_).error().code, ErrorCode::kForbidden);
  EXPECT_THAT(seen_, IsEmpty());
}

}  // namespace
}  // namespace plimsoll::kube
