#include "tests/controlplane/real_api_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <thread>

#include "tests/controlplane/binaries.h"
#include "tests/controlplane/process_tree.h"
#include "tests/controlplane/scratch_directory.h"
#include "tests/controlplane/subprocess.h"

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
TEST_F(RealApiServerTest, PretendedPodsEndAsTheirAnnotationsSay) {
  ApiServerOptions options;
  options.controller_manager = options.scheduler = options.kwok = true;
  const std::unique_ptr<ApiServer> server = start_api_server(ApiServerKind::kReal, options);
  ASSERT_NE(server, nullptr);
  const char* const objects = R"(
apiVersion: v1
kind: Node
metadata:
  name: gpu-0
  labels: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}
  annotations: {kwok.x-k8s.io/node: fake}
status: {capacity: {cpu: 96, memory: 1Ti, pods: 110, nvidia.com/gpu: 8}}
---
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
)";
  const CommandResult applied = run_kubectl(*server, {"apply", "-f", "-"}, objects);
  ASSERT_EQ(applied.exit_code, 0) << applied.errors;
  const CommandResult good =
      run_kubectl(*server, {"wait", "--for=condition=complete", "job/good", "--timeout=50s"});
  EXPECT_EQ(good.exit_code, 0) << good.errors;
  const CommandResult bad =
      run_kubectl(*server, {"wait", "--for=condition=failed", "job/bad", "--timeout=50s"});
  EXPECT_EQ(bad.exit_code, 0) << bad.errors;
  const char* const ends =
      "jsonpath={range .items[*].status.containerStatuses[*].state.terminated}{.exitCode} {.reason} "
      "{.message}\n{end}";
  EXPECT_EQ(run_kubectl(*server, {"get", "pods", "-l", "job-name=good", "-o", ends}).output,
            "0 Completed {\"stage\":\"peak\"}\n0 Completed {\"stage\":\"peak\"}\n");
  EXPECT_EQ(run_kubectl(*server, {"get", "pods", "-l", "job-name=bad", "-o", ends}).output,
            "137 OOMKilled torch.OutOfMemoryError: \"CUDA out of memory\"\n");
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
    const auto deadline = std::chrono::steady_clock::now() + kLong;
    while (!std::filesystem::exists(kubeconfig) && program_->running() &&
           std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(50ms);
    }
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
