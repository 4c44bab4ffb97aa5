#include "tests/controlplane/free_ports.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>

namespace plimsoll::testing {
namespace {

sockaddr_in on_loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return address;
}

}  // namespace

std::vector<int> free_ports(std::size_t count) {
  std::vector<int> sockets;
  std::vector<int> ports;
  for (std::size_t i = 0; i < count; ++i) {
    sockaddr_in address = on_loopback(0);
    socklen_t size = sizeof(address);
    const int held = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockets.push_back(held);
    if (bind(held, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
        getsockname(held, reinterpret_cast<sockaddr*>(&address), &size) == 0) {
      ports.push_back(ntohs(address.sin_port));
    }
  }
  for (const int held : sockets) {
    close(held);
  }
  return ports;
}

bool is_listening(int port) {
  const sockaddr_in address = on_loopback(port);
  const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool taken = connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  close(connection);
  return taken;
}

}  // namespace plimsoll::testing
