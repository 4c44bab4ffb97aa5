// Posts admission reviews to webhooks over TLS with libcurl, which keeps connections for the next review as
// kube-apiserver does (HTTP/1.1). Thread-safe; a call blocks its own thread, at most until its deadline.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"

namespace plimsoll::testing::fake {

class WebhookClient {
 public:
  WebhookClient();
  ~WebhookClient();

  // POST of JSON to an https URL. `ca_bundle` is PEM, and nothing else is trusted; empty: the system's
  // authorities. Returns the body of a 2xx answer. Errors: kUnavailable, kTimeout, kInvalid (URL, status
  // other than 2xx).
  Result<std::string> post(const std::string& url, const std::string& ca_bundle, const std::string& body,
                           std::chrono::milliseconds timeout);

 private:
  struct Handle;

  std::unique_ptr<Handle> take_idle();
  void keep_idle(std::unique_ptr<Handle> handle);

  std::mutex mutex_;
  std::vector<std::unique_ptr<Handle>> idle_;
};

}  // namespace plimsoll::testing::fake
