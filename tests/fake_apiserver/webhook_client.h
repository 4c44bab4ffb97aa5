// Posts admission reviews to webhooks over TLS, trusting only the bundle of the webhook's configuration, and
// keeps connections for the next review, as kube-apiserver does (HTTP/1.1). Thread-safe; a call blocks its
// own thread, at most until its deadline.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"

namespace plimsoll::testing::fake {

class WebhookConnection;

class WebhookClient {
 public:
  WebhookClient();
  ~WebhookClient();

  // POST of JSON to an https URL. `ca_bundle` is PEM; empty: the machine's own authorities. Returns the body
  // of a 2xx answer. Errors: kUnavailable, kTimeout, kInvalid (URL, bundle, status other than 2xx).
  Result<std::string> post(const std::string& url, const std::string& ca_bundle, const std::string& body,
                           std::chrono::milliseconds timeout);

 private:
  std::unique_ptr<WebhookConnection> take_idle(const std::string& key);
  void keep_idle(const std::string& key, std::unique_ptr<WebhookConnection> connection);

  std::mutex mutex_;
  std::map<std::string, std::vector<std::unique_ptr<WebhookConnection>>> idle_;
};

}  // namespace plimsoll::testing::fake
