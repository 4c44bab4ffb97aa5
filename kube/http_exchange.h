// HttpEndpoint and HttpExchange: one request to one server and its response as it arrives, on cpprestsdk's
// http_client. The thread of the caller waits, with its own deadline, for a bounded buffer. The transport thread
// (transport.h) alone touches cpprestsdk's objects, from the request to their destruction: it puts bytes into the
// buffer and does not read from the connection while it is full.
//
//   HttpExchange exchange(endpoint, request);
//   if (auto failure = exchange.wait_for_head(deadline, stop)) ...
//   while (exchange.read(bytes, deadline, stop) == HttpExchange::Read::kData) ...
//
// An endpoint keeps connections alive between exchanges and may be shared by threads; an exchange belongs to
// one thread. Destroying an exchange before its end closes its connection and does not wait, and a request that was
// not sent yet is not sent at all; destroying the endpoint waits until its connections and all of its exchanges
// are gone, at most two seconds. Redirects are not followed, so that credentials are never sent to another host.
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "base/result.h"
#include "kube/tls.h"

namespace plimsoll::kube {

struct HttpRequest {
  std::string method;
  std::string target;  // path and query, percent-encoded
  std::string token;   // empty: no Authorization header
  std::string content_type;
  std::string body;
};

// At which stage a request failed. The server cannot have acted on a request that was not sent completely.
struct HttpFailure {
  enum class Stage { kConnecting, kSending, kReceiving, kDeadline, kStopped };
  Stage stage = Stage::kReceiving;
  std::string reason;
};

class HttpEndpoint {
 public:
  // Errors: kInvalid when `server` is not a URL, kUnsupported for an IPv6 literal (cpprestsdk cannot connect
  // to it), those of start_transport.
  static Result<std::unique_ptr<HttpEndpoint>> make(const ClientConfig& config,
                                                    const std::shared_ptr<TlsMaterial>& tls);
  ~HttpEndpoint();
  HttpEndpoint(const HttpEndpoint&) = delete;
  HttpEndpoint& operator=(const HttpEndpoint&) = delete;

  // Later exchanges open new connections: one that was kept alive was dead, and the others probably are, too.
  void forget_connections();

 private:
  friend class HttpExchange;
  struct Connections;  // of the transport thread

  explicit HttpEndpoint(std::shared_ptr<Connections> connections);

  std::shared_ptr<Connections> connections_;
  std::future<void> gone_;  // they are
};

class HttpExchange {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  enum class Read { kData, kEnd, kFailed };

  HttpExchange(HttpEndpoint& endpoint, const HttpRequest& request);
  ~HttpExchange();
  HttpExchange(const HttpExchange&) = delete;
  HttpExchange& operator=(const HttpExchange&) = delete;

  // Waits for the status and the headers. Nothing: they have arrived.
  std::optional<HttpFailure> wait_for_head(Deadline deadline, const std::stop_token& stop = {});

  // Valid after wait_for_head.
  int status() const;
  std::string retry_after() const;

  // Waits for bytes and appends them to `bytes`. Bytes that arrived before a failure are delivered before it.
  Read read(std::string& bytes, Deadline deadline, const std::stop_token& stop = {});

  // Valid after read returned kFailed.
  const HttpFailure& failure() const { return failure_; }

 private:
  struct Response;  // plain data that both threads see
  struct Transfer;  // of the transport thread

  const std::shared_ptr<Response> response_;
  std::weak_ptr<Transfer> transfer_;  // gone at the end
  HttpFailure failure_;
};

}  // namespace plimsoll::kube
