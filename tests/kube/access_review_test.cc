#include "kube/access_review.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/kube/partial_client.h"

namespace plimsoll::kube {
namespace {

// Answers each review with a given status, and keeps what was asked.
class ReviewClient : public testing::PartialClient {
 public:
  explicit ReviewClient(std::string status) : status_(std::move(status)) {}

  Result<Json> create(const Resource& resource, const std::string& namespace_name, const Json& object,
                      const CallOptions& options) override {
    path = path_of(resource, namespace_name);
    asked = write_json(object);
    timeout = options.timeout;
    if (status_.empty()) {
      return Error(ErrorCode::kTimeout, "no answer");
    }
    return parse_json(R"({"status": )" + status_ + "}");
  }

  std::string path;
  std::string asked;
  std::chrono::milliseconds timeout{0};

 private:
  const std::string status_;
};

TEST(UserOfToken, IsWhomTheApiServerNames) {
  ReviewClient client(
      R"({"authenticated": true, "user": {"username": "system:serviceaccount:m:prometheus", "uid": "u",
                          "groups": ["system:authenticated"], "extra": {"pod": ["p"]}}})");
  const Result<std::optional<User>> user =
      user_of_token(client, "secret", {.timeout = std::chrono::milliseconds(7)});
  ASSERT_TRUE(user.ok() && *user);
  EXPECT_EQ(client.path, "/apis/authentication.k8s.io/v1/tokenreviews");
  EXPECT_EQ(client.asked,
            R"({"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"secret"}})");
  EXPECT_EQ(client.timeout, std::chrono::milliseconds(7));
  EXPECT_EQ((**user).name, "system:serviceaccount:m:prometheus");
  EXPECT_EQ((**user).uid, "u");
  EXPECT_EQ(write_json((**user).groups), R"(["system:authenticated"])");
  EXPECT_EQ(write_json((**user).extra), R"({"pod":["p"]})");
}

TEST(UserOfToken, IsNobodyWithoutThatAnswer) {
  for (const char* status :
       {R"({"authenticated": false, "user": {"username": "a"}, "error": "expired"})",
        R"({"user": {"username": "a"}})", R"({"authenticated": "true", "user": {"username": "a"}})",
        R"({"authenticated": true})", R"({"authenticated": true, "user": {"username": 7}})", "null", "[]"}) {
    ReviewClient client(status);
    const Result<std::optional<User>> user = user_of_token(client, "secret");
    ASSERT_TRUE(user.ok()) << status;
    EXPECT_FALSE(user->has_value()) << status;
  }
}

TEST(UserOfToken, IsUnknownWhileNobodyAnswers) {
  ReviewClient client("");
  EXPECT_EQ(user_of_token(client, "secret").error().code, ErrorCode::kTimeout);
}

TEST(MayRequest, AsksForTheUserAsItWasNamed) {
  ReviewClient client(R"({"allowed": true})");
  const User user{
      .name = "a", .uid = "u", .groups = *parse_json(R"(["g"])"), .extra = *parse_json(R"({"k":["v"]})")};
  const Result<bool> allowed = may_request(client, user, "get", "/metrics");
  ASSERT_TRUE(allowed.ok());
  EXPECT_TRUE(*allowed);
  EXPECT_EQ(client.path, "/apis/authorization.k8s.io/v1/subjectaccessreviews");
  EXPECT_EQ(write_json(member(*parse_json(client.asked), {"spec"})),
            R"({"extra":{"k":["v"]},"groups":["g"],"nonResourceAttributes":{"path":"/metrics","verb":"get"},)"
            R"("uid":"u","user":"a"})");
}

TEST(MayRequest, IsFalseWithoutThatAnswer) {
  for (const char* status : {R"({"allowed": false})", "{}", R"({"allowed": true, "denied": true})",
                             R"({"allowed": "true"})", "null", "7"}) {
    ReviewClient client(status);
    const Result<bool> allowed =
        may_request(client, {.name = "a", .uid = {}, .groups = {}, .extra = {}}, "get", "/metrics");
    ASSERT_TRUE(allowed.ok()) << status;
    EXPECT_FALSE(*allowed) << status;
  }
  ReviewClient silent("");
  EXPECT_EQ(may_request(silent, {.name = "a", .uid = {}, .groups = {}, .extra = {}}, "get", "/metrics")
                .error()
                .code,
            ErrorCode::kTimeout);
}

}  // namespace
}  // namespace plimsoll::kube
