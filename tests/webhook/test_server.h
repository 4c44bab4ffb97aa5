// A webhook on the loopback, as `plimsoll webhook` puts it together, but with certificates and a view of the
// cluster that a test holds.
//
//   TestServer server;
//   Peer peer(server.port());
#pragma once

#include <memory>

#include "tests/http/test_certificates.h"
#include "webhook/admission_handler.h"

namespace plimsoll::testing {

class TestServer {
 public:
  explicit TestServer(http::ServerOptions options = test_options());

  std::uint16_t port() const { return server_.port(); }
  http::Server& server() { return server_; }
  HeldCertificate& certificate() { return *certificate_; }
  prometheus::Registry& registry() { return registry_; }

 private:
  std::shared_ptr<HeldCertificate> certificate_ = std::make_shared<HeldCertificate>();
  prometheus::Registry registry_;
  webhook::AdmissionMetrics metrics_{registry_};
  estimator::ClusterViewStore cluster_;
  webhook::AdmissionHandler handler_{{.cluster = &cluster_, .tables = nullptr, .metrics = &metrics_}};
  http::Server server_;
};

}  // namespace plimsoll::testing
