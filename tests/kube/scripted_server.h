// An HTTP or HTTPS server on the loopback whose handler decides about every byte, so that a test can play all
// the faults a network has.
//
//   ScriptedServer server([](ScriptedServer::Peer& peer) {
//     peer.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
//     peer.reset();
//   });
//
// The handler runs once for each request, on the connection's own thread; handlers of different connections
// run at once. The destructor closes all connections and waits for their threads.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/controlplane/certificates.h"

namespace plimsoll::testing {

class ScriptedServer {
 public:
  using Request = boost::beast::http::request<boost::beast::http::string_body>;
  class Connection;

  class Peer {
   public:
    const Request& request() const { return request_; }
    std::string target() const { return std::string(request_.target()); }
    std::string header(std::string_view name) const;
    int exchange() const { return exchange_; }  // how many requests came on this connection before
    std::string client_common_name() const;     // of the certificate the client showed; empty: none

    // False when the client is gone.
    bool write(std::string_view bytes);
    bool respond(int status, const std::string& body, const std::string& headers = {});
    // "HTTP/1.1 200 OK" with chunked coding, then pieces, then the end.
    bool begin_chunked(int status = 200);
    bool chunk(std::string_view bytes);
    bool end_chunked();
    void reset();  // TCP RST
    void close();  // FIN, and nothing more is read
    // True when the client closed the connection in that time.
    bool wait_for_close(std::chrono::milliseconds limit);

   private:
    friend class ScriptedServer;
    Peer(Connection& connection, Request request, int exchange)
        : connection_(connection), request_(std::move(request)), exchange_(exchange) {}
    Connection& connection_;
    Request request_;
    int exchange_;
  };

  using Handler = std::function<void(Peer&)>;

  struct Options {
    std::optional<KeyPair> tls;
    bool ask_client_certificate = false;
  };

  explicit ScriptedServer(Handler handler) : ScriptedServer(std::move(handler), Options()) {}
  ScriptedServer(Handler handler, Options options);
  ~ScriptedServer();

  std::string url() const;
  unsigned short port() const { return port_; }
  int connections() const { return connections_count_; }
  // Every request so far, "METHOD target", in the order they were read.
  std::vector<std::string> requests() const;

 private:
  void accept_loop();
  void serve(Connection& connection);

  const Handler handler_;
  const Options options_;
  boost::asio::io_context context_;
  boost::asio::ssl::context tls_;
  boost::asio::ip::tcp::acceptor acceptor_;
  unsigned short port_ = 0;
  std::atomic<bool> stopping_ = false;
  std::atomic<int> connections_count_ = 0;
  mutable std::mutex mutex_;
  std::vector<std::string> requests_;
  std::list<std::unique_ptr<Connection>> connections_;
  std::thread acceptor_thread_;
};

}  // namespace plimsoll::testing
