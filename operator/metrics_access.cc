#include "operator/metrics_access.h"

#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "kube/access_review.h"

namespace plimsoll::process {
namespace {

constexpr const char* kVerb = "get";  // HEAD tells less
constexpr const char* kPath = "/metrics";
// Those of service accounts have one or two KiB, an identity provider's some more.
constexpr std::size_t kLongestToken = 8 << 10;

http::Response refusal(int status, std::string body) {
  return {status, "text/plain; charset=utf-8", std::move(body)};
}

bool is_scheme(std::string_view text) {
  constexpr std::string_view kScheme = "bearer";
  return std::ranges::equal(text, kScheme, {},
                            [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; });
}

// The characters of a bearer token: RFC 6750, section 2.1.
bool is_token(std::string_view text) {
  constexpr std::string_view kCharacters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/";
  const std::size_t end = text.find_first_not_of(kCharacters);
  return end != 0 && !text.empty() && text.size() <= kLongestToken &&
         (end == std::string_view::npos || text.find_first_not_of('=', end) == std::string_view::npos);
}

// Of the header "Bearer TOKEN"; empty for any other.
std::string token_of(std::string_view authorization) {
  const std::size_t space = authorization.find(' ');
  if (space == std::string_view::npos || !is_scheme(authorization.substr(0, space))) {
    return {};
  }
  const std::size_t begin = authorization.find_first_not_of(' ', space);
  const std::string_view token = begin == std::string_view::npos ? "" : authorization.substr(begin);
  return is_token(token) ? std::string(token) : std::string();
}

std::string key_of(const std::string& token) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> hash{};
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), hash.data());
  return {hash.begin(), hash.end()};
}

}  // namespace

// Permission to make the reviews of a token that was not admitted before.
class MetricsAccess::Turn {
 public:
  explicit Turn(MetricsAccess& access) : access_(access) {
    const MutexLock lock(access_.mutex_);
    granted_ = access_.reviews_ < access_.options_.most_reviews && access_.rate_.try_take();
    access_.reviews_ += granted_ ? 1 : 0;
  }
  ~Turn() {
    const MutexLock lock(access_.mutex_);
    access_.reviews_ -= granted_ ? 1 : 0;
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  bool granted() const { return granted_; }

 private:
  MetricsAccess& access_;
  bool granted_ = false;
};

MetricsAccess::MetricsAccess(kube::Client& client, const MetricsAccessOptions& options)
    : client_(client),
      options_(options),
      admitted_(options.most_admitted),
      refused_(options.most_refused),
      rate_(options.reviews_per_second, options.review_burst, *options.clock) {}

std::optional<http::Response> MetricsAccess::refusal_of(const http::Request& request) {
  const std::string token = token_of(request.authorization);
  if (token.empty()) {
    return refusal(401, "send a token of at most 8 KiB: Authorization: Bearer TOKEN\n");
  }
  const std::string key = key_of(token);
  std::optional<Verdict> verdict;
  bool was_admitted = false;
  {
    const MutexLock lock(mutex_);
    verdict = known(key);
    was_admitted = admitted_.find(key) != nullptr;
  }
  if (!verdict) {
    std::optional<Turn> turn;
    if (!was_admitted && !turn.emplace(*this).granted()) {
      return refusal(429, "too many unknown tokens are being checked; try again\n");
    }
    const Result<Verdict> reviewed = review(token, request.stop);
    report(reviewed);
    if (!reviewed) {
      return refusal(503, "the token cannot be checked now: the log of this process says why\n");
    }
    verdict = *reviewed;
    remember(key, *verdict);
  }
  switch (*verdict) {
    case Verdict::kAdmitted: return std::nullopt;
    case Verdict::kNotAuthenticated: return refusal(401, "the API server does not accept the token\n");
    case Verdict::kNotAllowed: break;
  }
  return refusal(403,
                 "the token's user may not get /metrics: bind the chart's ClusterRole for metrics to it\n");
}

std::optional<MetricsAccess::Verdict> MetricsAccess::known(const std::string& key) {
  const Clock::SteadyTime now = options_.clock->steady_now();
  for (RecentlyUsed<Decision>* decisions : {&admitted_, &refused_}) {
    const Decision* decision = decisions->find(key);
    if (decision != nullptr && now < decision->until) {
      return decision->verdict;
    }
  }
  return std::nullopt;
}

Result<MetricsAccess::Verdict> MetricsAccess::review(const std::string& token, const std::stop_token& stop) {
  kube::CallOptions call;
  call.timeout = options_.review_timeout;
  call.stop = stop;
  const Result<std::optional<kube::User>> user = kube::user_of_token(client_, token, call);
  if (!user) {
    return user.error().within("TokenReview");
  }
  if (!*user) {
    return Verdict::kNotAuthenticated;
  }
  const Result<bool> allowed = kube::may_request(client_, **user, kVerb, kPath, call);
  if (!allowed) {
    return allowed.error().within("SubjectAccessReview");
  }
  return *allowed ? Verdict::kAdmitted : Verdict::kNotAllowed;
}

void MetricsAccess::remember(const std::string& key, Verdict verdict) {
  const bool admitted = verdict == Verdict::kAdmitted;
  const Clock::SteadyTime until =
      options_.clock->steady_now() + std::chrono::duration_cast<Clock::SteadyTime::duration>(
                                         admitted ? options_.keep_admitted : options_.keep_refused);
  const MutexLock lock(mutex_);
  (admitted ? admitted_ : refused_).put(key, {verdict, until});
}

// Once when it begins to fail, and once when it works again: how often, others could decide.
void MetricsAccess::report(const Result<Verdict>& verdict) {
  if (!verdict && verdict.error().code == ErrorCode::kCancelled) {
    return;
  }
  {
    const MutexLock lock(mutex_);
    if (fails_ == !verdict.ok()) {
      return;
    }
    fails_ = !verdict.ok();
  }
  if (verdict) {
    log_info("Checked a token for metrics again");
  } else {
    log_warning("Failed to check a token for metrics", {{"reason", to_string(verdict.error())}});
  }
}

}  // namespace plimsoll::process
