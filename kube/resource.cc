#include "kube/resource.h"

#include <cpprest/base_uri.h>

namespace plimsoll::kube {

std::string percent_encode(std::string_view text) {
  return web::uri::encode_data_string(std::string(text));
}

std::string path_of(const Resource& resource, const std::string& namespace_name, const std::string& name,
                    const std::string& subresource) {
  std::string path = resource.group.empty() ? "/api" : "/apis/" + percent_encode(resource.group);
  path += "/" + percent_encode(resource.version);
  if (resource.namespaced && !namespace_name.empty()) {
    path += "/namespaces/" + percent_encode(namespace_name);
  }
  path += "/" + percent_encode(resource.plural);
  if (!name.empty()) {
    path += "/" + percent_encode(name);
    if (!subresource.empty()) {
      path += "/" + percent_encode(subresource);
    }
  }
  return path;
}

}  // namespace plimsoll::kube
