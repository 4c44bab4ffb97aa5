#include "tests/kube/scripted_server.h"

#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <cstdio>

namespace plimsoll::testing {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// A socket, with TLS around it or without.
class ScriptedServer::Connection {
 public:
  explicit Connection(tcp::socket socket) : socket_(std::move(socket)) {}

  bool handshake(asio::ssl::context& context) {
    tls_.emplace(socket_, context);
    error_code problem;
    tls_->handshake(asio::ssl::stream_base::server, problem);
    return !problem;
  }

  template <class Buffers>
  std::size_t read_some(const Buffers& buffers, error_code& problem) {
    return tls_ ? tls_->read_some(buffers, problem) : socket_.read_some(buffers, problem);
  }
  template <class Buffers>
  std::size_t read_some(const Buffers& buffers) {
    error_code problem;
    return read_some(buffers, problem);
  }

  bool write(std::string_view bytes) {
    error_code problem;
    if (tls_) {
      asio::write(*tls_, asio::buffer(bytes.data(), bytes.size()), problem);
    } else {
      asio::write(socket_, asio::buffer(bytes.data(), bytes.size()), problem);
    }
    return !problem;
  }

  std::string client_common_name() const {
    X509* certificate = tls_ ? SSL_get1_peer_certificate(
                                   const_cast<SSL*>(const_cast<Connection*>(this)->tls_->native_handle()))
                             : nullptr;
    if (certificate == nullptr) {
      return "";
    }
    char name[256] = {};
    X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, name, sizeof name);
    X509_free(certificate);
    return name;
  }

  int descriptor() { return socket_.native_handle(); }
  // Ends whatever waits on the socket. From any thread.
  void wake() {
    const std::lock_guard lock(mutex_);
    if (socket_.is_open()) {
      ::shutdown(socket_.native_handle(), SHUT_RDWR);
    }
  }
  // Closes it for good; the connection's own thread only.
  void close() {
    const std::lock_guard lock(mutex_);
    error_code ignored;
    socket_.close(ignored);
  }

  std::mutex mutex_;  // of closing, which other threads must not see halfway
  tcp::socket socket_;
  std::optional<asio::ssl::stream<tcp::socket&>> tls_;
  bool finished_ = false;  // the handler closed it
  std::thread thread_;
};

std::string ScriptedServer::Peer::header(std::string_view name) const {
  const auto found = request_.find(boost::beast::string_view(name.data(), name.size()));
  return found == request_.end() ? "" : std::string(found->value());
}

std::string ScriptedServer::Peer::client_common_name() const {
  return connection_.client_common_name();
}

bool ScriptedServer::Peer::write(std::string_view bytes) {
  return !connection_.finished_ && connection_.write(bytes);
}

bool ScriptedServer::Peer::respond(int status, const std::string& body, const std::string& headers) {
  return write("HTTP/1.1 " + std::to_string(status) + " Status\r\nContent-Type: application/json\r\n" +
               headers + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
}

bool ScriptedServer::Peer::begin_chunked(int status) {
  return write("HTTP/1.1 " + std::to_string(status) +
               " Status\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
}

bool ScriptedServer::Peer::chunk(std::string_view bytes) {
  char size[32];
  std::snprintf(size, sizeof size, "%zx\r\n", bytes.size());
  return write(size + std::string(bytes) + "\r\n");
}

bool ScriptedServer::Peer::end_chunked() {
  return write("0\r\n\r\n");
}

void ScriptedServer::Peer::reset() {
  const linger at_once{1, 0};
  ::setsockopt(connection_.descriptor(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  connection_.close();
  connection_.finished_ = true;
}

void ScriptedServer::Peer::close() {
  connection_.wake();
  connection_.finished_ = true;
}

bool ScriptedServer::Peer::wait_for_close(std::chrono::milliseconds limit) {
  pollfd waiting{connection_.descriptor(), POLLIN | POLLRDHUP, 0};
  return ::poll(&waiting, 1, static_cast<int>(limit.count())) > 0;
}

ScriptedServer::ScriptedServer(Handler handler, Options options)
    : handler_(std::move(handler)),
      options_(std::move(options)),
      tls_(asio::ssl::context::tls_server),
      acceptor_(context_, tcp::endpoint(asio::ip::make_address("127.0.0.1"), 0)),
      port_(acceptor_.local_endpoint().port()) {
  if (options_.tls) {
    tls_.use_certificate_chain(asio::buffer(options_.tls->certificate_pem));
    tls_.use_private_key(asio::buffer(options_.tls->key_pem), asio::ssl::context::pem);
    if (options_.ask_client_certificate) {
      tls_.set_verify_mode(asio::ssl::verify_peer);
      tls_.set_verify_callback([](bool, asio::ssl::verify_context&) { return true; });
    }
  }
  acceptor_thread_ = std::thread([this] { accept_loop(); });
}

ScriptedServer::~ScriptedServer() {
  stopping_ = true;
  ::shutdown(acceptor_.native_handle(), SHUT_RDWR);
  acceptor_thread_.join();
  for (const auto& connection : connections_) {
    connection->wake();
  }
  for (const auto& connection : connections_) {
    connection->thread_.join();
  }
}

std::string ScriptedServer::url() const {
  return (options_.tls ? "https://127.0.0.1:" : "http://127.0.0.1:") + std::to_string(port_);
}

std::vector<std::string> ScriptedServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void ScriptedServer::accept_loop() {
  while (true) {
    error_code problem;
    tcp::socket socket(context_);
    acceptor_.accept(socket, problem);
    if (stopping_ || problem) {
      return;
    }
    ++connections_count_;
    connections_.push_back(std::make_unique<Connection>(std::move(socket)));
    Connection& connection = *connections_.back();
    connection.thread_ = std::thread([this, &connection] { serve(connection); });
  }
}

void ScriptedServer::serve(Connection& connection) {
  if (options_.tls && !connection.handshake(tls_)) {
    connection.wake();
    return;
  }
  boost::beast::flat_buffer buffer;
  for (int exchange = 0; !connection.finished_ && !stopping_; ++exchange) {
    boost::beast::http::request_parser<boost::beast::http::string_body> parser;
    parser.body_limit(64 << 20);
    error_code problem;
    boost::beast::http::read(connection, buffer, parser, problem);
    if (problem) {
      break;
    }
    Peer peer(connection, parser.release(), exchange);
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(std::string(peer.request().method_string()) + " " + peer.target());
    }
    handler_(peer);
  }
  connection.wake();
}

}  // namespace plimsoll::testing
