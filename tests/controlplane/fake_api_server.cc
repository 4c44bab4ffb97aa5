#include "tests/controlplane/fake_api_server.h"

#include <cassert>
#include <csignal>

#include "base/base64.h"
#include "kube/http_client.h"
#include "kube/kubeconfig.h"
#include "kube/transport.h"
#include "tests/controlplane/certificates.h"
#include "tests/controlplane/scratch_directory.h"
#include "tests/fake_apiserver/api.h"
#include "tests/fake_apiserver/http_server.h"

namespace plimsoll::testing {
namespace {

std::string kubeconfig_text(const std::string& address, const std::string& ca_pem, const std::string& token) {
  return "apiVersion: v1\n"
         "kind: Config\n"
         "current-context: fake\n"
         "clusters:\n"
         "- name: fake\n"
         "  cluster: {server: \"" +
         address + "\", certificate-authority-data: \"" + base64_encode(ca_pem) +
         "\"}\n"
         "users:\n"
         "- name: admin\n"
         "  user: {token: \"" +
         token +
         "\"}\n"
         "contexts:\n"
         "- name: fake\n"
         "  context: {cluster: fake, user: admin, namespace: default}\n";
}

fake::ApiOptions api_options(const FakeApiServerOptions& options) {
  fake::ApiOptions result;
  result.store.history_changes = options.history_changes;
  return result;
}

class EmbeddedApiServer final : public FakeApiServer {
 public:
  EmbeddedApiServer(const FakeApiServerOptions& options, std::unique_ptr<ScratchDirectory> scratch)
      : scratch_(std::move(scratch)), api_(api_options(options)), token_(random_hex(16)) {}

  ~EmbeddedApiServer() override {
    if (http_ != nullptr) {
      http_->stop();
    }
  }

  Result<void> open(const FakeApiServerOptions& options) {
    const auto authority = CertificateAuthority::create("plimsoll fake API server");
    if (!authority) {
      return authority.error();
    }
    const auto pair = authority->issue("kube-apiserver", {"localhost", "127.0.0.1"});
    if (!pair) {
      return pair.error();
    }
    fake::HttpServerOptions http;
    http.certificate_pem = pair->certificate_pem;
    http.key_pem = pair->key_pem;
    http.token = token_;
    http.port = options.port;
    http.watch_stream.bookmark_interval = options.bookmark_interval;
    auto server = fake::HttpServer::start(api_, http);
    if (!server) {
      return server.error();
    }
    http_ = *std::move(server);
    return write_private_file(kubeconfig(),
                              kubeconfig_text(http_->address(), authority->certificate_pem(), token_));
  }

  std::string kubeconfig() const override { return scratch_->file("kubeconfig"); }
  std::string directory() const override { return scratch_->path(); }
  std::string address() const override { return http_->address(); }
  std::string token() const override { return token_; }

  std::unique_ptr<kube::Client> make_client() const override {
    kube::KubeconfigSources sources;
    sources.path = kubeconfig();
    const auto config = kube::load_client_config(sources);
    assert(config);
    auto client = kube::connect(*config);
    assert(client);
    return *std::move(client);
  }

  fake::UnevaluatedRules unevaluated_rules() const override { return api_.unevaluated_rules(); }

  void inject(const Fault& fault) override { api_.faults().add(fault); }
  void clear_faults() override { api_.faults().clear(); }
  void forget_history() override { api_.store().forget_history(); }
  void drop_watches() override { http_->drop_watches(); }
  std::size_t open_watches() const override { return http_->open_watches(); }

 private:
  std::unique_ptr<ScratchDirectory> scratch_;
  fake::Api api_;
  std::string token_;
  std::unique_ptr<fake::HttpServer> http_;
};

}  // namespace

Result<std::unique_ptr<FakeApiServer>> FakeApiServer::start(const FakeApiServerOptions& options) {
  // The server and the process's clients share cpprestsdk's thread, which has to be the clients'.
  if (const auto started = kube::start_transport(); !started) {
    return started.error();
  }
  // A client that goes away while it is written to must not end the process.
  std::signal(SIGPIPE, SIG_IGN);
  auto scratch = ScratchDirectory::create();
  if (!scratch) {
    return scratch.error();
  }
  auto server = std::make_unique<EmbeddedApiServer>(options, *std::move(scratch));
  if (const auto opened = server->open(options); !opened) {
    return opened.error();
  }
  return std::unique_ptr<FakeApiServer>(std::move(server));
}

Result<std::unique_ptr<ApiServer>> start_fake_api_server() {
  auto server = FakeApiServer::start();
  if (!server) {
    return server.error();
  }
  return std::unique_ptr<ApiServer>(*std::move(server));
}

}  // namespace plimsoll::testing
