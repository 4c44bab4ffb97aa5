// The id that joins all that is logged and written about one admission: the uid of its AdmissionReview. The webhook writes
// it into the job with the decision; the operator copies it to the attempts' objects, the events and its log.
//
//   log_info("Resized a job", {{"job", key}, {"requestId", request_id_of(object)}});
//
// Pure; any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/json/view.h"

namespace plimsoll::crds {

inline constexpr const char* kRequestIdAnnotation = "plimsoll.dev/request-id";

// The form of an admission's uid. Anybody may write the annotation, and what it says goes to logs and other objects.
inline bool is_request_id(std::string_view text) {
  constexpr std::size_t kLongest = 64;  // a UUID has 36
  return text.size() <= kLongest && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-';
         });
}

// Of the request that decided the object's size; empty: no webhook did, or somebody wrote what is no id.
inline std::string request_id_of(const JsonView& object) {
  std::string id = text_member(object, {"metadata", "annotations", kRequestIdAnnotation});
  return is_request_id(id) ? id : std::string();
}

}  // namespace plimsoll::crds
