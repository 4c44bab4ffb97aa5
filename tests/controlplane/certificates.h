// A certificate authority of a few lines, for servers that tests start on the loopback.
//
//   Result<CertificateAuthority> authority = CertificateAuthority::create("test CA");
//   Result<KeyPair> server = authority->issue("plimsoll-webhook", {"localhost", "127.0.0.1"});
//
// Valid for a day from five minutes ago, for servers and clients. Keys stay in memory unless the caller writes them.
// Plain values; any thread.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "http/certificate_authority.h"

namespace plimsoll::testing {

using http::KeyPair;

class CertificateAuthority {
 public:
  static Result<CertificateAuthority> create(const std::string& common_name);

  const std::string& certificate_pem() const { return pair_.certificate_pem; }
  // A server certificate for these DNS names and IP addresses.
  Result<KeyPair> issue(const std::string& common_name, const std::vector<std::string>& names) const;

 private:
  explicit CertificateAuthority(KeyPair pair) : pair_(std::move(pair)) {}

  KeyPair pair_;
};

// Random bytes as hexadecimal text: tokens.
std::string random_hex(std::size_t bytes);

// Writes text that only its owner may read.
Result<void> write_private_file(const std::string& path, const std::string& text);

}  // namespace plimsoll::testing
