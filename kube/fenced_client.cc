#include "kube/fenced_client.h"

namespace plimsoll::kube {
namespace {

Error not_allowed() {
  return {ErrorCode::kUnavailable, "nothing was written: this process does not lead any more"};
}

}  // namespace

Result<Json> FencedClient::get(const Resource& resource, const std::string& namespace_name,
                               const std::string& name, const CallOptions& options) {
  return to_.get(resource, namespace_name, name, options);
}

Result<Json> FencedClient::list(const Resource& resource, const std::string& namespace_name,
                                const ListOptions& what, const CallOptions& options) {
  return to_.list(resource, namespace_name, what, options);
}

Result<Json> FencedClient::list_each(const Resource& resource, const std::string& namespace_name,
                                     const ListOptions& what, const ItemReader& reader,
                                     const CallOptions& options) {
  return to_.list_each(resource, namespace_name, what, reader, options);
}

Result<Json> FencedClient::create(const Resource& resource, const std::string& namespace_name,
                                  const Json& object, const CallOptions& options) {
  return may_write_() ? to_.create(resource, namespace_name, object, options) : not_allowed();
}

Result<Json> FencedClient::update(const Resource& resource, const std::string& namespace_name,
                                  const Json& object, const std::string& subresource,
                                  const CallOptions& options) {
  return may_write_() ? to_.update(resource, namespace_name, object, subresource, options) : not_allowed();
}

Result<Json> FencedClient::patch(const Resource& resource, const std::string& namespace_name,
                                 const std::string& name, PatchType type, const Json& patch,
                                 const std::string& subresource, const CallOptions& options) {
  return may_write_() ? to_.patch(resource, namespace_name, name, type, patch, subresource, options)
                      : not_allowed();
}

Result<void> FencedClient::remove(const Resource& resource, const std::string& namespace_name,
                                  const std::string& name, const CallOptions& options) {
  return may_write_() ? to_.remove(resource, namespace_name, name, options) : not_allowed();
}

Result<void> FencedClient::watch(const Resource& resource, const std::string& namespace_name,
                                 const WatchOptions& options,
                                 const std::function<void(const WatchEvent&)>& on_event,
                                 std::stop_token stop) {
  return to_.watch(resource, namespace_name, options, on_event, std::move(stop));
}

Result<std::string> FencedClient::get_raw(const std::string& path, const CallOptions& options) {
  return to_.get_raw(path, options);
}

}  // namespace plimsoll::kube
