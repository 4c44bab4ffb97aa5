// The operator's CA and token are exchanged while it runs, against a real API server.
#include <gmock/gmock.h>

#include <cstdio>
#include <thread>

#include "tests/controlplane/certificates.h"
#include "tests/e2e/training_stage.h"

namespace plimsoll::testing {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

class CredentialsTest : public TrainingTest {
 protected:
  ApiServerOptions server_options() const override { return {}; }

  std::string file(const std::string& name) const { return server_->directory() + "/" + name; }

  // As the kubelet exchanges files: at once.
  void write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(write_private_file(file(name) + ".new", text).ok());
    ASSERT_EQ(std::rename((file(name) + ".new").c_str(), file(name).c_str()), 0);
  }

  // A token that is good for as long as the Secret of that name is there.
  std::string token_bound_to(const std::string& secret) {
    must({"create", "secret", "generic", secret});
    std::string token = must({"create", "token", "plimsoll", "--duration=1h", "--bound-object-kind=Secret",
                              "--bound-object-name=" + secret})
                            .output;
    return token.substr(0, token.find_last_not_of("\n") + 1);
  }

  std::unique_ptr<PlimsollProcess> start_with_own_files() {
    must({"create", "serviceaccount", "plimsoll"});
    must({"create", "clusterrolebinding", "plimsoll", "--clusterrole=cluster-admin",
          "--serviceaccount=default:plimsoll"});
    const std::string text = read_file(server_->kubeconfig());
    const std::size_t begin = text.find("server: ") + 8;
    write("own-ca.crt", read_file(file("ca.crt")));
    write("own-token", token_bound_to("first") + "\n");
    write(
        "own-kubeconfig",
        "apiVersion: v1\nkind: Config\ncurrent-context: own\nclusters:\n- name: own\n  cluster: {server: \"" +
            text.substr(begin, text.find('\n', begin) - begin) +
            "\", certificate-authority: own-ca.crt}\nusers:\n- name: own\n  user: {tokenFile: own-token}\n"
            "contexts:\n- name: own\n  context: {cluster: own, user: own}\n");
    Result<std::unique_ptr<PlimsollProcess>> started = PlimsollProcess::start(
        "operator", {"--leader-elect=false"}, file("own-kubeconfig"), server_->directory());
    EXPECT_TRUE(started.ok()) << to_string(started.error());
    return started ? *std::move(started) : nullptr;
  }

  // The operator sees another node, and says so in the API.
  void expect_at_work(const std::string& when) {
    SCOPED_TRACE(when);
    add_node("a100-" + std::to_string(nodes_));
    ++nodes_;
    wait_for_gpus(8 * nodes_);
    EXPECT_TRUE(operator_->running());
  }

  int nodes_ = 0;
};

TEST_F(CredentialsTest, ANewCaOfTheServerIsTrustedWithoutARestart) {
  operator_ = start_with_own_files();
  ASSERT_NE(operator_, nullptr);
  ASSERT_NO_FATAL_FAILURE(expect_at_work("at first"));
  const std::string old_ca = read_file(file("ca.crt"));

  write("own-ca.crt", "-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n");
  ASSERT_TRUE(server_->restart(0ms).ok());
  ASSERT_NO_FATAL_FAILURE(expect_at_work("a malformed file does not replace a CA that is good"));

  const Result<std::string> new_ca = server_->renew_certificate();
  ASSERT_TRUE(new_ca.ok());
  ASSERT_TRUE(server_->restart(0ms).ok());
  std::this_thread::sleep_for(3s);
  EXPECT_TRUE(operator_->running());
  write("own-ca.crt", old_ca + *new_ca);
  ASSERT_NO_FATAL_FAILURE(expect_at_work("with the new CA"));
  EXPECT_THAT(operator_->log(), HasSubstr("Kept the previous CA"));
}

TEST_F(CredentialsTest, ATokenThatIsNoLongerGoodIsReadAnew) {
  operator_ = start_with_own_files();
  ASSERT_NE(operator_, nullptr);
  ASSERT_NO_FATAL_FAILURE(expect_at_work("at first"));
  const std::string next = token_bound_to("second");
  must({"delete", "secret", "first"});
  std::this_thread::sleep_for(12s);  // the API server remembers for ten seconds that a token is good
  add_node("a100-" + std::to_string(nodes_));
  ++nodes_;
  std::this_thread::sleep_for(3s);
  EXPECT_EQ(get("gpumodels.plimsoll.dev", "a100-80gb")["status"]["totalGPUs"].asInt(), 8) << operator_->log();
  EXPECT_TRUE(operator_->running());
  write("own-token", next);
  ASSERT_NO_FATAL_FAILURE(expect_at_work("with the new token"));
}

}  // namespace
}  // namespace plimsoll::testing
