// FencedClient: hands calls on to another client, and refuses to write unless the process may. The
// controllers of a leader write through it, so that a process that was stopped (SIGSTOP, a paused virtual
// machine) for longer than its lease writes nothing more when it goes on, although it is in the midst of
// something.
//
//   FencedClient client(direct, [&] { return elector.leading(); });
//
// The question is asked before each write, not while it travels: a write that was under way when the process
// stopped still arrives. So writes carry preconditions all the same. Reads pass always. Thread-safe as the
// other client and the function are; both must outlive it.
#pragma once

#include <functional>
#include <utility>

#include "kube/client.h"

namespace plimsoll::kube {

class FencedClient final : public Client {
 public:
  FencedClient(Client& to, std::function<bool()> may_write) : to_(to), may_write_(std::move(may_write)) {}

  Result<Json> get(const Resource& resource, const std::string& namespace_name, const std::string& name,
                   const CallOptions& options) override;
  Result<Json> list(const Resource& resource, const std::string& namespace_name, const ListOptions& what,
                    const CallOptions& options) override;
  Result<Json> list_each(const Resource& resource, const std::string& namespace_name, const ListOptions& what,
                         const ItemReader& reader, const CallOptions& options) override;
  Result<Json> create(const Resource& resource, const std::string& namespace_name, const Json& object,
                      const CallOptions& options) override;
  Result<Json> update(const Resource& resource, const std::string& namespace_name, const Json& object,
                      const std::string& subresource, const CallOptions& options) override;
  Result<Json> patch(const Resource& resource, const std::string& namespace_name, const std::string& name,
                     PatchType type, const Json& patch, const std::string& subresource,
                     const CallOptions& options) override;
  Result<void> remove(const Resource& resource, const std::string& namespace_name, const std::string& name,
                      const CallOptions& options) override;
  Result<void> watch(const Resource& resource, const std::string& namespace_name, const WatchOptions& options,
                     const std::function<void(const WatchEvent&)>& on_event, std::stop_token stop) override;
  Result<std::string> get_raw(const std::string& path, const CallOptions& options) override;

 private:
  Client& to_;
  const std::function<bool()> may_write_;
};

}  // namespace plimsoll::kube
