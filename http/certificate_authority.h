// Makes a private certificate authority and the server certificates that it signs, as PEM text.
//
//   Result<KeyPair> authority = make_authority("webhook CA", {now, in_five_years});
//   Result<KeyPair> server = issue_certificate(*authority, {.common_name = "webhook",
//                                                           .names = {"webhook.ns.svc"},
//                                                           .validity = {now, in_three_months}});
//
// Keys are ECDSA P-256, signatures SHA-256, serial numbers random (RFC 5280). Keys stay in memory. Pure functions but for
// OpenSSL's random numbers; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace plimsoll::http {

struct KeyPair {
  std::string certificate_pem;
  std::string key_pem;  // "EC PRIVATE KEY" (RFC 5915), the one form that all of kube-apiserver's options take
};

struct Validity {
  Clock::WallTime not_before;  // to the second
  Clock::WallTime not_after;

  friend bool operator==(const Validity&, const Validity&) = default;
};

struct CertificateRequest {
  std::string common_name;         // at most 64 characters
  std::vector<std::string> names;  // DNS names and IP addresses; at least one
  Validity validity;
  std::string extended_key_usage = "serverAuth";  // OpenSSL's names, with commas
};

// Whether a certificate can have the name: characters of DNS names and addresses alone.
bool is_server_name(const std::string& name);

// Errors: kInternal where OpenSSL fails, kInvalid for a name that a certificate cannot have.
Result<std::string> make_private_key();
Result<KeyPair> make_authority(const std::string& common_name, const Validity& validity);
Result<KeyPair> issue_certificate(const KeyPair& authority, const CertificateRequest& request);

struct Certificate {
  std::string pem;  // of this one alone
  Validity validity;
};

// The certificates of a PEM text, in its order; what is between them, or cannot be read, is left out.
std::vector<Certificate> read_certificates(std::string_view pem);
// Whether the key is the certificate's (the first one's of a chain).
bool is_key_of(std::string_view key_pem, std::string_view certificate_pem);
// Whether clients take the certificate (the first one of a chain) for a server of this DNS name or IP address.
bool names_host(std::string_view certificate_pem, const std::string& host);

}  // namespace plimsoll::http
