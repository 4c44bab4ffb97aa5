// What the examples of http/ leave open.
#pragma once

#include "http/certificate_authority.h"
#include "http/certificate_source.h"
#include "http/connection.h"
#include "http/connection_table.h"
#include "http/handler_slots.h"
#include "http/listener.h"
#include "http/server.h"
#include "http/socket.h"
#include "tests/header_examples/anything.h"

namespace plimsoll::examples {
using namespace http;

struct certificate_authority_example {
  Clock::WallTime now, in_three_months, in_five_years;
};
struct certificate_source_example {
  std::string dir;
  ServerOptions options;
  Handler handler;
};
struct connection_example {
  using Next = Connection::Next;
  ServerState state;
  boost::asio::ip::tcp::socket socket;
  std::shared_ptr<boost::asio::ssl::context> context;
};
struct connection_table_example {
  ServerOptions options;
  std::atomic<std::uint64_t> open;
  std::unique_ptr<Connection> connection;
  Connection::Clock::time_point now;
};
struct handler_slots_example {
  std::size_t workers, max_in_flight;
  std::atomic<std::uint64_t> in_flight;
  Connection* one;
  void handle(Connection* connection);
};
struct listener_example {
  boost::asio::io_context control, connections;
  std::function<bool()> make_room;
  std::function<void(boost::asio::ip::tcp::socket)> add;
  std::function<void()> rejected;
};
struct server_example {
  Handler handle;
  std::shared_ptr<CertificateSource> certificates;
};
struct socket_example {
  boost::asio::ip::tcp::socket accepted;
  std::shared_ptr<boost::asio::ssl::context> context;
  std::span<char> buffer;
  void wait_until_readable();
};

}  // namespace plimsoll::examples
