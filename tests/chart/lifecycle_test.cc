// The life of an installation on a real control plane with RBAC: the processes of both Deployments run from the image, with the
// arguments and the service accounts of the objects that helm installed, and the API server calls the webhook through its Service.
// Both webhooks fail closed here, so that an admission which Plimsoll misses is an error. All other pods are pretended by kwok, those
// that the Deployments' controller makes among them.
//
// There is one binary, so upgrades change the chart alone: arguments, rights, webhook configurations and CRDs. That the code of a
// released binary and this one's work together is not shown before there is a release.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>

#include "base/yaml.h"
#include "kube/client.h"
#include "tests/chart/image.h"
#include "tests/chart/installation.h"
#include "tests/chart/pod.h"
#include "tests/testing/eventually.h"
#include "tests/testing/patience.h"

namespace plimsoll::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Ne;
using ::testing::Not;
using ::testing::UnorderedElementsAre;
using namespace std::chrono_literals;

constexpr const char* kWebhook = "webhook";
constexpr const char* kOperator = "operator";
const kube::Resource kTrainingJobs{.group = "plimsoll.dev", .version = "v1alpha1", .plural = "trainingjobs"};

// An EndpointSlice may not name the loopback. Empty: this machine has no other address.
std::string address_of_this_machine() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) {
    return {};
  }
  std::string address;
  for (const ifaddrs* each = all; each != nullptr && address.empty(); each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET ||
        (each->ifa_flags & IFF_LOOPBACK) != 0 || (each->ifa_flags & IFF_UP) == 0) {
      continue;
    }
    char text[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr, text, sizeof(text));
    if (!std::string(text).starts_with("169.254.")) {
      address = text;
    }
  }
  freeifaddrs(all);
  return address;
}

// The chart of the release before this one (previous/README.md).
std::string previous_chart() {
  std::vector<std::string> charts;
  for (const auto& entry : std::filesystem::directory_iterator(PLIMSOLL_SOURCE_DIR "/tests/chart/previous")) {
    if (entry.path().extension() == ".tgz") {
      charts.push_back(entry.path().string());
    }
  }
  EXPECT_EQ(charts.size(), 1U) << "there is one release before this one";
  return charts.empty() ? std::string() : charts.front();
}

// Of a field manager. The processes write as "plimsoll".
bool is_plimsolls(const Json& object) {
  for (const Json& field : member(object, {"metadata", "managedFields"})) {
    const std::string manager = text_member(field, {"manager"});
    if (manager == "helm" || manager.starts_with("plimsoll")) {
      return true;
    }
  }
  return text_member(object, {"metadata", "labels", "app.kubernetes.io/instance"}) == "sail";
}

// Asks for the admission of a job again and again, by dry runs, until it is stopped; several at once, so that the API server has
// connections to each webhook.
class Admissions {
 public:
  Admissions(const ApiServer& server, const std::string& job)
      : client_(server.make_client()), job_((*parse_yaml_documents(job))[0]) {
    for (int i = 0; i < kAskers; ++i) {
      askers_.emplace_back([this](const std::stop_token& stop) { ask(stop); });
    }
  }

  // What went wrong.
  std::vector<std::string> stop() {
    askers_.clear();
    return failures_;
  }
  int count() const { return count_; }

 private:
  static constexpr int kAskers = 4;
  static constexpr std::chrono::milliseconds kPause{250};  // leaves the processors to what is tested
  static constexpr std::size_t kMaxFailures = 10;

  void ask(const std::stop_token& stop) {
    std::condition_variable_any stopped;
    std::unique_lock lock(mutex_);
    while (!stopped.wait_for(lock, stop, kPause, [&] { return stop.stop_requested(); })) {
      lock.unlock();
      kube::CallOptions options;
      options.dry_run = true;
      const Result<Json> answer = client_->create(kTrainingJobs, "default", job_, options);
      ++count_;
      const bool decided =
          answer &&
          !text_member(*answer, {"metadata", "annotations", "plimsoll.dev/provisioning-decision"}).empty();
      lock.lock();
      if (!decided && failures_.size() < kMaxFailures) {
        failures_.push_back(answer ? "no decision: " + write_json(*answer) : to_string(answer.error()));
      }
    }
  }

  std::unique_ptr<kube::Client> client_;
  const Json job_;
  std::atomic<int> count_ = 0;
  std::mutex mutex_;
  std::vector<std::string> failures_;
  std::vector<std::jthread> askers_;  // last: they end before what they use
};

class LifecycleTest : public InstallTest {
 protected:
  ApiServerOptions server_options() const override {
    return {.controller_manager = true, .scheduler = true, .kwok = true};
  }

  void SetUp() override {
    if (address_.empty()) {
      GTEST_SKIP() << "this machine has no address but the loopback's, which an EndpointSlice may not name";
    }
    if (const Result<Image>& image = image_under_test(); !image) {
      ASSERT_EQ(image.error().code, ErrorCode::kUnsupported) << to_string(image.error());
      GTEST_SKIP() << image.error().message;
    }
    InstallTest::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) {
      ASSERT_NO_FATAL_FAILURE(add_cluster());
    }
  }

  // Helm with a release "sail".
  void must_helm(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--namespace", kNamespace, "--kubeconfig", server_->kubeconfig()});
    const CommandResult done = helm(arguments);
    ASSERT_EQ(done.exit_code, 0) << ::testing::PrintToString(arguments) << '\n' << done.errors;
  }

  void install(const std::string& chart, const std::vector<std::string>& values = {}) const {
    std::vector<std::string> arguments = {"install",
                                          "sail",
                                          chart,
                                          "--set",
                                          "webhook.mutatingFailurePolicy=Fail",
                                          "--set",
                                          "webhook.validatingFailurePolicy=Fail",
                                          "--set",
                                          "webhook.extraArgs={--certificate-trust-delay=2s}"};
    arguments.insert(arguments.end(), values.begin(), values.end());
    ASSERT_NO_FATAL_FAILURE(must_helm(arguments));
    expect_done(kubectl({"wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"}));
  }

  // As docs/upgrades.md says.
  void upgrade(const std::vector<std::string>& values = {}) const {
    std::vector<std::string> arguments = {"upgrade", "sail", kChart, "--reset-then-reuse-values"};
    arguments.insert(arguments.end(), values.begin(), values.end());
    must_helm(arguments);
  }

  Json deployment(const std::string& component) const {
    const CommandResult shown =
        kubectl({"get", "deployment", "sail-plimsoll-" + component, "-n", kNamespace, "-o", "json"});
    const Result<Json> object = parse_json(shown.output);
    EXPECT_TRUE(object.ok()) << shown.errors;
    return object ? *object : Json();
  }

  // A pod of the Deployment as it is now. A webhook's takes admissions once it is ready.
  void add(const std::string& component) {
    Result<std::unique_ptr<Pod>> pod =
        Pod::start(*server_, deployment(component), component + "-" + std::to_string(made_++));
    ASSERT_TRUE(pod.ok()) << to_string(pod.error());
    if (component == kWebhook) {
      ASSERT_NO_FATAL_FAILURE(publish(**pod));
    }
    pods_[component].push_back(*std::move(pod));
  }

  // What the controller of EndpointSlices does for a pod that is ready.
  void publish(const Pod& pod) const {
    expect_done(kubectl({"create", "-f", "-"},
                        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: " +
                            pod.name() + "\n  namespace: " + kNamespace +
                            "\n  labels:\n    kubernetes.io/service-name: sail-plimsoll-webhook\n"
                            "    endpointslice.kubernetes.io/managed-by: lifecycle-test\naddressType: IPv4\n"
                            "ports: [{name: https, port: " +
                            std::to_string(pod.port()) + "}]\nendpoints: [{addresses: [" + address_ +
                            "], conditions: {ready: true}}]\n"));
  }

  // As a pod is ended: it is told to stop while it is still in rotation, of which others learn meanwhile.
  void retire(const std::string& component, Pod& pod) const {
    pod.terminate();
    if (component == kWebhook) {
      expect_done(kubectl({"delete", "endpointslice", pod.name(), "-n", kNamespace}));
    }
  }

  void start(const std::string& component) {
    const int replicas = deployment(component)["spec"]["replicas"].asInt();
    ASSERT_GT(replicas, 1) << "one alone would not show who leads, and how one takes over from another";
    for (int i = 0; i < replicas; ++i) {
      ASSERT_NO_FATAL_FAILURE(add(component));
    }
  }

  // As the Deployment does with maxUnavailable 0 and maxSurge 1, which does not count pods that are about to end.
  void roll(const std::string& component) {
    const std::vector<std::unique_ptr<Pod>> old = std::exchange(pods_[component], {});
    for (const std::unique_ptr<Pod>& each : old) {
      ASSERT_NO_FATAL_FAILURE(add(component));
      ASSERT_NO_FATAL_FAILURE(retire(component, *each));
    }
    expect_ended(old);
  }

  static void expect_ended(const std::vector<std::unique_ptr<Pod>>& pods) {
    for (const std::unique_ptr<Pod>& pod : pods) {
      EXPECT_EQ(pod->wait_for_exit(), 0) << pod->log();
    }
  }

  // Without waiting for the pods first: they end while their rights are gone.
  void uninstall() {
    ASSERT_NO_FATAL_FAILURE(must_helm({"uninstall", "sail"}));
    for (const auto& [component, pods] : std::exchange(pods_, {})) {
      for (const std::unique_ptr<Pod>& pod : pods) {
        ASSERT_NO_FATAL_FAILURE(retire(component, *pod));
      }
      expect_ended(pods);
    }
  }

  // Both, and returns when jobs are decided.
  void start_all() {
    ASSERT_NO_FATAL_FAILURE(start(kOperator));
    comes({"get", "gpumodel", "v100-32gb", "-o", "jsonpath={.status.totalGPUs}"}, "8");
    ASSERT_NO_FATAL_FAILURE(start(kWebhook));
    ASSERT_TRUE(eventually(
        "the first admission",
        [&] {
          const CommandResult created =
              kubectl({"create", "--dry-run=server", "-o", "yaml", "-f", "-"}, table_job("probe"));
          return created.output + created.errors;
        },
        HasSubstr("plimsoll.dev/provisioning-decision")))
        << logs();
  }

  void create(const std::string& job) const { expect_done(kubectl({"create", "-f", "-"}, job)); }

  // A field of a TrainingJob by its JSONPath.
  std::string field(const std::string& job, const std::string& path,
                    const std::string& space = "default") const {
    return kubectl({"get", "tj", job, "-n", space, "-o", "jsonpath={" + path + "}"}).output;
  }

  void comes(const std::vector<std::string>& question, const std::string& answer) const {
    EXPECT_TRUE(eventually(
        ::testing::PrintToString(question), [&] { return kubectl(question).output; }, answer))
        << logs();
  }

  void comes_of(const std::string& job, const std::string& path, const std::string& answer) const {
    comes({"get", "tj", job, "-o", "jsonpath={" + path + "}"}, answer);
  }

  void succeeds(const std::string& job) const {
    comes_of(job, ".status.conditions[?(@.type=='Succeeded')].status", "True");
  }

  // All that says what was decided for the jobs, and which attempts and pods they have.
  std::string state_of_jobs() const {
    return kubectl({"get", "tj", "long", "held", "-o",
                    R"(jsonpath={range .items[*]}{.metadata.annotations.plimsoll\.dev/provisioning-decision})"
                    R"( {.spec.trainers} {.status.attempts[*].number}{"\n"}{end})"})
               .output +
           kubectl(
               {"get", "jobs,pods", "-l", "plimsoll.dev/job-name=long", "-o",
                R"(jsonpath={range .items[*]}{.kind} {.metadata.name} {.metadata.uid} {.status.phase}{"\n"}{end})"})
               .output;
  }

  // "Kind namespace/name" of every object that helm or the processes wrote, or that has the release's label. Without Events, which the
  // API server deletes after an hour.
  std::set<std::string> objects_of_plimsoll() const {
    std::string kinds;
    std::istringstream names(kubectl({"api-resources", "--verbs=list", "-o", "name"}).output);
    for (std::string name; std::getline(names, name);) {
      if (!name.starts_with("events")) {
        kinds += (kinds.empty() ? "" : ",") + name;
      }
    }
    const CommandResult listed =
        kubectl({"get", kinds, "--all-namespaces", "--show-managed-fields", "-o", "json"});
    EXPECT_EQ(listed.exit_code, 0) << listed.errors;
    const Result<Json> objects = parse_json(listed.output);
    EXPECT_TRUE(objects.ok());
    std::set<std::string> found;
    for (const Json& object : objects ? (*objects)["items"] : Json::nullSingleton()) {
      if (is_plimsolls(object)) {
        const std::string space = text_member(object, {"metadata", "namespace"});
        found.insert(text_member(object, {"kind"}) + " " + (space.empty() ? "" : space + "/") +
                     text_member(object, {"metadata", "name"}));
      }
    }
    return found;
  }

  // Of all pods there were, without the decisions that went well.
  std::string logs() const {
    std::string all;
    for (const auto& file : std::filesystem::directory_iterator(server_->directory())) {
      const std::string name = file.path().filename().string();
      if (!name.ends_with(".log") || (!name.starts_with(kWebhook) && !name.starts_with(kOperator))) {
        continue;
      }
      all += "--- " + name + "\n";
      std::ifstream log(file.path());
      for (std::string line; std::getline(log, line);) {
        all += line.find("Provisioned a job") == std::string::npos ? line + "\n" : "";
      }
    }
    return all;
  }

  const std::string address_ = address_of_this_machine();
  std::map<std::string, std::vector<std::unique_ptr<Pod>>> pods_;
  int made_ = 0;
};

// docs/adoption.md: advice for all, then sizes where a namespace asks for them, then more after an out-of-memory.
TEST_F(LifecycleTest, AdviceThenSizesByLabelThenMoreMemory) {
  ASSERT_NO_FATAL_FAILURE(install(kChart, {"--set", "provisioning.adviceOnly=true"}));
  ASSERT_NO_FATAL_FAILURE(start_all());
  create(table_job("advised", "  provisioning: {mode: Auto}\n"));
  EXPECT_EQ(field("advised", ".spec.trainers.replicas"), "2");
  EXPECT_THAT(field("advised", R"(.metadata.annotations.plimsoll\.dev/provisioning-reason)"), Not(IsEmpty()));
  comes({"get", "events", "--field-selector", "reason=Recommended,involvedObject.name=advised", "-o",
         "jsonpath={.items[*].type}"},
        "Normal");
  succeeds("advised");
  EXPECT_EQ(field("advised", ".status.attempts[*].trainers"), "2");

  ASSERT_NO_FATAL_FAILURE(
      upgrade({"--set", "provisioning.adviceOnly=false", "--set", "provisioning.trainingJobMode=Off"}));
  ASSERT_NO_FATAL_FAILURE(roll(kOperator));
  ASSERT_NO_FATAL_FAILURE(roll(kWebhook));
  create(table_job("unasked"));
  EXPECT_EQ(field("unasked", ".spec.provisioning.mode"), "Off");
  EXPECT_EQ(field("unasked", ".spec.trainers.replicas"), "2");
  expect_done(kubectl({"label", "namespace", "default", "plimsoll.dev/mode=Auto"}));
  // The API server learns of the label by a watch of its own.
  EXPECT_TRUE(eventually(
      "the mode of jobs that name none",
      [&] {
        return kubectl({"create", "--dry-run=server", "-o", "jsonpath={.spec.provisioning.mode}", "-f", "-"},
                       table_job("probe"))
            .output;
      },
      std::string("Auto")));
  create(table_job("ads", "", "outcome-of-attempt-0: fail"));
  EXPECT_EQ(field("ads", ".spec.trainers.replicas"), "1");
  succeeds("ads");
  EXPECT_EQ(field("ads", ".status.attempts[*].outcome"), "CUDAOutOfMemory Succeeded");
  EXPECT_EQ(field("ads", ".status.attempts[*].trainers"), "1 2") << logs();
}

TEST_F(LifecycleTest, NoAdmissionFailsWhileCertificatesRotateAndPodsAreReplaced) {
  ASSERT_NO_FATAL_FAILURE(install(kChart));
  ASSERT_NO_FATAL_FAILURE(start_all());
  create(table_job("long", "", "outcome: run"));
  comes_of("long", ".status.conditions[?(@.type=='Running')].status", "True");
  const std::string child = kubectl({"get", "job", "long-0", "-o", "jsonpath={.metadata.uid}"}).output;

  Admissions admissions(*server_, table_job("asked"));
  const std::string authorities = secret_value("ca.crt");
  const std::string certificate = secret_value("tls.crt");
  expect_done(kubectl({"patch", "secret", kSecret, "-n", kNamespace, "--type=json", "-p",
                       R"([{"op": "remove", "path": "/data/ca.key"}])"}));
  EXPECT_TRUE(eventually(
      "a new authority beside the old one", [&] { return secret_value("ca.crt"); },
      AllOf(HasSubstr(authorities), Ne(authorities))));
  EXPECT_TRUE(eventually(
      "its certificate", [&] { return secret_value("tls.crt"); }, Ne(certificate)));
  for (const std::unique_ptr<Pod>& pod : pods_[kWebhook]) {
    EXPECT_TRUE(eventually(
        "the webhook serves it",
        [&] {
          return run_command(
                     {"openssl", "s_client", "-connect", address_ + ":" + std::to_string(pod->port())})
              .output;
        },
        HasSubstr(secret_value("tls.crt").substr(0, 200))))
        << pod->log();
  }

  ASSERT_NO_FATAL_FAILURE(roll(kWebhook));
  create(table_job("between"));
  ASSERT_NO_FATAL_FAILURE(roll(kOperator));
  succeeds("between");

  EXPECT_THAT(admissions.stop(), IsEmpty()) << logs();
  EXPECT_GT(admissions.count(), 10);
  EXPECT_EQ(kubectl({"get", "job", "long-0", "-o", "jsonpath={.metadata.uid}"}).output, child);
  EXPECT_EQ(field("long", ".status.attempts[*].outcome"), "Running");
}

// Between the two halves of a rollout, webhook and operator have the arguments of different charts; a job is sized by one and
// remediated by the other.
TEST_F(LifecycleTest, UpgradeRollbackAndUninstallLeaveJobsAlone) {
  ASSERT_NO_FATAL_FAILURE(install(previous_chart()));
  ASSERT_NO_FATAL_FAILURE(start_all());
  create(table_job("long", "", "outcome: run"));
  create(table_job("held", "  suspend: true\n"));
  comes_of("long", ".status.conditions[?(@.type=='Running')].status", "True");
  const std::string before = state_of_jobs();
  EXPECT_THAT(before, HasSubstr("Pod long-0-0-"));

  Admissions admissions(*server_, table_job("asked"));
  const auto roll_both = [&](const std::string& skewed) {
    ASSERT_NO_FATAL_FAILURE(roll(kWebhook));
    // Of a family of its own: what it teaches is no matter of other jobs.
    create(table_job(skewed, "", "outcome-of-attempt-0: fail", skewed));
    succeeds(skewed);
    EXPECT_EQ(field(skewed, ".status.attempts[*].outcome"), "CUDAOutOfMemory Succeeded");
    ASSERT_NO_FATAL_FAILURE(roll(kOperator));
    EXPECT_EQ(state_of_jobs(), before) << logs();
  };
  ASSERT_NO_FATAL_FAILURE(upgrade());
  ASSERT_NO_FATAL_FAILURE(roll_both("upgraded"));
  ASSERT_NO_FATAL_FAILURE(must_helm({"rollback", "sail"}));
  ASSERT_NO_FATAL_FAILURE(roll_both("rolled-back"));
  ASSERT_NO_FATAL_FAILURE(upgrade());
  ASSERT_NO_FATAL_FAILURE(roll(kWebhook));
  ASSERT_NO_FATAL_FAILURE(roll(kOperator));
  EXPECT_EQ(state_of_jobs(), before) << logs();
  EXPECT_THAT(admissions.stop(), IsEmpty()) << logs();
  EXPECT_GT(admissions.count(), 10);
  expect_done(kubectl({"delete", "tj", "upgraded", "rolled-back"}));

  ASSERT_NO_FATAL_FAILURE(uninstall());
  const std::string lease = std::string("Lease ") + kNamespace + "/sail-plimsoll-operator";
  EXPECT_TRUE(eventually(
      "only what docs/upgrades.md says stays", [&] { return objects_of_plimsoll(); },
      UnorderedElementsAre("CustomResourceDefinition gpumodels.plimsoll.dev",
                           "CustomResourceDefinition memoryprofiles.plimsoll.dev",
                           "CustomResourceDefinition trainingjobs.plimsoll.dev", "GPUModel v100-32gb",
                           "MemoryProfile default/upgraded", "MemoryProfile default/rolled-back",
                           "TrainingJob default/held", "TrainingJob default/long", "Job default/long-0",
                           "Service default/long-0", "ConfigMap default/long-0-plan", lease)));
  EXPECT_EQ(state_of_jobs(), before) << "what ran runs on";

  // A new installation takes over what the old one left.
  ASSERT_NO_FATAL_FAILURE(install(kChart));
  ASSERT_NO_FATAL_FAILURE(start_all());
  expect_done(kubectl({"patch", "tj", "held", "--type=merge", "-p", R"({"spec":{"suspend":false}})"}));
  succeeds("held");
  EXPECT_EQ(field("long", ".status.attempts[*].outcome"), "Running");
  ASSERT_NO_FATAL_FAILURE(uninstall());

  // Nothing waits for processes that are gone.
  expect_done(kubectl({"delete", "tj", "held", "long", kubectl_timeout()}));
  comes({"get", "jobs,pods,services,configmaps", "-l", "plimsoll.dev/job-name", "-o", "name"}, "");
  expect_done(kubectl({"delete", "crd", kubectl_timeout(), "trainingjobs.plimsoll.dev",
                       "gpumodels.plimsoll.dev", "memoryprofiles.plimsoll.dev"}));
  EXPECT_THAT(objects_of_plimsoll(), UnorderedElementsAre(lease));
}

}  // namespace
}  // namespace plimsoll::testing
