// Serves an Api on a loopback socket over TLS with cpprestsdk's http_listener, which is fit for tests only
// (docs/design.md, section 7).
//
//   Result<std::unique_ptr<HttpServer>> server = HttpServer::start(api, options);
//   connect_to((*server)->address());
//
// Reads and writes have separate thread pools, so that a webhook can read from the server while a write waits
// for the webhook; each watch has its own thread. stop() ends the watches, finishes the requests in progress
// and waits; the destructor calls it. The Api must outlive the server.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/result.h"
#include "tests/fake_apiserver/api.h"
#include "tests/fake_apiserver/watch_stream.h"

namespace plimsoll::testing::fake {

struct HttpServerOptions {
  std::string certificate_pem;
  std::string key_pem;
  std::string token;  // the bearer token; empty: no authentication
  int port = 0;       // 0: any free one
  std::size_t readers = 8;
  std::size_t writers = 16;  // a write may wait for webhooks
  std::size_t queue = 1024;
  std::size_t watches = 256;
  // Bytes that may wait for a slow client before its watch is closed.
  std::size_t watch_buffer = std::size_t{32} << 20;
  WatchStreamOptions watch_stream;
};

class HttpServer {
 public:
  static Result<std::unique_ptr<HttpServer>> start(Api& api, const HttpServerOptions& options);
  virtual ~HttpServer() = default;

  virtual int port() const = 0;
  std::string address() const { return "https://127.0.0.1:" + std::to_string(port()); }
  // Ends all watches as a restart would; new watches are accepted.
  virtual void drop_watches() = 0;
  virtual std::size_t open_watches() const = 0;
  virtual void stop() = 0;
};

}  // namespace plimsoll::testing::fake
