// AdmissionReview (admission.k8s.io/v1), read and written: bytes in, bytes out.
//
//   Decoded review = decode_review(body);
//   if (review.error) return reply(review.error->http_status, encode_error(*review.error));
//   return reply(200, encode_answer(review.request.uid, handle(review.request)));
//
// Whatever the bytes are, the answer is a well-formed AdmissionReview. A review that cannot be read is
// answered with an HTTP error, which the API server counts as a failed call (its failurePolicy then decides),
// and with the request's uid where one can be found. An answer says exactly what the API server accepts:
// patch and patchType together or not at all, the patch in base64, warnings within its limits. v1beta1, which
// Kubernetes 1.22 dropped, is refused by name. Pure functions and values; any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/view.h"
#include "crds/training_job.h"

namespace plimsoll::webhook {

// As the server's limit on a body: two objects of 3 MB and what surrounds them.
inline constexpr std::size_t kReviewLimit = 7 << 20;
// The API server drops what is beyond (docs: "Response", admission webhooks).
inline constexpr std::size_t kWarningLimit = 256;
inline constexpr std::size_t kAllWarningsLimit = 4096;
inline constexpr std::size_t kMessageLimit = 2048;  // of a refusal: what a terminal can show
inline constexpr std::size_t kCauseLimit = 20;      // fields named one by one in a refusal

enum class Operation { kCreate, kUpdate, kDelete, kConnect };

struct AdmissionRequest {
  std::string uid;
  std::string group;  // of `kind`
  std::string version;
  std::string kind;
  std::string sub_resource;
  std::string namespace_name;
  std::string name;  // empty while the server has yet to generate it
  Operation operation = Operation::kCreate;
  bool dry_run = false;
  JsonView object;                       // null when absent; any type: the handlers check
  JsonView old_object;                   // likewise
  std::shared_ptr<const JsonText> text;  // what both look into
};

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
  AdmissionRequest request;  // uid alone is set when there is an error
  std::optional<ReviewError> error;
};

Decoded decode_review(std::string_view body);

std::string encode_answer(const std::string& uid, const AdmissionAnswer& answer);
std::string encode_error(const ReviewError& error);

const char* name_of(Operation operation);

}  // namespace plimsoll::webhook
