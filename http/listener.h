// Listener: takes the connections of one port, on an io_context that a single thread runs.
//
//   Listener listener(control, connections, {.make_room = ..., .add = ..., .rejected = ...});
//   if (auto opened = listener.open("0.0.0.0", 9443); !opened) return opened.error();
//   listener.start();
//
// It accepts when there is room, pauses when there is not or the system gives no more descriptors, and closes
// a peer that waits when they have run out, so that the peer is not left without an answer. All on the thread
// of `control`, but the constructor, open() and start() before it runs.
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
  std::function<bool()> make_room;  // for one more; false: try later, or when there_is_room() says so
  std::function<void(boost::asio::ip::tcp::socket)> add;
  std::function<void()> rejected;  // a peer, as there is no descriptor
};

class Listener {
 public:
  // The sockets that it accepts belong to `connections`.
  Listener(boost::asio::io_context& control, boost::asio::io_context& connections, ListenerEvents events);

  // Errors: kInvalid for an address that is none, kUnavailable when the port is taken.
  Result<void> open(const std::string& address, std::uint16_t port);
  std::uint16_t port() const { return port_; }
  void start();
  void there_is_room() { accept_again_.cancel(); }
  // Peers that have connected already are accepted; closing would reset them.
  void close();

 private:
  boost::asio::ip::tcp::socket accept(boost::system::error_code& problem);
  void accept_one();
  void reject_one();
  void pause(std::chrono::milliseconds time);

  boost::asio::io_context& connections_;
  const ListenerEvents events_;
  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::ip::tcp::socket reserve_;  // its descriptor is given up for a moment when there is no other
  boost::asio::steady_timer accept_again_;
  std::chrono::milliseconds next_pause_;
  std::uint16_t port_ = 0;
};

}  // namespace plimsoll::http
