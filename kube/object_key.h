// Keys of objects: "NAMESPACE/NAME", or "NAME" alone for what has no namespace (object_store.h makes them).
#pragma once

#include <string>

namespace plimsoll::kube {

// The key's namespace; empty where there is none.
inline std::string namespace_of(const std::string& key) {
  const std::size_t slash = key.find('/');
  return slash == std::string::npos ? std::string() : key.substr(0, slash);
}

}  // namespace plimsoll::kube
