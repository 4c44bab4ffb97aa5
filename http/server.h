// Server: an HTTP/1.1 server for endpoints that face a network: TLS or plain, every resource bounded.
//
//   Server server({.bind_address = "0.0.0.0", .port = 9443}, handle, certificates);
//   if (auto started = server.start(); !started) return started.error();
//   ...
//   server.stop(5s);   // lame duck, drain, close: returns when no thread and no socket is left
//
// Each of the server's threads may serve each connection, and one thread reads, handles and answers a
// request. There is one more thread than workers, and at most `workers` of them are at the handler: slow
// handlers delay neither handshakes nor other connections. Another thread accepts connections and checks the
// deadlines. Every wait for a peer has a deadline, and every resource that a peer uses has a limit, both in
// ServerOptions. Responses to bad requests: 400 for what is not HTTP, 413 or 431 for too much data, 429 or
// 503 for overload; peers that are too slow are disconnected. A handler that throws becomes a 500.
//
// Stopping loses no request of a well-behaved client: during the lame duck, new connections are accepted and
// every response has `Connection: close`; then the listener closes, Request::stop asks the handlers to end,
// requests in flight are answered, and idle connections are closed.
//
// A handler may lower the priority of its thread: that thread ends after the request, and a new one replaces
// it, since a process without privileges cannot raise a priority again.
//
// Thread-safety: start() and stop() from one thread; all else from any. The handler is called from several
// threads at once and must outlive the server. Ignores SIGPIPE for the process.
#pragma once

#include <atomic>
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
  std::string method;  // "GET", "POST", ... as received
  std::string path;    // without the query
  std::string query;   // without the '?'; still percent-encoded
  std::string content_type;
  std::string authorization;  // several headers of that name are joined with commas (RFC 9110, 5.3)
  std::string body;
  std::chrono::steady_clock::time_point received;  // when its header was complete
  // Requested when the server waits for its last handlers: they must end now.
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

  // The API server sends about 1 KiB of header; proxies may add to it.
  std::size_t header_limit = 16 << 10;
  // Two objects of the API server's largest size (3 MB) and 1 MB for the rest, as controller-runtime counts.
  std::size_t body_limit = 7 << 20;
  // Memory of all bodies; peers that were never served can use three quarters of it.
  std::size_t body_memory_limit = 128 << 20;
  // Fewer when the process may open fewer files. At most a quarter may be in their handshake, and at most
  // half may be without a successful response: beyond that the oldest of them is closed, so that silent peers
  // never take the place of served clients. Beyond the total, the served connection that was idle longest is
  // closed.
  std::size_t max_connections = 1024;
  // Requests at or waiting for a worker; above it the response is 429 at once. More would only wait in a
  // queue until the API server's timeout.
  std::size_t max_in_flight = 64;

  std::chrono::milliseconds handshake_timeout{10'000};
  std::chrono::milliseconds header_timeout{10'000};  // first byte to the empty line
  std::chrono::milliseconds body_timeout{10'000};
  std::chrono::milliseconds write_timeout{10'000};
  // As long as the API server keeps an idle connection.
  std::chrono::milliseconds idle_timeout{90'000};
  // How long a closing connection waits for the peer to read the last answer.
  std::chrono::milliseconds linger_timeout{2'000};
  // After the listener closed: how long to wait for requests that are on their way on idle connections...
  std::chrono::milliseconds idle_grace{500};
  // ... and for requests in flight, before their connections are closed.
  std::chrono::milliseconds drain_timeout{20'000};
};

// Counters since start, and three gauges.
struct ServerStats {
  std::atomic<std::uint64_t> accepted = 0;
  std::atomic<std::uint64_t> open_connections = 0;  // gauge
  std::atomic<std::uint64_t> in_flight = 0;         // gauge: requests at or waiting for a worker
  std::atomic<std::uint64_t> body_bytes = 0;        // gauge: memory of bodies
  std::atomic<std::uint64_t> requests = 0;          // passed to the handler
  std::atomic<std::uint64_t> rejected_overload = 0;
  std::atomic<std::uint64_t> rejected_malformed = 0;  // not HTTP, or beyond a limit
  std::atomic<std::uint64_t> rejected_timeout = 0;
  std::atomic<std::uint64_t> rejected_tls = 0;
  std::atomic<std::uint64_t> rejected_no_descriptor = 0;  // out of file descriptors
  std::atomic<std::uint64_t> evicted = 0;                 // closed in favour of other connections
};

class Server {
 public:
  // `certificates` null: plain HTTP.
  Server(ServerOptions options, Handler handler,
         std::shared_ptr<const CertificateSource> certificates = nullptr);
  ~Server();  // stop(0s)
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Binds, listens and serves. Errors: kInvalid for an invalid address, kUnavailable when the port is in use.
  Result<void> start();

  // The port bound, once started.
  std::uint16_t port() const;

  // True from the first moment of stop().
  bool draining() const;

  // Blocks until everything is closed. A second call has no effect.
  void stop(std::chrono::milliseconds lame_duck);

  const ServerStats& stats() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace plimsoll::http
