#include "tests/controlplane/real_api_server.h"

#include <signal.h>

#include <algorithm>
#include <cassert>
#include <filesystem>
#include <fstream>
#include <thread>

#include "kube/http_client.h"
#include "kube/kubeconfig.h"
#include "tests/checkout.h"
#include "tests/controlplane/binaries.h"
#include "tests/controlplane/certificates.h"
#include "tests/controlplane/free_ports.h"
#include "tests/controlplane/scratch_directory.h"
#include "tests/controlplane/subprocess.h"

namespace plimsoll::testing {
namespace {

using Steady = std::chrono::steady_clock;

// Ready after 3 s on an idle machine; a busy one with sanitizers takes many times that.
constexpr std::chrono::seconds kReadyLimit{90};
constexpr std::chrono::milliseconds kPollInterval{50};
// A port is free when it is chosen, not when the server binds it; another process may come first.
constexpr int kStartAttempts = 3;
constexpr const char* kLoopback = "127.0.0.1";
constexpr const char* kPretendedNodes = "kwok.x-k8s.io/node=fake";

class RealApiServer final : public ApiServer {
 public:
  RealApiServer(std::unique_ptr<ScratchDirectory> scratch, ApiServerOptions options)
      : scratch_(std::move(scratch)), options_(options) {}

  // Clients first, then the store: the reverse of the start.
  ~RealApiServer() override {
    while (!processes_.empty()) {
      processes_.pop_back();
    }
  }

  ApiServerKind kind() const override { return ApiServerKind::kReal; }
  std::string kubeconfig() const override { return scratch_->file("kubeconfig"); }
  std::string directory() const override { return scratch_->path(); }
  std::unique_ptr<kube::Client> make_client() const override {
    const Result<kube::ClientConfig> config =
        kube::load_client_config(kube::sources_from_environment(kubeconfig()));
    assert(config.ok());
    Result<std::unique_ptr<kube::Client>> client = kube::connect(*config);
    assert(client.ok());
    return *std::move(client);
  }

  fake::UnevaluatedRules unevaluated_rules() const override { return {}; }

  Result<void> restart(std::chrono::milliseconds outage) override {
    const auto killed = std::find_if(processes_.begin(), processes_.end(),
                                     [](const Named& each) { return each.name == "kube-apiserver"; });
    assert(killed != processes_.end());
    killed->process->send_signal(SIGKILL);
    processes_.erase(killed);  // waits for its end
    std::this_thread::sleep_for(outage);
    Result<void> started = start_apiserver();
    return started ? wait_for_apiserver() : started;
  }

  Result<std::string> renew_certificate() override {
    const Result<CertificateAuthority> authority =
        CertificateAuthority::create("plimsoll test control plane " + random_hex(4));
    if (!authority) {
      return authority.error();
    }
    if (const Result<void> issued = issue_certificate(*authority); !issued) {
      return issued.error();
    }
    return authority->certificate_pem();
  }

  Result<void> start() {
    const std::vector<int> ports = free_ports(3);
    if (ports.size() != 3) {
      return Error(ErrorCode::kUnavailable, "no free port on the loopback");
    }
    etcd_port_ = ports[0];
    etcd_peer_port_ = ports[1];
    api_port_ = ports[2];
    for (auto step :
         {&RealApiServer::write_credentials, &RealApiServer::start_etcd, &RealApiServer::start_apiserver,
          &RealApiServer::wait_for_apiserver, &RealApiServer::start_controllers}) {
      if (Result<void> done = (this->*step)(); !done) {
        return done;
      }
    }
    return {};
  }

  // Whether what stopped the start was a port that someone else took.
  bool lost_a_port() const {
    for (const char* name : {"etcd", "kube-apiserver"}) {
      if (tail_of_file(log_of(name)).find("address already in use") != std::string::npos) {
        return true;
      }
    }
    return false;
  }

 private:
  std::string log_of(const std::string& name) const { return scratch_->file(name + ".log"); }

  Result<void> run(const std::string& name, const std::vector<std::string>& flags) {
    const Result<std::string> program = find_program(name);
    if (!program) {
      return program.error();
    }
    SubprocessOptions options;
    options.arguments = {*program};
    options.arguments.insert(options.arguments.end(), flags.begin(), flags.end());
    options.log_file = log_of(name);
    Result<std::unique_ptr<Subprocess>> process = Subprocess::start(options);
    if (!process) {
      return process.error();
    }
    processes_.push_back({name, *std::move(process)});
    return {};
  }

  Result<void> issue_certificate(const CertificateAuthority& authority) {
    const Result<KeyPair> server = authority.issue("kube-apiserver", {"localhost", kLoopback, "10.0.0.1"});
    if (!server) {
      return server.error();
    }
    const std::pair<const char*, std::string> files[] = {{"ca.crt", authority.certificate_pem()},
                                                         {"apiserver.crt", server->certificate_pem},
                                                         {"apiserver.key", server->key_pem}};
    for (const auto& [name, text] : files) {
      if (Result<void> written = write_private_file(scratch_->file(name), text); !written) {
        return written;
      }
    }
    return {};
  }

  Result<void> write_credentials() {
    const Result<CertificateAuthority> authority =
        CertificateAuthority::create("plimsoll test control plane");
    if (!authority) {
      return authority.error();
    }
    if (const Result<void> issued = issue_certificate(*authority); !issued) {
      return issued;
    }
    const Result<std::string> signing_key = http::make_private_key();
    if (!signing_key) {
      return signing_key.error();
    }
    const std::string token = random_hex(16);
    const std::string kubeconfig_text =
        "apiVersion: v1\nkind: Config\ncurrent-context: test\nclusters:\n"
        "- name: test\n  cluster:\n    server: https://" +
        std::string(kLoopback) + ":" + std::to_string(api_port_) +
        "\n    certificate-authority: " + scratch_->file("ca.crt") +
        "\nusers:\n- name: admin\n  user:\n    token: " + token +
        "\ncontexts:\n- name: test\n  context: {cluster: test, user: admin}\n";
    const std::pair<const char*, std::string> files[] = {
        {"service-accounts.key", *signing_key},
        {"tokens.csv", token + ",admin,1,\"system:masters\"\n"},
        {"kubeconfig", kubeconfig_text},
    };
    for (const auto& [name, text] : files) {
      if (Result<void> written = write_private_file(scratch_->file(name), text); !written) {
        return written;
      }
    }
    return {};
  }

  std::string etcd_url() const {
    return "http://" + std::string(kLoopback) + ":" + std::to_string(etcd_port_);
  }

  Result<void> start_etcd() {
    const std::string peer_url = "http://" + std::string(kLoopback) + ":" + std::to_string(etcd_peer_port_);
    return run("etcd", {"--data-dir", scratch_->file("etcd"), "--unsafe-no-fsync", "--log-level", "warn",
                        "--listen-client-urls", etcd_url(), "--advertise-client-urls", etcd_url(),
                        "--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url,
                        "--initial-cluster", "default=" + peer_url});
  }

  Result<void> start_apiserver() {
    std::vector<std::string> flags = {
        "--etcd-servers",
        etcd_url(),
        "--bind-address",
        kLoopback,
        "--advertise-address",
        kLoopback,
        "--secure-port",
        std::to_string(api_port_),
        "--tls-cert-file",
        scratch_->file("apiserver.crt"),
        "--tls-private-key-file",
        scratch_->file("apiserver.key"),
        "--token-auth-file",
        scratch_->file("tokens.csv"),
        "--authorization-mode",
        "RBAC",
        "--service-account-issuer",
        "https://kubernetes.default.svc",
        "--service-account-key-file",
        scratch_->file("service-accounts.key"),
        "--service-account-signing-key-file",
        scratch_->file("service-accounts.key"),
        "--service-cluster-ip-range",
        "10.0.0.0/24",
        "--allow-privileged=true",
        // A webhook's Service is called at its endpoints: nothing here routes the address of a Service.
        "--enable-aggregator-routing=true",
    };
    if (!options_.controller_manager) {
      // Nobody makes the service account that the one asks for with every pod, nor takes away the taint that
      // the other gives to every new node.
      flags.emplace_back("--disable-admission-plugins=ServiceAccount,TaintNodesByCondition");
    }
    if (options_.audit) {
      if (Result<void> written = write_private_file(
              scratch_->file("audit-policy.yaml"),
              "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived, ResponseStarted]\n"
              "rules: [{level: Metadata}]\n");
          !written) {
        return written;
      }
      flags.insert(flags.end(), {"--audit-policy-file", scratch_->file("audit-policy.yaml"),
                                 "--audit-log-path", scratch_->file("audit.log")});
    }
    return run("kube-apiserver", flags);
  }

  // The first process that ended, with what it said last.
  Result<void> all_running() {
    for (Named& process : processes_) {
      if (!process.process->running()) {
        return Error(ErrorCode::kUnavailable,
                     process.name + " ended while starting: " + tail_of_file(log_of(process.name)));
      }
    }
    return {};
  }

  template <class Condition>
  Result<void> wait_until(const std::string& what, Condition condition) {
    const Steady::time_point deadline = Steady::now() + kReadyLimit;
    while (!condition()) {
      if (Result<void> alive = all_running(); !alive) {
        return alive;
      }
      if (Steady::now() > deadline) {
        return Error(ErrorCode::kTimeout,
                     what + " was not there after " + std::to_string(kReadyLimit.count()) +
                         " s; kube-apiserver said: " + tail_of_file(log_of("kube-apiserver")));
      }
      std::this_thread::sleep_for(kPollInterval);
    }
    return {};
  }

  // OriginalRequest by kubectl, not by the client under test.
  bool answers(const std::vector<std::string>& question) {
    return run_kubectl(*this, question).exit_code == 0;
  }

  // Before its port is open, a connection says so for less than kubectl takes to start.
  Result<void> wait_for_apiserver() {
    return wait_until("the API server", [&] {
      return is_listening(api_port_) && answers({"get", "--raw", "/readyz"});
    });
  }

  Result<void> start_controllers() {
    if (options_.controller_manager) {
      Result<void> started =
          run("kube-controller-manager",
              {"--kubeconfig", kubeconfig(), "--service-account-private-key-file",
               scratch_->file("service-accounts.key"), "--root-ca-file", scratch_->file("ca.crt"),
               "--use-service-account-credentials=false", "--leader-elect=false", "--secure-port=0"});
      if (!started) {
        return started;
      }
    }
    if (options_.scheduler) {
      Result<void> started =
          run("kube-scheduler", {"--kubeconfig", kubeconfig(), "--leader-elect=false", "--secure-port=0"});
      if (!started) {
        return started;
      }
    }
    if (options_.kwok) {
      std::vector<std::string> flags = {"--kubeconfig",
                                        kubeconfig(),
                                        "--node-lease-duration-seconds",
                                        "40",
                                        "--manage-nodes-with-annotation-selector",
                                        kPretendedNodes};
      std::error_code failure;
      for (const auto& stage :
           std::filesystem::directory_iterator(PLIMSOLL_SOURCE_DIR "/tests/controlplane/stages", failure)) {
        flags.insert(flags.end(), {"--config", stage.path().string()});
      }
      if (Result<void> started = run("kwok", flags); !started) {
        return started;
      }
    }
    if (!options_.controller_manager) {
      return {};
    }
    return wait_until("the default service account", [&] {
      return answers({"get", "serviceaccount", "default"});
    });
  }

  struct Named {
    std::string name;
    std::unique_ptr<Subprocess> process;
  };

  std::unique_ptr<ScratchDirectory> scratch_;
  ApiServerOptions options_;
  int etcd_port_ = 0;
  int etcd_peer_port_ = 0;
  int api_port_ = 0;
  std::vector<Named> processes_;
};

}  // namespace

Result<std::unique_ptr<ApiServer>> start_real_api_server(const ApiServerOptions& options) {
  if (const Result<std::string>& folder = control_plane_folder(); !folder) {
    return folder.error();
  }
  Error last;
  for (int attempt = 0; attempt < kStartAttempts; ++attempt) {
    Result<std::unique_ptr<ScratchDirectory>> scratch = ScratchDirectory::create();
    if (!scratch) {
      return scratch.error();
    }
    auto server = std::make_unique<RealApiServer>(*std::move(scratch), options);
    const Result<void> started = server->start();
    if (started) {
      return std::unique_ptr<ApiServer>(std::move(server));
    }
    last = started.error();
    if (!server->lost_a_port()) {
      break;
    }
  }
  return last;
}

}  // namespace plimsoll::testing
