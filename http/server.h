// Server: an HTTP/1.1 server for endpoints that face a network: TLS or plain, every resource bounded.
//
//   Server server({.bind_address = "0.0.0.0", .port = 9443}, handle, certificates);
//   if (auto started = server.start(); !started) return started.error();
//   ...
//   server.stop(5s);   // lame duck, drain, close: returns when no thread and no socket is left
//
// All threads wait for all connections, and a request is read, handled and answered by one of them. They are
// one more than the workers, of which no more than `workers` are ever at the handler: handlers that take long
// stop neither a handshake nor another connection. Another thread accepts connections and watches the
// deadlines. Whatever a peer does ends within a deadline and below a limit of ServerOptions. What is not HTTP
// is answered 400, what is too large 413 or 431, and 429 or 503 when there is too much of it; peers that are
// too slow are disconnected. A handler that throws becomes a 500.
//
// Stopping loses no request of a well-behaved client: while the lame duck lasts, new connections are accepted
// and every answer says `Connection: close`; then the listener closes, handlers are asked to end by
// Request::stop, requests in flight are answered, and idle connections are closed.
//
// A handler may lower the priority of its thread: such a thread ends after its request, and another takes its
// place, for a process without privileges cannot raise a priority again.
//
// Thread-safety: start() and stop() from one thread; all else from any. The handler is called from several
// threads at once and must outlive the server. Ignores SIGPIPE for the process.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "base/result.h"
#include "http/certificate_source.h"

namespace plimsoll::http {

struct Request {
  std::string method;  // "GET", "POST", ... as it came
  std::string path;    // without the query
  std::string query;   // without the '?'; still percent-encoded
  std::string content_type;
  std::string body;
  std::chrono::steady_clock::time_point received;  // when its header was complete
  // Requested when the server waits for its last handlers: what is not done by then is to be given up.
  std::stop_token stop = {};
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
};

using Handler = std::function<Response(const Request&)>;

struct ServerOptions {
  std::string bind_address = "0.0.0.0";
  std::uint16_t port = 0;  // 0: any free one, see port()
  int workers = 2;         // handlers that run at the same time

  // The API server sends some 1 KiB of header; 16 KiB leaves room for proxies and none for floods.
  std::size_t header_limit = 16 << 10;
  // Two objects of the API server's largest size (3 MB) and 1 MB for the rest, as controller-runtime counts.
  std::size_t body_limit = 7 << 20;
  // All bodies held at once, of which peers that were never served hold three quarters at most.
  std::size_t body_memory_limit = 128 << 20;
  // Fewer when the process may open fewer files. At most a quarter may be in their handshake, and at most a
  // half without a request that was answered: when there are more, the oldest of them is closed, so that
  // silent peers never take the place of clients that are served. Beyond the whole, the served one that has
  // been idle for longest is closed.
  std::size_t max_connections = 1024;
  // Requests at or waiting for a worker; above it the answer is 429 at once. More would only queue until the
  // API server has given up on them.
  std::size_t max_in_flight = 64;

  std::chrono::milliseconds handshake_timeout{10'000};
  std::chrono::milliseconds header_timeout{10'000};  // first byte to the empty line
  std::chrono::milliseconds body_timeout{10'000};
  std::chrono::milliseconds write_timeout{10'000};
  // As long as the API server's own client keeps an idle connection.
  std::chrono::milliseconds idle_timeout{90'000};
  // How long a closing connection waits for the peer to read the last answer.
  std::chrono::milliseconds linger_timeout{2'000};
  // After the listener closed: how long a connection without a request is kept for one that is on its way...
  std::chrono::milliseconds idle_grace{500};
  // ... and how long requests under way may take before their connections are cut.
  std::chrono::milliseconds drain_timeout{20'000};
};

// Counters since start, and three gauges. A snapshot; the members are not of one instant.
struct ServerStats {
  std::uint64_t accepted = 0;
  std::uint64_t open_connections = 0;  // gauge
  std::uint64_t in_flight = 0;         // gauge: requests at or waiting for a worker
  std::uint64_t body_bytes = 0;        // gauge: held of bodies
  std::uint64_t requests = 0;          // handed to the handler
  std::uint64_t rejected_overload = 0;
  std::uint64_t rejected_malformed = 0;  // no HTTP, or beyond a limit
  std::uint64_t rejected_timeout = 0;
  std::uint64_t rejected_tls = 0;
  std::uint64_t rejected_no_descriptor = 0;  // out of file descriptors
  std::uint64_t evicted = 0;                 // closed to make room for others
};

class Server {
 public:
  // `certificates` null: plain HTTP. Shared with whoever renews them.
  Server(ServerOptions options, Handler handler,
         std::shared_ptr<const CertificateSource> certificates = nullptr);
  ~Server();  // stop(0s)
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Binds, listens and serves. Errors: kInvalid for an address that is none, kUnavailable when the port is
  // taken.
  Result<void> start();

  // The port bound, once started.
  std::uint16_t port() const;

  // True from the first moment of stop().
  bool draining() const;

  // Blocks until everything is closed. A second call does nothing.
  void stop(std::chrono::milliseconds lame_duck);

  ServerStats stats() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace plimsoll::http
