// The rendering on a real API server: every object is accepted, the roles allow what they should and no more,
// and the pods pass the restricted Pod Security Standard.
#include <gmock/gmock.h>

#include <chrono>
#include <filesystem>

#include "tests/chart/helm.h"
#include "tests/checkout.h"
#include "tests/controlplane/binaries.h"
#include "tests/controlplane/certificates.h"
#include "tests/e2e/plimsoll_process.h"
#include "tests/testing/eventually.h"

namespace plimsoll::testing {
namespace {

using ::testing::HasSubstr;

constexpr const char* kNode = R"(
apiVersion: v1
kind: Node
metadata:
  name: v100-0
  labels: {nvidia.com/gpu.product: Tesla-V100-SXM2-32GB, nvidia.com/gpu.memory: "32768", nvidia.com/gpu.count: "8"}
status:
  capacity: {cpu: "96", memory: 1Ti, pods: "110", nvidia.com/gpu: "8"}
  allocatable: {cpu: "96", memory: 1Ti, pods: "110", nvidia.com/gpu: "8"}
  conditions: [{type: Ready, status: "True"}]
)";

// Those that golden_test.py renders.
std::vector<std::filesystem::path> combinations_of_values() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(PLIMSOLL_SOURCE_DIR "/tests/chart/golden")) {
    if (entry.path().string().ends_with(".values.yaml")) {
      files.push_back(entry.path());
    }
  }
  EXPECT_GE(files.size(), 12U);
  return files;
}

class InstallTest : public HelmTest {
 protected:
  void SetUp() override {
    HelmTest::SetUp();
    if (IsSkipped()) {
      return;
    }
    if (!control_plane_folder()) {
      GTEST_SKIP() << control_plane_folder().error().message;
    }
    server_ = start_api_server(ApiServerKind::kReal);
    ASSERT_NE(server_, nullptr);
    // The API server parses the authority's certificate; its own will do.
    values_ = {"--set", "certificates.source=secret", "--set-file",
               "webhook.caBundle=" + server_->directory() + "/ca.crt"};
    expect_done(kubectl({"create", "namespace", kNamespace}));
    expect_done(kubectl({"label", "namespace", kNamespace, "pod-security.kubernetes.io/enforce=restricted"}));
  }

  static void expect_done(const CommandResult& result) { ASSERT_EQ(result.exit_code, 0) << result.errors; }

  CommandResult kubectl(const std::vector<std::string>& arguments, const std::string& input = {}) const {
    return run_kubectl(*server_, arguments, input);
  }

  CommandResult release(const std::string& verb, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {verb, "sail"};
    if (verb != "uninstall") {
      arguments.emplace_back(kChart);
      arguments.insert(arguments.end(), values_.begin(), values_.end());
    }
    arguments.insert(arguments.end(), {"--namespace", kNamespace, "--kubeconfig", server_->kubeconfig()});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return helm(arguments);
  }

  // "yes" or "no". `resource` may be "kind" or "kind/subresource".
  std::string may(const std::string& component, const std::string& verb, const std::string& resource) const {
    const std::size_t slash = resource.find('/');
    std::vector<std::string> question = {
        "auth",
        "can-i",
        verb,
        resource.substr(0, slash),
        "--all-namespaces",
        "--as",
        "system:serviceaccount:" + std::string(kNamespace) + ":sail-plimsoll-" + component};
    if (slash != std::string::npos) {
      question.push_back("--subresource=" + resource.substr(slash + 1));
    }
    return kubectl(question).output;
  }

  // A kubeconfig with the rights of a component's service account.
  std::string kubeconfig_of(const std::string& component) const {
    std::string path = server_->directory() + "/kubeconfig-" + component;
    std::filesystem::copy_file(server_->kubeconfig(), path);
    const CommandResult token = kubectl({"create", "token", "sail-plimsoll-" + component, "-n", kNamespace});
    EXPECT_EQ(token.exit_code, 0) << token.errors;
    const CommandResult written =
        run_command({find_kubectl(ApiServerKind::kReal), "--kubeconfig", path, "config", "set-credentials",
                     "admin", "--token", token.output.substr(0, token.output.find('\n'))});
    EXPECT_EQ(written.exit_code, 0) << written.errors;
    return path;
  }

  std::unique_ptr<ApiServer> server_;
  std::vector<std::string> values_;
};

TEST_F(InstallTest, ServerSideDryRunTakesEveryObject) {
  for (const std::filesystem::path& combination : combinations_of_values()) {
    std::vector<std::string> values = {"--values", combination};
    values.insert(values.end(), values_.begin(), values_.end());
    std::string objects;
    for (const Json& object : render(values)) {
      // Those of the Prometheus operator, which is not there; promtool checks what they hold.
      if (!text_member(object, {"apiVersion"}).starts_with("monitoring.coreos.com/")) {
        objects += "---\n" + write_json(object) + "\n";
      }
    }
    const CommandResult applied =
        kubectl({"apply", "--dry-run=server", "--validate=strict", "-f", "-"}, objects);
    EXPECT_EQ(applied.exit_code, 0) << combination << '\n' << applied.errors;
    EXPECT_EQ(applied.errors, "") << combination;  // a warning is an error in the chart, too
  }
}

TEST_F(InstallTest, InstallsUpgradesAndLeavesTheJobsTheirKinds) {
  const CommandResult installed = release("install");
  expect_done(installed);
  EXPECT_THAT(installed.output, HasSubstr("kubectl get gpumodels"));
  for (const char* crd : {"trainingjobs", "gpumodels", "memoryprofiles"}) {
    expect_done(kubectl({"wait", "--for=condition=Established", "--timeout=30s",
                         "crd/" + std::string(crd) + ".plimsoll.dev"}));
  }
  expect_done(kubectl({"get", "-n", kNamespace, "deployment/sail-plimsoll-webhook",
                       "deployment/sail-plimsoll-operator", "service/sail-plimsoll-webhook",
                       "poddisruptionbudget/sail-plimsoll-webhook"}));
  expect_done(release("upgrade", {"--set", "webhook.replicas=3"}));
  EXPECT_EQ(kubectl({"get", "-n", kNamespace, "deployment/sail-plimsoll-webhook", "-o",
                     "jsonpath={.spec.replicas}"})
                .output,
            "3");
  expect_done(release("uninstall"));
  EXPECT_EQ(kubectl({"get", "crd/trainingjobs.plimsoll.dev", "-o", "name"}).output,
            "customresourcedefinition.apiextensions.k8s.io/trainingjobs.plimsoll.dev\n");
  EXPECT_NE(kubectl({"get", "mutatingwebhookconfiguration/sail-plimsoll"}).exit_code, 0);
}

TEST_F(InstallTest, RolesAllowTheWorkAndNoMore) {
  expect_done(release("install"));
  const std::vector<std::vector<std::string>> allowed = {
      {"webhook", "watch", "gpumodels.plimsoll.dev"},
      {"webhook", "list", "memoryprofiles.plimsoll.dev"},
      {"webhook", "get", "configmaps"},
      {"operator", "watch", "nodes"},
      {"operator", "list", "pods"},
      {"operator", "create", "gpumodels.plimsoll.dev"},
      {"operator", "list", "gpumodels.plimsoll.dev"},
      {"operator", "update", "gpumodels.plimsoll.dev/status"},
      {"operator", "update", "memoryprofiles.plimsoll.dev/status"},
      {"operator", "update", "trainingjobs.plimsoll.dev/status"},
      {"operator", "patch", "trainingjobs.plimsoll.dev"},
      {"operator", "create", "jobs.batch"},
      {"operator", "create", "configmaps"}};
  const std::vector<std::vector<std::string>> refused = {
      {"webhook", "list", "configmaps"},
      {"webhook", "get", "secrets"},
      {"webhook", "create", "gpumodels.plimsoll.dev"},
      {"webhook", "update", "trainingjobs.plimsoll.dev"},
      {"operator", "get", "secrets"},
      {"operator", "create", "pods"},
      {"operator", "delete", "gpumodels.plimsoll.dev"},
      {"operator", "list", "configmaps"},
      {"operator", "create", "trainingjobs.plimsoll.dev"},
      {"webhook", "update", "gpumodels.plimsoll.dev/status"},
      {"operator", "update", "gpumodels.plimsoll.dev"},
      {"operator", "patch", "mutatingwebhookconfigurations.admissionregistration.k8s.io"}};
  for (const std::vector<std::string>& question : allowed) {
    EXPECT_EQ(may(question[0], question[1], question[2]), "yes\n") << ::testing::PrintToString(question);
  }
  for (const std::vector<std::string>& question : refused) {
    EXPECT_EQ(may(question[0], question[1], question[2]), "no\n") << ::testing::PrintToString(question);
  }
}

// The roles are enough, too: both servers become ready with nothing but their service accounts' tokens, and
// the operator runs a job.
TEST_F(InstallTest, TheServersWorkWithTheRightsOfTheirServiceAccounts) {
  expect_done(release("install"));
  expect_done(kubectl({"create", "-f", "-"}, kNode));
  const Result<CertificateAuthority> authority = CertificateAuthority::create("test");
  ASSERT_TRUE(authority.ok());
  const Result<KeyPair> pair = authority->issue("webhook", {"127.0.0.1"});
  ASSERT_TRUE(pair.ok());
  const std::string folder = server_->directory() + "/webhook-tls";
  std::filesystem::create_directory(folder);
  ASSERT_TRUE(write_private_file(folder + "/tls.crt", pair->certificate_pem).ok());
  ASSERT_TRUE(write_private_file(folder + "/tls.key", pair->key_pem).ok());

  const auto operator_process =
      PlimsollProcess::start("operator",
                             {"--leader-elect-resource-namespace", kNamespace, "--leader-elect-resource-name",
                              "sail-plimsoll-operator"},
                             kubeconfig_of("operator"), server_->directory());
  ASSERT_TRUE(operator_process.ok()) << to_string(operator_process.error());
  const auto webhook_process = PlimsollProcess::start("webhook", {"--certificate-directory=" + folder},
                                                      kubeconfig_of("webhook"), server_->directory());
  ASSERT_TRUE(webhook_process.ok()) << to_string(webhook_process.error());
  const auto comes = [&](const std::vector<std::string>& question, const std::string& answer) {
    EXPECT_TRUE(eventually(
        ::testing::PrintToString(question), [&] { return kubectl(question).output; }, answer))
        << (*operator_process)->log();
  };
  comes({"get", "gpumodel", "v100-32gb", "-o", "jsonpath={.status.totalGPUs}"}, "8");
  expect_done(kubectl({"create", "-f", PLIMSOLL_SOURCE_DIR "/examples/single-gpu.yaml"}));
  comes({"get", "job", "single-gpu-0", "-o", "jsonpath={.spec.completions}"}, "1");
  comes({"get", "tj", "single-gpu", "-o", "jsonpath={.status.planRef.name}"}, "single-gpu-0-plan");
  comes({"get", "events", "--field-selector", "reason=AttemptStarted", "-o", "jsonpath={.items[*].type}"},
        "Normal");
}

// A Deployment only warns of its pods' security; the pods themselves are refused.
TEST_F(InstallTest, PodsPassTheRestrictedStandard) {
  const std::vector<Json> objects = render(values_);
  for (const char* component : {"webhook", "operator"}) {
    const Json& deployment = find_object(objects, std::string("Deployment/sail-plimsoll-") + component);
    Json pod;
    pod["apiVersion"] = "v1";
    pod["kind"] = "Pod";
    pod["metadata"]["name"] = component;
    pod["metadata"]["namespace"] = kNamespace;
    pod["spec"] = deployment["spec"]["template"]["spec"];
    const CommandResult created = kubectl({"create", "--dry-run=server", "-f", "-"}, write_json(pod));
    EXPECT_EQ(created.exit_code, 0) << created.errors;
    pod["spec"]["containers"][0].removeMember("securityContext");
    const CommandResult careless = kubectl({"create", "--dry-run=server", "-f", "-"}, write_json(pod));
    EXPECT_THAT(careless.errors, HasSubstr("PodSecurity"));  // the standard is in force
  }
}

}  // namespace
}  // namespace plimsoll::testing
