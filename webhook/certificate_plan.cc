#include "webhook/certificate_plan.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "http/certificate_authority.h"
#include "http/certificate_source.h"

namespace plimsoll::webhook {
namespace {

// Clocks of API servers may be behind.
constexpr std::chrono::hours kClockSkew{1};
// From the first certificate of a new authority on: replicas take it within seconds, and an upgrade replaces them within hours.
constexpr std::chrono::hours kOldAuthorityStays{24};
// Only authorities that somebody forced to be renewed can be more than two; a webhook configuration has room for these.
constexpr std::size_t kMaxAuthorities = 8;

class Planner {
 public:
  Planner(const CertificateSecret& held, const CertificatePolicy& policy, bool newest_is_trusted,
          Clock::WallTime now)
      : held_(held), policy_(policy), newest_is_trusted_(newest_is_trusted), now_(now) {
    plan_.secret = held;
  }

  Result<CertificatePlan> plan() {
    read_authorities();
    if (const std::string why = why_new_authority(); !why.empty()) {
      if (Result<void> made = add_authority(why); !made) {
        return made.error();
      }
    }
    if (const std::string why = why_new_certificate(); !why.empty()) {
      if (Result<void> issued = issue(why); !issued) {
        return issued.error();
      }
    }
    write_authorities();
    plan_.due = due();
    return std::move(plan_);
  }

 private:
  void read_authorities() {
    for (http::Certificate& authority : http::read_certificates(held_.authorities_pem)) {
      if (now_ < authority.validity.not_after) {
        authorities_.push_back(std::move(authority));
      }
    }
  }

  // A certificate that is issued until then is renewed before its authority ends.
  Clock::WallTime renewal_of(const http::Certificate& authority) const {
    return authority.validity.not_after - policy_.duration - policy_.renew_before;
  }

  std::string why_new_authority() const {
    if (authorities_.empty()) {
      return "there is none that is valid";
    }
    if (!http::is_key_of(held_.authority_key_pem, authorities_.front().pem)) {
      return "the Secret has no key of the newest one";
    }
    if (now_ >= renewal_of(authorities_.front())) {
      return "the newest one expires at " + format_time(authorities_.front().validity.not_after);
    }
    return "";
  }

  Result<void> add_authority(const std::string& why) {
    const http::Validity validity{now_ - kClockSkew, now_ + policy_.authority_duration};
    Result<http::KeyPair> made = http::make_authority("plimsoll webhook CA " + format_time(now_), validity);
    if (!made) {
      return made.error();
    }
    authorities_.insert(authorities_.begin(), {made->certificate_pem, validity});
    plan_.secret.authority_key_pem = std::move(made->key_pem);
    plan_.changes.push_back("made an authority: " + why);
    newest_is_trusted_ = false;
    return {};
  }

  bool served_leads_to(const std::string& authorities_pem) const {
    return http::make_server_certificate(held_.chain_pem, held_.key_pem, authorities_pem, now_).ok();
  }

  std::string all_authorities() const {
    std::string all;
    for (const http::Certificate& authority : authorities_) {
      all += authority.pem;
    }
    return all;
  }

  std::string why_new_certificate() const {
    // Without one that can be served there is nothing to wait for.
    const Result<http::ServerCertificate> served =
        http::make_server_certificate(held_.chain_pem, held_.key_pem, all_authorities(), now_);
    if (!served) {
      return held_.chain_pem.empty() ? "there is none" : served.error().message;
    }
    for (const std::string& name : policy_.names) {
      if (!http::names_host(held_.chain_pem, name)) {
        return "it lacks the name " + name;
      }
    }
    if (!newest_is_trusted_) {
      return "";
    }
    if (!served_leads_to(authorities_.front().pem)) {
      return "the newest authority is trusted";
    }
    if (now_ >= served->not_after - policy_.renew_before) {
      return "it expires at " + format_time(served->not_after);
    }
    return "";
  }

  Result<void> issue(const std::string& why) {
    const http::KeyPair authority{authorities_.front().pem, plan_.secret.authority_key_pem};
    const Clock::WallTime until =
        std::min<Clock::WallTime>(now_ + policy_.duration, authorities_.front().validity.not_after);
    Result<http::KeyPair> issued = http::issue_certificate(
        authority,
        {.common_name = "plimsoll-webhook", .names = policy_.names, .validity = {now_ - kClockSkew, until}});
    if (!issued) {
      return issued.error();
    }
    plan_.secret.chain_pem = std::move(issued->certificate_pem);
    plan_.secret.key_pem = std::move(issued->key_pem);
    plan_.changes.push_back("issued the serving certificate: " + why);
    return {};
  }

  // When the older authorities are of no use any more. Nothing: the newest has not signed yet.
  std::optional<Clock::WallTime> end_of_older_authorities() const {
    const CertificateSecret& secret = plan_.secret;
    const auto served = http::read_certificates(secret.chain_pem);
    const bool newest_signed =
        !served.empty() &&
        http::make_server_certificate(secret.chain_pem, secret.key_pem, authorities_.front().pem, now_).ok();
    return newest_signed ? std::optional(served.front().validity.not_before + kClockSkew + kOldAuthorityStays)
                         : std::nullopt;
  }

  void write_authorities() {
    if (const auto end = end_of_older_authorities(); end && now_ >= *end) {
      authorities_.resize(1);
    }
    while (authorities_.size() > kMaxAuthorities) {
      const bool serves = served_leads_to(authorities_.back().pem);
      authorities_.erase(authorities_.end() - (serves ? 2 : 1));
    }
    std::string all = all_authorities();
    if (all == held_.authorities_pem) {
      return;
    }
    if (plan_.changes.empty()) {
      plan_.changes.emplace_back("left out authorities that cannot be used any more");
    }
    plan_.secret.authorities_pem = std::move(all);
  }

  Clock::WallTime due() const {
    Clock::WallTime due = renewal_of(authorities_.front());
    if (const auto end = end_of_older_authorities(); end && authorities_.size() > 1) {
      due = std::min(due, *end);
    }
    for (const http::Certificate& authority : authorities_) {
      due = std::min(due, authority.validity.not_after);
    }
    for (const http::Certificate& served : http::read_certificates(plan_.secret.chain_pem)) {
      const Clock::WallTime renewal = served.validity.not_after - policy_.renew_before;
      // Once it is due it waits for the newest authority, whatever the time.
      due = std::min(due, renewal > now_ ? renewal : served.validity.not_after);
    }
    return due;
  }

  const CertificateSecret& held_;
  const CertificatePolicy& policy_;
  bool newest_is_trusted_;
  const Clock::WallTime now_;
  std::vector<http::Certificate> authorities_;
  CertificatePlan plan_;
};

}  // namespace

Result<void> check(const CertificatePolicy& policy) {
  if (policy.names.empty()) {
    return invalid("the certificate needs a name by which the API server calls the webhook");
  }
  for (const std::string& name : policy.names) {
    if (!http::is_server_name(name)) {
      return invalid("a certificate cannot have the name \"" + name.substr(0, 64) + "\"");
    }
  }
  if (policy.renew_before <= std::chrono::seconds(0) || policy.renew_before >= policy.duration) {
    return invalid("a certificate must be renewed before it ends, and after it was issued");
  }
  // Then an authority's own renewal is not due when it is made.
  if (policy.authority_duration < 3 * policy.duration) {
    return invalid("an authority must be valid for three times as long as its certificates");
  }
  return {};
}

Result<CertificatePlan> plan_certificates(const CertificateSecret& held, const CertificatePolicy& policy,
                                          bool newest_is_trusted, Clock::WallTime now) {
  return Planner(held, policy, newest_is_trusted, now).plan();
}

std::string newest_authority(const std::string& authorities_pem) {
  const std::vector<http::Certificate> all = http::read_certificates(authorities_pem);
  return all.empty() ? "" : all.front().pem;
}

}  // namespace plimsoll::webhook
