#include "kube/client.h"

#include "base/json/edit.h"

namespace plimsoll::kube {

Result<Json> Client::list_each(const Resource& resource, const std::string& namespace_name,
                               const ListOptions& what, const ItemReader& reader,
                               const CallOptions& options) {
  Result<Json> all = list(resource, namespace_name, what, options);
  if (all) {
    reader.begin();
    for (const Json& item : member(*all, {"items"})) {
      reader.take(item);
    }
    JsonEdit rest(*std::move(all));
    rest.root().remove("items");
    all = std::move(rest).take();
  }
  return all;
}

}  // namespace plimsoll::kube
