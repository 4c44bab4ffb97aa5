// ConnectionTable: the open connections of a Server. Limits them to max_connections, closes those that pass
// their deadline, and waits until all are closed.
//
//   ConnectionTable table(options, open);
//   if (!table.make_room()) return;
//   Connection* added = table.add(std::move(connection));
//   Connection::Clock::time_point next = table.close_late(now);   // call it again then
//   table.remove(added);
//
// Owns the connections. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "base/mutex.h"
#include "http/connection.h"

namespace plimsoll::http {

class ConnectionTable {
 public:
  // `options` and `open`, which counts the connections, must outlive it.
  ConnectionTable(const ServerOptions& options, std::atomic<std::uint64_t>& open)
      : options_(options), open_(open) {}

  // Makes room for one more connection; evicts another if there are too many. False: try later.
  bool make_room();
  Connection* add(std::unique_ptr<Connection> connection);
  // True when make_room() may succeed now that it is gone.
  bool remove(Connection* connection);

  // Closes those whose deadline has passed. Returns when to call it again; max() without connections.
  Connection::Clock::time_point close_late(Connection::Clock::time_point now);
  void close_idle();
  void cut_all();
  bool all_closed_within(std::chrono::milliseconds limit);

 private:
  std::size_t limit_of_share(std::size_t share) const;

  const ServerOptions& options_;
  std::atomic<std::uint64_t>& open_;
  Mutex mutex_;
  std::condition_variable_any changed_;
  std::unordered_map<Connection*, std::unique_ptr<Connection>> connections_ PLIMSOLL_GUARDED_BY(mutex_);
};

}  // namespace plimsoll::http
