#include "http/socket.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <boost/asio/ssl/context.hpp>

#include <algorithm>
#include <limits>
#include <new>

namespace plimsoll::http {
namespace {

namespace asio = boost::asio;
using boost::asio::ip::tcp;
using boost::system::error_code;

// The size for one call of OpenSSL, whose sizes are ints.
int size_for_openssl(std::size_t size) {
  return static_cast<int>(std::min<std::size_t>(size, std::numeric_limits<int>::max()));
}

IoResult result_of(std::size_t bytes, const error_code& problem, IoState when_full) {
  if (!problem) {
    return {IoState::kBytes, bytes};
  }
  if (problem == asio::error::eof) {
    return {IoState::kEnd};
  }
  const bool later = problem == asio::error::would_block || problem == asio::error::interrupted;
  return {later ? when_full : IoState::kBroken};
}

}  // namespace

Socket::Socket(tcp::socket socket, std::shared_ptr<asio::ssl::context> context)
    : socket_(std::move(socket)), context_(std::move(context)) {
  if (error_code problem; socket_.non_blocking(true, problem)) {
    cut();  // the first operation then fails
  }
  if (context_ == nullptr) {
    return;
  }
  ssl_ = SSL_new(context_->native_handle());
  if (ssl_ == nullptr || SSL_set_fd(ssl_, socket_.native_handle()) != 1) {
    SSL_free(ssl_);
    throw std::bad_alloc();  // the only possible reason
  }
  SSL_set_accept_state(ssl_);
  // One system call reads a record's header and content, and a large response is written in pieces.
  SSL_set_read_ahead(ssl_, 1);
  SSL_set_mode(ssl_, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                         SSL_MODE_RELEASE_BUFFERS);  // 34 KiB less while a connection is idle
}

Socket::~Socket() {
  SSL_free(ssl_);
}

template <class Call>
IoResult Socket::over_tls(const Call& call) {
  ERR_clear_error();  // SSL_get_error also reads errors of earlier calls
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
  established_ = false;  // after an error TLS sends nothing more, not even close_notify
  const bool plain = ERR_GET_REASON(ERR_peek_error()) == SSL_R_HTTP_REQUEST;
  ERR_clear_error();
  return {plain ? IoState::kPlainHttp : IoState::kBroken};
}

IoResult Socket::handshake() {
  if (ssl_ == nullptr) {
    return {IoState::kBytes};
  }
  const IoResult result = over_tls(SSL_do_handshake);
  established_ = result.state == IoState::kBytes;
  return result;
}

IoResult Socket::read(std::span<char> into) {
  if (ssl_ == nullptr) {
    return discard(into);
  }
  return over_tls([&](SSL* ssl) { return SSL_read(ssl, into.data(), size_for_openssl(into.size())); });
}

IoResult Socket::write(std::string_view bytes) {
  if (ssl_ == nullptr) {
    error_code problem;
    const std::size_t sent = socket_.write_some(asio::buffer(bytes), problem);
    return result_of(sent, problem, IoState::kWouldWrite);
  }
  return over_tls([&](SSL* ssl) { return SSL_write(ssl, bytes.data(), size_for_openssl(bytes.size())); });
}

bool Socket::has_buffered() const {
  return ssl_ != nullptr && SSL_has_pending(ssl_) == 1;
}

bool Socket::quiet() {
  char one = 0;
  error_code problem;
  return !has_buffered() && socket_.receive(asio::buffer(&one, 1), tcp::socket::message_peek, problem) == 0;
}

void Socket::drop_tls() {
  SSL_free(std::exchange(ssl_, nullptr));
}

void Socket::finish_writing() {
  if (ssl_ != nullptr && established_) {
    over_tls(SSL_shutdown);  // if the socket's buffer is full, the peer sees a truncated stream
  }
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
}

IoResult Socket::discard(std::span<char> into) {
  error_code problem;
  const std::size_t got = socket_.read_some(asio::buffer(into.data(), into.size()), problem);
  return result_of(got, problem, IoState::kWouldRead);
}

void Socket::stop_reading() {
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_receive, ignored);
}

void Socket::cut() {
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_both, ignored);
}

}  // namespace plimsoll::http
