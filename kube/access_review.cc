#include "kube/access_review.h"

#include <utility>

#include "base/json/edit.h"
#include "base/json/view.h"
#include "kube/resource.h"

namespace plimsoll::kube {
namespace {

const Resource kTokenReviews{
    .group = "authentication.k8s.io", .version = "v1", .plural = "tokenreviews", .namespaced = false};
const Resource kAccessReviews{
    .group = "authorization.k8s.io", .version = "v1", .plural = "subjectaccessreviews", .namespaced = false};

bool is_true(const Json& review, std::string_view member_of_status) {
  return JsonView(member(review, {"status", member_of_status})).boolean().value_or(false);
}

}  // namespace

Result<std::optional<User>> user_of_token(Client& client, const std::string& token,
                                          const CallOptions& options) {
  JsonObject review;
  review["apiVersion"] = "authentication.k8s.io/v1";
  review["kind"] = "TokenReview";
  review["spec"]["token"] = token;
  const Result<Json> answer = client.create(kTokenReviews, "", review, options);
  if (!answer) {
    return answer.error();
  }
  User user{.name = text_member(*answer, {"status", "user", "username"}),
            .uid = text_member(*answer, {"status", "user", "uid"}),
            .groups = member(*answer, {"status", "user", "groups"}),
            .extra = member(*answer, {"status", "user", "extra"})};
  // Nobody has rights without a name; an access review without one would be an error.
  if (!is_true(*answer, "authenticated") || user.name.empty()) {
    return std::optional<User>();
  }
  return std::optional<User>(std::move(user));
}

Result<bool> may_request(Client& client, const User& user, const std::string& verb, const std::string& path,
                         const CallOptions& options) {
  JsonObject review;
  review["apiVersion"] = "authorization.k8s.io/v1";
  review["kind"] = "SubjectAccessReview";
  const JsonPlace spec = review["spec"];
  spec["user"] = user.name;
  spec["uid"] = user.uid;
  spec["groups"] = user.groups;
  spec["extra"] = user.extra;
  spec["nonResourceAttributes"]["path"] = path;
  spec["nonResourceAttributes"]["verb"] = verb;
  const Result<Json> answer = client.create(kAccessReviews, "", review, options);
  if (!answer) {
    return answer.error();
  }
  return is_true(*answer, "allowed") && !is_true(*answer, "denied");
}

}  // namespace plimsoll::kube
