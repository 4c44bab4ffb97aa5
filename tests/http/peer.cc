#include "tests/http/peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http.hpp>

#include <array>
#include <csignal>

#include "http/certificate_authority.h"
#include "tests/testing/loopback.h"
#include "tests/testing/patience.h"

namespace plimsoll::testing {
namespace http = boost::beast::http;

Peer::Peer(std::uint16_t port) {
  std::signal(SIGPIPE, SIG_IGN);
  socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval limit{kPatience.count(), 0};
  const int on = 1;
  ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const sockaddr_in address = loopback_address(port);
  if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    ::close(socket_);
    socket_ = -1;
  }
}

Peer::~Peer() {
  if (ssl_ != nullptr) {
    SSL_shutdown(ssl_);
    SSL_free(ssl_);
  }
  SSL_CTX_free(context_);
  if (socket_ >= 0) {
    ::close(socket_);
  }
  ERR_clear_error();
}

bool Peer::start_tls(const TlsOptions& options) {
  context_ = SSL_CTX_new(TLS_client_method());
  for (const plimsoll::http::Certificate& authority :
       plimsoll::http::read_certificates(options.authorities)) {
    BIO* const text = BIO_new_mem_buf(authority.pem.data(), static_cast<int>(authority.pem.size()));
    X509* const certificate = PEM_read_bio_X509(text, nullptr, nullptr, nullptr);
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context_), certificate);
    X509_free(certificate);
    BIO_free(text);
  }
  if (options.highest_version != 0) {
    SSL_CTX_set_min_proto_version(context_, 0);
    SSL_CTX_set_max_proto_version(context_, options.highest_version);
    SSL_CTX_set_security_level(context_, 0);
  }
  ssl_ = SSL_new(context_);
  if (!options.alpn.empty()) {
    SSL_set_alpn_protos(ssl_, reinterpret_cast<const unsigned char*>(options.alpn.data()),
                        static_cast<unsigned>(options.alpn.size()));
  }
  if (options.session != nullptr) {
    SSL_set_session(ssl_, options.session);
  }
  if (!options.host.empty()) {
    SSL_set_verify(ssl_, SSL_VERIFY_PEER, nullptr);
    SSL_set1_host(ssl_, options.host.c_str());
    if (options.time != 0) {
      X509_VERIFY_PARAM_set_time(SSL_get0_param(ssl_), options.time);
    }
  }
  SSL_set_fd(ssl_, socket_);
  const bool done = SSL_connect(ssl_) == 1;
  ERR_clear_error();
  return done;
}

bool Peer::resumed() const {
  return SSL_session_reused(ssl_) == 1;
}

std::string Peer::protocol() const {
  const unsigned char* chosen = nullptr;
  unsigned size = 0;
  SSL_get0_alpn_selected(ssl_, &chosen, &size);
  return chosen == nullptr ? "" : std::string(reinterpret_cast<const char*>(chosen), size);
}

bool Peer::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const long written = ssl_ != nullptr ? SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size()))
                                         : ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (written <= 0) {
      ERR_clear_error();
      return false;
    }
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

long Peer::read_some(char* into, std::size_t size) {
  const long got =
      ssl_ != nullptr ? SSL_read(ssl_, into, static_cast<int>(size)) : ::recv(socket_, into, size, 0);
  ERR_clear_error();
  return got;
}

std::optional<Response> Peer::read_response(bool to_head) {
  http::response_parser<http::string_body> parser;
  parser.body_limit(64U << 20);
  parser.eager(true);
  parser.skip(to_head);
  boost::system::error_code problem;
  std::array<char, 16384> chunk{};
  for (;;) {
    if (!received_.empty()) {
      const std::size_t used = parser.put(boost::asio::buffer(received_), problem);
      received_.erase(0, used);
      if (parser.is_done()) {
        break;
      }
      if (problem && problem != http::error::need_more) {
        return std::nullopt;
      }
    }
    const long got = read_some(chunk.data(), chunk.size());
    if (got <= 0) {
      return std::nullopt;
    }
    received_.append(chunk.data(), static_cast<std::size_t>(got));
  }
  Response response;
  response.status = parser.get().result_int();
  response.content_type = std::string(parser.get()[http::field::content_type]);
  response.authenticate = std::string(parser.get()[http::field::www_authenticate]);
  response.keep_alive = parser.get().keep_alive();
  response.body = std::move(parser.get().body());
  return response;
}

bool Peer::closes() {
  std::array<char, 4096> chunk{};
  long got = 0;
  do {
    errno = 0;
    got = read_some(chunk.data(), chunk.size());
  } while (got > 0);
  return errno != EAGAIN && errno != EWOULDBLOCK;
}

void Peer::half_close() {
  ::shutdown(socket_, SHUT_WR);
}

std::optional<Response> Peer::exchange(const std::string& method, const std::string& target,
                                       const std::string& content_type, const std::string& body) {
  if (!write(request_text(method, target, content_type, body))) {
    return std::nullopt;
  }
  return read_response();
}

std::string request_text(const std::string& method, const std::string& target,
                         const std::string& content_type, const std::string& body) {
  return method + " " + target + " HTTP/1.1\r\nHost: webhook\r\nContent-Type: " + content_type +
         "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

}  // namespace plimsoll::testing
