// The options of `plimsoll webhook` that say where its certificates come from: a directory that somebody else keeps, or a
// Secret that it keeps itself.
//
//   description.add(describe(options));
//   Result<std::optional<webhook::CertificateRotatorOptions>> rotation = rotation_of(options);
//   if (rotation) certificates = make_certificates(options, *rotation, client);
//
// Plain values; any thread.
#pragma once

#include <boost/program_options/options_description.hpp>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "http/certificate_source.h"
#include "kube/client.h"
#include "webhook/certificate_rotator.h"

namespace plimsoll::process {

struct CertificateOptions {
  std::string directory;
  std::string secret;         // NAMESPACE/NAME
  std::string configuration;  // of the webhooks
  std::string names;          // with commas
  // In the syntax of flags: "2160h".
  std::string duration = "2160h";
  std::string renew_before = "720h";
  std::string authority_duration = "43800h";
  std::string trust_delay = "5m";
};

boost::program_options::options_description describe(CertificateOptions& options);

// What the options ask for; nothing where the certificates come from a directory. Errors: kInvalid, naming the option.
Result<std::optional<webhook::CertificateRotatorOptions>> rotation_of(const CertificateOptions& options);

// The client must outlive what is returned.
std::shared_ptr<http::RenewedCertificateSource> make_certificates(
    const CertificateOptions& options, const std::optional<webhook::CertificateRotatorOptions>& rotation,
    kube::Client& client);

}  // namespace plimsoll::process
