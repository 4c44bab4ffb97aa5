#include "webhook/http_server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <deque>
#include <exception>
#include <list>
#include <mutex>
#include <new>
#include <thread>
#include <unordered_map>
#include <utility>  // before asio's headers, which need it under C++20
#include <vector>

#include <boost/asio/ip/tcp.hpp>

#include "base/log.h"
#include "webhook/descriptor.h"
#include "webhook/http_connection.h"

namespace plimsoll::webhook {
namespace {

using Endpoint = boost::asio::ip::tcp::endpoint;
using Clock = HttpConnection::Clock;
using Milliseconds = std::chrono::milliseconds;
using Next = HttpConnection::Next;

constexpr Milliseconds kFirstAcceptPause{10};
constexpr Milliseconds kLongestAcceptPause{1'000};

// Shares of max_connections, see there.
constexpr std::size_t kStrangersShare = 4;
constexpr std::size_t kUnservedShare = 2;
// Connections that were evicted and are not yet gone, before new ones have to wait for that.
constexpr std::size_t kEndingLimit = 64;
// Files that are no connections: listeners, timers, the API client's connections, the log.
constexpr std::size_t kOtherFiles = 128;
constexpr std::size_t kLeastConnections = 16;

// A connection on its way from thread to thread. The kernel says when the next one may have it, of which the
// language knows nothing: so the one that gives it away holds the mutex meanwhile, and the next takes it
// once.
struct Served : HttpConnection {
  using HttpConnection::HttpConnection;
  std::mutex giving_away;
};

// Who may be at the handler: as many at once as there are workers; the others wait in line, up to a limit.
class HandlerTurns {
 public:
  enum class Turn { kNow, kLater, kNever };

  HandlerTurns(std::size_t at_once, std::size_t limit, std::atomic<std::uint64_t>& count)
      : at_once_(at_once), limit_(limit), count_(count) {}

  // kLater: it will be given out by a give_back().
  Turn ask(Served* connection) {
    const std::lock_guard lock(mutex_);
    if (running_ + line_.size() >= limit_) {
      return Turn::kNever;
    }
    ++count_;
    if (running_ < at_once_) {
      ++running_;
      return Turn::kNow;
    }
    line_.push_back(connection);
    return Turn::kLater;
  }

  // Whose turn it is now; null: nobody waits.
  Served* give_back() {
    const std::lock_guard lock(mutex_);
    --count_;
    if (line_.empty()) {
      --running_;
      return nullptr;
    }
    Served* next = line_.front();
    line_.pop_front();
    return next;
  }

 private:
  const std::size_t at_once_;
  const std::size_t limit_;
  std::atomic<std::uint64_t>& count_;  // of both, for others to read
  std::mutex mutex_;
  std::size_t running_ = 0;
  std::deque<Served*> line_;
};

// Calls and then advances a connection; one that throws (memory, as a rule) is over.
template <class Call>
Next go_on_after(HttpConnection& connection, const Call& call) {
  try {
    call(connection);
    return connection.advance();
  } catch (const std::exception& problem) {
    log_error("A connection ended on an exception", {{"problem", problem.what()}});
    return Next::kOver;
  }
}

bool somebody_waits(const Descriptor& listener) {
  pollfd waiting{listener.get(), POLLIN, 0};
  return ::poll(&waiting, 1, 0) > 0;
}

// None when nobody waits, or on an error: errno says which.
Descriptor accept_from(const Descriptor& listener) {
  return Descriptor(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

// Fewer than asked when there are not the files for them.
std::size_t connections_allowed(std::size_t asked) {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY) {
    return asked;
  }
  const std::size_t left = files.rlim_cur > kOtherFiles ? files.rlim_cur - kOtherFiles : 0;
  const std::size_t allowed = std::min(asked, std::max(left, kLeastConnections));
  if (allowed < asked) {
    log_warning("Takes fewer connections: the limit of open files is low",
                {{"connections", std::to_string(allowed)}, {"openFiles", std::to_string(files.rlim_cur)}});
  }
  return allowed;
}

int priority_of_this_thread() {
  return ::getpriority(PRIO_PROCESS, 0);  // of Linux: the thread's, not the process's
}

Milliseconds shortest_timeout(const HttpServerOptions& options) {
  return std::min({options.handshake_timeout, options.header_timeout, options.body_timeout,
                   options.write_timeout, options.idle_timeout, options.linger_timeout});
}

// For ::poll, rounded up, so that it does not return just before the time; -1: without end.
int milliseconds_until(Clock::time_point time) {
  if (time == Clock::time_point::max()) {
    return -1;
  }
  const auto left = std::chrono::ceil<Milliseconds>(time - Clock::now());
  return static_cast<int>(std::clamp<Milliseconds::rep>(left.count(), 0, 1'000'000));
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(HttpServerOptions options, HttpHandler handler, std::shared_ptr<const CertificateSource> certificates)
      : shared_{.options = std::move(options), .handler = std::move(handler)},
        certificates_(std::move(certificates)),
        workers_(static_cast<std::size_t>(std::max(1, shared_.options.workers))),
        turns_(workers_, shared_.options.max_in_flight, shared_.in_flight) {}

  Result<void> start();
  void stop(Milliseconds lame_duck);

  HttpServerShared shared_;
  std::uint16_t port_ = 0;

 private:
  Result<void> open_listener();

  // On the door's thread.
  void keep_the_door();
  void accept_connections();
  void admit(Descriptor descriptor);
  void close_listener();
  bool make_room();
  void shed_one();
  void replace_threads();
  Clock::time_point end_late_connections();
  void pause_accepting(Milliseconds pause) { accept_again_ = Clock::now() + pause; }

  // On the threads that serve.
  void serve_connections();
  void serve(Served* connection);
  void settle(Served* connection, Next next);
  bool give_away(Served* connection, int operation, std::uint32_t readiness);
  void remove(Served* connection);

  bool all_ended_within(Milliseconds limit);

  const std::shared_ptr<const CertificateSource> certificates_;
  const std::size_t workers_;
  HandlerTurns turns_;
  bool started_ = false;
  bool stopped_ = false;

  Descriptor listener_;  // once started, of the door's thread, as the next three
  Descriptor reserve_;   // given up for a moment when there is no other
  Clock::time_point accept_again_{};
  Milliseconds next_pause_ = kFirstAcceptPause;

  Descriptor knock_;   // eventfd: the door's thread has something to look at
  Descriptor poller_;  // epoll: each connection, for one event at a time, and `end_`
  Descriptor end_;     // eventfd: the serving threads are to end
  std::atomic<bool> close_door_ = false;
  std::atomic<bool> door_ends_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<Served*, std::unique_ptr<Served>> connections_;  // guarded by mutex_
  bool door_closed_ = false;                                          // likewise

  std::list<std::thread> serving_;        // of the door's thread, once that runs
  std::vector<std::thread::id> lowered_;  // threads that have ended for their priority; guarded by mutex_
  std::thread door_;
};

Result<void> HttpServer::Impl::open_listener() {
  const HttpServerOptions& options = shared_.options;
  boost::system::error_code no_address;
  const auto address = boost::asio::ip::make_address(options.bind_address, no_address);
  if (no_address) {
    return invalid("the address to bind is no IP address", options.bind_address);
  }
  Endpoint endpoint(address, options.port);
  const auto failed = [&](const char* what) {
    return Error(ErrorCode::kUnavailable, std::string(what) + " " + options.bind_address + ":" +
                                              std::to_string(options.port) + ": " + std::strerror(errno));
  };
  const int on = 1;
  listener_ = Descriptor(
      ::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!listener_) {
    return failed("cannot open a socket for");
  }
  ::setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(listener_.get(), endpoint.data(), static_cast<socklen_t>(endpoint.size())) != 0) {
    return failed("cannot bind");
  }
  if (::listen(listener_.get(), SOMAXCONN) != 0) {
    return failed("cannot listen on");
  }
  auto size = static_cast<socklen_t>(endpoint.capacity());
  ::getsockname(listener_.get(), endpoint.data(), &size);
  port_ = endpoint.port();
  return {};
}

Result<void> HttpServer::Impl::start() {
  std::signal(SIGPIPE, SIG_IGN);
  if (Result<void> opened = open_listener(); !opened) {
    return opened;
  }
  reserve_ = Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  knock_ = Descriptor(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  end_ = Descriptor(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  poller_ = Descriptor(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
  if (!knock_ || !end_ || !poller_ || ::epoll_ctl(poller_.get(), EPOLL_CTL_ADD, end_.get(), &event) != 0) {
    return Error(ErrorCode::kUnavailable,
                 std::string("cannot wait for connections: ") + std::strerror(errno));
  }
  shared_.options.max_connections = connections_allowed(shared_.options.max_connections);
  started_ = true;
  // One more than there are handlers at once: whatever these do, somebody reads, writes and shakes hands.
  for (std::size_t i = 0; i < workers_ + 1; ++i) {
    serving_.emplace_back([this] { serve_connections(); });
  }
  door_ = std::thread([this] { keep_the_door(); });
  return {};
}

void HttpServer::Impl::stop(Milliseconds lame_duck) {
  if (!started_ || stopped_) {
    return;
  }
  stopped_ = true;
  shared_.draining = true;
  std::this_thread::sleep_for(lame_duck);

  close_door_ = true;
  ::eventfd_write(knock_.get(), 1);
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return door_closed_; });
  }
  shared_.stop.request_stop();
  if (!all_ended_within(lame_duck.count() > 0 ? shared_.options.idle_grace : Milliseconds(0))) {
    const std::lock_guard lock(mutex_);
    for (const auto& [connection, owner] : connections_) {
      connection->end_if_idle();
    }
  }
  if (!all_ended_within(shared_.options.drain_timeout)) {
    log_warning("Cut connections that did not end while draining",
                {{"connections", std::to_string(shared_.open)}});
    const std::lock_guard lock(mutex_);
    for (const auto& [connection, owner] : connections_) {
      connection->cut();
    }
  }
  // What is left ends by itself: the sockets are closed, and handlers have deadlines.
  while (!all_ended_within(shared_.options.drain_timeout)) {
    log_warning("Waited for a handler that does not end", {{"connections", std::to_string(shared_.open)}});
  }
  door_ends_ = true;
  ::eventfd_write(knock_.get(), 1);
  door_.join();
  ::eventfd_write(end_.get(), 1);
  for (std::thread& thread : serving_) {
    thread.join();
  }
}

bool HttpServer::Impl::all_ended_within(Milliseconds limit) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, [this] { return connections_.empty(); });
}

// Takes connections and ends those that are late. Sleeps while there is neither.
void HttpServer::Impl::keep_the_door() {
  while (!door_ends_) {
    replace_threads();
    Clock::time_point wake_at = end_late_connections();
    if (close_door_ && listener_) {
      close_listener();
    }
    const bool pausing = Clock::now() < accept_again_;
    if (pausing) {
      wake_at = std::min(wake_at, accept_again_);
    }
    pollfd waiting[] = {{knock_.get(), POLLIN, 0}, {pausing ? -1 : listener_.get(), POLLIN, 0}};
    ::poll(waiting, std::size(waiting), milliseconds_until(wake_at));
    if (waiting[0].revents != 0) {
      eventfd_t knocks = 0;
      ::eventfd_read(knock_.get(), &knocks);
      accept_again_ = {};  // there may be room
    } else if (waiting[1].revents != 0) {
      accept_connections();
    }
  }
}

// Until none waits, or there is no room.
void HttpServer::Impl::accept_connections() {
  for (;;) {
    if (!somebody_waits(listener_)) {
      return;  // nobody is to go for nobody
    }
    if (!make_room()) {
      pause_accepting(kLongestAcceptPause);  // or until a connection has gone
      return;
    }
    if (Descriptor descriptor = accept_from(listener_)) {
      next_pause_ = kFirstAcceptPause;
      admit(std::move(descriptor));
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ECONNABORTED || errno == EINTR) {
      return;
    }
    if (errno == EMFILE || errno == ENFILE) {
      shed_one();
    }
    // Without a pause a lasting error (no descriptors, no memory) would spin.
    pause_accepting(next_pause_);
    next_pause_ = std::min(next_pause_ * 2, kLongestAcceptPause);
    return;
  }
}

void HttpServer::Impl::admit(Descriptor descriptor) {
  ++shared_.accepted;
  const int on = 1;
  ::setsockopt(descriptor.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  std::shared_ptr<boost::asio::ssl::context> context;
  if (certificates_ != nullptr && (context = certificates_->current()) == nullptr) {
    ++shared_.rejected_tls;  // no certificate yet: nothing can be said over TLS
    return;
  }
  Served* raw = nullptr;
  try {
    auto connection = std::make_unique<Served>(shared_, std::move(descriptor), std::move(context));
    raw = connection.get();
    const std::lock_guard lock(mutex_);
    connections_.emplace(raw, std::move(connection));
    shared_.open = connections_.size();
  } catch (const std::bad_alloc&) {
    log_error("Rejected connection: out of memory");
    return;
  }
  if (!give_away(raw, EPOLL_CTL_ADD, EPOLLIN)) {
    log_error("Could not wait for a connection", {{"problem", std::strerror(errno)}});
    remove(raw);
  }
}

// Whoever has connected already is served; closing the listener would reset them.
void HttpServer::Impl::close_listener() {
  while (Descriptor descriptor = accept_from(listener_)) {
    admit(std::move(descriptor));
  }
  listener_.reset();
  const std::lock_guard lock(mutex_);
  door_closed_ = true;
  changed_.notify_all();
}

// For one more connection, which at first is one that was never served: of these the oldest goes when they
// are too many, for a peer that means well soon is no longer among them.
bool HttpServer::Impl::make_room() {
  using Standing = HttpConnection::Standing;
  const std::size_t limit = shared_.options.max_connections;
  const std::lock_guard lock(mutex_);
  if (connections_.size() < limit / kStrangersShare) {
    return true;
  }
  std::size_t strangers = 0;
  std::size_t unserved = 0;
  std::size_t evicted = 0;
  Served* oldest_stranger = nullptr;
  Served* oldest_unserved = nullptr;  // strangers among them
  Served* longest_idle = nullptr;
  const auto older = [](const Served* one, const Served* other) {
    return other == nullptr || one->opened() < other->opened();
  };
  for (const auto& [connection, owner] : connections_) {
    const Standing standing = connection->standing();
    if (standing == Standing::kEvicted) {
      ++evicted;
    } else if (standing == Standing::kStranger || standing == Standing::kUnserved) {
      ++unserved;
      oldest_unserved = older(connection, oldest_unserved) ? connection : oldest_unserved;
      if (standing == Standing::kStranger) {
        ++strangers;
        oldest_stranger = older(connection, oldest_stranger) ? connection : oldest_stranger;
      }
    } else if (standing == Standing::kServed && connection->idle() &&
               (longest_idle == nullptr || connection->idle_since() < longest_idle->idle_since())) {
      longest_idle = connection;
    }
  }
  if (evicted >= kEndingLimit) {
    return false;
  }
  if (strangers >= std::max<std::size_t>(1, limit / kStrangersShare)) {
    oldest_stranger->evict();
  } else if (unserved >= std::max<std::size_t>(1, limit / kUnservedShare)) {
    oldest_unserved->evict();
  } else if (connections_.size() - evicted >= limit) {
    // It serves a request that has come meanwhile, so it may stay for a moment.
    return longest_idle != nullptr && longest_idle->end_if_idle() &&
           connections_.size() < limit + kEndingLimit;
  }
  return true;
}

// Threads whose priority a handler has lowered.
void HttpServer::Impl::replace_threads() {
  std::vector<std::thread::id> lowered;
  {
    const std::lock_guard lock(mutex_);
    lowered.swap(lowered_);
  }
  for (const std::thread::id id : lowered) {
    const auto thread = std::find_if(serving_.begin(), serving_.end(),
                                     [&](const std::thread& one) { return one.get_id() == id; });
    thread->join();
    *thread = std::thread([this] { serve_connections(); });
  }
}

// Out of file descriptors: the reserve lets one waiting peer be told (by a close) instead of left hanging.
void HttpServer::Impl::shed_one() {
  ++shared_.rejected_no_descriptor;
  reserve_.reset();
  accept_from(listener_).reset();
  reserve_ = Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

// When to look again: at the next deadline, and before one that is set meanwhile could pass.
Clock::time_point HttpServer::Impl::end_late_connections() {
  const Clock::time_point now = Clock::now();
  const std::lock_guard lock(mutex_);
  if (connections_.empty()) {
    return Clock::time_point::max();
  }
  Clock::time_point next = now + shortest_timeout(shared_.options);
  for (const auto& [connection, owner] : connections_) {
    connection->time_out_at(now);
    next = std::min(next, connection->deadline());
  }
  return next;
}

void HttpServer::Impl::serve_connections() {
  const int priority = priority_of_this_thread();
  for (;;) {
    epoll_event event{};
    if (::epoll_wait(poller_.get(), &event, 1, -1) != 1) {
      continue;
    }
    if (event.data.ptr == nullptr) {
      return;
    }
    auto* connection = static_cast<Served*>(event.data.ptr);
    connection->giving_away.lock();  // until the thread that had it is done with it
    connection->giving_away.unlock();
    serve(connection);
    if (priority_of_this_thread() != priority) {
      const std::lock_guard lock(mutex_);
      lowered_.push_back(std::this_thread::get_id());
      ::eventfd_write(knock_.get(), 1);
      return;
    }
  }
}

// A connection is in one place at a time: with the kernel, for one event; in line for the handler; or here.
void HttpServer::Impl::serve(Served* connection) {
  Next next = go_on_after(*connection, [](HttpConnection&) {});
  if (next == Next::kHandler) {
    const HandlerTurns::Turn turn = turns_.ask(connection);
    if (turn == HandlerTurns::Turn::kLater) {
      return;
    }
    if (turn == HandlerTurns::Turn::kNow) {
      while (connection != nullptr) {
        next = go_on_after(*connection, [](HttpConnection& one) { one.handle(); });
        Served* waiting = turns_.give_back();
        settle(connection, next);
        connection = waiting;
      }
      return;
    }
    ++shared_.rejected_overload;
    next = go_on_after(*connection, [](HttpConnection& one) {
      one.answer(plain_text(429, "too many requests are waiting; try again later\n"));
    });
  }
  settle(connection, next);
}

void HttpServer::Impl::settle(Served* connection, Next next) {
  if (next == Next::kOver ||
      !give_away(connection, EPOLL_CTL_MOD, next == Next::kReadable ? EPOLLIN : EPOLLOUT)) {
    remove(connection);
  }
}

// To the kernel, for one event: then another thread has it, perhaps before this returns.
bool HttpServer::Impl::give_away(Served* connection, int operation, std::uint32_t readiness) {
  epoll_event event{.events = readiness | EPOLLONESHOT, .data = {.ptr = connection}};
  const std::lock_guard lock(connection->giving_away);
  return ::epoll_ctl(poller_.get(), operation, connection->descriptor(), &event) == 0;
}

void HttpServer::Impl::remove(Served* connection) {
  bool was_full = false;
  std::unique_ptr<Served> owner;
  {
    const std::lock_guard lock(mutex_);
    const auto place = connections_.find(connection);
    owner = std::move(place->second);
    was_full = connections_.size() >= shared_.options.max_connections / kStrangersShare;
    connections_.erase(place);
    shared_.open = connections_.size();
    changed_.notify_all();
  }
  owner.reset();
  if (was_full) {
    ::eventfd_write(knock_.get(), 1);
  }
}

HttpServer::HttpServer(HttpServerOptions options, HttpHandler handler,
                       std::shared_ptr<const CertificateSource> certificates)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(handler), std::move(certificates))) {}

HttpServer::~HttpServer() {
  impl_->stop(Milliseconds(0));
}

Result<void> HttpServer::start() {
  return impl_->start();
}

std::uint16_t HttpServer::port() const {
  return impl_->port_;
}

bool HttpServer::draining() const {
  return impl_->shared_.draining;
}

void HttpServer::stop(std::chrono::milliseconds lame_duck) {
  impl_->stop(lame_duck);
}

HttpServerStats HttpServer::stats() const {
  const HttpServerShared& shared = impl_->shared_;
  return {.accepted = shared.accepted,
          .open_connections = shared.open,
          .in_flight = shared.in_flight,
          .body_bytes = shared.body_memory,
          .requests = shared.requests,
          .rejected_overload = shared.rejected_overload,
          .rejected_malformed = shared.rejected_malformed,
          .rejected_timeout = shared.rejected_timeout,
          .rejected_tls = shared.rejected_tls,
          .rejected_no_descriptor = shared.rejected_no_descriptor,
          .evicted = shared.evicted};
}

}  // namespace plimsoll::webhook
