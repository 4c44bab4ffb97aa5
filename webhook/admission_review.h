// AdmissionReview (admission.k8s.io/v1), read and written: bytes in, bytes out.
//
//   Decoded review = decode_review(body);
//   if (review.error) return reply(review.error->http_status, encode_error(*review.error));
//   return reply(200, encode_answer(review.request.uid, handle(review.request)));
//
// For any input the response is a well-formed AdmissionReview. A review that cannot be read gets an HTTP
// error, which the API server counts as a failed call (its failurePolicy then decides), and the request's uid
// if one can be found. Responses contain exactly what the API server accepts: patch and patchType together or
// not at all, the patch in base64, warnings within its limits. v1beta1, which Kubernetes 1.22 removed, is
// rejected by name. Pure functions and values; any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/view.h"
#include "crds/training_job.h"

namespace plimsoll::webhook {

// As the server's limit of a body: two objects of 3 MB, and 1 MB for the rest.
inline constexpr std::size_t kReviewLimit = 7 << 20;
// The API server drops warnings beyond these limits (docs: "Response", admission webhooks).
inline constexpr std::size_t kWarningLimit = 256;
inline constexpr std::size_t kAllWarningsLimit = 4096;
inline constexpr std::size_t kMessageLimit = 2048;  // of a refusal: what fits on a terminal
inline constexpr std::size_t kCauseLimit = 20;      // fields that a refusal names one by one

enum class Operation { kCreate, kUpdate, kDelete, kConnect };

struct AdmissionRequest {
  std::string uid;
  std::string group;  // of `kind`
  std::string version;
  std::string kind;
  std::string sub_resource;
  std::string namespace_name;
  std::string name;  // empty if the server has not generated it yet
  Operation operation = Operation::kCreate;
  bool dry_run = false;
  JsonView object;                       // null when absent; of any type: the handlers check it
  JsonView old_object;                   // the same
  std::shared_ptr<const JsonText> text;  // the text of both
};

// Whether the object differs from the old one at this path of keys.
bool changed(const AdmissionRequest& request, std::initializer_list<std::string_view> path);

// Why a review cannot be read.
struct ReviewError {
  int http_status = 400;
  std::string uid;      // empty when none could be found
  std::string reason;   // metav1.StatusReason: "BadRequest", ...
  std::string message;  // says what to do
};

struct AdmissionAnswer {
  bool allowed = true;
  // Of a refusal.
  int code = 0;
  std::string reason;
  std::string message;
  std::vector<crds::FieldError> causes;
  // Of a permission.
  Json patch;  // array of JSON patch operations; null or empty: none
  std::vector<std::string> warnings;
};

struct Decoded {
  AdmissionRequest request;  // only uid is set when there is an error
  std::optional<ReviewError> error;
};

Decoded decode_review(std::string_view body);

std::string encode_answer(const std::string& uid, const AdmissionAnswer& answer);
std::string encode_error(const ReviewError& error);

const char* name_of(Operation operation);

}  // namespace plimsoll::webhook
