// An AdmissionReview, to the answers of both webhooks.
#include <string>

#include "base/json/json.h"
#include "tests/fuzz/target.h"
#include "tests/fuzz/world.h"
#include "webhook/admission_review.h"
#include "webhook/mutate.h"
#include "webhook/validate.h"

namespace plimsoll::testing {
namespace {

// What the API server checks of any answer.
void check_answer(const std::string& body, const std::string& uid) {
  const Result<Json> review = parse_json(body);
  require(review.ok(), "an answer is JSON");
  const Json& response = member(*review, {"response"});
  require(text_member(response, {"uid"}) == uid, "an answer has the request's uid");
  require(member(response, {"allowed"}).isBool(), "an answer allows or not");
  require(member(response, {"patch"}).isString() == member(response, {"patchType"}).isString(),
          "patch and patchType come together");
}

}  // namespace

FUZZ_TARGET(admission_review) {
  static const estimator::ClusterView& cluster = fuzz_cluster();
  static estimator::ModelSource& models = fuzz_models();
  const webhook::Decoded review = webhook::decode_review(input);
  if (review.error) {
    require(parse_json(webhook::encode_error(*review.error)).ok(), "an error is JSON");
    return;
  }
  const webhook::AdmissionRequest& request = review.request;
  Budget budget(decision_limits(std::chrono::milliseconds(50)));
  const webhook::Mutation mutation =
      webhook::mutate(request, {.cluster = &cluster, .tables = &models, .budget = &budget});
  require(mutation.answer.allowed, "mutate refuses nothing");
  check_answer(webhook::encode_answer(request.uid, mutation.answer), request.uid);
  check_answer(webhook::encode_answer(request.uid, webhook::validate(request).answer), request.uid);
}

}  // namespace plimsoll::testing
