// stable_hash(): FNV-1a in 64 bits, the same for the same text on every machine and in every release, for
// names and delays that must not depend on who computes them. Not for tables of untrusted keys. Pure; any
// thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace plimsoll {

constexpr std::uint64_t stable_hash(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return hash;
}

}  // namespace plimsoll
