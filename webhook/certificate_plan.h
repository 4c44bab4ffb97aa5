// plan_certificates(): what the Secret of the webhook's certificates should hold next. The Secret is the truth: every
// replica reads it, and any may write it.
//
//   const CertificatePolicy policy{.names = {"webhook.ns.svc"}};
//   Result<CertificatePlan> plan = plan_certificates(held, policy, newest_is_trusted, now);
//   if (plan && !plan->changes.empty()) write(plan->secret);
//
// An authority signs one certificate at a time. A rotation takes three steps, so that API servers, which learn of a new
// authority a moment later than this process, trust what the webhook serves at every moment:
//   1. a new authority is made ahead of the old one's end; both are trusted, the old one's certificate is still served;
//   2. when all webhook configurations have trusted the new one for a while, it signs the certificate;
//   3. the old authority is left out a day later, when all replicas have long taken that certificate.
// Only what is not usable is replaced at once: the first certificate, one whose Secret was damaged, or one that expired
// while nothing ran. Pure but for new keys; any thread.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace plimsoll::webhook {

// The Secret's data, by the names of kubernetes.io/tls.
struct CertificateSecret {
  std::string authorities_pem;    // ca.crt: all that are trusted, the newest first
  std::string authority_key_pem;  // ca.key: of the newest
  std::string chain_pem;          // tls.crt
  std::string key_pem;            // tls.key

  friend bool operator==(const CertificateSecret&, const CertificateSecret&) = default;
};

struct CertificatePolicy {
  std::vector<std::string> names;                               // by which the API server calls the webhook
  std::chrono::seconds duration = std::chrono::hours(90 * 24);  // of a certificate
  std::chrono::seconds renew_before = std::chrono::hours(30 * 24);
  std::chrono::seconds authority_duration = std::chrono::hours(5 * 365 * 24);
};

// Errors: kInvalid, naming what does not fit together.
Result<void> check(const CertificatePolicy& policy);

struct CertificatePlan {
  CertificateSecret secret;
  std::vector<std::string> changes;  // what differs from the Secret that was held, and why, for the log
  Clock::WallTime due;               // when the next change is due by time alone
};

// The policy must pass check(). `newest_is_trusted`: all webhook configurations have trusted the newest authority for
// long enough. Errors: those of making certificates.
Result<CertificatePlan> plan_certificates(const CertificateSecret& held, const CertificatePolicy& policy,
                                          bool newest_is_trusted, Clock::WallTime now);

// The newest authority of a Secret; empty where there is none.
std::string newest_authority(const std::string& authorities_pem);

}  // namespace plimsoll::webhook
