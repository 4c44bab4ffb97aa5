#include "kube/resource.h"

#include <string_view>

namespace plimsoll::kube {

std::string percent_encode(std::string_view text) {
  static constexpr std::string_view kUnreserved =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
  static constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string encoded;
  encoded.reserve(text.size());
  for (const char c : text) {
    if (kUnreserved.find(c) != std::string_view::npos) {
      encoded += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      encoded += '%';
      encoded += kHex[byte >> 4];
      encoded += kHex[byte & 15];
    }
  }
  return encoded;
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
