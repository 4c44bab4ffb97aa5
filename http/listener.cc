#include "http/listener.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace plimsoll::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Milliseconds = std::chrono::milliseconds;

constexpr Milliseconds kMinPause{10};
constexpr Milliseconds kMaxPause{1'000};

}  // namespace

Listener::Listener(asio::io_context& control, asio::io_context& connections, ListenerEvents events)
    : connections_(connections),
      events_(std::move(events)),
      acceptor_(control),
      reserve_(connections),  // creates the epoll of `connections` while there are descriptors
      accept_again_(control),
      next_pause_(kMinPause) {}

Result<void> Listener::open(const std::string& address, std::uint16_t port) {
  error_code problem;
  const tcp::endpoint endpoint(asio::ip::make_address(address, problem), port);
  if (problem) {
    return invalid("bind address is not an IP address", address);
  }
  const auto failed = [&](const char* what) {
    return Error(ErrorCode::kUnavailable,
                 std::string(what) + " " + address + ":" + std::to_string(port) + ": " + problem.message());
  };
  if (acceptor_.open(endpoint.protocol(), problem)) {
    return failed("cannot open a socket for");
  }
  ::fcntl(acceptor_.native_handle(), F_SETFD, FD_CLOEXEC);
  acceptor_.set_option(tcp::acceptor::reuse_address(true), problem);
  if (acceptor_.bind(endpoint, problem)) {
    return failed("cannot bind");
  }
  if (acceptor_.listen(asio::socket_base::max_listen_connections, problem) ||
      acceptor_.non_blocking(true, problem)) {
    return failed("cannot listen on");
  }
  port_ = acceptor_.local_endpoint(problem).port();
  reserve_.open(tcp::v4(), problem);
  return {};
}

void Listener::start() {
  acceptor_.async_wait(tcp::acceptor::wait_read, [this](error_code problem) {
    if (!problem && acceptor_.is_open()) {
      accept_one();
    }
  });
}

// asio's accept does not set close-on-exec, and blocks when the waiting peer has gone.
tcp::socket Listener::accept(error_code& problem) {
  tcp::socket socket(connections_);
  const int descriptor = ::accept4(acceptor_.native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (descriptor < 0) {
    problem = error_code(errno, boost::system::system_category());
  } else if (socket.assign(tcp::v4(), descriptor, problem)) {  // also for IPv6: nothing reads the protocol
    ::close(descriptor);
  }
  return socket;
}

// Called only when a peer waits, so that no connection is evicted in vain.
void Listener::accept_one() {
  if (!events_.make_room()) {
    pause(kMaxPause);
    return;
  }
  error_code problem;
  tcp::socket socket = accept(problem);
  if (!problem) {
    next_pause_ = kMinPause;
    events_.add(std::move(socket));
  } else if (problem != asio::error::would_block && problem != asio::error::connection_aborted &&
             problem != asio::error::interrupted) {
    if (problem == boost::system::errc::too_many_files_open ||
        problem == boost::system::errc::too_many_files_open_in_system) {
      reject_one();
    }
    // Without a pause a persistent error (no descriptors, no memory) would cause a busy loop.
    pause(next_pause_);
    next_pause_ = std::min(next_pause_ * 2, kMaxPause);
    return;
  }
  start();
}

void Listener::reject_one() {
  events_.rejected();
  error_code ignored;
  reserve_.close(ignored);
  accept(ignored).close(ignored);
  reserve_.open(tcp::v4(), ignored);
}

// Waits for that time or for resume(), then accepts again.
void Listener::pause(Milliseconds time) {
  accept_again_.expires_after(time);
  accept_again_.async_wait([this](error_code) {
    if (acceptor_.is_open()) {
      start();
    }
  });
}

void Listener::close() {
  for (error_code problem;;) {
    tcp::socket socket = accept(problem);
    if (problem) {
      break;
    }
    events_.add(std::move(socket));
  }
  error_code ignored;
  acceptor_.close(ignored);
}

}  // namespace plimsoll::http
