#include "tests/controlplane/free_ports.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/testing/loopback.h"

namespace plimsoll::testing {

std::vector<int> free_ports(std::size_t count) {
  std::vector<int> sockets;
  std::vector<int> ports;
  for (std::size_t i = 0; i < count; ++i) {
    sockaddr_in address = loopback_address(0);
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
  const sockaddr_in address = loopback_address(port);
  const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool taken = connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  close(connection);
  return taken;
}

}  // namespace plimsoll::testing
