// HttpEndpoint and HttpExchange: one request to one server and its answer as it arrives, on cpprestsdk's
// http_client. The caller's thread waits, with its own deadline; cpprestsdk's threads only push bytes into a
// bounded buffer and stop reading from the connection while it is full.
//
//   HttpExchange exchange(endpoint, request);
//   if (auto failure = exchange.wait_for_head(deadline, stop)) ...
//   while (exchange.read(bytes, deadline, stop) == HttpExchange::Read::kData) ...
//
// An endpoint keeps connections alive between exchanges and may be shared by threads; an exchange belongs to
// one thread. Dropping an exchange before its end closes its connection and does not wait; dropping the
// endpoint waits for all of its exchanges, two seconds at most. Redirects are not followed, so that
// credentials never travel to another host.
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

// How far a request came that got no complete answer. What was not sent whole cannot have been acted upon.
struct HttpFailure {
  enum class Stage { kConnecting, kSending, kReceiving, kDeadline, kStopped };
  Stage stage = Stage::kReceiving;
  std::string reason;
};

class HttpEndpoint {
 public:
  struct Implementation;

  // Errors: kInvalid when `server` is no URL, kUnsupported for an IPv6 literal (cpprestsdk cannot dial it).
  static Result<std::unique_ptr<HttpEndpoint>> make(const ClientConfig& config,
                                                    std::shared_ptr<TlsMaterial> tls);
  ~HttpEndpoint();
  HttpEndpoint(const HttpEndpoint&) = delete;
  HttpEndpoint& operator=(const HttpEndpoint&) = delete;

  // Exchanges from now on open connections of their own: one that was kept alive turned out to be dead, and
  // those beside it are likely to be.
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

  // Waits for the status and the headers. Nothing: they are there.
  std::optional<HttpFailure> wait_for_head(Deadline deadline, const std::stop_token& stop = {});

  // Valid after wait_for_head.
  int status() const;
  std::string retry_after() const;

  // Waits until there is something, and appends it to `bytes`. What arrived before a failure is delivered
  // before it.
  Read read(std::string& bytes, Deadline deadline, const std::stop_token& stop = {});

  // Valid after read gave kFailed.
  const HttpFailure& failure() const { return failure_; }

 private:
  struct State;
  std::shared_ptr<State> state_;
  HttpFailure failure_;
};

}  // namespace plimsoll::kube
