// ConnectionTable: the open connections of a Server. Keeps them within max_connections, closes those that are
// late, and waits until all are gone.
//
//   ConnectionTable table(options, open);
//   if (table.make_room()) table.add(std::make_unique<Connection>(...));
//   Connection::Clock::time_point next = table.close_late(now);   // look again then
//   table.remove(connection);
//
// Owns the connections. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "http/connection.h"

namespace plimsoll::http {

class ConnectionTable {
 public:
  // `options` and `open`, which counts the connections, must outlive it.
  ConnectionTable(const ServerOptions& options, std::atomic<std::uint64_t>& open)
      : options_(options), open_(open) {}

  // For one more connection, evicts another where there are too many. False: there is no room yet.
  bool make_room();
  Connection* add(std::unique_ptr<Connection> connection);
  // True when make_room() may have been waiting for it.
  bool remove(Connection* connection);

  // Closes those whose deadline has passed. When to call again; max() while there are none.
  Connection::Clock::time_point close_late(Connection::Clock::time_point now);
  void close_idle();
  void cut_all();
  bool all_closed_within(std::chrono::milliseconds limit);

 private:
  std::size_t limit_of_share(std::size_t share) const;

  const ServerOptions& options_;
  std::atomic<std::uint64_t>& open_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<Connection*, std::unique_ptr<Connection>> connections_;  // guarded by mutex_
};

}  // namespace plimsoll::http
