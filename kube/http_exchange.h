// HttpEndpoint and HttpExchange: one request to one server and its response as it arrives, on cpprestsdk's
// http_client. The thread of the caller waits, with its own deadline; cpprestsdk's threads only put bytes
// into a bounded buffer and do not read from the connection while it is full.
//
//   HttpExchange exchange(endpoint, request);
//   if (auto failure = exchange.wait_for_head(deadline, stop)) ...
//   while (exchange.read(bytes, deadline, stop) == HttpExchange::Read::kData) ...
//
// An endpoint keeps connections alive between exchanges and may be shared by threads; an exchange belongs to
// one thread. Destroying an exchange before its end closes its connection and does not wait; destroying the
// endpoint waits for all of its exchanges, at most two seconds. Redirects are not followed, so that
// credentials are never sent to another host.
#pragma once

#include <chrono>
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
  struct Implementation;

  // Errors: kInvalid when `server` is not a URL, kUnsupported for an IPv6 literal (cpprestsdk cannot connect
  // to it).
  static Result<std::unique_ptr<HttpEndpoint>> make(const ClientConfig& config,
                                                    const std::shared_ptr<TlsMaterial>& tls);
  ~HttpEndpoint();
  HttpEndpoint(const HttpEndpoint&) = delete;
  HttpEndpoint& operator=(const HttpEndpoint&) = delete;

  // Later exchanges open new connections: one that was kept alive was dead, and the others probably are, too.
  void forget_connections();

  Implementation& implementation() { return *implementation_; }

 private:
  explicit HttpEndpoint(std::unique_ptr<Implementation> implementation);
  std::unique_ptr<Implementation> implementation_;
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
  struct State;
  std::shared_ptr<State> state_;
  HttpFailure failure_;
};

}  // namespace plimsoll::kube
