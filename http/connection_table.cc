#include "http/connection_table.h"

#include <algorithm>
#include <utility>

namespace plimsoll::http {
namespace {

using Clock = Connection::Clock;
using Progress = Connection::Progress;
using Milliseconds = std::chrono::milliseconds;

// Shares of max_connections, see there.
constexpr std::size_t kHandshakingShare = 4;
constexpr std::size_t kNotServedShare = 2;
// New connections wait while this many evicted ones are not closed yet.
constexpr std::size_t kMaxEvicted = 64;

Milliseconds shortest_timeout(const ServerOptions& options) {
  return std::min({options.handshake_timeout, options.header_timeout, options.body_timeout,
                   options.write_timeout, options.idle_timeout, options.linger_timeout});
}

// The candidates of make_room().
struct Census {
  std::size_t handshaking = 0;
  std::size_t not_served = 0;  // those in their handshake among them
  std::size_t evicted = 0;
  Connection* oldest_handshaking = nullptr;
  Connection* oldest_not_served = nullptr;
  Connection* longest_idle = nullptr;

  void count(Connection* connection) {
    const auto older = [&](const Connection* than) {
      return than == nullptr || connection->opened() < than->opened();
    };
    switch (connection->progress()) {
      case Progress::kEvicted: ++evicted; break;
      case Progress::kHandshaking:
        ++handshaking;
        oldest_handshaking = older(oldest_handshaking) ? connection : oldest_handshaking;
        [[fallthrough]];
      case Progress::kNotServed:
        ++not_served;
        oldest_not_served = older(oldest_not_served) ? connection : oldest_not_served;
        break;
      case Progress::kServed:
        if (connection->idle() &&
            (longest_idle == nullptr || connection->idle_since() < longest_idle->idle_since())) {
          longest_idle = connection;
        }
        break;
      case Progress::kHandling: break;
    }
  }
};

}  // namespace

std::size_t ConnectionTable::limit_of_share(std::size_t share) const {
  return std::max<std::size_t>(1, options_.max_connections / share);
}

// A new connection starts as one that was never served. When there are too many of these, the oldest is
// evicted, since a client that sends requests leaves this group soon.
bool ConnectionTable::make_room() {
  const std::size_t limit = options_.max_connections;
  const MutexLock lock(mutex_);
  if (connections_.size() < limit / kHandshakingShare) {
    return true;
  }
  Census census;
  for (const auto& [connection, owner] : connections_) {
    census.count(connection);
  }
  if (census.evicted >= kMaxEvicted) {
    return false;
  }
  if (census.handshaking >= limit_of_share(kHandshakingShare)) {
    census.oldest_handshaking->evict();
  } else if (census.not_served >= limit_of_share(kNotServedShare)) {
    census.oldest_not_served->evict();
  } else if (connections_.size() - census.evicted >= limit) {
    // If a request has just arrived, it is served first, so the connection may stay for a moment.
    return census.longest_idle != nullptr && census.longest_idle->close_if_idle() &&
           connections_.size() < limit + kMaxEvicted;
  }
  return true;
}

Connection* ConnectionTable::add(std::unique_ptr<Connection> connection) {
  Connection* added = connection.get();
  const MutexLock lock(mutex_);
  connections_.emplace(added, std::move(connection));
  open_ = connections_.size();
  return added;
}

bool ConnectionTable::remove(Connection* connection) {
  std::unique_ptr<Connection> owner;  // destroyed after the lock is released
  const MutexLock lock(mutex_);
  const auto place = connections_.find(connection);
  owner = std::move(place->second);
  const bool was_full = connections_.size() >= options_.max_connections / kHandshakingShare;
  connections_.erase(place);
  open_ = connections_.size();
  changed_.notify_all();
  return was_full;
}

// Returns the next deadline, but never a time after one that may be set in the meantime.
Clock::time_point ConnectionTable::close_late(Clock::time_point now) {
  const MutexLock lock(mutex_);
  Clock::time_point next = connections_.empty() ? Clock::time_point::max() : now + shortest_timeout(options_);
  for (const auto& [connection, owner] : connections_) {
    connection->time_out_at(now);
    next = std::min(next, connection->deadline());
  }
  return next;
}

void ConnectionTable::close_idle() {
  const MutexLock lock(mutex_);
  for (const auto& [connection, owner] : connections_) {
    connection->close_if_idle();
  }
}

void ConnectionTable::cut_all() {
  const MutexLock lock(mutex_);
  for (const auto& [connection, owner] : connections_) {
    connection->cut();
  }
}

bool ConnectionTable::all_closed_within(Milliseconds limit) {
  MutexLock lock(mutex_);
  return changed_.wait_for(lock, limit, [this]() PLIMSOLL_REQUIRES(mutex_) { return connections_.empty(); });
}

}  // namespace plimsoll::http
