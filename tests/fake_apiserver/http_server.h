// Puts an Api on a loopback socket, over TLS, with cpprestsdk's http_listener (which is fit for tests and for
// nothing that faces a network: facts in docs/design.md, section 7).
//
//   Result<std::unique_ptr<HttpServer>> server = HttpServer::start(api, options);
//   connect_to((*server)->address());
//
// Reads and writes run on pools of their own, so that a webhook which asks the server back while a write
// waits for it is answered; each watch has a thread of its own. stop() ends the watches, finishes what was
// begun, and waits; the destructor stops. The Api must outlive the server.
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
  std::string token;  // demanded as bearer token; empty: everyone is let in
  int port = 0;       // 0: any free one
  std::size_t readers = 8;
  std::size_t writers = 16;  // a write may wait for webhooks
  std::size_t queue = 1024;
  std::size_t watches = 256;
  // What a client that does not read may leave lying here before its watch is broken off.
  std::size_t watch_buffer = std::size_t{32} << 20;
  WatchStreamOptions watch_stream;
};

class HttpServer {
 public:
  static Result<std::unique_ptr<HttpServer>> start(Api& api, const HttpServerOptions& options);
  virtual ~HttpServer() = default;

  virtual int port() const = 0;
  std::string address() const { return "https://127.0.0.1:" + std::to_string(port()); }
  // Ends all watches as a restarting server would; new ones are taken.
  virtual void drop_watches() = 0;
  virtual std::size_t open_watches() const = 0;
  virtual void stop() = 0;
};

}  // namespace plimsoll::testing::fake
