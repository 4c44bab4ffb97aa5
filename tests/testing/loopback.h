// The address of a port of this machine that only this machine reaches. Pure.
#pragma once

#include <netinet/in.h>

#include <cstdint>

namespace plimsoll::testing {

// Port 0: where the system chooses one.
inline sockaddr_in loopback_address(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return address;
}

}  // namespace plimsoll::testing
