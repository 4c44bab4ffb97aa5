// MetricsAccess: who may read the metrics. A request needs a bearer token that the API server knows (TokenReview), of
// a user who may `get` the path /metrics (SubjectAccessReview), as with controller-runtime's filter and kube-rbac-proxy.
//
//   MetricsAccess access(client);
//   if (std::optional<http::Response> refusal = access.refusal_of(request)) return *refusal;
//   return metrics_page(collectables);
//
// - 401: no token, one that is malformed or too long, or that the API server does not accept
// - 403: the token's user may not get /metrics
// - 429: too many unknown tokens at once; Prometheus tries again at its next scrape
// - 503: the API server did not answer in time, or does not let this process ask; the log says which
//
// A decision is kept for a while under a hash of its token; tokens are neither kept nor logged. A client that sends many
// tokens makes few reviews, and displaces no user who was admitted: those are kept, and asked about, apart.
//
// Thread-safe. A call may block for two reviews; Request::stop ends it. The client must outlive this.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/recently_used.h"
#include "http/server.h"
#include "kube/client.h"

namespace plimsoll::process {

struct MetricsAccessOptions {
  // controller-runtime (pkg/metrics/filters/filters.go) keeps who a token's user is for a minute, what that user may do for
  // five minutes, and what it may not for half a minute. Here one decision holds both, for the shorter time.
  std::chrono::milliseconds keep_admitted{60'000};
  std::chrono::milliseconds keep_refused{30'000};
  // Of each of two reviews; Prometheus gives a scrape up after 10 s by default.
  std::chrono::milliseconds review_timeout{4'000};
  std::size_t most_admitted = 64;    // scrapers of a cluster: a few
  std::size_t most_refused = 1'024;  // 100 bytes each
  // Of tokens that were not admitted before: enough for some scrapers that start together, and little for an API server when
  // somebody sends tokens that he made up.
  int most_reviews = 4;  // at the same time
  double reviews_per_second = 5;
  double review_burst = 20;
  const Clock* clock = &system_clock();
};

class MetricsAccess {
 public:
  explicit MetricsAccess(kube::Client& client, const MetricsAccessOptions& options = {});

  // Nothing: the request may be answered.
  std::optional<http::Response> refusal_of(const http::Request& request);

 private:
  enum class Verdict { kAdmitted, kNotAuthenticated, kNotAllowed };
  struct Decision {
    Verdict verdict;
    Clock::SteadyTime until;
  };
  class Turn;

  std::optional<Verdict> known(const std::string& key) PLIMSOLL_REQUIRES(mutex_);
  Result<Verdict> review(const std::string& token, const std::stop_token& stop);
  void remember(const std::string& key, Verdict verdict);
  void report(const Result<Verdict>& verdict);

  kube::Client& client_;
  const MetricsAccessOptions options_;
  Mutex mutex_;
  RecentlyUsed<Decision> admitted_ PLIMSOLL_GUARDED_BY(mutex_);
  RecentlyUsed<Decision> refused_ PLIMSOLL_GUARDED_BY(mutex_);
  TokenBucket rate_ PLIMSOLL_GUARDED_BY(mutex_);
  int reviews_ PLIMSOLL_GUARDED_BY(mutex_) = 0;  // of tokens that were not admitted before
  bool fails_ PLIMSOLL_GUARDED_BY(mutex_) = false;
};

}  // namespace plimsoll::process
