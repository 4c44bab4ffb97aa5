// `plimsoll webhook` as a process, on the embedded API server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/yaml.h"
#include "tests/checkout.h"
#include "tests/controlplane/api_server.h"
#include "tests/controlplane/certificates.h"
#include "tests/controlplane/scratch_directory.h"
#include "tests/controlplane/subprocess.h"
#include "tests/http/load.h"
#include "tests/http/peer.h"
#include "tests/testing/eventually.h"
#include "tests/testing/patience.h"
#include "tests/webhook/samples.h"
#include "tests/webhook/test_server.h"
#include "webhook/admission_handler.h"

namespace plimsoll::process {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using testing::ApiServer;
using ::testing::EndsWith;
using testing::eventually;
using ::testing::Ge;
using ::testing::HasSubstr;
using testing::kPatience;
using ::testing::Ne;
using testing::Peer;
using testing::Response;
using ::testing::StartsWith;

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::uint16_t port_in(const std::string& path) {
  int port = 0;
  std::ifstream(path) >> port;
  return static_cast<std::uint16_t>(port);
}

// One process, with a folder for its certificate, ports and log.
class Webhook {
 public:
  explicit Webhook(const ApiServer& server, bool with_certificate = true, const std::string& lame_duck = "1s")
      : folder_(*testing::ScratchDirectory::create()) {
    if (with_certificate) {
      write_certificate();
    }
    testing::SubprocessOptions options;
    options.log_file = folder_->file("log");
    options.arguments = {PLIMSOLL_BINARY,
                         "webhook",
                         "--kubeconfig=" + server.kubeconfig(),
                         "--certificate-directory=" + folder_->path(),
                         "--bind-address=127.0.0.1",
                         "--port=0",
                         "--port-file=" + folder_->file("port"),
                         "--ops-address=127.0.0.1",
                         "--ops-port=0",
                         "--metrics-secure=false",
                         "--ops-port-file=" + folder_->file("ops-port"),
                         "--lame-duck=" + lame_duck};
    process_ = *testing::Subprocess::start(options);
    EXPECT_TRUE(eventually(
        "the port file", [&] { return port_in(folder_->file("ops-port")); }, Ne(0)))
        << log();
  }

  void write_certificate() {
    const testing::KeyPair pair = testing::new_server_pair();
    ASSERT_TRUE(testing::write_private_file(folder_->file("tls.crt"), pair.certificate_pem).ok());
    ASSERT_TRUE(testing::write_private_file(folder_->file("tls.key"), pair.key_pem).ok());
  }

  std::uint16_t port() const { return port_in(folder_->file("port")); }
  testing::Subprocess& process() { return *process_; }
  std::string log() const { return text_of(folder_->file("log")); }

  std::optional<Response> get(const std::string& path) const {
    Peer peer(port_in(folder_->file("ops-port")));
    return peer.write("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n") ? peer.read_response() : std::nullopt;
  }
  // Status and body of the readiness.
  std::string readiness() const {
    const std::optional<Response> answer = get("/readyz");
    return answer ? std::to_string(answer->status) + " " + answer->body : "no answer";
  }
  ::testing::AssertionResult becomes_ready() const {
    return eventually(
               "the webhook is ready", [this] { return readiness(); }, StartsWith("200"))
           << log();
  }
  // Line of the metrics that begins with `name`; empty: none.
  std::string metric(const std::string& name) const {
    const std::optional<Response> answer = get("/metrics");
    std::istringstream lines(answer ? answer->body : "");
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with(name)) {
        return line;
      }
    }
    return "";
  }

 private:
  std::unique_ptr<testing::ScratchDirectory> folder_;
  std::unique_ptr<testing::Subprocess> process_;
};

class WebhookCommand : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = testing::start_api_server(testing::ApiServerKind::kFake).release();
    ASSERT_NE(server_, nullptr);
    const auto client = server_->make_client();
    const kube::Resource crds{.group = "apiextensions.k8s.io",
                              .version = "v1",
                              .plural = "customresourcedefinitions",
                              .namespaced = false};
    for (const char* name : {"trainingjobs", "gpumodels", "memoryprofiles"}) {
      const auto documents = parse_yaml_documents(
          text_of(std::string(PLIMSOLL_SOURCE_DIR "/crds/plimsoll.dev_") + name + ".yaml"));
      ASSERT_TRUE(documents.ok());
      const Result<Json> created = client->create(crds, "", documents->front());
      ASSERT_TRUE(created.ok()) << created.error().message;
    }
    const kube::Resource gpu_models{
        .group = "plimsoll.dev", .version = "v1alpha1", .plural = "gpumodels", .namespaced = false};
    for (Json model : testing::sample_gpu_models()) {
      model["metadata"].removeMember("resourceVersion");
      ASSERT_TRUE(
          eventually("the kind is served", [&] { return client->create(gpu_models, "", model).ok(); }));
      Json stored = *client->get(gpu_models, "", model["metadata"]["name"].asString());
      stored["status"] = model["status"];
      const Result<Json> counted = client->update(gpu_models, "", stored, "status");
      ASSERT_TRUE(counted.ok()) << counted.error().message;
    }
  }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }

  static ApiServer* server_;
};

ApiServer* WebhookCommand::server_ = nullptr;

std::string review(int number) {
  return write_json(testing::sample_review(testing::sample_job("job-" + std::to_string(number))));
}

TEST_F(WebhookCommand, ServesWhenItIsReadyAndEndsOnSigterm) {
  Webhook webhook(*server_);
  ASSERT_TRUE(webhook.becomes_ready());
  EXPECT_EQ(webhook.get("/healthz")->status, 200);
  Peer peer(webhook.port());
  ASSERT_TRUE(peer.start_tls());
  const std::optional<Response> answer =
      peer.exchange("POST", webhook::kMutatePath, "application/json", review(1));
  ASSERT_TRUE(answer.has_value());
  EXPECT_FALSE(testing::patch_of(testing::response_of(answer->body, "1f0c7a52")).empty()) << answer->body;
  const std::string metrics = webhook.get("/metrics")->body;
  for (const char* name :
       {"plimsoll_admission_requests_total", "plimsoll_admission_duration_seconds_bucket",
        "plimsoll_admission_gpus_saved_total", "plimsoll_admission_in_flight",
        "plimsoll_webhook_certificate_expiration_timestamp_seconds", "plimsoll_memory_limit_bytes",
        "plimsoll_memory_reserved_bytes", "plimsoll_memory_rejected_total", "plimsoll_cpu_limit",
        "plimsoll_workers", "kubernetes_feature_enabled{name=\"WorkloadSizing\",stage=\"BETA\"} 1",
        "plimsoll_admission_decisions{state=\"long\"}", "reflector_lists_total{name=\"view-gpumodels\"}",
        "reflector_lists_total{name=\"view-memoryprofiles\"}"}) {
    EXPECT_NE(metrics.find(name), std::string::npos) << name;
  }
  webhook.process().send_signal(SIGTERM);
  EXPECT_EQ(webhook.process().wait_for_exit(kPatience), 0) << webhook.log();
}

TEST_F(WebhookCommand, IsNotReadyWithoutACertificate) {
  Webhook webhook(*server_, false);
  ASSERT_TRUE(eventually(
      "the caches are filled", [&] { return webhook.readiness(); }, HasSubstr("[+]caches ok")))
      << webhook.log();
  EXPECT_THAT(webhook.readiness(), AllOf(StartsWith("503"), HasSubstr("tls.crt")));
  webhook.write_certificate();
  EXPECT_TRUE(webhook.becomes_ready());
  EXPECT_EQ(webhook.process().stop(kPatience), 0);
}

// A rolling restart: one replica goes, the other stays, and no request is lost.
TEST_F(WebhookCommand, SigtermUnderLoadLosesNoRequest) {
  // In which each client is told, however busy the machine is.
  const std::string lame_duck = std::to_string(3 * testing::kSlowdown) + "s";
  Webhook stays(*server_);
  Webhook goes(*server_, true, lame_duck);
  ASSERT_TRUE(stays.becomes_ready());
  ASSERT_TRUE(goes.becomes_ready());
  testing::Load load({goes.port(), stays.port()}, 16, webhook::kMutatePath, review);
  ASSERT_TRUE(eventually(
      "the load runs", [&] { return load.answered(); }, Ge(50U)));
  goes.process().send_signal(SIGTERM);
  EXPECT_EQ(goes.process().wait_for_exit(kPatience), 0) << goes.log();
  const std::uint64_t answered = load.answered();
  EXPECT_TRUE(eventually(
      "the other replica answers", [&] { return load.answered(); }, Ge(answered + 50)));
  const testing::LoadResult result = load.finish();
  EXPECT_EQ(result.lost, 0U);
  EXPECT_EQ(result.closed, 16U);
  EXPECT_EQ(stays.process().stop(kPatience), 0);
}

// A decision of so little work that it is short under a sanitizer, too: beside two long ones, a third would be stopped.
std::string short_review(int number) {
  Json job = testing::sample_job("short-" + std::to_string(number));
  job["spec"]["model"]["dlrm"]["tables"] = *parse_json(R"([{"name": "one", "rows": 1000000, "dim": 128}])");
  job["spec"]["trainers"]["replicas"] = 16;
  return write_json(testing::sample_review(job));
}

// A decision of little memory and minutes of work.
std::string endless_review(int number) {
  Json job = testing::sample_job("endless-" + std::to_string(number));
  Json& spec = job["spec"];
  spec["model"] = *parse_json(R"({"family": "deep", "transformer": {"layers": 512, "hidden": 64, "heads": 1,
      "ffn": 64, "vocab": 64, "seqLen": 16}})");
  spec["training"]["batchSizePerTrainer"] = 512;
  spec["training"]["gradientAccumulation"] = 512;
  spec["training"]["parallelism"]["pipeline"] = 512;
  spec["trainers"]["replicas"] = 512;
  return write_json(testing::sample_review(job));
}

// Two such reviews took both workers: no other was answered, and SIGTERM was ignored.
TEST_F(WebhookCommand, EndlessDecisionsStopNeitherOthersNorTheProcess) {
  Webhook webhook(*server_, true, "0s");
  ASSERT_TRUE(webhook.becomes_ready());
  std::vector<std::jthread> attackers;
  for (int i = 0; i < 2; ++i) {
    attackers.emplace_back([&, i](const std::stop_token& stop) {
      Peer peer(webhook.port());
      const std::string path = std::string(webhook::kMutatePath) + "?timeout=30s";
      for (bool served = peer.start_tls(); served && !stop.stop_requested();) {
        served = peer.exchange("POST", path, "application/json", endless_review(i)).has_value();
      }
    });
  }
  const auto long_decisions = [&] { return webhook.metric("plimsoll_admission_decisions{state=\"long\"}"); };
  ASSERT_TRUE(eventually("both are computed", long_decisions, EndsWith(" 2")));
  Peer peer(webhook.port());
  ASSERT_TRUE(peer.start_tls());
  for (int i = 0; i < 20; ++i) {
    const std::optional<Response> answer =
        peer.exchange("POST", webhook::kMutatePath, "application/json", short_review(i));
    ASSERT_TRUE(answer.has_value());
    EXPECT_FALSE(testing::patch_of(testing::response_of(answer->body, "1f0c7a52")).empty()) << answer->body;
  }
  EXPECT_TRUE(eventually("both are computed still", long_decisions, EndsWith(" 2")));
  EXPECT_THAT(webhook.readiness(), StartsWith("200"));
  webhook.process().send_signal(SIGTERM);
  EXPECT_EQ(webhook.process().wait_for_exit(kPatience), 0) << webhook.log();
}

TEST_F(WebhookCommand, ASecondSignalEndsItAtOnce) {
  Webhook webhook(*server_, true, "10m");
  ASSERT_TRUE(webhook.becomes_ready());
  webhook.process().send_signal(SIGTERM);
  ASSERT_TRUE(eventually(
      "the webhook stops", [&] { return webhook.readiness(); },
      AllOf(StartsWith("503"), HasSubstr("stopping"))));
  EXPECT_TRUE(webhook.process().running());
  webhook.process().send_signal(SIGTERM);
  const std::optional<int> code = webhook.process().wait_for_exit(kPatience);
  ASSERT_TRUE(code.has_value());
  EXPECT_NE(*code, 0);
}

TEST(WebhookUsage, HelpAndMistakes) {
  const auto run = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {PLIMSOLL_BINARY, "webhook"});
    return testing::run_command(arguments);
  };
  const testing::CommandResult help = run({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* option : {"--certificate-directory", "--port", "--ops-port", "--metrics-secure",
                             "--metrics-port", "--kubeconfig", "--gpu-catalog", "--workers", "--log-format",
                             "--log-level", "--lame-duck", "--port-file"}) {
    EXPECT_NE(help.output.find(option), std::string::npos) << option;
  }
  const std::vector<std::vector<std::string>> mistakes = {
      {},
      {"--certificate-directory=tls", "--lame-duck=soon"},
      {"--certificate-directory=tls", "--port=-1"},
      {"--certificate-directory=tls", "--port=65536"},
      {"--certificate-directory=tls", "--port=https"},
      {"--certificate-directory=tls", "--metrics-secure=perhaps"},
      {"--certificate-directory=tls", "--metrics-secure=false", "--metrics-port=0"},
      {"--certificate-directory=tls", "--workers=-2"},
      {"--certificate-directory=tls", "--log-level=loud"},
      {"--certificate-directory=tls", "--log-format=xml"},
      {"--certificate-directory=tls", "--colour"},
      {"--certificate-directory=tls", "extra"},
      {"--certificate-directory=tls", "--kubeconfig=/nowhere/kubeconfig"},
      {"--certificate-directory=tls", "--gpu-catalog=/nowhere/catalog.yaml"},
  };
  for (const std::vector<std::string>& arguments : mistakes) {
    const testing::CommandResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 2) << ::testing::PrintToString(arguments) << result.errors;
    EXPECT_FALSE(result.errors.empty()) << ::testing::PrintToString(arguments);
  }
}

}  // namespace
}  // namespace plimsoll::process
