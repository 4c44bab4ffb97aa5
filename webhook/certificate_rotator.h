// CertificateRotator: makes and renews the webhook's certificates itself, so that a cluster needs nothing for them. It keeps
// an authority and a serving certificate in one Secret, and its authority in `caBundle` of the webhook configurations, which
// tells the API servers whom to trust.
//
//   auto certificates = std::make_shared<CertificateRotator>(client, options);
//   certificates->start();
//   Server server(server_options, handler, certificates);
//   ... if (certificates->ready()) ...
//   certificates->stop();
//
// What is renewed, and when, is certificate_plan.h's. The Secret and the configurations exist already: this process has no
// right to create them, and changes no others. All replicas do the same work at once; writes carry the resourceVersion
// that was read, so that one wins and the others take what it wrote. A change by somebody else is seen by watches and
// repaired within seconds; only the read that follows counts.
//
// An empty Secret begins with the authorities that the configurations have trusted so far, so that an upgrade from another
// source of certificates, or a Secret that was emptied, loses no admission either.
//
// Ready once a certificate is served that all webhook configurations trust. From then on it stays ready: an outage of
// the API server does not make the certificate worse. Thread-safe except for start and stop; stop() waits. The client must
// outlive it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "http/certificate_source.h"
#include "kube/client.h"
#include "kube/reflector.h"
#include "webhook/certificate_plan.h"

namespace plimsoll::webhook {

struct CertificateRotatorOptions {
  std::string secret_namespace;
  std::string secret_name;
  // The name of the MutatingWebhookConfiguration and of the ValidatingWebhookConfiguration.
  std::string configuration;
  CertificatePolicy policy;
  // How long all configurations must have trusted a new authority before it signs: API servers learn of them by watches.
  std::chrono::milliseconds trust_delay = std::chrono::minutes(5);
  const Clock* clock = &system_clock();
};

class CertificateRotator final : public http::RenewedCertificateSource {
 public:
  // The options' policy must pass check().
  CertificateRotator(kube::Client& client, CertificateRotatorOptions options);
  ~CertificateRotator() override;  // stop()
  CertificateRotator(const CertificateRotator&) = delete;
  CertificateRotator& operator=(const CertificateRotator&) = delete;

  Result<void> start() override;
  void stop() override;

  // One pass, which the thread repeats: brings Secret, configurations and the served certificate up to date. Returns when
  // the next is due by time alone. Only one at a time. Errors: those of the API server, and kNotFound for a Secret or a
  // configuration that is missing; what does not depend on what failed is done all the same.
  Result<Clock::WallTime> renew(const std::stop_token& stop);

  std::shared_ptr<boost::asio::ssl::context> current() const override;
  http::CertificateStatus status() const override;
  Result<void> ready() const override;

 private:
  struct Configuration {
    kube::Resource resource;
    Json object;
  };

  void run(const std::stop_token& stop);
  void changed();
  Result<std::vector<Configuration>> read_configurations(const std::stop_token& stop);
  static std::string trusted_before(const std::vector<Configuration>& configurations);
  bool newest_is_trusted(const std::string& authorities_pem,
                         const Result<std::vector<Configuration>>& configurations);
  Result<void> write_secret(Json object, const CertificatePlan& plan, const std::stop_token& stop);
  Result<void> write_configurations(const std::vector<Configuration>& configurations,
                                    const std::string& authorities_pem, const std::stop_token& stop);
  Result<void> serve(const CertificateSecret& secret);
  void trusted_now(const std::string& authorities_pem);
  Clock::WallTime next_pass(Clock::WallTime due) const;
  void record(const Result<Clock::WallTime>& pass);

  kube::Client& client_;
  const CertificateRotatorOptions options_;
  std::vector<std::unique_ptr<kube::Reflector>> watches_;

  // Of renew() alone.
  std::string trusted_;  // the newest authority, as all configurations have it; empty: not all do
  Clock::SteadyTime trusted_since_{};
  CertificateSecret served_;

  mutable Mutex mutex_;
  std::condition_variable_any wake_;
  bool changed_ PLIMSOLL_GUARDED_BY(mutex_) = false;
  bool ready_ PLIMSOLL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<boost::asio::ssl::context> current_ PLIMSOLL_GUARDED_BY(mutex_);
  http::CertificateStatus status_ PLIMSOLL_GUARDED_BY(mutex_);

  std::jthread thread_;
};

}  // namespace plimsoll::webhook
