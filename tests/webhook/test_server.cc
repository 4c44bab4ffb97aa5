#include "tests/webhook/test_server.h"

#include <gtest/gtest.h>

#include "base/log.h"
#include "tests/webhook/samples.h"

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
  Result<webhook::ServerCertificate> made = webhook::make_server_certificate(
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

webhook::HttpServerOptions test_options() {
  webhook::HttpServerOptions options;
  options.bind_address = "127.0.0.1";
  return options;
}

TestServer::TestServer(webhook::HttpServerOptions options)
    : server_(
          std::move(options),
          [this](const webhook::HttpRequest& request) { return handler_.handle(request); }, certificate_) {
  configure_log(LogLevel::kError,
                LogFormat::kText);  // a warning for each bad request would hide the test's own
  cluster_.set(sample_view());
  const Result<void> started = server_.start();
  EXPECT_TRUE(started.ok()) << started.error().message;
}

}  // namespace plimsoll::testing
