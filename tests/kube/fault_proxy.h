// FaultProxy: a TCP proxy on the loopback that does to connections what networks do: delays, dribbles, cuts
// within a piece, resets, half-open connections and partitions. It knows no HTTP and no TLS: both pass
// through it, and are cut wherever it happens.
//
//   FaultProxy proxy(port_of(server), seed);
//   config.server = "https://127.0.0.1:" + std::to_string(proxy.port());
//   proxy.set({.reset = 0.01, .most_delay = 20ms});     // chances are of each piece that passes
//   proxy.partition(true);                             // nothing passes; connections stay open
//   proxy.set({}); proxy.partition(false);             // well again, but for connections that stalled
//
// A thread a connection. Thread-safe; the destructor closes all connections and waits.
#pragma once

#include <atomic>
#include <chrono>
#include <list>
#include <mutex>
#include <random>
#include <thread>

namespace plimsoll::testing {

class FaultProxy {
 public:
  struct Faults {
    double reset = 0;    // both ends get a TCP RST
    double cut = 0;      // a part of the piece passes, then both ends get a FIN
    double stall = 0;    // the connection is silent for good, and open
    double dribble = 0;  // the piece passes in crumbs
    std::chrono::milliseconds most_stall{600'000};
    std::chrono::milliseconds most_delay{0};  // of each piece, at random
  };
  struct Counts {
    int connections = 0;
    int resets = 0;
    int cuts = 0;
    int stalls = 0;
    int dribbles = 0;
  };

  FaultProxy(int upstream_port, unsigned seed);
  ~FaultProxy();
  FaultProxy(const FaultProxy&) = delete;
  FaultProxy& operator=(const FaultProxy&) = delete;

  int port() const { return port_; }
  void set(const Faults& faults);
  void partition(bool is_partitioned) { is_partitioned_ = is_partitioned; }
  void reset_all();
  Counts counts() const;

 private:
  enum class Fate { kPass, kReset, kCut, kStall, kDribble };
  struct Connection {
    explicit Connection(int client) : client_end(client) {}
    int client_end;
    int server_end = -1;
    bool client_is_done = false;  // sent its FIN
    bool server_is_done = false;
    std::thread thread;
    std::atomic<bool> is_over = false;
  };

  void accept_connections();
  void serve(Connection& connection);
  bool reach_upstream(Connection& connection);
  bool forward(Connection& connection, bool from_client);
  bool send_all(int end, const char* bytes, std::size_t size);
  void hold(Connection& connection);
  Fate draw(std::chrono::milliseconds& delay);
  double share();
  bool pause(std::chrono::milliseconds time) const;

  const int upstream_port_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> is_partitioned_ = false;
  std::atomic<int> resets_wanted_ = 0;  // counts reset_all; a connection that began before it is reset

  mutable std::mutex mutex_;
  std::mt19937 random_;
  Faults faults_;
  Counts counts_;
  std::list<Connection> connections_;
  std::thread acceptor_;
};

}  // namespace plimsoll::testing
