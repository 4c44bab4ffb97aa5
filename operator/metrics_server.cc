#include "operator/metrics_server.h"

#include <optional>
#include <utility>

#include "base/clock.h"
#include "http/certificate_authority.h"
#include "http/certificate_source.h"

namespace plimsoll::process {
namespace {

// Longer than a process lives: nobody renews it, and nobody trusts it for its validity.
constexpr std::chrono::hours kValidity{10 * 365 * 24};
// Clocks differ.
constexpr std::chrono::hours kBefore{1};

http::ServerOptions server_options(const MetricsServerOptions& options) {
  http::ServerOptions server;
  server.bind_address = options.address;
  server.port = options.port;
  // More than may wait for the API server because of unknown tokens, so that known ones are answered meanwhile.
  server.workers = 2 * options.access.most_reviews;
  server.body_limit = 4096;  // a scrape has no body
  server.max_connections = 128;
  server.max_in_flight = 32;
  return server;
}

http::Response text(int status, std::string body) {
  return {status, "text/plain; charset=utf-8", std::move(body)};
}

Result<http::KeyPair> make_pair(Clock::WallTime now) {
  const http::Validity validity{now - kBefore, now + kValidity};
  const Result<http::KeyPair> authority = http::make_authority("plimsoll metrics", validity);
  if (!authority) {
    return authority.error();
  }
  return http::issue_certificate(
      *authority,
      {.common_name = "plimsoll metrics", .names = {"localhost", "127.0.0.1", "::1"}, .validity = validity});
}

}  // namespace

class MetricsServer::Certificate final : public http::CertificateSource {
 public:
  // Before the server starts.
  Result<void> make() {
    const Clock::WallTime now = system_clock().wall_now();
    const Result<http::KeyPair> pair = make_pair(now);
    if (!pair) {
      return pair.error();
    }
    Result<http::ServerCertificate> made =
        http::make_server_certificate(pair->certificate_pem, pair->key_pem, "", now);
    if (!made) {
      return made.error();
    }
    context_ = std::move(made->context);
    return {};
  }

  std::shared_ptr<boost::asio::ssl::context> current() const override { return context_; }

 private:
  std::shared_ptr<boost::asio::ssl::context> context_;
};

MetricsServer::MetricsServer(MetricsServerOptions options, kube::Client& client)
    : options_(std::move(options)),
      access_(client, options_.access),
      certificate_(std::make_shared<Certificate>()),
      server_(
          server_options(options_), [this](const http::Request& request) { return handle(request); },
          certificate_) {}

MetricsServer::~MetricsServer() = default;

Result<void> MetricsServer::start() {
  if (Result<void> made = certificate_->make(); !made) {
    return made.error().within("certificate of the metrics");
  }
  return server_.start();
}

http::Response MetricsServer::handle(const http::Request& request) {
  if (request.path != "/metrics") {
    return text(404, "not found; the path is /metrics\n");
  }
  if (request.method != "GET" && request.method != "HEAD") {
    return text(405, "only GET and HEAD are allowed\n");
  }
  if (std::optional<http::Response> refusal = access_.refusal_of(request)) {
    return *std::move(refusal);
  }
  return metrics_page(options_.metrics);
}

}  // namespace plimsoll::process
