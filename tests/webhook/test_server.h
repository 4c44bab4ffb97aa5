// A webhook on the loopback, as `plimsoll webhook` puts it together, but with certificates and a view of the
// cluster that a test holds.
//
//   TestServer server;
//   Peer peer(server.port());
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "tests/controlplane/certificates.h"
#include "webhook/admission_handler.h"
#include "webhook/http_server.h"

namespace plimsoll::testing {

// One authority for the whole program: making keys takes its time.
const CertificateAuthority& test_authority();
KeyPair new_server_pair();

// A certificate that a test swaps by hand.
class HeldCertificate : public webhook::CertificateSource {
 public:
  HeldCertificate() { swap(); }
  void swap();  // to a new one
  void clear();
  std::shared_ptr<boost::asio::ssl::context> current() const override;

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<boost::asio::ssl::context> context_;
};

// Loopback, any port, and times that a test can wait for where it says so.
webhook::HttpServerOptions test_options();

class TestServer {
 public:
  explicit TestServer(webhook::HttpServerOptions options = test_options());

  std::uint16_t port() const { return server_.port(); }
  webhook::HttpServer& server() { return server_; }
  HeldCertificate& certificate() { return *certificate_; }
  prometheus::Registry& registry() { return registry_; }

 private:
  std::shared_ptr<HeldCertificate> certificate_ = std::make_shared<HeldCertificate>();
  prometheus::Registry registry_;
  webhook::AdmissionMetrics metrics_{registry_};
  estimator::ClusterViewStore cluster_;
  webhook::AdmissionHandler handler_{{.cluster = &cluster_, .tables = nullptr, .metrics = &metrics_}};
  webhook::HttpServer server_;
};

}  // namespace plimsoll::testing
