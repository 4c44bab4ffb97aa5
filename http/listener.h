// Listener: accepts the connections of one port, on an io_context that a single thread runs.
//
//   Listener listener(control, connections, {.make_room = make_room, .add = add, .rejected = rejected});
//   if (auto opened = listener.open("0.0.0.0", 9443); !opened) return opened.error();
//   listener.start();
//
// It accepts while `make_room` allows it, and pauses otherwise or when accepting fails. When the process has
// no file descriptors left, it closes a waiting peer, so that the peer does not wait in vain. Call everything
// on the thread of `control`, except the constructor, open() and start(), which come before it runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>  // before asio's headers, which need it under C++20

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/system/error_code.hpp>

#include "base/result.h"

namespace plimsoll::http {

struct ListenerEvents {
  std::function<bool()> make_room;  // for one more connection; false: try later, or after resume()
  std::function<void(boost::asio::ip::tcp::socket)> add;
  std::function<void()> rejected;  // a peer was closed: no descriptor
};

class Listener {
 public:
  // Accepted sockets use `connections`.
  Listener(boost::asio::io_context& control, boost::asio::io_context& connections, ListenerEvents events);

  // Errors: kInvalid for an invalid address, kUnavailable when the port is in use.
  Result<void> open(const std::string& address, std::uint16_t port);
  std::uint16_t port() const { return port_; }
  void start();
  // Ends a pause.
  void resume() { accept_again_.cancel(); }
  // First accepts the peers that have already connected, since closing would reset them.
  void close();

 private:
  boost::asio::ip::tcp::socket accept(boost::system::error_code& problem);
  void accept_one();
  void reject_one();
  void pause(std::chrono::milliseconds time);

  boost::asio::io_context& connections_;
  const ListenerEvents events_;
  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::ip::tcp::socket reserve_;  // its descriptor is used when there is no other
  boost::asio::steady_timer accept_again_;
  std::chrono::milliseconds next_pause_;
  std::uint16_t port_ = 0;
};

}  // namespace plimsoll::http
