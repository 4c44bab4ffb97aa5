#include "tests/controlplane/real_api_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>

#include "tests/controlplane/binaries.h"
#include "tests/controlplane/process_tree.h"
#include "tests/controlplane/scratch_directory.h"
#include "tests/controlplane/subprocess.h"
#include "tests/testing/eventually.h"
#include "tests/testing/patience.h"

namespace plimsoll::testing {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kLong = 120s;

class RealApiServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!control_plane_folder()) {
      GTEST_SKIP() << control_plane_folder().error().message;
    }
  }
};

TEST_F(RealApiServerTest, ServesAndLeavesNothingBehind) {
  std::string directory;
  std::vector<pid_t> processes;
  {
    std::string why;
    const std::unique_ptr<ApiServer> server = start_api_server(ApiServerKind::kReal, {}, &why);
    ASSERT_NE(server, nullptr) << why;
    EXPECT_EQ(server->kind(), ApiServerKind::kReal);
    directory = server->directory();
    processes = children_of(getpid());
    EXPECT_EQ(processes.size(), 2U);  // etcd and kube-apiserver
    const CommandResult namespaces = run_kubectl(*server, {"get", "namespace", "default", "-o", "name"});
    EXPECT_EQ(namespaces.output, "namespace/default\n") << namespaces.errors;
    const Result<std::string> ready = server->make_client()->get_raw("/readyz");
    ASSERT_TRUE(ready.ok()) << to_string(ready.error());
    EXPECT_EQ(*ready, "ok");
    const CommandResult piped = run_kubectl(
        *server, {"create", "-f", "-"},
        R"({"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"default"}})");
    EXPECT_EQ(piped.exit_code, 0) << piped.errors;
  }
  for (const pid_t process : processes) {
    EXPECT_TRUE(process_ended(process));
  }
  EXPECT_FALSE(std::filesystem::exists(directory));
}

TEST_F(RealApiServerTest, TwoRunSideBySide) {
  const std::unique_ptr<ApiServer> first = start_api_server(ApiServerKind::kReal);
  const std::unique_ptr<ApiServer> second = start_api_server(ApiServerKind::kReal);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(run_kubectl(*first, {"create", "namespace", "only-here"}).exit_code, 0);
  EXPECT_THAT(run_kubectl(*second, {"get", "namespace", "only-here"}).errors, HasSubstr("NotFound"));
}

// A node of eight GPUs that does not exist, the real scheduler and Job controller, and pods whose end is
// written in their annotations: the bench that remediation is tested on.
class PretendedNodeTest : public RealApiServerTest {
 protected:
  void SetUp() override {
    RealApiServerTest::SetUp();
    if (IsSkipped()) {
      return;
    }
    ApiServerOptions options;
    options.controller_manager = options.scheduler = options.kwok = true;
    server_ = start_api_server(ApiServerKind::kReal, options);
    ASSERT_NE(server_, nullptr);
    apply(R"(
apiVersion: v1
kind: Node
metadata:
  name: gpu-0
  labels: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}
  annotations: {kwok.x-k8s.io/node: fake}
status: {capacity: {cpu: 96, memory: 1Ti, pods: 110, nvidia.com/gpu: 8}}
)");
  }

  void apply(const std::string& objects) {
    const CommandResult applied = run_kubectl(*server_, {"apply", "-f", "-"}, objects);
    ASSERT_EQ(applied.exit_code, 0) << applied.errors;
  }

  void wait_for(const std::string& condition, const std::string& object) {
    const CommandResult waited =
        run_kubectl(*server_, {"wait", "--for=" + condition, object, kubectl_timeout()});
    EXPECT_EQ(waited.exit_code, 0) << waited.errors;
  }

  std::string ask(const std::string& selector, const std::string& path) {
    return run_kubectl(*server_, {"get", "pods", "-l", selector, "-o", "jsonpath=" + path}).output;
  }

  std::unique_ptr<ApiServer> server_;
};

TEST_F(PretendedNodeTest, PodsEndAsTheirAnnotationsSay) {
  apply(R"(
apiVersion: batch/v1
kind: Job
metadata: {name: good, namespace: default}
spec:
  completions: 2
  parallelism: 2
  completionMode: Indexed
  template:
    metadata: {annotations: {test.plimsoll.dev/message: '{"stage":"peak"}', test.plimsoll.dev/run-for: 100ms}}
    spec:
      restartPolicy: Never
      containers: [{name: trainer, image: none, resources: {limits: {nvidia.com/gpu: 4}}}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: bad, namespace: default}
spec:
  backoffLimit: 0
  template:
    metadata:
      annotations:
        test.plimsoll.dev/outcome: fail
        test.plimsoll.dev/exit-code: "137"
        test.plimsoll.dev/reason: OOMKilled
        test.plimsoll.dev/message: 'torch.OutOfMemoryError: "CUDA out of memory"'
    spec:
      restartPolicy: Never
      containers: [{name: trainer, image: none, resources: {limits: {nvidia.com/gpu: 4}}}]
)");
  wait_for("condition=complete", "job/good");
  wait_for("condition=failed", "job/bad");
  const std::string ends =
      "{range .items[*].status.containerStatuses[*].state.terminated}{.exitCode} {.reason} {.message}\n{end}";
  EXPECT_EQ(ask("job-name=good", ends),
            "0 Completed {\"stage\":\"peak\"}\n0 Completed {\"stage\":\"peak\"}\n");
  EXPECT_EQ(ask("job-name=bad", ends), "137 OOMKilled torch.OutOfMemoryError: \"CUDA out of memory\"\n");
}

// One template, as a TrainingJob's is, whose pods end otherwise in another attempt or at another size.
TEST_F(PretendedNodeTest, PodsEndAsTheirAttemptAndSizeSay) {
  const std::string by_attempt = "test.plimsoll.dev/outcome-of-attempt-1: fail, ";
  const std::string by_size = "test.plimsoll.dev/fits-from-trainers: '10', test.plimsoll.dev/outcome: fail, ";
  const std::vector<std::tuple<std::string, std::string, std::string>> cases = {
      {"first", by_attempt + "plimsoll.dev/attempt: '0'", "Succeeded"},
      {"second", by_attempt + "plimsoll.dev/attempt: '1'", "Failed"},
      {"third", by_attempt + "plimsoll.dev/attempt: '2'", "Succeeded"},
      {"small", by_size + "plimsoll.dev/trainers: '9'", "Failed"},
      {"large", by_size + "plimsoll.dev/trainers: '16'", "Succeeded"},
      {"sizeless", by_size.substr(0, by_size.find(',')), "Failed"},
      {"plain", "any: thing", "Succeeded"}};
  for (const auto& [name, annotations, phase] : cases) {
    apply("apiVersion: v1\nkind: Pod\nmetadata: {name: " + name +
          ", namespace: default, annotations: {test.plimsoll.dev/run-for: 10ms, "
          "test.plimsoll.dev/message: both, test.plimsoll.dev/failure-message: 'it failed', " +
          annotations + "}}\nspec: {restartPolicy: Never, containers: [{name: trainer, image: none}]}\n");
  }
  for (const auto& [name, annotations, phase] : cases) {
    SCOPED_TRACE(name);
    wait_for("jsonpath={.status.phase}=" + phase, "pod/" + name);
    EXPECT_EQ(run_kubectl(*server_, {"get", "pod", name, "-o",
                                     "jsonpath={.status.containerStatuses[0].state.terminated.message}"})
                  .output,
              phase == "Failed" ? "it failed" : "both");
  }
}

// What the scheduler does to a pod that is in a more important one's way, and what the Job controller makes
// of it, is theirs; only the kubelet's part, the end of the containers, is pretended.
TEST_F(PretendedNodeTest, TheSchedulerPreemptsAPodOfAJob) {
  apply(R"(
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: urgent}
value: 1000
---
apiVersion: batch/v1
kind: Job
metadata: {name: patient, namespace: default}
spec:
  completions: 2
  parallelism: 2
  completionMode: Indexed
  backoffLimit: 0
  podFailurePolicy: {rules: [{action: FailJob, onPodConditions: [{type: DisruptionTarget, status: "True"}]}]}
  template:
    metadata: {annotations: {test.plimsoll.dev/outcome: run}}
    spec:
      restartPolicy: Never
      containers: [{name: trainer, image: none, resources: {limits: {nvidia.com/gpu: 4}}}]
)");
  wait_for("jsonpath={.status.ready}=2", "job/patient");
  apply(R"(
apiVersion: v1
kind: Pod
metadata: {name: urgent, namespace: default, annotations: {test.plimsoll.dev/outcome: run}}
spec:
  priorityClassName: urgent
  restartPolicy: Never
  containers: [{name: trainer, image: none, resources: {limits: {nvidia.com/gpu: 4}}}]
)");
  wait_for("jsonpath={.status.phase}=Running", "pod/urgent");
  wait_for("condition=failed", "job/patient");
  EXPECT_EQ(run_kubectl(*server_, {"get", "job", "patient", "-o",
                                   "jsonpath={.status.conditions[?(@.type==\"Failed\")].reason}"})
                .output,
            "PodFailurePolicy");
}

// plimsoll-controlplane is a process of its own, so it can be killed as a test may be.
class ControlPlaneProgramTest : public RealApiServerTest {
 protected:
  void start() {
    Result<std::unique_ptr<ScratchDirectory>> scratch = ScratchDirectory::create();
    ASSERT_TRUE(scratch.ok());
    scratch_ = *std::move(scratch);
    const std::string kubeconfig = scratch_->file("kubeconfig");
    SubprocessOptions options;
    options.arguments = {PLIMSOLL_CONTROLPLANE, "--kubeconfig-out", kubeconfig};
    options.log_file = scratch_->file("log");
    Result<std::unique_ptr<Subprocess>> started = Subprocess::start(options);
    ASSERT_TRUE(started.ok());
    program_ = *std::move(started);
    ASSERT_TRUE(eventually("the kubeconfig or the program's end",
                           [&] { return std::filesystem::exists(kubeconfig) || !program_->running(); }));
    ASSERT_TRUE(std::filesystem::exists(kubeconfig)) << tail_of_file(options.log_file);
    servers_ = children_of(program_->pid());
    ASSERT_EQ(servers_.size(), 2U);
  }

  void expect_nothing_left() {
    for (const pid_t server : servers_) {
      EXPECT_TRUE(wait_until_ended(server, kLong)) << server;
    }
  }

  std::unique_ptr<ScratchDirectory> scratch_;
  std::unique_ptr<Subprocess> program_;
  std::vector<pid_t> servers_;
};

TEST_F(ControlPlaneProgramTest, EndsOnRequest) {
  start();
  EXPECT_EQ(program_->stop(60s), 0);
  expect_nothing_left();
}

TEST_F(ControlPlaneProgramTest, LeavesNothingRunningWhenItIsKilled) {
  start();
  program_->send_signal(SIGKILL);
  EXPECT_EQ(program_->wait_for_exit(kLong), 128 + SIGKILL);
  expect_nothing_left();
}

TEST_F(ControlPlaneProgramTest, RefusesWrongUsage) {
  EXPECT_EQ(run_command({PLIMSOLL_CONTROLPLANE}).exit_code, 2);
  EXPECT_EQ(run_command({PLIMSOLL_CONTROLPLANE, "--nonsense"}).exit_code, 2);
  EXPECT_EQ(run_command({PLIMSOLL_CONTROLPLANE, "--help"}).exit_code, 0);
}

TEST(NoControlPlane, SaysWhy) {
  const CommandResult refused = run_command({"env", "PLIMSOLL_NO_CONTROL_PLANE=1", PLIMSOLL_CONTROLPLANE,
                                             "--kubeconfig-out", "/no/such/folder/kubeconfig"});
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_THAT(refused.errors, HasSubstr("PLIMSOLL_NO_CONTROL_PLANE"));
}

}  // namespace
}  // namespace plimsoll::testing
