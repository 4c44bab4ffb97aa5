#include "http/tls_dial.h"

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/ssl.hpp>

namespace plimsoll::http {

Result<void> dial_tls(const std::string& bind_address, std::uint16_t port,
                      std::chrono::milliseconds timeout) {
  namespace asio = boost::asio;
  boost::system::error_code problem;
  asio::ip::address address = asio::ip::make_address(bind_address, problem);
  if (problem) {
    return invalid("bind address is not an IP address", bind_address);
  }
  if (address.is_unspecified()) {
    address = address.is_v6() ? asio::ip::address(asio::ip::address_v6::loopback())
                              : asio::ip::address(asio::ip::address_v4::loopback());
  }
  asio::io_context context(1);
  asio::ssl::context tls(asio::ssl::context::tls_client);
  tls.set_verify_mode(asio::ssl::verify_none);
  boost::beast::ssl_stream<boost::beast::tcp_stream> stream(context, tls);
  boost::beast::tcp_stream& socket = boost::beast::get_lowest_layer(stream);
  socket.expires_after(timeout);
  socket.async_connect(asio::ip::tcp::endpoint(address, port), [&](boost::system::error_code connected) {
    problem = connected;
    if (!connected) {
      stream.async_handshake(asio::ssl::stream_base::client,
                             [&](boost::system::error_code shaken) { problem = shaken; });
    }
  });
  context.run();
  if (problem == boost::beast::error::timeout) {
    return Error(ErrorCode::kTimeout, "no TLS handshake on port " + std::to_string(port) + " within " +
                                          std::to_string(timeout.count()) + " ms");
  }
  if (problem) {
    return Error(ErrorCode::kUnavailable,
                 "no TLS handshake on port " + std::to_string(port) + ": " + problem.message());
  }
  return {};
}

}  // namespace plimsoll::http
