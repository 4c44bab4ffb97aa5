#include "tests/kube/fault_proxy.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>

#include "tests/testing/loopback.h"

namespace plimsoll::testing {
namespace {

using std::chrono::milliseconds;

// How soon a change of the faults is seen.
constexpr milliseconds kTick{10};
constexpr milliseconds kMaxSend{200};

void prepare(int end) {
  const int yes = 1;
  ::setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  const timeval limit{0, std::chrono::duration_cast<std::chrono::microseconds>(kMaxSend).count()};
  ::setsockopt(end, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

void close_with_reset(int end) {
  const linger now{1, 0};
  ::setsockopt(end, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  ::close(end);
}

}  // namespace

FaultProxy::FaultProxy(int upstream_port, unsigned seed) : upstream_port_(upstream_port), random_(seed) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = loopback_address(0);
  socklen_t size = sizeof address;
  const bool listens = ::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                       ::listen(listener_, SOMAXCONN) == 0 &&
                       ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  assert(listens);
  port_ = listens ? ntohs(address.sin_port) : 0;
  acceptor_ = std::thread([this] { accept_connections(); });
}

FaultProxy::~FaultProxy() {
  stopping_ = true;
  acceptor_.join();
  for (Connection& connection : connections_) {
    connection.thread.join();
  }
  ::close(listener_);
}

void FaultProxy::set(const Faults& faults) {
  const std::lock_guard lock(mutex_);
  faults_ = faults;
}

void FaultProxy::reset_all() {
  ++resets_wanted_;
}

FaultProxy::Counts FaultProxy::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void FaultProxy::accept_connections() {
  while (!stopping_) {
    pollfd waiting{listener_, POLLIN, 0};
    if (::poll(&waiting, 1, static_cast<int>(kTick.count())) != 1) {
      continue;
    }
    const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) {
      continue;
    }
    prepare(client);
    const std::lock_guard lock(mutex_);
    ++counts_.connections;
    for (auto each = connections_.begin(); each != connections_.end();) {
      if (each->is_over) {
        each->thread.join();
        each = connections_.erase(each);
      } else {
        ++each;
      }
    }
    Connection& connection = connections_.emplace_back(client);
    connection.thread = std::thread([this, &connection] {
      serve(connection);
      connection.is_over = true;
    });
  }
}

double FaultProxy::share() {
  return std::uniform_real_distribution<double>(0, 1)(random_);
}

FaultProxy::Fate FaultProxy::draw(milliseconds& delay) {
  const std::lock_guard lock(mutex_);
  delay = milliseconds(static_cast<int>(share() * static_cast<double>(faults_.most_delay.count())));
  const std::pair<double, std::pair<Fate, int*>> chances[] = {
      {faults_.reset, {Fate::kReset, &counts_.resets}},
      {faults_.cut, {Fate::kCut, &counts_.cuts}},
      {faults_.stall, {Fate::kStall, &counts_.stalls}},
      {faults_.dribble, {Fate::kDribble, &counts_.dribbles}}};
  double drawn = share();
  for (const auto& [chance, outcome] : chances) {
    if (drawn < chance) {
      ++*outcome.second;
      return outcome.first;
    }
    drawn -= chance;
  }
  return Fate::kPass;
}

// False: the proxy stops.
bool FaultProxy::pause(milliseconds time) const {
  for (; time.count() > 0 && !stopping_; time -= kTick) {
    std::this_thread::sleep_for(std::min(time, kTick));
  }
  return !stopping_;
}

bool FaultProxy::reach_upstream(Connection& connection) {
  while (is_partitioned_) {
    if (!pause(kTick)) {
      return false;
    }
  }
  connection.server_end = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  prepare(connection.server_end);
  const sockaddr_in address = loopback_address(upstream_port_);
  return ::connect(connection.server_end, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

void FaultProxy::serve(Connection& connection) {
  const int resets_seen = resets_wanted_;
  bool passes = reach_upstream(connection);
  bool is_reset = !passes;
  while (passes && !stopping_ && !(connection.client_is_done && connection.server_is_done)) {
    if (resets_wanted_ != resets_seen) {
      is_reset = true;
      break;
    }
    if (is_partitioned_) {
      passes = pause(kTick);
      continue;
    }
    pollfd ends[] = {{connection.client_is_done ? -1 : connection.client_end, POLLIN, 0},
                     {connection.server_is_done ? -1 : connection.server_end, POLLIN, 0}};
    ::poll(ends, 2, static_cast<int>(kTick.count()));
    for (const bool from_client : {true, false}) {
      if (passes && ends[from_client ? 0 : 1].revents != 0) {
        passes = forward(connection, from_client);
        is_reset = !passes;
      }
    }
  }
  for (const int end : {connection.client_end, connection.server_end}) {
    if (end >= 0) {
      is_reset ? close_with_reset(end) : static_cast<void>(::close(end));
    }
  }
}

// Takes one piece from one end to the other, or not. False: the connection is over.
bool FaultProxy::forward(Connection& connection, bool from_client) {
  const int from = from_client ? connection.client_end : connection.server_end;
  const int to = from_client ? connection.server_end : connection.client_end;
  std::array<char, 16'384> piece;
  const ssize_t read = ::recv(from, piece.data(), piece.size(), 0);
  if (read < 0) {
    return false;
  }
  if (read == 0) {
    (from_client ? connection.client_is_done : connection.server_is_done) = true;
    ::shutdown(to, SHUT_WR);
    return true;
  }
  const auto size = static_cast<std::size_t>(read);
  milliseconds delay{0};
  const Fate fate = draw(delay);
  if (!pause(delay)) {
    return false;
  }
  switch (fate) {
    case Fate::kPass: return send_all(to, piece.data(), size);
    case Fate::kReset: return false;
    case Fate::kCut:
      send_all(to, piece.data(), size / 2);
      ::shutdown(connection.client_end, SHUT_RDWR);
      ::shutdown(connection.server_end, SHUT_RDWR);
      connection.client_is_done = connection.server_is_done = true;
      return true;
    case Fate::kStall: hold(connection); return false;
    case Fate::kDribble: break;
  }
  constexpr std::size_t kCrumb = 7;
  for (std::size_t sent = 0; sent < size; sent += kCrumb) {
    // A long piece would take minutes: its rest passes whole.
    const bool is_long_already = sent > 50 * kCrumb;
    const std::size_t now = is_long_already ? size - sent : std::min(kCrumb, size - sent);
    if (!send_all(to, piece.data() + sent, now)) {
      return false;
    }
    if (is_long_already) {
      break;
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}

bool FaultProxy::send_all(int end, const char* bytes, std::size_t size) {
  while (size > 0 && !stopping_) {
    const ssize_t sent = ::send(end, bytes, size, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
      return false;
    }
    const auto passed = static_cast<std::size_t>(std::max<ssize_t>(sent, 0));
    bytes += passed;
    size -= passed;
  }
  return size == 0;
}

// Half-open: nothing passes until the client has had enough, or the time is over.
void FaultProxy::hold(Connection& connection) {
  const auto began = std::chrono::steady_clock::now();
  const milliseconds limit = [this] {
    const std::lock_guard lock(mutex_);
    return faults_.most_stall;
  }();
  while (!stopping_ && std::chrono::steady_clock::now() - began < limit) {
    pollfd client{connection.client_end, POLLRDHUP, 0};
    if (::poll(&client, 1, static_cast<int>(kTick.count())) == 1) {
      return;
    }
  }
}

}  // namespace plimsoll::testing
