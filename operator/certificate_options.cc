#include "operator/certificate_options.h"

#include <chrono>
#include <sstream>
#include <vector>

#include "operator/process.h"

namespace plimsoll::process {
namespace {

namespace po = boost::program_options;

constexpr std::chrono::hours kLongest{100 * 365 * 24};

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) {
    parts.push_back(part);
  }
  return parts;
}

}  // namespace

po::options_description describe(CertificateOptions& options) {
  po::options_description description("Certificates");
  const auto text = [](std::string& value, const char* name) {
    return po::value(&value)->default_value(value)->value_name(name);
  };
  description.add_options()  //
      ("certificate-directory", po::value(&options.directory)->value_name("DIR"),
       "holds tls.crt, tls.key and, optionally, ca.crt; watched, and read again when they change")  //
      ("certificate-secret", po::value(&options.secret)->value_name("NAMESPACE/NAME"),
       "instead: a Secret, which exists, for an authority and certificates that this process makes and renews")  //
      ("certificate-names", po::value(&options.names)->value_name("NAME,..."),
       "of the Secret's certificate: DNS names and addresses by which the API server calls the webhook")  //
      ("webhook-configuration", po::value(&options.configuration)->value_name("NAME"),
       "name of the mutating and of the validating webhook configuration whose caBundle is kept")      //
      ("certificate-duration", text(options.duration, "DURATION"), "how long a certificate is valid")  //
      ("certificate-renew-before", text(options.renew_before, "DURATION"),
       "how long before its end it is renewed")  //
      ("certificate-authority-duration", text(options.authority_duration, "DURATION"),
       "how long an authority is valid; a new one is made in time")  //
      ("certificate-trust-delay", text(options.trust_delay, "DURATION"),
       "how long API servers get to learn of a new authority before it signs");
  return description;
}

Result<std::optional<webhook::CertificateRotatorOptions>> rotation_of(const CertificateOptions& options) {
  if (options.directory.empty() == options.secret.empty()) {
    return invalid(
        "either --certificate-directory or --certificate-secret is needed: the folder of tls.crt and "
        "tls.key, or the Secret for certificates that are made here");
  }
  if (options.secret.empty()) {
    if (!options.names.empty() || !options.configuration.empty()) {
      return invalid(
          "--certificate-names and --webhook-configuration are for --certificate-secret: who keeps the "
          "files of --certificate-directory keeps the webhook configurations, too");
    }
    return std::optional<webhook::CertificateRotatorOptions>();
  }
  webhook::CertificateRotatorOptions rotation;
  const std::size_t slash = options.secret.find('/');
  if (slash == 0 || slash == std::string::npos || slash + 1 == options.secret.size() ||
      options.secret.find('/', slash + 1) != std::string::npos) {
    return invalid("--certificate-secret must be NAMESPACE/NAME, is " + options.secret.substr(0, 128));
  }
  rotation.secret_namespace = options.secret.substr(0, slash);
  rotation.secret_name = options.secret.substr(slash + 1);
  if (options.configuration.empty()) {
    return invalid("--certificate-secret needs --webhook-configuration, whose caBundle it keeps");
  }
  rotation.configuration = options.configuration;
  rotation.policy.names = split_at_commas(options.names);
  const auto valid = duration_option("certificate-duration", options.duration, kLongest);
  const auto before = duration_option("certificate-renew-before", options.renew_before, kLongest);
  const auto authority =
      duration_option("certificate-authority-duration", options.authority_duration, kLongest);
  const auto delay = duration_option("certificate-trust-delay", options.trust_delay, kLongest);
  for (const auto* time : {&valid, &before, &authority, &delay}) {
    if (!*time) {
      return time->error();
    }
  }
  rotation.policy.duration = std::chrono::duration_cast<std::chrono::seconds>(*valid);
  rotation.policy.renew_before = std::chrono::duration_cast<std::chrono::seconds>(*before);
  rotation.policy.authority_duration = std::chrono::duration_cast<std::chrono::seconds>(*authority);
  rotation.trust_delay = *delay;
  if (Result<void> fits = webhook::check(rotation.policy); !fits) {
    return invalid("the options of --certificate-secret: " + fits.error().message);
  }
  return std::optional<webhook::CertificateRotatorOptions>(std::move(rotation));
}

std::shared_ptr<http::RenewedCertificateSource> make_certificates(
    const CertificateOptions& options, const std::optional<webhook::CertificateRotatorOptions>& rotation,
    kube::Client& client) {
  if (rotation) {
    return std::make_shared<webhook::CertificateRotator>(client, *rotation);
  }
  return std::make_shared<http::FileCertificateSource>(
      http::FileCertificateOptions{.directory = options.directory});
}

}  // namespace plimsoll::process
