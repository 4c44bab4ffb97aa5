// `plimsoll webhook` as a process, on the embedded API server.
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
#include "tests/webhook/samples.h"
#include "tests/webhook/test_server.h"
#include "webhook/admission_handler.h"

namespace plimsoll::process {
namespace {

using namespace std::chrono_literals;
using testing::ApiServer;
using testing::Peer;
using testing::Response;

template <class Condition>
bool eventually(Condition condition) {
  const auto limit = std::chrono::steady_clock::now() + 60s;
  while (std::chrono::steady_clock::now() < limit) {
    if (condition()) {
      return true;
    }
    std::this_thread::sleep_for(10ms);
  }
  return false;
}

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
                         "--ops-port-file=" + folder_->file("ops-port"),
                         "--lame-duck=" + lame_duck};
    process_ = *testing::Subprocess::start(options);
    EXPECT_TRUE(eventually([&] { return port_in(folder_->file("ops-port")) != 0; })) << log();
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
  bool ready() const {
    const std::optional<Response> answer = get("/readyz");
    return answer && answer->status == 200;
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
      ASSERT_TRUE(eventually([&] { return client->create(gpu_models, "", model).ok(); }));
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
  ASSERT_TRUE(eventually([&] { return webhook.ready(); })) << webhook.log();
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
        "plimsoll_workers", "plimsoll_admission_decisions{state=\"long\"}",
        "reflector_lists_total{name=\"view-gpumodels\"}",
        "reflector_lists_total{name=\"view-memoryprofiles\"}"}) {
    EXPECT_NE(metrics.find(name), std::string::npos) << name;
  }
  webhook.process().send_signal(SIGTERM);
  EXPECT_TRUE(eventually([&] {
    const std::optional<Response> readiness = webhook.get("/readyz");
    return readiness && readiness->status == 503 && readiness->body.find("stopping") != std::string::npos;
  }));
  EXPECT_EQ(webhook.process().wait_for_exit(60s), 0) << webhook.log();
}

TEST_F(WebhookCommand, IsNotReadyWithoutACertificate) {
  Webhook webhook(*server_, false);
  ASSERT_TRUE(eventually([&] {
    const std::optional<Response> answer = webhook.get("/readyz");
    return answer && answer->body.find("[+]caches ok") != std::string::npos;
  })) << webhook.log();
  const std::optional<Response> waiting = webhook.get("/readyz");
  ASSERT_TRUE(waiting.has_value());
  EXPECT_EQ(waiting->status, 503);
  EXPECT_NE(waiting->body.find("tls.crt"), std::string::npos) << waiting->body;
  webhook.write_certificate();
  EXPECT_TRUE(eventually([&] { return webhook.ready(); })) << webhook.log();
  EXPECT_EQ(webhook.process().stop(60s), 0);
}

// A rolling restart: one replica goes, the other stays, and no request is lost.
TEST_F(WebhookCommand, SigtermUnderLoadLosesNoRequest) {
  Webhook stays(*server_);
  Webhook goes(*server_);
  ASSERT_TRUE(eventually([&] { return stays.ready() && goes.ready(); })) << stays.log() << goes.log();
  testing::Load load({goes.port(), stays.port()}, 16, webhook::kMutatePath, review);
  ASSERT_TRUE(eventually([&] { return load.answered() > 50; }));
  goes.process().send_signal(SIGTERM);
  EXPECT_EQ(goes.process().wait_for_exit(60s), 0) << goes.log();
  const std::uint64_t answered = load.answered();
  EXPECT_TRUE(eventually([&] { return load.answered() > answered + 50; }));
  const testing::LoadResult result = load.finish();
  EXPECT_EQ(result.lost, 0U);
  EXPECT_EQ(result.closed, 16U);
  EXPECT_EQ(stays.process().stop(60s), 0);
}

// 681 bytes whose decision took minutes and gigabytes.
std::string endless_review(int number) {
  Json job = testing::sample_job("endless-" + std::to_string(number));
  Json& spec = job["spec"];
  spec["model"] = *parse_json(R"({"transformer": {"architecture": "Decoder", "layers": 65536, "hidden": 1024,
      "heads": 16, "ffn": 4096, "vocab": 32000, "seqLen": 2048}})");
  spec["training"]["batchSizePerTrainer"] = 1000000;
  spec["training"]["gradientAccumulation"] = 1000000;
  spec["training"]["parallelism"]["pipeline"] = 4;
  spec["training"]["parallelism"]["pipelineChunks"] = 128;
  return write_json(testing::sample_review(job));
}

// Two such reviews took both workers: no other was answered, and SIGTERM was ignored.
TEST_F(WebhookCommand, EndlessDecisionsStopNeitherOthersNorTheProcess) {
  Webhook webhook(*server_, true, "0s");
  ASSERT_TRUE(eventually([&] { return webhook.ready(); })) << webhook.log();
  std::vector<std::jthread> attackers;
  for (int i = 0; i < 2; ++i) {
    attackers.emplace_back([&, i] {
      Peer peer(webhook.port());
      if (peer.start_tls()) {
        peer.exchange("POST", std::string(webhook::kMutatePath) + "?timeout=30s", "application/json",
                      endless_review(i));
      }
    });
  }
  Peer peer(webhook.port());
  ASSERT_TRUE(peer.start_tls());
  for (int i = 0; i < 20; ++i) {
    const std::optional<Response> answer =
        peer.exchange("POST", webhook::kMutatePath, "application/json", review(i));
    ASSERT_TRUE(answer.has_value());
    EXPECT_FALSE(testing::patch_of(testing::response_of(answer->body, "1f0c7a52")).empty()) << answer->body;
  }
  EXPECT_TRUE(webhook.ready());
  webhook.process().send_signal(SIGTERM);
  EXPECT_EQ(webhook.process().wait_for_exit(30s), 0) << webhook.log();
}

TEST_F(WebhookCommand, ASecondSignalEndsItAtOnce) {
  Webhook webhook(*server_, true, "10m");
  ASSERT_TRUE(eventually([&] { return webhook.ready(); })) << webhook.log();
  webhook.process().send_signal(SIGTERM);
  ASSERT_TRUE(eventually([&] { return !webhook.ready(); }));
  EXPECT_TRUE(webhook.process().running());
  webhook.process().send_signal(SIGTERM);
  const std::optional<int> code = webhook.process().wait_for_exit(10s);
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
  for (const char* option :
       {"--certificate-directory", "--port", "--ops-port", "--kubeconfig", "--gpu-catalog", "--workers",
        "--log-format", "--log-level", "--lame-duck", "--port-file"}) {
    EXPECT_NE(help.output.find(option), std::string::npos) << option;
  }
  const std::vector<std::vector<std::string>> mistakes = {
      {},
      {"--certificate-directory=tls", "--lame-duck=soon"},
      {"--certificate-directory=tls", "--port=-1"},
      {"--certificate-directory=tls", "--port=65536"},
      {"--certificate-directory=tls", "--port=https"},
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
