// The rendering on a real API server: every object is accepted, the roles allow what they should and no more,
// and the pods pass the restricted Pod Security Standard.
#include <gmock/gmock.h>

#include "tests/chart/helm.h"
#include "tests/controlplane/binaries.h"

namespace plimsoll::testing {
namespace {

using ::testing::HasSubstr;

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

  std::unique_ptr<ApiServer> server_;
  std::vector<std::string> values_;
};

TEST_F(InstallTest, ServerSideDryRunTakesEveryObject) {
  const CommandResult rendered = render_text(values_);
  expect_done(rendered);
  const CommandResult applied =
      kubectl({"apply", "--dry-run=server", "--validate=strict", "-f", "-"}, rendered.output);
  EXPECT_EQ(applied.exit_code, 0) << applied.errors;
  EXPECT_EQ(applied.errors, "");  // a warning is something to mend, too
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
      {"operator", "update", "gpumodels.plimsoll.dev/status"}};
  const std::vector<std::vector<std::string>> refused = {
      {"webhook", "list", "configmaps"},
      {"webhook", "get", "secrets"},
      {"webhook", "create", "gpumodels.plimsoll.dev"},
      {"webhook", "update", "trainingjobs.plimsoll.dev"},
      {"operator", "get", "secrets"},
      {"operator", "create", "pods"},
      {"operator", "delete", "gpumodels.plimsoll.dev"},
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
