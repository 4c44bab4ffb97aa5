// A Client none of whose calls is there: tests derive from it and add those they need.
#pragma once

#include <string>

#include "kube/client.h"

namespace plimsoll::testing {

class PartialClient : public kube::Client {
 public:
  Result<Json> get(const kube::Resource&, const std::string&, const std::string&,
                   const kube::CallOptions&) override {
    return unused();
  }
  Result<Json> list(const kube::Resource&, const std::string&, const kube::ListOptions&,
                    const kube::CallOptions&) override {
    return unused();
  }
  Result<Json> create(const kube::Resource&, const std::string&, const Json&,
                      const kube::CallOptions&) override {
    return unused();
  }
  Result<Json> update(const kube::Resource&, const std::string&, const Json&, const std::string&,
                      const kube::CallOptions&) override {
    return unused();
  }
  Result<Json> patch(const kube::Resource&, const std::string&, const std::string&, kube::PatchType,
                     const Json&, const std::string&, const kube::CallOptions&) override {
    return unused();
  }
  Result<void> remove(const kube::Resource&, const std::string&, const std::string&,
                      const kube::CallOptions&) override {
    return unused();
  }
  Result<void> watch(const kube::Resource&, const std::string&, const kube::WatchOptions&,
                     const std::function<void(const kube::WatchEvent&)>&, std::stop_token) override {
    return unused();
  }
  Result<std::string> get_raw(const std::string&, const kube::CallOptions&) override { return unused(); }

 protected:
  static Error unused() { return {ErrorCode::kUnsupported, "no part of this test"}; }
};

}  // namespace plimsoll::testing
