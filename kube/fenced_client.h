// FencedClient: passes calls on to another client, but writes only while the process may. The controllers of
// a leader write through it, so that a process that was stopped (SIGSTOP, a paused virtual machine) for
// longer than its lease writes nothing more when it continues, even in the middle of an operation.
//
//   FencedClient client(direct, [&] { return elector.leading(); });
//
// The check is made before each write, not while it is on its way: a write that was being sent when the
// process was stopped still arrives, so writes need preconditions all the same. Reads always pass.
// Thread-safe as the other client and the function are; both must outlive it.
#pragma once

#include <functional>
#include <utility>

#include "kube/client.h"

namespace plimsoll::kube {

class FencedClient final : public Client {
 public:
  FencedClient(Client& to, std::function<bool()> may_write) : to_(to), may_write_(std::move(may_write)) {}

  Result<Json> get(const Resource& resource, const std::string& namespace_name, const std::string& name,
                   const CallOptions& options) override {
    return to_.get(resource, namespace_name, name, options);
  }
  Result<Json> list(const Resource& resource, const std::string& namespace_name, const ListOptions& what,
                    const CallOptions& options) override {
    return to_.list(resource, namespace_name, what, options);
  }
  Result<Json> list_each(const Resource& resource, const std::string& namespace_name, const ListOptions& what,
                         const ItemReader& reader, const CallOptions& options) override {
    return to_.list_each(resource, namespace_name, what, reader, options);
  }
  Result<Json> create(const Resource& resource, const std::string& namespace_name, const Json& object,
                      const CallOptions& options) override {
    return may_write_() ? to_.create(resource, namespace_name, object, options) : not_allowed();
  }
  Result<Json> update(const Resource& resource, const std::string& namespace_name, const Json& object,
                      const std::string& subresource, const CallOptions& options) override {
    return may_write_() ? to_.update(resource, namespace_name, object, subresource, options) : not_allowed();
  }
  Result<Json> patch(const Resource& resource, const std::string& namespace_name, const std::string& name,
                     PatchType type, const Json& patch, const std::string& subresource,
                     const CallOptions& options) override {
    return may_write_() ? to_.patch(resource, namespace_name, name, type, patch, subresource, options)
                        : not_allowed();
  }
  Result<void> remove(const Resource& resource, const std::string& namespace_name, const std::string& name,
                      const CallOptions& options) override {
    return may_write_() ? to_.remove(resource, namespace_name, name, options) : not_allowed();
  }
  Result<void> watch(const Resource& resource, const std::string& namespace_name, const WatchOptions& options,
                     const std::function<void(const WatchEvent&)>& on_event, std::stop_token stop) override {
    return to_.watch(resource, namespace_name, options, on_event, std::move(stop));
  }
  Result<std::string> get_raw(const std::string& path, const CallOptions& options) override {
    return to_.get_raw(path, options);
  }

 private:
  static Error not_allowed() {
    return {ErrorCode::kUnavailable, "nothing was written: this process is no longer the leader"};
  }

  Client& to_;
  const std::function<bool()> may_write_;
};

}  // namespace plimsoll::kube
