// One Lease, as an API server keeps it: writes on the condition of its resourceVersion. Not thread-safe.
#pragma once

#include <optional>
#include <string>

#include "base/json/json.h"
#include "base/result.h"

namespace plimsoll::testing {

class LeaseServer {
 public:
  Result<Json> get() const {
    return lease_ ? Result<Json>(*lease_) : Error(ErrorCode::kNotFound, "there is no such lease");
  }
  Result<Json> create(Json lease) {
    return lease_ ? Result<Json>(Error(ErrorCode::kAlreadyExists, "it is there")) : store(std::move(lease));
  }
  Result<Json> update(Json lease) {
    if (!lease_) {
      return Error(ErrorCode::kNotFound, "there is no such lease");
    }
    const auto version = [](const Json& of) { return text_member(of, {"metadata", "resourceVersion"}); };
    if (version(lease) != version(*lease_)) {
      return Error(ErrorCode::kConflict, "the lease has changed");
    }
    return store(std::move(lease));
  }
  void erase() { lease_.reset(); }
  std::string holder() const { return lease_ ? text_member(*lease_, {"spec", "holderIdentity"}) : ""; }

 private:
  Result<Json> store(Json lease) {
    lease["metadata"]["resourceVersion"] = std::to_string(++version_);
    lease_ = std::move(lease);
    return *lease_;
  }

  std::optional<Json> lease_;
  int version_ = 0;
};

}  // namespace plimsoll::testing
