// The id that joins all that is logged and written about one admission: the uid of its AdmissionReview. The webhook writes
// it into the job with the decision; the operator copies it to the attempts' objects, the events and its log.
//
//   log_info("Resized a job", {{"job", key}, {"requestId", request_id_of(object)}});
//
// Pure; any thread.
#pragma once

#include <string>

#include "base/json/view.h"

namespace plimsoll::crds {

inline constexpr const char* kRequestIdAnnotation = "plimsoll.dev/request-id";

// Of the request that decided the object's size; empty: no webhook did.
inline std::string request_id_of(const JsonView& object) {
  return text_member(object, {"metadata", "annotations", kRequestIdAnnotation});
}

}  // namespace plimsoll::crds
