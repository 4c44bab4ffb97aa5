// The chart on a real API server: installed by the real helm, with processes that have the rights of its service accounts.
#pragma once

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/base64.h"
#include "tests/chart/helm.h"
#include "tests/controlplane/binaries.h"
#include "tests/e2e/plimsoll_process.h"
#include "tests/testing/patience.h"

namespace plimsoll::testing {

inline constexpr const char* kSecret = "sail-plimsoll-webhook-certificates";

inline constexpr const char* kNode = R"(
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

// A TrainingJob that requests two trainers of kNode and needs one; its tables are in the ConfigMap `tables` (add_cluster). `more` are lines
// of YAML, fields of spec; `fate` says how its pods end (tests/controlplane/stages/pod_fail.yaml).
inline std::string table_job(const std::string& name, const std::string& more = {},
                             const std::string& fate = "any: x", const std::string& family = "ads") {
  return "apiVersion: plimsoll.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: " + name +
         ", namespace: default}\nspec:\n  model:\n    family: " + family +
         "\n    dlrm:\n      denseFeatures: 13\n      bottomMLP: [64]\n      topMLP: [64, 1]\n"
         "      tablesFrom: {configMapKeyRef: {name: tables, key: tables.csv}}\n"
         "  training: {batchSizePerTrainer: 64}\n  trainers: {replicas: 2, perNode: 8}\n" +
         more + "  template:\n    metadata:\n      annotations:\n        test.plimsoll.dev/" + fate +
         "\n        test.plimsoll.dev/failure-message: \"torch.OutOfMemoryError: CUDA out of memory.\"\n"
         "    spec: {containers: [{name: trainer, image: none}]}\n";
}

class InstallTest : public HelmTest {
 protected:
  virtual ApiServerOptions server_options() const { return {}; }

  void SetUp() override {
    HelmTest::SetUp();
    if (IsSkipped()) {
      return;
    }
    if (!control_plane_folder()) {
      GTEST_SKIP() << control_plane_folder().error().message;
    }
    server_ = start_api_server(ApiServerKind::kReal, server_options());
    ASSERT_NE(server_, nullptr);
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
    }
    arguments.insert(arguments.end(), {"--namespace", kNamespace, "--kubeconfig", server_->kubeconfig()});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return helm(arguments);
  }

  // A node of GPUs whose pods run and end as their annotations say, and the tables of table_job.
  void add_cluster() const {
    std::string node = kNode;
    const std::string name = "name: v100-0";
    node.insert(node.find(name) + name.size(), "\n  annotations: {kwok.x-k8s.io/node: fake}");
    expect_done(kubectl({"create", "-f", "-"}, node));
    expect_done(kubectl({"create", "configmap", "tables", "--from-literal=tables.csv=item,25000000,64,1"}));
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

  // Teaches the server the kinds of cert-manager and the Prometheus operator; false where their CRDs could not be had (scripts/test).
  bool apply_foreign_crds() const {
    const char* files = std::getenv("PLIMSOLL_FOREIGN_CRDS");
    if (files == nullptr || *files == '\0') {
      return false;
    }
    expect_done(kubectl({"apply", "--server-side", "-f", files}));
    expect_done(kubectl({"wait", "--for=condition=Established", kubectl_timeout(), "crd", "--all"}));
    return true;
  }

  // What the server says to all that is rendered with these values, without objects of foreign kinds where it does not know them.
  CommandResult dry_run(const std::vector<std::string>& values, bool knows_foreign_kinds) const {
    std::string objects;
    for (const Json& object : render(values)) {
      const std::string version = text_member(object, {"apiVersion"});
      const bool foreign =
          version.starts_with("cert-manager.io/") || version.starts_with("monitoring.coreos.com/");
      if (knows_foreign_kinds || !foreign) {
        objects += "---\n" + write_json(object) + "\n";
      }
    }
    return kubectl({"apply", "--dry-run=server", "--validate=strict", "-f", "-"}, objects);
  }

  // With certificates of its own making, for the address where this machine's API server reaches it.
  Result<std::unique_ptr<PlimsollProcess>> start_webhook(const std::string& kubeconfig,
                                                         const std::string& name,
                                                         const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {
        std::string("--certificate-secret=") + kNamespace + "/" + kSecret, "--certificate-names=127.0.0.1",
        "--webhook-configuration=sail-plimsoll", "--certificate-trust-delay=5s"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return PlimsollProcess::start("webhook", arguments, kubeconfig, server_->directory(), name);
  }

  // The configurations name the Service, which leads nowhere without a cluster network.
  void call_webhook_at(int port) const {
    for (const char* kind : {"mutatingwebhookconfiguration", "validatingwebhookconfiguration"}) {
      const Result<Json> object = parse_json(kubectl({"get", kind, "sail-plimsoll", "-o", "json"}).output);
      ASSERT_TRUE(object.ok());
      Json patch(::Json::arrayValue);
      for (Json::ArrayIndex i = 0; i < (*object)["webhooks"].size(); ++i) {
        const std::string at = "/webhooks/" + std::to_string(i) + "/clientConfig/";
        const Json& service = (*object)["webhooks"][i]["clientConfig"]["service"];
        Json remove;
        remove["op"] = "remove";
        remove["path"] = at + "service";
        Json add;
        add["op"] = "add";
        add["path"] = at + "url";
        add["value"] = "https://127.0.0.1:" + std::to_string(port) + service["path"].asString();
        patch.append(remove);
        patch.append(add);
      }
      expect_done(kubectl({"patch", kind, "sail-plimsoll", "--type=json", "-p", write_json(patch)}));
    }
  }

  // The key in the Secret of the certificates, decoded.
  std::string secret_value(const std::string& key) const {
    const Result<Json> secret =
        parse_json(kubectl({"get", "secret", kSecret, "-n", kNamespace, "-o", "json"}).output);
    return secret ? *base64_decode(text_member(*secret, {"data", key})) : "";
  }

  std::unique_ptr<ApiServer> server_;
};

}  // namespace plimsoll::testing
