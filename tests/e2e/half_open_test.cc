// Connections that are open and say nothing any more (a firewall that forgot them), under the whole operator.
#include <gmock/gmock.h>

#include <thread>

#include "tests/controlplane/certificates.h"
#include "tests/e2e/training_stage.h"
#include "tests/kube/fault_proxy.h"

namespace plimsoll::testing {
namespace {

using ::testing::IsEmpty;
using namespace std::chrono_literals;

class HalfOpenTest : public TrainingTest {};

// Bookmarks come every minute, and a watch that is silent for two is dead (kube/client.h).
TEST_F(HalfOpenTest, TheOperatorComesBackByItself) {
  for (int i = 0; i < 2; ++i) {
    add_node("a100-" + std::to_string(i));
  }
  const std::string text = read_file(server_->kubeconfig());
  const std::size_t colon = text.find("127.0.0.1:") + 10;
  const std::string port = text.substr(colon, text.find('\n', colon) - colon);
  FaultProxy proxy(std::stoi(port), 1);
  std::string through = text;
  through.replace(colon, port.size(), std::to_string(proxy.port()));
  const std::string kubeconfig = server_->directory() + "/through-proxy";
  ASSERT_TRUE(write_private_file(kubeconfig, through).ok());
  Result<std::unique_ptr<PlimsollProcess>> started =
      PlimsollProcess::start("operator", {"--leader-elect=false"}, kubeconfig, server_->directory());
  ASSERT_TRUE(started.ok()) << to_string(started.error());
  operator_ = *std::move(started);
  ASSERT_NO_FATAL_FAILURE(wait_for_gpus(16));
  JobWatch watch(server_->make_client());
  must({"create", "-f", "-"},
       TrainingJobManifest{.name = "before", .annotations = {{"run-for", "1s"}}}.text());
  EXPECT_TRUE(is_true(wait_for_end("before"), "Succeeded")) << story("before");

  proxy.set({.stall = 1});  // whatever passes now ends its connection without a word
  // Something passes on each watch.
  const auto touch = [&](const kube::Resource& resource, const std::string& name_space,
                         const std::string& name, int round) {
    Json patch(::Json::objectValue);
    patch["metadata"]["annotations"]["test.plimsoll.dev/round"] = std::to_string(round);
    const Result<Json> touched = client_->patch(resource, name_space, name, kube::PatchType::kMerge, patch);
    EXPECT_TRUE(touched.ok()) << to_string(touched.error());
  };
  for (int i = 0; i < 20; ++i) {
    touch({"plimsoll.dev", "v1alpha1", "trainingjobs", true}, "default", "before", i);
    touch({"batch", "v1", "jobs", true}, "default", "before-0", i);
    touch({"", "v1", "nodes", false}, "", "a100-0", i);
    std::this_thread::sleep_for(100ms);
  }
  EXPECT_GT(proxy.counts().stalls, 2);
  proxy.set({});
  must({"create", "-f", "-"},
       TrainingJobManifest{.name = "after", .annotations = {{"run-for", "1s"}}}.text());
  const Json job = wait_for_end("after", 240s);
  EXPECT_TRUE(is_true(job, "Succeeded")) << story("after");
  EXPECT_TRUE(operator_->running());
  EXPECT_THAT(watch.made_twice(), IsEmpty());
}

}  // namespace
}  // namespace plimsoll::testing
