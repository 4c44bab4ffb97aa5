// The rendering on a real API server: every object is accepted, the roles allow what they should and no more,
// and the pods pass the restricted Pod Security Standard.
#include <gmock/gmock.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "base/base64.h"
#include "base/file.h"
#include "tests/chart/helm.h"
#include "tests/chart/installation.h"
#include "tests/checkout.h"
#include "tests/controlplane/binaries.h"
#include "tests/e2e/plimsoll_process.h"
#include "tests/testing/eventually.h"
#include "tests/testing/patience.h"

namespace plimsoll::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Ne;

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

TEST_F(InstallTest, ServerSideDryRunTakesEveryObject) {
  for (const char* name : {"team-a", "team-b"}) {  // of golden/namespaces.values.yaml
    expect_done(kubectl({"create", "namespace", name}));
  }
  const bool knows_foreign_kinds = apply_foreign_crds();
  const auto expect_taken = [&](const std::vector<std::string>& values) {
    const CommandResult applied = dry_run(values, knows_foreign_kinds);
    EXPECT_EQ(applied.exit_code, 0) << ::testing::PrintToString(values) << '\n' << applied.errors;
    // A warning is an error in the chart, too.
    EXPECT_EQ(applied.errors, "") << ::testing::PrintToString(values);
  };
  expect_taken({});
  for (const std::filesystem::path& combination : combinations_of_values()) {
    std::vector<std::string> values = {"--values", combination};
    // The server parses the certificate, which in the file is none; its own will do.
    if (read_file(combination)->find("caBundle:") != std::string::npos) {
      values.insert(values.end(), {"--set-file", "webhook.caBundle=" + server_->directory() + "/ca.crt"});
    }
    expect_taken(values);
  }
  if (!knows_foreign_kinds) {
    GTEST_SKIP() << "the rest passed; objects of cert-manager and the Prometheus operator were not sent, "
                    "because their CRDs could not be had";
  }
}

TEST_F(InstallTest, InstallsUpgradesAndLeavesTheJobsTheirKinds) {
  const CommandResult installed = release("install");
  expect_done(installed);
  EXPECT_THAT(installed.output, HasSubstr("kubectl get gpumodels"));
  EXPECT_THAT(installed.output, HasSubstr("--clusterrole=sail-plimsoll-metrics-reader"));
  for (const char* crd : {"trainingjobs", "gpumodels", "memoryprofiles"}) {
    expect_done(kubectl({"wait", "--for=condition=Established", kubectl_timeout(),
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
      {"webhook", "create", "secrets"},
      {"webhook", "patch", "mutatingwebhookconfigurations.admissionregistration.k8s.io"},
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

// RBAC alone would let a stolen token of the operator rewrite every ConfigMap of the cluster.
TEST_F(InstallTest, TheOperatorWritesOnlyWhatATrainingJobOwns) {
  expect_done(release("install"));
  const std::string as = std::string("--as=system:serviceaccount:") + kNamespace + ":sail-plimsoll-operator";
  const auto refused = [&](std::vector<std::string> arguments, const std::string& input = {}) {
    arguments.push_back(as);
    EXPECT_TRUE(eventually(
        ::testing::PrintToString(arguments), [&] { return kubectl(arguments, input).errors; },
        HasSubstr("TrainingJob owns")));
  };
  for (const char* space : {"kube-system", "default"}) {
    expect_done(kubectl({"create", "configmap", "strangers", "--from-literal=key=theirs", "-n", space}));
  }
  const std::string orphan = R"(
apiVersion: v1
kind: ConfigMap
metadata: {name: orphan, namespace: default, labels: {plimsoll.dev/job-name: ads}}
)";
  // A policy takes a moment to be in force; a dry run leaves nothing until then.
  refused({"create", "--dry-run=server", "-f", "-"}, orphan);
  refused({"create", "service", "clusterip", "none", "--clusterip=None"});
  refused({"create", "job", "none", "--image=none"});
  refused({"patch", "configmap", "strangers", "-n", "kube-system", "-p", R"({"data": {"key": "mine"}})"});
  refused({"delete", "configmap", "strangers"});
  // Nor may it make a stranger's object its own, or disown one.
  expect_done(
      kubectl({"wait", "--for=condition=Established", kubectl_timeout(), "crd/trainingjobs.plimsoll.dev"}));
  expect_done(kubectl({"create", "-f", PLIMSOLL_SOURCE_DIR "/examples/single-gpu.yaml"}));
  const std::string uid = kubectl({"get", "tj", "single-gpu", "-o", "jsonpath={.metadata.uid}"}).output;
  const std::string owner =
      R"({"metadata": {"ownerReferences": [{"apiVersion": "plimsoll.dev/v1alpha1", "kind": "TrainingJob",
      "name": "single-gpu", "controller": true, "uid": ")" +
      uid + R"("}]}})";
  refused({"patch", "configmap", "strangers", "-p", owner});
  expect_done(kubectl({"create", "-f", "-"}, orphan));
  refused({"patch", "configmap", "orphan", "-p", R"({"data": {"plan": "none"}})"});
  expect_done(kubectl({"patch", "configmap", "orphan", "-p", owner, as}));
  expect_done(kubectl({"patch", "configmap", "orphan", "-p", R"({"data": {"plan": "one"}})", as}));
  expect_done(kubectl({"delete", "configmap", "orphan", as}));
}

TEST_F(InstallTest, ALabelOfANamespaceThatIsNoModeIsWarnedOf) {
  expect_done(release("install"));
  const auto label = [&](const std::string& mode) {
    return kubectl({"label", "namespace", "default", "--overwrite", "plimsoll.dev/mode=" + mode});
  };
  // A policy takes a moment to be in force.
  EXPECT_TRUE(eventually(
      "the warning", [&] { return label("auto").errors + label("enforced").errors; },
      HasSubstr("must be Auto, Initial or Off")));
  for (const char* mode : {"Auto", "Initial", "Off"}) {
    EXPECT_EQ(label(mode).errors, "") << mode;
  }
}

TEST_F(InstallTest, WhoeverIsAuthenticatedMayReadGpuModels) {
  expect_done(release("install"));
  const auto somebody_may = [&](const std::string& verb) {
    return kubectl({"auth", "can-i", verb, "gpumodels.plimsoll.dev", "--as=somebody",
                    "--as-group=system:authenticated"})
        .output;
  };
  EXPECT_THAT(somebody_may("list"), HasSubstr("yes"));
  EXPECT_THAT(somebody_may("update"), HasSubstr("no"));
}

// The roles are enough, too: both servers become ready with nothing but their service accounts' tokens, and
// the operator runs a job.
TEST_F(InstallTest, TheServersWorkWithTheRightsOfTheirServiceAccounts) {
  expect_done(release("install"));
  expect_done(kubectl({"create", "-f", "-"}, kNode));
  const auto operator_process =
      PlimsollProcess::start("operator",
                             {"--leader-elect-resource-namespace", kNamespace, "--leader-elect-resource-name",
                              "sail-plimsoll-operator"},
                             kubeconfig_of("operator"), server_->directory());
  ASSERT_TRUE(operator_process.ok()) << to_string(operator_process.error());
  const auto webhook_process = start_webhook(kubeconfig_of("webhook"), "webhook");
  ASSERT_TRUE(webhook_process.ok()) << to_string(webhook_process.error());
  const auto comes = [&](const std::vector<std::string>& question, const std::string& answer) {
    EXPECT_TRUE(eventually(
        ::testing::PrintToString(question), [&] { return kubectl(question).output; }, answer))
        << (*operator_process)->log();
  };
  comes({"get", "gpumodel", "v100-32gb", "-o", "jsonpath={.status.totalGPUs}"}, "8");
  expect_done(kubectl({"create", "-f", PLIMSOLL_SOURCE_DIR "/examples/single-gpu.yaml"}));
  comes({"get", "job", "single-gpu-0", "-o", "jsonpath={.spec.completions}"}, "1");
  // One would do; a quarter of the eight that it requests is what a decision leaves it at least.
  comes({"get", "tj", "single-gpu", "-o", "jsonpath={.spec.trainers.replicas}"}, "2");
  comes({"get", "tj", "single-gpu", "-o", "jsonpath={.status.planRef.name}"}, "single-gpu-0-plan");
  comes({"get", "events", "--field-selector", "reason=AttemptStarted", "-o", "jsonpath={.items[*].type}"},
        "Normal");
}

// Two replicas with the webhook's own rights make the certificates; the authority changes three times while jobs are
// admitted, and a webhook that could not be called would refuse them.
TEST_F(InstallTest, CertificatesAreMadeAndRotatedWithoutALostAdmission) {
  expect_done(release("install", {"--set", "webhook.mutatingFailurePolicy=Fail", "--set",
                                  "webhook.validatingFailurePolicy=Fail"}));
  const std::string kubeconfig = kubeconfig_of("webhook");
  const auto webhook = start_webhook(kubeconfig, "webhook");
  ASSERT_TRUE(webhook.ok()) << to_string(webhook.error());
  const auto other = start_webhook(kubeconfig, "other");
  ASSERT_TRUE(other.ok()) << to_string(other.error());
  ASSERT_NO_FATAL_FAILURE(call_webhook_at((*webhook)->port()));
  const auto admit = [this] {
    const CommandResult created =
        kubectl({"create", "--dry-run=server", "-f", PLIMSOLL_SOURCE_DIR "/examples/single-gpu.yaml"});
    return created.exit_code == 0 ? std::string("admitted") : created.errors;
  };
  // The API server learns of the configurations by watches.
  ASSERT_TRUE(eventually("the first admission", admit, std::string("admitted"))) << (*webhook)->log();

  std::vector<std::string> refusals;
  int admissions = 0;
  {
    const std::jthread load([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        const std::string answer = admit();
        ++admissions;
        if (answer != "admitted") {
          refusals.push_back(answer);
        }
      }
    });
    for (int rotation = 0; rotation < 3; ++rotation) {
      const std::string authorities = secret_value("ca.crt");
      const std::string certificate = secret_value("tls.crt");
      EXPECT_EQ(kubectl({"patch", "secret", kSecret, "-n", kNamespace, "--type=json", "-p",
                         R"([{"op": "remove", "path": "/data/ca.key"}])"})
                    .exit_code,
                0);
      EXPECT_TRUE(eventually(
          "a new authority beside the old one", [&] { return secret_value("ca.crt"); },
          AllOf(HasSubstr(authorities), Ne(authorities))));
      EXPECT_TRUE(eventually(
          "its certificate", [&] { return secret_value("tls.crt"); }, Ne(certificate)));
    }
    // Both replicas serve what is in the Secret: each counts the first certificate and three more.
    for (const auto* replica : {&webhook, &other}) {
      EXPECT_TRUE(eventually(
          "the last certificate is served", [&] { return http_get((**replica)->ops_port(), "/metrics"); },
          HasSubstr("plimsoll_webhook_certificate_loads_total{result=\"taken\"} 4")));
    }
  }
  EXPECT_THAT(refusals, IsEmpty());
  EXPECT_GT(admissions, 3);
}

// A Deployment only warns of its pods' security; the pods themselves are refused.
TEST_F(InstallTest, PodsPassTheRestrictedStandard) {
  const std::vector<Json> objects = render();
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
