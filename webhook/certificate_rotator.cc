#include "webhook/certificate_rotator.h"

#include <algorithm>
#include <random>
#include <utility>

#include <boost/asio/ssl/context.hpp>

#include "base/base64.h"
#include "base/json/edit.h"
#include "base/json/view.h"
#include "base/log.h"
#include "http/certificate_authority.h"
#include "kube/sleeper.h"

namespace plimsoll::webhook {
namespace {

using std::chrono::milliseconds;

// Between passes, however often somebody changes what they repair.
constexpr milliseconds kMinPause{1'000};
// The machine's clock may be set, and stands still while the machine sleeps.
constexpr std::chrono::hours kMaxPause{1};
constexpr Backoff::Options kRetries{milliseconds(500), milliseconds(30'000), 0.5};
constexpr const char* kFieldManager = "plimsoll-webhook";

const kube::Resource kSecrets{.group = "", .version = "v1", .plural = "secrets", .namespaced = true};

kube::Resource configurations_of(const char* plural) {
  return {.group = "admissionregistration.k8s.io", .version = "v1", .plural = plural, .namespaced = false};
}

const std::vector<kube::Resource>& configuration_kinds() {
  static const std::vector<kube::Resource> kinds = {configurations_of("mutatingwebhookconfigurations"),
                                                    configurations_of("validatingwebhookconfigurations")};
  return kinds;
}

std::string secret_value(const Json& secret, const char* key) {
  const Result<std::string> value = base64_decode(text_member(secret, {"data", key}));
  return value ? *value : "";  // as if it were missing: it is made anew
}

CertificateSecret decode(const Json& secret) {
  return {.authorities_pem = secret_value(secret, "ca.crt"),
          .authority_key_pem = secret_value(secret, "ca.key"),
          .chain_pem = secret_value(secret, "tls.crt"),
          .key_pem = secret_value(secret, "tls.key")};
}

Result<Json> encode(const CertificateSecret& from, Json secret) {
  const bool has_data = member(secret, {"data"}).isObject();
  JsonEdit edit(std::move(secret));
  if (!has_data) {
    edit["data"] = Json(::Json::objectValue);
  }
  edit["data"]["ca.crt"] = base64_encode(from.authorities_pem);
  edit["data"]["ca.key"] = base64_encode(from.authority_key_pem);
  edit["data"]["tls.crt"] = base64_encode(from.chain_pem);
  edit["data"]["tls.key"] = base64_encode(from.key_pem);
  return std::move(edit).take();
}

// What each webhook of a configuration trusts, as PEM.
std::vector<std::string> bundles_of(const Json& configuration) {
  std::vector<std::string> bundles;
  for (const JsonView webhook : member(JsonView(configuration), {"webhooks"}).elements()) {
    const Result<std::string> bundle = base64_decode(text_member(webhook, {"clientConfig", "caBundle"}));
    bundles.push_back(bundle ? *bundle : "");
  }
  return bundles;
}

// Gives each webhook the bundle, on the condition that it is still the same one at its place. Empty: nothing differs.
JsonArray bundle_patch(const Json& configuration, const std::string& authorities_pem) {
  JsonArray patch;
  const std::vector<std::string> bundles = bundles_of(configuration);
  for (std::size_t i = 0; i < bundles.size(); ++i) {
    if (bundles[i] == authorities_pem) {
      continue;
    }
    const std::string at = "/webhooks/" + std::to_string(i);
    const Json& name = member(element(member(configuration, {"webhooks"}), i), {"name"});
    patch.append(json_object({{"op", "test"}, {"path", at + "/name"}, {"value", name}}));
    patch.append(json_object(
        {{"op", "add"}, {"path", at + "/clientConfig/caBundle"}, {"value", base64_encode(authorities_pem)}}));
  }
  return patch;
}

// Of an object that is only watched: what a reflector needs. Secrets stay out of its memory.
Json identity_of(const JsonView& object) {
  JsonObject identity;
  for (const char* name : {"name", "namespace", "uid", "resourceVersion"}) {
    identity["metadata"][name] = text_member(object, {"metadata", name});
  }
  return identity;
}

}  // namespace

CertificateRotator::CertificateRotator(kube::Client& client, CertificateRotatorOptions options)
    : client_(client), options_(std::move(options)) {
  const auto watch = [this](const kube::Resource& resource, const std::string& namespace_name,
                            const std::string& name) {
    watches_.push_back(std::make_unique<kube::Reflector>(
        client_, kube::Reflector::Options{.resource = resource,
                                          .namespace_name = namespace_name,
                                          .field_selector = "metadata.name=" + name,
                                          .project = identity_of,
                                          .on_change = [this](const auto&) { changed(); }}));
  };
  watch(kSecrets, options_.secret_namespace, options_.secret_name);
  for (const kube::Resource& kind : configuration_kinds()) {
    watch(kind, "", options_.configuration);
  }
}

CertificateRotator::~CertificateRotator() {
  stop();
}

Result<void> CertificateRotator::start() {
  for (const auto& watch : watches_) {
    watch->start();
  }
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  return {};
}

void CertificateRotator::stop() {
  if (!thread_.joinable()) {
    return;
  }
  thread_.request_stop();
  thread_.join();
  for (const auto& watch : watches_) {
    watch->stop();
  }
}

void CertificateRotator::changed() {
  const MutexLock lock(mutex_);
  changed_ = true;
  wake_.notify_one();
}

void CertificateRotator::run(const std::stop_token& stop) {
  Backoff backoff(kRetries, std::random_device{}());
  while (!stop.stop_requested()) {
    {
      const MutexLock lock(mutex_);
      changed_ = false;  // before the pass reads
    }
    const Result<Clock::WallTime> due = renew(stop);
    if (stop.stop_requested()) {
      return;
    }
    record(due);
    if (!due) {
      kube::system_sleeper().sleep_for(backoff.next(), stop);
      continue;
    }
    backoff.reset();
    kube::system_sleeper().sleep_for(kMinPause, stop);
    const auto pause = std::clamp<Clock::WallTime::duration>(*due - options_.clock->wall_now(),
                                                             Clock::WallTime::duration(0), kMaxPause);
    MutexLock lock(mutex_);
    wake_.wait_for(lock, stop, pause, [this]() PLIMSOLL_REQUIRES(mutex_) { return changed_; });
  }
}

Result<Clock::WallTime> CertificateRotator::renew(const std::stop_token& stop) {
  Result<Json> secret =
      client_.get(kSecrets, options_.secret_namespace, options_.secret_name, {.stop = stop});
  if (!secret) {
    return secret.error().within("read the Secret " + options_.secret_namespace + "/" + options_.secret_name +
                                 ", which the chart makes");
  }
  const Result<std::vector<Configuration>> configurations = read_configurations(stop);
  CertificateSecret held = decode(*secret);
  if (held.authorities_pem.empty() && configurations) {
    held.authorities_pem = trusted_before(*configurations);
  }
  const Result<CertificatePlan> plan =
      plan_certificates(held, options_.policy, newest_is_trusted(held.authorities_pem, configurations),
                        options_.clock->wall_now());
  if (!plan) {
    return plan.error();
  }
  if (!plan->changes.empty()) {
    if (Result<void> written = write_secret(*std::move(secret), *plan, stop); !written) {
      if (written.error().code == ErrorCode::kConflict) {
        return options_.clock->wall_now();  // another replica was faster: the next pass takes what it wrote
      }
      return written.error();
    }
  }
  // Trusted first, served second.
  const Result<void> trusted = configurations
                                   ? write_configurations(*configurations, plan->secret.authorities_pem, stop)
                                   : Result<void>(configurations.error());
  if (trusted) {
    trusted_now(plan->secret.authorities_pem);
  }
  if (Result<void> served = serve(plan->secret); !served) {
    return served.error();
  }
  if (!trusted) {
    return trusted.error();
  }
  const MutexLock lock(mutex_);
  ready_ = true;
  return next_pass(plan->due);
}

Result<std::vector<CertificateRotator::Configuration>> CertificateRotator::read_configurations(
    const std::stop_token& stop) {
  std::vector<Configuration> configurations;
  for (const kube::Resource& kind : configuration_kinds()) {
    Result<Json> object = client_.get(kind, "", options_.configuration, {.stop = stop});
    if (!object) {
      return object.error().within("read " + kind.plural + "/" + options_.configuration);
    }
    configurations.push_back({kind, *std::move(object)});
  }
  return configurations;
}

// Whom another source of certificates made the API server trust: replicas of the previous release may still serve its
// certificate.
std::string CertificateRotator::trusted_before(const std::vector<Configuration>& configurations) {
  std::string all;
  for (const Configuration& configuration : configurations) {
    for (const std::string& bundle : bundles_of(configuration.object)) {
      for (const http::Certificate& authority : http::read_certificates(bundle)) {
        if (all.find(authority.pem) == std::string::npos) {
          all += authority.pem;
        }
      }
    }
  }
  return all;
}

bool CertificateRotator::newest_is_trusted(const std::string& authorities_pem,
                                           const Result<std::vector<Configuration>>& configurations) {
  if (!configurations) {
    return false;  // trusted_ stays: nobody has seen that it is trusted no longer
  }
  const std::string newest = newest_authority(authorities_pem);
  for (const Configuration& configuration : *configurations) {
    for (const std::string& bundle : bundles_of(configuration.object)) {
      if (newest.empty() || bundle.find(newest) == std::string::npos) {
        trusted_.clear();
        return false;
      }
    }
  }
  trusted_now(authorities_pem);
  return options_.clock->steady_now() - trusted_since_ >= options_.trust_delay;
}

void CertificateRotator::trusted_now(const std::string& authorities_pem) {
  std::string newest = newest_authority(authorities_pem);
  if (trusted_ != newest) {
    trusted_ = std::move(newest);
    trusted_since_ = options_.clock->steady_now();
  }
}

Result<void> CertificateRotator::write_secret(Json object, const CertificatePlan& plan,
                                              const std::stop_token& stop) {
  const Result<Json> secret = encode(plan.secret, std::move(object));
  if (!secret) {
    return secret.error();
  }
  const Result<Json> written = client_.update(kSecrets, options_.secret_namespace, *secret, "",
                                              {.field_manager = kFieldManager, .stop = stop});
  if (!written) {
    return written.error().within("write the Secret " + options_.secret_namespace + "/" +
                                  options_.secret_name);
  }
  for (const std::string& change : plan.changes) {
    log_info("Renewed the webhook's certificates",
             {{"secret", options_.secret_namespace + "/" + options_.secret_name}, {"change", change}});
  }
  return {};
}

Result<void> CertificateRotator::write_configurations(const std::vector<Configuration>& configurations,
                                                      const std::string& authorities_pem,
                                                      const std::stop_token& stop) {
  for (const Configuration& configuration : configurations) {
    const JsonArray patch = bundle_patch(configuration.object, authorities_pem);
    if (patch.empty()) {
      continue;
    }
    const std::string name = configuration.resource.plural + "/" + options_.configuration;
    const Result<Json> written =
        client_.patch(configuration.resource, "", options_.configuration, kube::PatchType::kJson, patch, "",
                      {.field_manager = kFieldManager, .stop = stop});
    if (!written) {
      return written.error().within("write caBundle of " + name);
    }
    log_info("Updated caBundle", {{"configuration", name}});
  }
  return {};
}

Result<void> CertificateRotator::serve(const CertificateSecret& secret) {
  if (secret.chain_pem == served_.chain_pem && secret.key_pem == served_.key_pem) {
    return {};
  }
  Result<http::ServerCertificate> made = http::make_server_certificate(
      secret.chain_pem, secret.key_pem, secret.authorities_pem, options_.clock->wall_now());
  if (!made) {
    return made.error();
  }
  served_ = secret;
  log_info("Loaded the serving certificate", {{"notAfter", format_time(made->not_after)}});
  const MutexLock lock(mutex_);
  current_ = std::move(made->context);
  status_.not_after = made->not_after;
  ++status_.loads;
  return {};
}

Clock::WallTime CertificateRotator::next_pass(Clock::WallTime due) const {
  const auto trusted_for = options_.clock->steady_now() - trusted_since_;
  if (trusted_for >= options_.trust_delay) {
    return due;
  }
  const auto wait = std::chrono::ceil<Clock::WallTime::duration>(options_.trust_delay - trusted_for);
  return std::min(due, options_.clock->wall_now() + wait);
}

void CertificateRotator::record(const Result<Clock::WallTime>& pass) {
  MutexLock lock(mutex_);
  if (pass) {
    status_.problem.clear();
    return;
  }
  ++status_.failures;
  const std::string problem = to_string(pass.error());
  const bool is_new = status_.problem != problem;
  status_.problem = problem;
  const bool serving = current_ != nullptr;
  lock.unlock();
  if (is_new) {
    log_warning(serving ? "Kept the old serving certificate" : "Found no serving certificate",
                {{"problem", problem}});
  }
}

std::shared_ptr<boost::asio::ssl::context> CertificateRotator::current() const {
  const MutexLock lock(mutex_);
  return current_;
}

http::CertificateStatus CertificateRotator::status() const {
  const MutexLock lock(mutex_);
  return status_;
}

Result<void> CertificateRotator::ready() const {
  const MutexLock lock(mutex_);
  if (ready_) {
    return {};
  }
  return Error(ErrorCode::kUnavailable,
               status_.problem.empty() ? "the certificates are not read yet" : status_.problem);
}

}  // namespace plimsoll::webhook
