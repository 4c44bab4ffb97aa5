#include "tests/e2e/main_job.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/base64.h"
#include "kube/client.h"
#include "tests/checkout.h"
#include "tests/controlplane/certificates.h"
#include "tests/testing/eventually.h"
#include "tests/testing/patience.h"

namespace plimsoll::testing {
namespace {

const kube::Resource kGpuModels{
    .group = "plimsoll.dev", .version = "v1alpha1", .plural = "gpumodels", .namespaced = false};
constexpr const char* kCrds[] = {"trainingjobs", "gpumodels", "memoryprofiles"};

void replace_all(std::string& text, const std::string& what, const std::string& with) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size())) {
    text.replace(at, what.size(), with);
  }
}

}  // namespace

void MainJobTest::SetUp() {
  std::string why;
  server_ = start_api_server(kind_under_test(), server_options(), &why);
  if (server_ == nullptr) {
    ASSERT_EQ(kind_under_test(), ApiServerKind::kReal) << why;
    GTEST_SKIP() << why;
  }
  std::vector<std::string> apply = {"apply"};
  std::vector<std::string> wait = {"wait", "--for=condition=Established", kubectl_timeout()};
  for (const char* kind : kCrds) {
    apply.insert(apply.end(),
                 {"-f", PLIMSOLL_SOURCE_DIR "/crds/plimsoll.dev_" + std::string(kind) + ".yaml"});
    wait.push_back("crd/" + std::string(kind) + ".plimsoll.dev");
  }
  must(apply);
  must(wait);
}

// The jobs of these tests request many times what holds them.
constexpr const char* kNoFloor = "--min-share-of-asked=0%";

void MainJobTest::start_plimsoll() {
  must({"create", "-f", "-"}, node_manifest("a100-0", "NVIDIA-A100-SXM4-80GB", 81920) + "---\n" +
                                  node_manifest("a100-1", "NVIDIA-A100-SXM4-80GB", 81920) + "---\n" +
                                  node_manifest("v100-0", "Tesla-V100-SXM2-32GB", 32768));
  ASSERT_NO_FATAL_FAILURE(start_operator());
  ASSERT_NO_FATAL_FAILURE(wait_until_counted("a100-80gb", 16));
  ASSERT_NO_FATAL_FAILURE(start_webhook());
}

void MainJobTest::start_operator() {
  Result<std::unique_ptr<PlimsollProcess>> started = PlimsollProcess::start(
      "operator", {"--leader-elect=false", kNoFloor}, server_->kubeconfig(), server_->directory());
  ASSERT_TRUE(started.ok()) << to_string(started.error());
  operator_ = *std::move(started);
}

void MainJobTest::start_webhook() {
  const Result<CertificateAuthority> authority = CertificateAuthority::create("plimsoll test webhook");
  ASSERT_TRUE(authority.ok());
  const Result<KeyPair> pair = authority->issue("plimsoll-webhook", {"127.0.0.1"});
  ASSERT_TRUE(pair.ok());
  const std::string folder = server_->directory() + "/webhook-tls";
  std::filesystem::create_directory(folder);
  ASSERT_TRUE(write_private_file(folder + "/ca.crt", authority->certificate_pem()).ok());
  ASSERT_TRUE(write_private_file(folder + "/tls.crt", pair->certificate_pem).ok());
  ASSERT_TRUE(write_private_file(folder + "/tls.key", pair->key_pem).ok());
  Result<std::unique_ptr<PlimsollProcess>> started =
      PlimsollProcess::start("webhook", {"--certificate-directory=" + folder, kNoFloor},
                             server_->kubeconfig(), server_->directory());
  ASSERT_TRUE(started.ok()) << to_string(started.error());
  webhook_ = *std::move(started);

  std::string configuration = read_file(PLIMSOLL_SOURCE_DIR "/charts/rendered/webhook_configuration.yaml");
  replace_all(configuration, "WEBHOOK_ADDRESS", "127.0.0.1:" + std::to_string(webhook_->port()));
  replace_all(configuration, "CA_BUNDLE", base64_encode(authority->certificate_pem()));
  must({"apply", "-f", "-"}, configuration);
  // The API server learns of a configuration by a watch of its own.
  ASSERT_TRUE(eventually("the API server calls the webhook", [&] {
    const CommandResult probe =
        kubectl({"create", "--dry-run=server", "-o", "json", "-f", "-"}, small_job("probe"));
    const Result<Json> object = parse_json(probe.output);
    // With no GPU there is no decision. The validating webhook's warning is not meant: its configuration has another watch.
    const bool warned = probe.errors.find("the job keeps its") != std::string::npos;
    return object && (warned || !annotation(*object, "provisioning-reason").empty());
  })) << webhook_->log();
}

void MainJobTest::wait_until_counted(const std::string& model, int gpus) const {
  const std::unique_ptr<kube::Client> client = server_->make_client();
  ASSERT_TRUE(eventually(
      "the GPUs of " + model,
      [&] {
        const Result<Json> counted = client->get(kGpuModels, "", model);
        return counted ? (*counted)["status"]["totalGPUs"].asInt() : 0;
      },
      gpus))
      << (operator_ != nullptr ? operator_->log() : "");
}

CommandResult MainJobTest::kubectl(std::vector<std::string> arguments, const std::string& input) const {
  return run_kubectl(*server_, std::move(arguments), input);
}

CommandResult MainJobTest::must(const std::vector<std::string>& arguments, const std::string& input) const {
  CommandResult result = kubectl(arguments, input);
  EXPECT_EQ(result.exit_code, 0) << ::testing::PrintToString(arguments) << "\n" << result.errors;
  return result;
}

Json MainJobTest::get(const std::string& resource, const std::string& name) const {
  const CommandResult result = kubectl({"get", resource, name, "-o", "json"});
  const Result<Json> object = parse_json(result.output);
  return result.exit_code == 0 && object ? *object : Json();
}

std::string node_manifest(const std::string& name, const std::string& product, int memory_mib, int gpus) {
  const std::string count = std::to_string(gpus);
  return "apiVersion: v1\nkind: Node\nmetadata:\n  name: " + name +
         "\n  labels:\n    nvidia.com/gpu.product: " + product + "\n    nvidia.com/gpu.memory: \"" +
         std::to_string(memory_mib) + "\"\n    nvidia.com/gpu.count: \"" + count +
         "\"\nstatus:\n  capacity: {cpu: \"96\", memory: 1Ti, pods: \"110\", nvidia.com/gpu: \"" + count +
         "\"}\n  allocatable: {cpu: \"96\", memory: 1Ti, pods: \"110\", nvidia.com/gpu: \"" + count +
         "\"}\n  conditions: [{type: Ready, status: \"True\"}]\n";
}

std::string small_job(const std::string& name, int replicas, const std::string& more) {
  return "apiVersion: plimsoll.dev/v1alpha1\nkind: TrainingJob\nmetadata:\n  name: " + name +
         "\n  namespace: default\nspec:\n  model:\n    family: small\n    dlrm:\n      denseFeatures: 13\n"
         "      bottomMLP: [512, 256, 64]\n      topMLP: [512, 256, 1]\n      interaction: Dot\n      "
         "tables:\n"
         "        - {name: user, rows: 20000000, dim: 64}\n        - {name: item, count: 8, rows: 500000, "
         "dim: 64}\n"
         "  training: {batchSizePerTrainer: 1024}\n  trainers: {replicas: " +
         std::to_string(replicas) +
         ", perNode: 8, gpuModel: A100-80GB}\n  template:\n    spec:\n      containers:\n"
         "        - {name: trainer, image: none, resources: {limits: {nvidia.com/gpu: 8}}}\n" +
         more;
}

std::string annotation(const Json& object, const std::string& name) {
  return text_member(object, {"metadata", "annotations", "plimsoll.dev/" + name});
}

Json decision_of(const Json& object) {
  const Result<Json> decision = parse_json(annotation(object, "provisioning-decision"));
  return decision ? *decision : Json();
}

std::int64_t replicas_of(const Json& object) {
  const Json& replicas = member(object, {"spec", "trainers", "replicas"});
  return replicas.isInt64() ? replicas.asInt64() : -1;
}

std::string read_file(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace plimsoll::testing
