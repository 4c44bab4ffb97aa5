#include "webhook/server_socket.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <utility>  // before asio's headers, which need it under C++20

#include <boost/asio/ssl/context.hpp>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <new>

namespace plimsoll::webhook {
namespace {

// What one call of OpenSSL may take.
int size_for_openssl(std::size_t size) {
  return static_cast<int>(std::min<std::size_t>(size, std::numeric_limits<int>::max()));
}

IoResult result_of(ssize_t bytes, IoState when_full) {
  if (bytes > 0) {
    return {IoState::kBytes, static_cast<std::size_t>(bytes)};
  }
  if (bytes == 0) {
    return {IoState::kEnd};
  }
  const bool later = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  return {later ? when_full : IoState::kBroken};
}

}  // namespace

ServerSocket::ServerSocket(Descriptor descriptor, std::shared_ptr<boost::asio::ssl::context> context)
    : descriptor_(std::move(descriptor)), context_(std::move(context)) {
  if (context_ == nullptr) {
    return;
  }
  ssl_ = SSL_new(context_->native_handle());
  if (ssl_ == nullptr || SSL_set_fd(ssl_, descriptor_.get()) != 1) {
    SSL_free(ssl_);
    throw std::bad_alloc();  // the one reason there is
  }
  SSL_set_accept_state(ssl_);
  // A record's header and content come in one call of the system, and a large answer goes out in pieces.
  SSL_set_read_ahead(ssl_, 1);
  SSL_set_mode(ssl_, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                         SSL_MODE_RELEASE_BUFFERS);  // 34 KiB less while a connection is idle
}

ServerSocket::~ServerSocket() {
  SSL_free(ssl_);
}

template <class Call>
IoResult ServerSocket::over_tls(const Call& call) {
  ERR_clear_error();  // SSL_get_error looks at what others have left there
  const int done = call(ssl_);
  if (done > 0) {
    return {IoState::kBytes, static_cast<std::size_t>(done)};
  }
  switch (SSL_get_error(ssl_, done)) {
    case SSL_ERROR_WANT_READ: return {IoState::kWouldRead};
    case SSL_ERROR_WANT_WRITE: return {IoState::kWouldWrite};
    case SSL_ERROR_ZERO_RETURN: return {IoState::kEnd};
    default: break;
  }
  shaken_ = false;  // after an error of its own TLS has nothing to say, not even close_notify
  const bool plain = ERR_GET_REASON(ERR_peek_error()) == SSL_R_HTTP_REQUEST;
  ERR_clear_error();
  return {plain ? IoState::kPlainHttp : IoState::kBroken};
}

IoResult ServerSocket::handshake() {
  if (ssl_ == nullptr) {
    return {IoState::kBytes};
  }
  const IoResult result = over_tls(SSL_do_handshake);
  shaken_ = result.state == IoState::kBytes;
  return result;
}

IoResult ServerSocket::read(std::span<char> into) {
  if (ssl_ == nullptr) {
    return result_of(::recv(descriptor_.get(), into.data(), into.size(), 0), IoState::kWouldRead);
  }
  return over_tls([&](SSL* ssl) { return SSL_read(ssl, into.data(), size_for_openssl(into.size())); });
}

IoResult ServerSocket::write(std::string_view bytes) {
  if (ssl_ == nullptr) {
    return result_of(::send(descriptor_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
                     IoState::kWouldWrite);
  }
  return over_tls([&](SSL* ssl) { return SSL_write(ssl, bytes.data(), size_for_openssl(bytes.size())); });
}

bool ServerSocket::has_read_ahead() const {
  return ssl_ != nullptr && SSL_has_pending(ssl_) == 1;
}

bool ServerSocket::quiet() const {
  char one = 0;
  return !has_read_ahead() && ::recv(descriptor_.get(), &one, 1, MSG_PEEK | MSG_DONTWAIT) <= 0;
}

void ServerSocket::forget_tls() {
  SSL_free(std::exchange(ssl_, nullptr));
}

void ServerSocket::finish_writing() {
  if (ssl_ != nullptr && shaken_) {
    over_tls(SSL_shutdown);  // if it does not fit into the socket's buffer, the peer sees a cut
  }
  ::shutdown(descriptor_.get(), SHUT_WR);
}

IoResult ServerSocket::discard(std::span<char> into) {
  return result_of(::recv(descriptor_.get(), into.data(), into.size(), 0), IoState::kWouldRead);
}

void ServerSocket::stop_reading() {
  ::shutdown(descriptor_.get(), SHUT_RD);
}

void ServerSocket::cut() {
  ::shutdown(descriptor_.get(), SHUT_RDWR);
}

}  // namespace plimsoll::webhook
