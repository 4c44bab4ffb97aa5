#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "base/yaml.h"
#include "tests/chart/helm.h"
#include "tests/checkout.h"
#include "tests/controlplane/scratch_directory.h"

namespace plimsoll::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

using RenderTest = HelmTest;

std::vector<std::string> with(std::vector<std::string> values, const std::vector<std::string>& more) {
  values.insert(values.end(), more.begin(), more.end());
  return values;
}

TEST_F(RenderTest, LintsClean) {
  const CommandResult lint = helm({"lint", "--strict", kChart});
  EXPECT_EQ(lint.exit_code, 0) << lint.output << lint.errors;
  EXPECT_THAT(lint.output, Not(HasSubstr("[WARNING]")));
}

TEST_F(RenderTest, HoldsTheseObjects) {
  EXPECT_THAT(
      names_of(render()),
      ElementsAre("ClusterRole/sail-plimsoll-editor", "ClusterRole/sail-plimsoll-gpumodels",
                  "ClusterRole/sail-plimsoll-metrics-reader", "ClusterRole/sail-plimsoll-operator",
                  "ClusterRole/sail-plimsoll-viewer", "ClusterRole/sail-plimsoll-webhook",
                  "ClusterRoleBinding/sail-plimsoll-gpumodels", "ClusterRoleBinding/sail-plimsoll-operator",
                  "ClusterRoleBinding/sail-plimsoll-webhook",
                  "CustomResourceDefinition/gpumodels.plimsoll.dev",
                  "CustomResourceDefinition/memoryprofiles.plimsoll.dev",
                  "CustomResourceDefinition/trainingjobs.plimsoll.dev", "Deployment/sail-plimsoll-operator",
                  "Deployment/sail-plimsoll-webhook", "MutatingWebhookConfiguration/sail-plimsoll",
                  "Pod/sail-plimsoll-test", "PodDisruptionBudget/sail-plimsoll-operator",
                  "PodDisruptionBudget/sail-plimsoll-webhook", "Role/sail-plimsoll-operator",
                  "Role/sail-plimsoll-webhook", "RoleBinding/sail-plimsoll-operator",
                  "RoleBinding/sail-plimsoll-webhook", "Secret/sail-plimsoll-webhook-certificates",
                  "Service/sail-plimsoll-operator", "Service/sail-plimsoll-webhook",
                  "ServiceAccount/sail-plimsoll-operator", "ServiceAccount/sail-plimsoll-webhook",
                  "ValidatingAdmissionPolicy/sail-plimsoll-namespace-mode",
                  "ValidatingAdmissionPolicy/sail-plimsoll-operator",
                  "ValidatingAdmissionPolicyBinding/sail-plimsoll-namespace-mode",
                  "ValidatingAdmissionPolicyBinding/sail-plimsoll-operator",
                  "ValidatingWebhookConfiguration/sail-plimsoll"));
}

TEST_F(RenderTest, AWebhookElsewhereLeavesOutWhatWouldRunIt) {
  const std::vector<Json> objects =
      render(with(kOutside, {"--set", "operator.enabled=false", "--set", "crds.enabled=false", "--set",
                             "rbac.create=false"}));
  EXPECT_THAT(names_of(objects), ElementsAre("MutatingWebhookConfiguration/sail-plimsoll",
                                             "ValidatingAdmissionPolicy/sail-plimsoll-namespace-mode",
                                             "ValidatingAdmissionPolicyBinding/sail-plimsoll-namespace-mode",
                                             "ValidatingWebhookConfiguration/sail-plimsoll"));
  const Json& client =
      find_object(objects, "MutatingWebhookConfiguration/sail-plimsoll")["webhooks"][0]["clientConfig"];
  EXPECT_EQ(text_member(client, {"url"}), "https://127.0.0.1:9443/mutate-plimsoll-dev-v1alpha1-trainingjob");
  EXPECT_FALSE(client.isMember("service"));
}

TEST_F(RenderTest, ShippedCrdsAreThoseOfTheRepository) {
  const std::vector<Json> objects = render();
  int seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(PLIMSOLL_SOURCE_DIR "/crds")) {
    if (entry.path().extension() != ".yaml") {
      continue;
    }
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    const Result<std::vector<Json>> documents = parse_yaml_documents(text.str());
    ASSERT_TRUE(documents.ok()) << to_string(documents.error());
    for (const Json& original : *documents) {
      Json shipped =
          find_object(objects, "CustomResourceDefinition/" + text_member(original, {"metadata", "name"}));
      EXPECT_EQ(text_member(shipped, {"metadata", "annotations", "helm.sh/resource-policy"}), "keep");
      shipped["metadata"].removeMember("labels");
      shipped["metadata"].removeMember("annotations");
      EXPECT_EQ(write_json(shipped), write_json(original)) << entry.path();
      ++seen;
    }
  }
  EXPECT_EQ(seen, 3);
  EXPECT_FALSE(find_object(render({"--set", "crds.keep=false"}),
                           "CustomResourceDefinition/trainingjobs.plimsoll.dev")["metadata"]
                   .isMember("annotations"));
}

TEST_F(RenderTest, PackageHoldsTheCrdsAndNothingElseOfTheirFolder) {
  const auto scratch = ScratchDirectory::create();
  ASSERT_TRUE(scratch.ok());
  const CommandResult packaged = helm({"package", kChart, "--destination", (*scratch)->path()});
  ASSERT_EQ(packaged.exit_code, 0) << packaged.errors;
  const std::string archive = (*scratch)->file("plimsoll-0.1.0.tgz");
  const CommandResult listed = run_command({"tar", "tzf", archive});
  EXPECT_THAT(listed.output, HasSubstr("plimsoll/files/crds/plimsoll.dev_trainingjobs.yaml"));
  EXPECT_THAT(listed.output, Not(HasSubstr(".h\n")));
  EXPECT_THAT(listed.output, Not(HasSubstr(".cc\n")));
  EXPECT_EQ(render_text({}, archive).output, render_text().output);
}

TEST_F(RenderTest, WebhooksAreSafeForTheCluster) {
  const std::vector<Json> objects = render();
  for (const char* kind : {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}) {
    const Json& webhook = find_object(objects, std::string(kind) + "/sail-plimsoll")["webhooks"][0];
    EXPECT_EQ(text_member(webhook, {"sideEffects"}), "None") << kind;
    EXPECT_EQ(text_member(webhook, {"failurePolicy"}), "Ignore") << kind;
    EXPECT_EQ(webhook["timeoutSeconds"].asInt(), 5) << kind;
    const Json& excluded = webhook["namespaceSelector"]["matchExpressions"][0];
    EXPECT_EQ(text_member(excluded, {"operator"}), "NotIn");
    std::vector<std::string> namespaces;
    for (const Json& name : excluded["values"]) {
      namespaces.push_back(name.asString());
    }
    EXPECT_THAT(namespaces, Contains("kube-system"));
    EXPECT_THAT(namespaces, Contains(kNamespace));
    EXPECT_EQ(write_json(webhook["rules"][0]["resources"]), R"(["trainingjobs"])");
  }
}

TEST_F(RenderTest, WorkloadsOfOtherKindsAreAdvisedUnlessTheirNamespaceHasOptedIn) {
  const std::vector<Json> objects = render({"--set", "webhook.mutatingFailurePolicy=Fail"});
  const Json& webhooks = find_object(objects, "MutatingWebhookConfiguration/sail-plimsoll")["webhooks"];
  ASSERT_EQ(webhooks.size(), 8U);
  for (const auto& [index, path, mode, family] :
       {std::tuple(4, "/mutate-workload", "In", "Exists"),
        std::tuple(5, "/advise-workload", "NotIn", "Exists"),
        std::tuple(6, "/mutate-workload", "In", "DoesNotExist"),
        std::tuple(7, "/advise-workload", "NotIn", "DoesNotExist")}) {
    const Json& webhook = webhooks[index];
    EXPECT_EQ(text_member(webhook, {"clientConfig", "service", "path"}), path);
    EXPECT_EQ(text_member(webhook, {"failurePolicy"}), "Ignore") << path;
    const Json& expressions = webhook["namespaceSelector"]["matchExpressions"];
    EXPECT_EQ(text_member(expressions[0], {"key"}), "kubernetes.io/metadata.name");
    EXPECT_EQ(text_member(expressions[1], {"key"}), "plimsoll.dev/mode");
    EXPECT_EQ(text_member(expressions[1], {"operator"}), mode);
    const Json& selector = webhook["objectSelector"]["matchExpressions"][0];
    EXPECT_EQ(text_member(selector, {"key"}), "plimsoll.dev/family");
    EXPECT_EQ(text_member(selector, {"operator"}), family);
    // Without a family, Trainer's annotation opts in.
    EXPECT_EQ(text_member(webhook["matchConditions"][0], {"name"}),
              std::string(family) == "Exists" ? "not-opted-out" : "names-plimsoll");
    for (const Json& rule : webhook["rules"]) {
      EXPECT_EQ(write_json(rule["operations"]), R"(["CREATE"])");
    }
  }
  const std::vector<Json> without = render({"--set", "webhook.workloads=false"});
  EXPECT_EQ(find_object(without, "MutatingWebhookConfiguration/sail-plimsoll")["webhooks"].size(), 4U);
}

// "In Auto" or "NotIn Auto, Initial": which namespaces a webhook sees, by their mode.
std::string modes_of(const Json& webhook) {
  for (const Json& expression : webhook["namespaceSelector"]["matchExpressions"]) {
    if (text_member(expression, {"key"}) == "plimsoll.dev/mode") {
      std::string text = text_member(expression, {"operator"});
      for (const Json& value : expression["values"]) {
        text += " " + value.asString();
      }
      return text;
    }
  }
  return {};
}

TEST_F(RenderTest, TheNamespacesLabelSaysTheModeOfTrainingJobs) {
  const std::vector<Json> objects = render();
  std::map<std::string, std::string> paths;
  for (const Json& webhook : find_object(objects, "MutatingWebhookConfiguration/sail-plimsoll")["webhooks"]) {
    if (text_member(webhook, {"name"}).ends_with("provision.trainingjobs.plimsoll.dev")) {
      paths[modes_of(webhook)] = text_member(webhook, {"clientConfig", "service", "path"});
    }
  }
  const std::string path = "/mutate-plimsoll-dev-v1alpha1-trainingjob";
  EXPECT_THAT(paths,
              UnorderedElementsAre(Pair("NotIn Auto Initial Off", path), Pair("In Auto", path + "/auto"),
                                   Pair("In Initial", path + "/initial"), Pair("In Off", path + "/off")));
}

TEST_F(RenderTest, WorkloadsOfOtherKindsCanBeSizedUnlessTheirNamespaceSaysOff) {
  const std::vector<Json> objects = render({"--set", "provisioning.workloadMode=Auto"});
  for (const Json& webhook : find_object(objects, "MutatingWebhookConfiguration/sail-plimsoll")["webhooks"]) {
    const std::string path = text_member(webhook, {"clientConfig", "service", "path"});
    if (path.ends_with("-workload")) {
      EXPECT_EQ(modes_of(webhook), path == "/mutate-workload" ? "NotIn Off" : "In Off");
    }
  }
}

TEST_F(RenderTest, ThePolicyOfTheClusterReachesBothProcesses) {
  const std::vector<Json> objects = render(
      {"--set", "provisioning.adviceOnly=true,provisioning.trainingJobMode=Initial", "--set",
       "provisioning.minShareOfAsked=50%", "--set", "provisioning.excludedNamespaces={sandbox,legacy}"});
  for (const char* name : {"webhook", "operator"}) {
    const std::string arguments =
        write_json(find_object(objects, std::string("Deployment/sail-plimsoll-") +
                                            name)["spec"]["template"]["spec"]["containers"][0]["args"]);
    EXPECT_THAT(
        arguments,
        HasSubstr(R"("--training-job-mode=Initial","--advice-only=true","--min-share-of-asked=50%")"));
    EXPECT_EQ(
        arguments.find(R"("--exclude-namespace=sandbox","--exclude-namespace=legacy")") != std::string::npos,
        std::string(name) == "operator");
  }
  for (const Json& webhook : find_object(objects, "MutatingWebhookConfiguration/sail-plimsoll")["webhooks"]) {
    EXPECT_THAT(write_json(webhook["namespaceSelector"]["matchExpressions"][0]["values"]),
                HasSubstr(R"("sandbox","legacy")"));
  }
}

TEST_F(RenderTest, FeatureGatesReachBothProcessesInOrder) {
  const std::vector<Json> objects =
      render({"--set", "featureGates.WorkloadSizing=false,featureGates.AllBeta=true"});
  for (const char* name : {"webhook", "operator"}) {
    const std::string arguments =
        write_json(find_object(objects, std::string("Deployment/sail-plimsoll-") +
                                            name)["spec"]["template"]["spec"]["containers"][0]["args"]);
    EXPECT_THAT(arguments,
                HasSubstr(R"("--feature-gates=AllBeta=true","--feature-gates=WorkloadSizing=false")"));
  }
}

// charts/rendered is what the chart says, for machines that have no helm.
TEST_F(RenderTest, RenderedWebhookConfigurationIsTheCharts) {
  const std::vector<Json> objects = render(
      {"--set", "webhook.deploy=false,operator.enabled=false,crds.enabled=false,rbac.create=false", "--set",
       "webhook.url=https://WEBHOOK_ADDRESS", "--set", "webhook.caBundle=-----BEGIN CERTIFICATE-----"});
  std::stringstream text;
  text << std::ifstream(PLIMSOLL_SOURCE_DIR "/charts/rendered/webhook_configuration.yaml").rdbuf();
  const Result<std::vector<Json>> kept = parse_yaml_documents(text.str());
  ASSERT_TRUE(kept.ok()) << to_string(kept.error());
  ASSERT_EQ(kept->size(), 2U);
  for (const Json& object : *kept) {
    Json chart = find_object(objects, text_member(object, {"kind"}) + "/sail-plimsoll");
    // The copy is of the release "plimsoll", whose name is in the names and labels.
    chart["metadata"] = object["metadata"];
    for (Json& webhook : chart["webhooks"]) {
      webhook["clientConfig"]["caBundle"] = "CA_BUNDLE";
    }
    EXPECT_EQ(write_json(object), write_json(chart))
        << "charts/rendered/webhook_configuration.yaml should hold:\n"
        << write_yaml(chart);
  }
}

// Least rights, written out: a change of a role must be made here too.
constexpr const char* kWebhooksInNamespaces =
    R"({"apiGroups":["plimsoll.dev"],"resources":["memoryprofiles"],"verbs":["list","watch"]},)"
    R"({"apiGroups":[""],"resources":["configmaps"],"verbs":["get"]},)"
    R"({"apiGroups":["trainer.kubeflow.org"],"resources":["trainingruntimes"],"verbs":["get"]})";
constexpr const char* kOperatorsInNamespaces =
    R"({"apiGroups":["plimsoll.dev"],"resources":["memoryprofiles"],"verbs":["get","list","watch","create"]},)"
    R"({"apiGroups":["plimsoll.dev"],"resources":["trainingjobs"],"verbs":["get","list","watch","patch","delete"]},)"
    R"({"apiGroups":["plimsoll.dev"],"resources":["memoryprofiles/status","trainingjobs/status","trainingjobs/finalizers"],"verbs":["update"]},)"
    R"({"apiGroups":[""],"resources":["namespaces"],"verbs":["get"]},)"
    R"({"apiGroups":["batch"],"resources":["jobs"],"verbs":["get","list","watch","create","patch","delete"]},)"
    R"({"apiGroups":[""],"resources":["configmaps","services"],"verbs":["get","create","patch","delete"]})";

// Both processes': who asks for metrics, and whether that user may have them.
constexpr const char* kMetrics =
    R"(,{"apiGroups":["authentication.k8s.io"],"resources":["tokenreviews"],"verbs":["create"]},)"
    R"({"apiGroups":["authorization.k8s.io"],"resources":["subjectaccessreviews"],"verbs":["create"]})";

std::string rules_of(const std::vector<Json>& objects, const std::string& role) {
  return write_json(find_object(objects, role)["rules"]);
}

// The rights of both processes in the cluster, with those in namespaces among them or not.
void expect_cluster_roles(const std::vector<Json>& objects, bool with_namespaces) {
  EXPECT_EQ(
      rules_of(objects, "ClusterRole/sail-plimsoll-webhook"),
      R"([{"apiGroups":["plimsoll.dev"],"resources":["gpumodels"],"verbs":["list","watch"]},)" +
          (with_namespaces ? kWebhooksInNamespaces + std::string(",") : "") +
          R"({"apiGroups":["trainer.kubeflow.org"],"resources":["clustertrainingruntimes"],"verbs":["get"]},)"
          R"({"apiGroups":["apiextensions.k8s.io"],"resourceNames":["trainjobs.trainer.kubeflow.org"],)"
          R"("resources":["customresourcedefinitions"],"verbs":["get"]},)"
          R"({"apiGroups":["admissionregistration.k8s.io"],"resourceNames":["sail-plimsoll"],)"
          R"("resources":["mutatingwebhookconfigurations","validatingwebhookconfigurations"],"verbs":["get","list","watch","patch"]})" +
          kMetrics + "]");
  EXPECT_EQ(rules_of(objects, "ClusterRole/sail-plimsoll-operator"),
            R"([{"apiGroups":[""],"resources":["nodes","pods"],"verbs":["list","watch"]},)"
            R"({"apiGroups":["plimsoll.dev"],"resources":["gpumodels"],"verbs":["list","watch","create"]},)"
            R"({"apiGroups":["plimsoll.dev"],"resources":["gpumodels/status"],"verbs":["update"]},)"
            R"({"apiGroups":[""],"resources":["events"],"verbs":["create","patch"]})" +
                (with_namespaces ? std::string(",") + kOperatorsInNamespaces : "") + kMetrics + "]");
}

TEST_F(RenderTest, RolesGrantExactlyThis) {
  const std::vector<Json> objects = render();
  expect_cluster_roles(objects, true);
  EXPECT_EQ(
      rules_of(objects, "Role/sail-plimsoll-webhook"),
      R"([{"apiGroups":[""],"resourceNames":["sail-plimsoll-webhook-certificates"],"resources":["secrets"],"verbs":["get","list","watch","update"]}])");
  EXPECT_EQ(
      rules_of(objects, "Role/sail-plimsoll-operator"),
      R"([{"apiGroups":["coordination.k8s.io"],"resources":["leases"],"verbs":["create"]},)"
      R"({"apiGroups":["coordination.k8s.io"],"resourceNames":["sail-plimsoll-operator"],"resources":["leases"],"verbs":["get","update"]}])");
}

TEST_F(RenderTest, OpenMetricsNeedNoRights) {
  const std::vector<Json> open = render({"--set", "metrics.secure=false"});
  for (const char* component : {"webhook", "operator"}) {
    EXPECT_THAT(rules_of(open, std::string("ClusterRole/sail-plimsoll-") + component),
                Not(HasSubstr("reviews")));
    const Json& deployment = find_object(open, std::string("Deployment/sail-plimsoll-") + component);
    const std::string pod = write_json(deployment["spec"]["template"]["spec"]);
    EXPECT_THAT(pod, HasSubstr("--metrics-secure=false"));
    EXPECT_THAT(pod, Not(HasSubstr("8443")));
  }
  EXPECT_THAT(names_of(open), Not(Contains("ClusterRole/sail-plimsoll-metrics-reader")));
}

TEST_F(RenderTest, RightsCanBeThoseOfAFewNamespaces) {
  const std::vector<Json> objects = render({"--set", "rbac.namespaces={team-a,team-b}"});
  expect_cluster_roles(objects, false);
  std::map<std::string, std::string> rules;
  for (const Json& object : objects) {
    const std::string name = text_member(object, {"metadata", "name"});
    if (text_member(object, {"kind"}) == "Role" && name.ends_with("-jobs")) {
      rules[text_member(object, {"metadata", "namespace"}) + " " + name] = write_json(object["rules"]);
    }
  }
  const std::string of_webhook = std::string("[") + kWebhooksInNamespaces + "]";
  const std::string of_operator = std::string("[") + kOperatorsInNamespaces + "]";
  EXPECT_THAT(rules, UnorderedElementsAre(Pair("team-a sail-plimsoll-webhook-jobs", of_webhook),
                                          Pair("team-b sail-plimsoll-webhook-jobs", of_webhook),
                                          Pair("team-a sail-plimsoll-operator-jobs", of_operator),
                                          Pair("team-b sail-plimsoll-operator-jobs", of_operator)));
  for (const char* component : {"webhook", "operator"}) {
    const Json& deployment = find_object(objects, std::string("Deployment/sail-plimsoll-") + component);
    EXPECT_THAT(write_json(deployment["spec"]["template"]["spec"]["containers"][0]["args"]),
                HasSubstr(R"("--namespace=team-a","--namespace=team-b")"));
  }
  for (const Json& webhook : find_object(objects, "MutatingWebhookConfiguration/sail-plimsoll")["webhooks"]) {
    const Json& seen = webhook["namespaceSelector"]["matchExpressions"][1];
    EXPECT_EQ(write_json(seen),
              R"({"key":"kubernetes.io/metadata.name","operator":"In","values":["team-a","team-b"]})");
  }
}

struct Refusal {
  const char* setting;
  const char* message;
};

TEST_F(RenderTest, SchemaRefusesWhatItDoesNotKnow) {
  const Refusal refusals[] = {
      {"webhok.replicas=3", "webhok"},
      {"webhook.replica=3", "replica"},
      {"webhook.replicas=0", "/webhook/replicas"},
      {"webhook.replicas=two", "/webhook/replicas"},
      {"webhook.mutatingFailurePolicy=Maybe", "/webhook/mutatingFailurePolicy"},
      {"webhook.timeoutSeconds=31", "/webhook/timeoutSeconds"},
      {"webhook.url=http://plain", "/webhook/url"},
      {"webhook.url=https://host/path", "/webhook/url"},
      {"webhook.caBundle=words", "/webhook/caBundle"},
      {"image.digest=sha256:12", "/image/digest"},
      {"image.repository=", "/image/repository"},
      {"log.level=loud", "/log/level"},
      {"featureGates.WorkloadSizin=true", "WorkloadSizin"},
      {"featureGates.WorkloadSizing=perhaps", "/featureGates/WorkloadSizing"},
      {"crds.enabled=perhaps", "/crds/enabled"},
      {"certificates.source=wish", "/certificates/source"},
      {"certificates.duration=soon", "/certificates/duration"},
      {"certificates.certManager.duration=2160h", "duration"},
      {"operator.replicas=0", "/operator/replicas"},
      {"operator.resources.request.cpu=1", "request"},
      {"operator.podDisruptionBudget.minAvailable=half", "/operator/podDisruptionBudget/minAvailable"},
      {"networkPolicy.from=all", "from"},
      {"networkPolicy.metricsFrom=all", "/networkPolicy/metricsFrom"},
      {"metrics.secure=perhaps", "/metrics/secure"},
      {"monitoring.podMonitor.enabled=true", "podMonitor"},
      {"monitoring.serviceMonitor.interval=often", "/monitoring/serviceMonitor/interval"},
      {"monitoring.prometheusRule.runbookUrl=https://host/#a", "/monitoring/prometheusRule/runbookUrl"},
      {"monitoring.dashboards.enabled=yes please", "/monitoring/dashboards/enabled"},
  };
  for (const Refusal& refusal : refusals) {
    const CommandResult result = render_text({"--set", refusal.setting});
    EXPECT_NE(result.exit_code, 0) << refusal.setting;
    EXPECT_THAT(result.errors, HasSubstr(refusal.message)) << refusal.setting;
  }
}

TEST_F(RenderTest, GuardsRefuseWhatCannotWork) {
  const CommandResult twice = render_text({"--set", "webhook.url=https://127.0.0.1:9443"});
  EXPECT_THAT(twice.errors, HasSubstr("webhook.deploy=false"));
  const CommandResult nowhere = render_text({"--set", "webhook.deploy=false"});
  EXPECT_THAT(nowhere.errors, HasSubstr("webhook.url"));
  const CommandResult untrusted = render_text({"--set", "certificates.source=secret"});
  EXPECT_THAT(untrusted.errors, HasSubstr("webhook.caBundle is needed"));
  const CommandResult overwritten = render_text({"--set", "webhook.caBundle=-----BEGIN CERTIFICATE-----"});
  EXPECT_THAT(overwritten.errors, HasSubstr("webhook.caBundle would be overwritten"));
  for (const CommandResult& refused : {twice, nowhere, untrusted, overwritten}) {
    EXPECT_NE(refused.exit_code, 0);
  }
}

TEST_F(RenderTest, ByDefaultNothingIsNeededForTheCertificates) {
  for (const Json& object : render()) {
    EXPECT_THAT(text_member(object, {"apiVersion"}), Not(HasSubstr("cert-manager")));
  }
}

TEST_F(RenderTest, CertificatesOfTheUsersOwnGiveTheWebhookNoRightToASecret) {
  const std::vector<Json> objects = render(kOwnSecret);
  EXPECT_EQ(find_object(objects, "Role/sail-plimsoll-webhook"), Json());
  EXPECT_THAT(write_json(find_object(objects, "ClusterRole/sail-plimsoll-webhook")),
              Not(HasSubstr("webhookconfigurations")));
  const Json& volumes =
      find_object(objects, "Deployment/sail-plimsoll-webhook")["spec"]["template"]["spec"]["volumes"];
  EXPECT_EQ(text_member(volumes[0], {"secret", "secretName"}), "our-tls");
}

// An option that the binary does not know ends it with 2, --help or not.
TEST_F(RenderTest, PodsAreStartedWithOptionsThatTheBinaryHas) {
  const std::vector<Json> objects = render();
  for (const char* component : {"webhook", "operator"}) {
    const Json& deployment = find_object(objects, std::string("Deployment/sail-plimsoll-") + component);
    std::vector<std::string> arguments = {PLIMSOLL_BINARY};
    for (const Json& argument : deployment["spec"]["template"]["spec"]["containers"][0]["args"]) {
      arguments.push_back(argument.asString());
    }
    arguments.emplace_back("--help");
    const CommandResult answer = run_command(arguments);
    EXPECT_EQ(answer.exit_code, 0) << answer.errors;
  }
}

// With an address where nobody listens: 1 means that it asked, 2 that an option is wrong.
TEST_F(RenderTest, HelmTestRunsACommandThatTheBinaryHas) {
  const std::vector<Json> objects = render();
  std::vector<std::string> arguments = {PLIMSOLL_BINARY};
  for (const Json& argument :
       find_object(objects, "Pod/sail-plimsoll-test")["spec"]["containers"][0]["args"]) {
    const std::string text = argument.asString();
    arguments.push_back(text.starts_with("--url=")       ? "--url=http://127.0.0.1:1"
                        : text.starts_with("--timeout=") ? "--timeout=1ms"
                                                         : text);
  }
  const CommandResult answer = run_command(arguments);
  EXPECT_EQ(answer.exit_code, 1) << answer.errors;
  EXPECT_THAT(answer.errors, HasSubstr("http://127.0.0.1:1 is not ready"));
}

TEST_F(RenderTest, ValuesReachThePods) {
  const std::vector<Json> objects = render(with(
      kOwnSecret, {"--set", "webhook.replicas=3", "--set", "webhook.nodeSelector.pool=system", "--set",
                   "image.digest=sha256:" + std::string(64, 'a'), "--set", "commonLabels.team=ads", "--set",
                   "webhook.priorityClassName=high", "--set-json", R"(webhook.extraArgs=["--workers=4"])"}));
  const Json& deployment = find_object(objects, "Deployment/sail-plimsoll-webhook");
  const Json& pod = deployment["spec"]["template"]["spec"];
  EXPECT_EQ(deployment["spec"]["replicas"].asInt(), 3);
  EXPECT_EQ(text_member(pod, {"nodeSelector", "pool"}), "system");
  EXPECT_EQ(text_member(pod, {"priorityClassName"}), "high");
  EXPECT_EQ(text_member(pod["containers"][0], {"image"}), "plimsoll/plimsoll@sha256:" + std::string(64, 'a'));
  EXPECT_EQ(text_member(deployment, {"metadata", "labels", "team"}), "ads");
  EXPECT_THAT(write_json(pod["containers"][0]["args"]), HasSubstr("--workers=4"));
}

}  // namespace
}  // namespace plimsoll::testing
