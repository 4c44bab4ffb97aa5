#include "kube/client.h"

namespace plimsoll::kube {

Result<Json> Client::list_each(const Resource& resource, const std::string& namespace_name,
                               const ListOptions& what, const ItemReader& reader,
                               const CallOptions& options) {
  Result<Json> all = list(resource, namespace_name, what, options);
  if (all) {
    const Json items = (*all)["items"];
    all->removeMember("items");
    reader.begin();
    for (const Json& item : items) {
      reader.take(item);
    }
  }
  return all;
}

}  // namespace plimsoll::kube
