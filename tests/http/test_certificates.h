// Certificates and options of the servers that tests start.
//
//   auto certificate = std::make_shared<HeldCertificate>();
//   http::Server server(test_options(), handler, certificate);
//   certificate->swap();   // new connections get another one
//
// Thread-safe.
#pragma once

#include <memory>
#include <mutex>

#include "http/server.h"
#include "tests/controlplane/certificates.h"

namespace plimsoll::testing {

// One authority for the whole program: making keys takes its time.
const CertificateAuthority& test_authority();
KeyPair new_server_pair();

// A certificate that a test swaps by hand.
class HeldCertificate : public http::CertificateSource {
 public:
  HeldCertificate() { swap(); }
  void swap();  // to a new one
  void clear();
  std::shared_ptr<boost::asio::ssl::context> current() const override;

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<boost::asio::ssl::context> context_;
};

// Loopback, any port, and timeouts that never pass: a test that wants one to pass sets it.
http::ServerOptions test_options();

}  // namespace plimsoll::testing
