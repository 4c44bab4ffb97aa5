// Which collection of the API server a call is about. Plain values; any thread.
#pragma once

#include <string>
#include <string_view>

namespace plimsoll::kube {

struct Resource {
  std::string group;  // "" is the core group
  std::string version;
  std::string plural;  // as in the URL: "trainingjobs"
  bool namespaced = true;
};

// Encodes all but RFC 3986's unreserved characters as %XX.
std::string percent_encode(std::string_view text);

// "/apis/plimsoll.dev/v1alpha1/namespaces/NS/trainingjobs[/NAME[/SUBRESOURCE]]"; an empty
// namespace of a namespaced resource stands for all namespaces. Parts are percent-encoded.
std::string path_of(const Resource& resource, const std::string& namespace_name, const std::string& name = {},
                    const std::string& subresource = {});

}  // namespace plimsoll::kube
