#include "tests/node_agent/node_agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/controlplane/process_tree.h"
#include "tests/testing/eventually.h"
#include "tests/testing/patience.h"

namespace plimsoll::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using namespace std::chrono_literals;

class NodeAgentTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    server_ = start_api_server(ApiServerKind::PLIMSOLL_SERVER_KIND, {}, &why);
    if (server_ == nullptr) {
      GTEST_SKIP() << why;
    }
    Result<std::unique_ptr<NodeAgent>> agent =
        NodeAgent::start(*server_, {.name = "local-0",
                                    .gpus = 4,
                                    .labels = {{"gpu", "yes"}},
                                    .environment = {{"FROM_NODE", "1"}, {"BOTH", "node"}}});
    ASSERT_TRUE(agent.ok()) << to_string(agent.error());
    agent_ = *std::move(agent);
  }

  std::string ask(const std::string& object, const std::string& path) {
    return run_kubectl(*server_, {"get", object, "-o", "jsonpath=" + path}).output;
  }

  // A pod of this node that runs a shell script; `more` are further lines of its container and its spec.
  void run_pod(const std::string& name, const std::string& script, const std::string& container = {},
               const std::string& spec = {}) {
    const CommandResult applied = run_kubectl(*server_, {"create", "-f", "-"},
                                              "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name +
                                                  ", namespace: default, labels: {colour: blue}}\nspec:\n"
                                                  "  nodeName: local-0\n  restartPolicy: Never\n" +
                                                  spec +
                                                  "  containers:\n  - name: trainer\n    image: none\n"
                                                  "    command: [sh, -c]\n    args:\n    - |\n      " +
                                                  script + "\n" + container);
    ASSERT_EQ(applied.exit_code, 0) << applied.errors;
  }

  void wait_for_phase(const std::string& pod, const std::string& phase) {
    ASSERT_TRUE(eventually(
        "the phase of " + pod, [&] { return ask("pod/" + pod, "{.status.phase}"); }, phase))
        << ask("pod/" + pod, "{.status}");
  }

  std::string ended(const std::string& pod, const std::string& field) {
    return ask("pod/" + pod, "{.status.containerStatuses[0].state.terminated." + field + "}");
  }

  std::unique_ptr<ApiServer> server_;
  std::unique_ptr<NodeAgent> agent_;
};

TEST_F(NodeAgentTest, RegistersItsNode) {
  EXPECT_EQ(ask("node/local-0", "{.status.allocatable.nvidia\\.com/gpu} {.metadata.labels.gpu}"), "4 yes");
  EXPECT_EQ(ask("node/local-0", "{.status.conditions[?(@.type==\"Ready\")].status}"), "True");
}

TEST_F(NodeAgentTest, RunsPodsToTheirEnd) {
  ASSERT_EQ(run_kubectl(*server_, {"create", "configmap", "plan", "--from-literal=a=hello"}).exit_code, 0);
  run_pod(
      "good", R"(echo "$(cat /etc/plan/a) $COLOUR $FROM_NODE $BOTH" > /dev/termination-log)",
      "    env:\n    - {name: COLOUR, valueFrom: {fieldRef: {fieldPath: \"metadata.labels['colour']\"}}}\n"
      "    - {name: BOTH, value: pod}\n    volumeMounts: [{name: plan, mountPath: /etc/plan}]\n",
      "  volumes: [{name: plan, configMap: {name: plan}}]\n");
  run_pod("bad", "echo said on the way; exit 3", "    terminationMessagePolicy: FallbackToLogsOnError\n");
  run_pod("silent", "echo said on the way; exit 4");
  run_pod("unknown-program", "true", "    workingDir: /no/such/folder\n");
  run_pod("without-map", "true", "    volumeMounts: [{name: plan, mountPath: /etc/plan}]\n",
          "  volumes: [{name: plan, configMap: {name: missing}}]\n");
  wait_for_phase("good", "Succeeded");
  EXPECT_EQ(ended("good", "message"), "hello blue 1 pod\n");
  EXPECT_EQ(ended("good", "exitCode"), "0");
  wait_for_phase("bad", "Failed");
  EXPECT_EQ(ended("bad", "message"), "said on the way\n");
  EXPECT_EQ(ended("bad", "exitCode"), "3");
  wait_for_phase("silent", "Failed");
  EXPECT_EQ(ended("silent", "message"), "");
  wait_for_phase("unknown-program", "Failed");
  wait_for_phase("without-map", "Failed");
  EXPECT_THAT(ended("without-map", "message"), HasSubstr("missing"));
}

TEST_F(NodeAgentTest, EndsProcessesOfDeletedPods) {
  run_pod("polite", "trap 'exit 0' TERM; while true; do sleep 0.05; done");
  run_pod("stubborn", "trap '' TERM; while true; do sleep 0.05; done");
  wait_for_phase("polite", "Running");
  wait_for_phase("stubborn", "Running");
  for (const char* pod : {"polite", "stubborn"}) {
    const CommandResult deleted =
        run_kubectl(*server_, {"delete", "pod", pod, "--grace-period=1"});  // waits for its end
    EXPECT_EQ(deleted.exit_code, 0) << deleted.errors;
  }
}

TEST_F(NodeAgentTest, LeavesNoProcessBehind) {
  const std::vector<pid_t> servers = children_of(getpid());
  run_pod("endless", "sleep 600 & wait");
  wait_for_phase("endless", "Running");
  std::vector<pid_t> started;
  for (const pid_t child : children_of(getpid())) {
    if (std::find(servers.begin(), servers.end(), child) == servers.end()) {
      started = children_of(child);  // the script's own
      started.push_back(child);
    }
  }
  EXPECT_GE(started.size(), 1U);
  agent_.reset();
  for (const pid_t process : started) {
    EXPECT_TRUE(wait_until_ended(process, kPatience)) << process;
  }
}

}  // namespace
}  // namespace plimsoll::testing
