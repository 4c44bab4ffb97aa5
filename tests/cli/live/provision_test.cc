// `plimsoll provision` without --cluster: the program asks an API server, as kubectl would.
#include <gmock/gmock.h>

#include "base/yaml.h"
#include "cli/input.h"
#include "tests/checkout.h"
#include "tests/cli/run_command.h"
#include "tests/cli/temporary_file.h"
#include "tests/controlplane/api_server.h"

namespace plimsoll::testing {
namespace {

using ::testing::HasSubstr;

const kube::Resource kNodes{.group = "", .version = "v1", .plural = "nodes", .namespaced = false};
const kube::Resource kPods{.group = "", .version = "v1", .plural = "pods"};
const kube::Resource kConfigMaps{.group = "", .version = "v1", .plural = "configmaps"};
const kube::Resource kNamespaces{.group = "", .version = "v1", .plural = "namespaces", .namespaced = false};
const kube::Resource kCrds{.group = "apiextensions.k8s.io",
                           .version = "v1",
                           .plural = "customresourcedefinitions",
                           .namespaced = false};

class LiveProvision : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    server_ = start_api_server(ApiServerKind::kFake, {}, &why);
    ASSERT_NE(server_, nullptr) << why;
    client_ = server_->make_client();
    create_yaml(kNamespaces, "", "apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n");
    const Result<std::vector<Json>> cluster = parse_yaml_documents(kCluster);
    for (const Json& node : cluster->front()["items"]) {
      create(kNodes, "", node);
    }
  }

  void create(const kube::Resource& resource, const std::string& space, const Json& object) {
    const Result<Json> created = client_->create(resource, space, object);
    EXPECT_TRUE(created.ok()) << created.error().message;
  }
  void create_yaml(const kube::Resource& resource, const std::string& space, const std::string& yaml) {
    create(resource, space, parse_yaml_documents(yaml)->front());
  }

  Outcome provision(const std::string& job) const {
    const TemporaryFile file(job);
    const CommandResult result = run_command({PLIMSOLL_BINARY, "provision", "-f", file.path(), "-o", "json",
                                              "--kubeconfig", server_->kubeconfig()});
    return {result.exit_code, result.output, result.errors};
  }

  std::unique_ptr<ApiServer> server_;
  std::unique_ptr<kube::Client> client_;
};

TEST_F(LiveProvision, WorksBeforePlimsollIsInstalled) {
  const Outcome outcome = provision(kJob);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.json()["decision"]["gpuModel"].asString(), "A100-80GB");
}

TEST_F(LiveProvision, ReadsPodsConfigMapsAndWhatWasLearned) {
  for (const char* crd : {"gpumodels", "memoryprofiles", "trainingjobs"}) {
    cli::Console console{std::cin, std::cout, std::cerr};
    const auto documents =
        cli::read_documents({source_file(std::string("crds/plimsoll.dev_") + crd + ".yaml")}, console);
    ASSERT_TRUE(documents.ok());
    create(kCrds, "", documents->front().object);
  }
  create_yaml(
      kPods, "team",
      "apiVersion: v1\nkind: Pod\nmetadata: {name: busy}\nspec: {nodeName: n0, containers: [{name: c, "
      "image: i, "
      "resources: {limits: {nvidia.com/gpu: '8'}}}]}\nstatus: {phase: Running}\n");
  create_yaml(kConfigMaps, "team",
              "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: tables}\ndata: {tables.csv: "
              "\"more,2097152,128,1\\n\"}\n");
  std::string job = kJob;
  job.insert(job.find("      tables:"),
             "      tablesFrom: {configMapKeyRef: {name: tables, key: tables.csv}}\n");
  job.replace(job.find("count: 400"), 10, "count: 900");
  const Outcome outcome = provision(job);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.json()["decision"]["sharding"]["tables"].asInt64(), 901);
  EXPECT_EQ(outcome.json()["decision"]["trainers"].asInt64(), 16);
  EXPECT_THAT(outcome.err, HasSubstr("only 8 of the cluster's 16"));
}

TEST_F(LiveProvision, AMissingConfigMapIsTold) {
  std::string job = kJob;
  job.insert(job.find("      tables:"), "      tablesFrom: {configMapKeyRef: {name: nowhere, key: k}}\n");
  const Outcome outcome = provision(job);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("nowhere"));
}

TEST_F(LiveProvision, AServerThatIsGoneIsTold) {
  const TemporaryFile kubeconfig(R"(apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
)");
  const TemporaryFile file(kJob);
  const CommandResult result =
      run_command({PLIMSOLL_BINARY, "provision", "-f", file.path(), "--kubeconfig", kubeconfig.path()});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.errors, HasSubstr("127.0.0.1:1"));
}

}  // namespace
}  // namespace plimsoll::testing
