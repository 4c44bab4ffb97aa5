#include "tests/http/test_certificates.h"

#include <gtest/gtest.h>

#include "tests/testing/patience.h"

namespace plimsoll::testing {

const CertificateAuthority& test_authority() {
  static const CertificateAuthority authority = *CertificateAuthority::create("webhook tests");
  return authority;
}

KeyPair new_server_pair() {
  return *test_authority().issue("webhook", {"localhost", "127.0.0.1"});
}

void HeldCertificate::swap() {
  const KeyPair pair = new_server_pair();
  Result<http::ServerCertificate> made = http::make_server_certificate(
      pair.certificate_pem, pair.key_pem, test_authority().certificate_pem(), system_clock().wall_now());
  ASSERT_TRUE(made.ok()) << made.error().message;
  const std::lock_guard lock(mutex_);
  context_ = made->context;
}

void HeldCertificate::clear() {
  const std::lock_guard lock(mutex_);
  context_ = nullptr;
}

std::shared_ptr<boost::asio::ssl::context> HeldCertificate::current() const {
  const std::lock_guard lock(mutex_);
  return context_;
}

http::ServerOptions test_options() {
  http::ServerOptions options;
  options.bind_address = "127.0.0.1";
  options.handshake_timeout = options.header_timeout = options.body_timeout = options.write_timeout =
      options.idle_timeout = 2 * kPatience;
  return options;
}

}  // namespace plimsoll::testing
