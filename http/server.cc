#include "http/server.h"

#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <list>
#include <new>
#include <thread>
#include <utility>  // before asio's headers, which need it under C++20

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_future.hpp>

#include "base/log.h"
#include "http/connection.h"
#include "http/connection_table.h"
#include "http/handler_slots.h"
#include "http/listener.h"

namespace plimsoll::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = Connection::Clock;
using Milliseconds = std::chrono::milliseconds;
using Next = Connection::Next;

// Other files: listeners, timers, the API client's connections, the log.
constexpr std::size_t kOtherFiles = 128;
constexpr std::size_t kMinConnections = 16;

// Calls and then advances a connection; it is over after an exception (usually out of memory).
template <class Call>
Next advance_after(Connection& connection, const Call& call) {
  try {
    call(connection);
    return connection.advance();
  } catch (const std::exception& problem) {
    log_error("Connection threw an exception and was closed", {{"problem", problem.what()}});
    return Next::kOver;
  }
}

// Fewer than requested when the process may not open that many files.
std::size_t connections_allowed(std::size_t requested) {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY) {
    return requested;
  }
  const std::size_t left = files.rlim_cur > kOtherFiles ? files.rlim_cur - kOtherFiles : 0;
  const std::size_t allowed = std::min(requested, std::max(left, kMinConnections));
  if (allowed < requested) {
    log_warning("Reduced the connection limit: the limit of open files is low",
                {{"connections", allowed}, {"openFiles", files.rlim_cur}});
  }
  return allowed;
}

int priority_of_this_thread() {
  return ::getpriority(PRIO_PROCESS, 0);  // of Linux: the thread's, not the process's
}

}  // namespace

class Server::Impl {
 public:
  Impl(ServerOptions options, Handler handler, std::shared_ptr<const CertificateSource> certificates)
      : state_{.options = std::move(options), .handler = std::move(handler)},
        certificates_(std::move(certificates)),
        workers_(static_cast<std::size_t>(std::max(1, state_.options.workers))),
        slots_(workers_, state_.options.max_in_flight, state_.stats.in_flight) {}

  Result<void> start();
  void stop(Milliseconds lame_duck);

  ServerState state_;

 private:
  // On the control thread.
  void add_connection(tcp::socket socket);
  void close_late_connections();

  // On the threads that serve.
  void run_thread(std::thread& self);
  void serve(Connection* connection);
  void wait_for(Connection* connection, Next next);
  void remove(Connection* connection);

  using WorkGuard = asio::executor_work_guard<asio::io_context::executor_type>;

  const std::shared_ptr<const CertificateSource> certificates_;
  const std::size_t workers_;
  HandlerSlots<Connection> slots_;
  bool started_ = false;
  bool stopped_ = false;

  asio::io_context io_;          // of connections: all threads that serve
  asio::io_context control_{1};  // of the listener and the timer: one thread, which never runs a handler
  const WorkGuard io_work_ = asio::make_work_guard(io_);
  const WorkGuard control_work_ = asio::make_work_guard(control_);
  ConnectionTable connections_{state_.options, state_.stats.open_connections};
  asio::steady_timer check_deadlines_{control_};
  bool checking_ = false;  // check_deadlines_ is set

  std::list<std::thread> threads_;  // once started, of the control thread
  std::thread control_thread_;

 public:
  Listener listener_{control_,
                     io_,
                     {.make_room = [this] { return connections_.make_room(); },
                      .add = [this](tcp::socket socket) { add_connection(std::move(socket)); },
                      .rejected = [this] { ++state_.stats.rejected_no_descriptor; }}};
};

Result<void> Server::Impl::start() {
  std::signal(SIGPIPE, SIG_IGN);
  if (Result<void> opened = listener_.open(state_.options.bind_address, state_.options.port); !opened) {
    return opened;
  }
  state_.options.max_connections = connections_allowed(state_.options.max_connections);
  started_ = true;
  listener_.start();
  // One more than concurrent handlers: one thread can always read, write and do handshakes.
  for (std::size_t i = 0; i < workers_ + 1; ++i) {
    std::thread& thread = threads_.emplace_back();
    thread = std::thread([this, &thread] { run_thread(thread); });
  }
  control_thread_ = std::thread([this] { control_.run(); });
  return {};
}

// Ends after a handler that has lowered the thread's priority; a new thread takes its place. The control
// thread starts it, since a thread inherits the priority of the one that starts it.
void Server::Impl::run_thread(std::thread& self) {
  const int priority = priority_of_this_thread();
  while (io_.run_one() > 0) {
    if (priority_of_this_thread() != priority) {
      asio::post(control_, [this, &self] {
        self.join();
        self = std::thread([this, &self] { run_thread(self); });
      });
      return;
    }
  }
}

void Server::Impl::stop(Milliseconds lame_duck) {
  if (!started_ || stopped_) {
    return;
  }
  stopped_ = true;
  state_.draining = true;
  std::this_thread::sleep_for(lame_duck);

  asio::post(control_, asio::use_future([this] { listener_.close(); })).wait();
  state_.stop.request_stop();
  const Milliseconds idle_grace = lame_duck.count() > 0 ? state_.options.idle_grace : Milliseconds(0);
  if (!connections_.all_closed_within(idle_grace)) {
    connections_.close_idle();
  }
  if (!connections_.all_closed_within(state_.options.drain_timeout)) {
    log_warning("Closed connections that did not end while draining",
                {{"connections", state_.stats.open_connections.load()}});
    connections_.cut_all();
  }
  // The rest ends by itself: the sockets are closed, and handlers have deadlines.
  while (!connections_.all_closed_within(state_.options.drain_timeout)) {
    log_warning("Waiting for handlers that do not end",
                {{"connections", state_.stats.open_connections.load()}});
  }
  control_.stop();
  control_thread_.join();
  io_.stop();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void Server::Impl::add_connection(tcp::socket socket) {
  ++state_.stats.accepted;
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  std::shared_ptr<asio::ssl::context> context;
  if (certificates_ != nullptr && (context = certificates_->current()) == nullptr) {
    ++state_.stats.rejected_tls;  // no certificate yet: no handshake is possible
    return;
  }
  Connection* added = nullptr;
  try {
    added = connections_.add(std::make_unique<Connection>(state_, std::move(socket), std::move(context)));
  } catch (const std::bad_alloc&) {
    log_error("Rejected a connection: out of memory");
    return;
  }
  if (!checking_) {
    close_late_connections();
  }
  wait_for(added, Next::kReadable);
}

void Server::Impl::close_late_connections() {
  const Clock::time_point next = connections_.close_late(Clock::now());
  checking_ = next != Clock::time_point::max();
  if (checking_) {
    check_deadlines_.expires_at(next);
    check_deadlines_.async_wait([this](error_code) { close_late_connections(); });
  }
}

// One owner at a time: asio waits for the connection, or it is in the queue for the handler, or it is here.
void Server::Impl::serve(Connection* connection) {
  Next next = advance_after(*connection, [](Connection&) {});
  if (next == Next::kHandler) {
    const Slot slot = slots_.acquire(connection);
    if (slot == Slot::kQueued) {
      return;
    }
    if (slot == Slot::kGiven) {
      while (connection != nullptr) {
        next = advance_after(*connection, [](Connection& one) { one.handle(); });
        Connection* queued = slots_.release();
        wait_for(connection, next);
        connection = queued;
      }
      return;
    }
    ++state_.stats.rejected_overload;
    next = advance_after(*connection, [](Connection& one) {
      one.answer(plain_text(429, "too many requests are waiting; try again later\n"));
    });
  }
  wait_for(connection, next);
}

// After this call another thread may use the connection.
void Server::Impl::wait_for(Connection* connection, Next next) try {
  const auto serve_again = [this, connection](error_code = {}) { serve(connection); };
  switch (next) {
    case Next::kReadable: connection->stream().async_wait(tcp::socket::wait_read, serve_again); break;
    case Next::kWritable: connection->stream().async_wait(tcp::socket::wait_write, serve_again); break;
    case Next::kAgain: asio::post(io_, serve_again); break;
    default: remove(connection);
  }
} catch (const std::bad_alloc&) {
  log_error("Closed a connection: out of memory");
  remove(connection);
}

void Server::Impl::remove(Connection* connection) {
  if (connections_.remove(connection)) {
    asio::post(control_, [this] { listener_.resume(); });
  }
}

Server::Server(ServerOptions options, Handler handler, std::shared_ptr<const CertificateSource> certificates)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(handler), std::move(certificates))) {}

Server::~Server() {
  impl_->stop(Milliseconds(0));
}

Result<void> Server::start() {
  return impl_->start();
}

std::uint16_t Server::port() const {
  return impl_->listener_.port();
}

bool Server::draining() const {
  return impl_->state_.draining;
}

void Server::stop(std::chrono::milliseconds lame_duck) {
  impl_->stop(lame_duck);
}

const ServerStats& Server::stats() const {
  return impl_->state_.stats;
}

}  // namespace plimsoll::http
