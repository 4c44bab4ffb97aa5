#include "kube/exec_plugin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/testing/eventually.h"
#include "tests/testing/patience.h"

namespace plimsoll::kube {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using ::testing::AnyOf;
using testing::eventually;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr milliseconds kEnough = testing::kPatience;
constexpr const char* kVersion = "client.authentication.k8s.io/v1";

class ExecPluginTest : public ::testing::Test {
 protected:
  ExecPluginTest() {
    std::string name = (fs::temp_directory_path() / "exec_plugin_test_XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
  }
  ~ExecPluginTest() override { fs::remove_all(directory_); }

  ExecPlugin plugin(const std::string& script) const {
    const std::string path = directory_ + "/plugin";
    std::ofstream(path, std::ios::trunc) << "#!/bin/sh\n" << script;
    ::chmod(path.c_str(), 0755);
    return {path, {}, {}, kVersion, "install it so"};
  }
  std::string slurp(const std::string& name) const {
    std::ifstream file(directory_ + "/" + name);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string directory_;
};

std::string answer(const std::string& status) {
  return std::string("echo '{\"kind\":\"ExecCredential\",\"apiVersion\":\"") + kVersion + "\",\"status\":{" +
         status + "}}'\n";
}

TEST_F(ExecPluginTest, GivesThePluginItsArgumentsEnvironmentAndNoBlockedSignals) {
  ExecPlugin echo =
      plugin("echo \"$1|$WHO|$KUBERNETES_EXEC_INFO\" > " + directory_ + "/seen\n" +
             "grep SigBlk /proc/self/status >> " + directory_ + "/seen\n" + answer(R"("token":"t")"));
  echo.arguments = {"first argument"};
  echo.environment = {{"WHO", "me"}};
  sigset_t term;
  sigset_t before;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &term, &before);
  const Result<ExecCredential> credential = run_exec_plugin(echo, kEnough);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ASSERT_TRUE(credential) << to_string(credential.error());
  const std::string seen = slurp("seen");
  EXPECT_NE(seen.find("first argument|me|{\"apiVersion\":\"client.authentication.k8s.io/v1\""),
            std::string::npos)
      << seen;
  EXPECT_NE(seen.find("SigBlk:\t0000000000000000"), std::string::npos) << seen;
}

TEST_F(ExecPluginTest, APluginThatHangsIsKilledWithItsChildren) {
  milliseconds timeout(100);  // and more where the plugin does not get that far in it
  ASSERT_TRUE(eventually(
      "the plugin starts its child",
      [&] {
        timeout *= 2;
        const Result<ExecCredential> credential =
            run_exec_plugin(plugin("sleep 1000 & echo $! > " + directory_ + "/child\nwait\n"), timeout);
        EXPECT_EQ(credential.error().code, ErrorCode::kUnauthorized);
        EXPECT_THAT(credential.error().message, HasSubstr(std::to_string(timeout.count()) + " ms"));
        return slurp("child");
      },
      Not(IsEmpty())));
  const std::string child = slurp("child");
  // Its new parent may need a moment to reap it.
  EXPECT_TRUE(eventually(
      "the child has ended",
      [&] {
        std::ifstream status("/proc/" + std::to_string(std::stoi(child)) + "/stat");
        std::string pid;
        std::string name;
        std::string state;
        status >> pid >> name >> state;
        return state;
      },
      AnyOf("", "Z")));
}

TEST_F(ExecPluginTest, APluginThatClosesItsOutputAndHangsIsKilled) {
  const Result<ExecCredential> credential =
      run_exec_plugin(plugin(answer(R"("token":"t")") + "exec >&-\nsleep 1000\n"), milliseconds(500));
  ASSERT_FALSE(credential);
}

TEST_F(ExecPluginTest, BadPluginsAreErrorsWithTheInstallHint) {
  const std::pair<const char*, const char*> kBad[] = {
      {"exit 3\n", "exited with 3"},
      {"kill -9 $$\n", "signal 9"},
      {"echo hello\n", "no credential"},
      {"true\n", "no credential"},
      {"echo '{\"kind\":\"Other\"}'\n", "ExecCredential"},
      {"yes\n", "1 MiB"},
  };
  for (const auto& [script, expected] : kBad) {
    const Result<ExecCredential> credential = run_exec_plugin(plugin(script), kEnough);
    ASSERT_FALSE(credential) << script;
    EXPECT_NE(credential.error().message.find(expected), std::string::npos) << to_string(credential.error());
    EXPECT_NE(credential.error().message.find("install it so"), std::string::npos);
  }
  ExecPlugin missing{"no-such-program-anywhere", {}, {}, kVersion, "install it so"};
  EXPECT_FALSE(run_exec_plugin(missing, kEnough));
}

// 500,000 hours after the epoch is 2027-01-15T08:00:00Z.
TEST(ParseExecCredential, ReadsTokenCertificateAndTheMomentItExpires) {
  const Result<ExecCredential> credential = parse_exec_credential(
      R"({"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"t",)"
      R"("clientCertificateData":"c","clientKeyData":"k","expirationTimestamp":"2027-01-15T02:30:00-05:30"}})",
      kVersion);
  ASSERT_TRUE(credential) << to_string(credential.error());
  EXPECT_EQ(credential->token, "t");
  EXPECT_EQ(credential->client_certificate_pem, "c");
  EXPECT_EQ(credential->client_key_pem, "k");
  EXPECT_EQ(credential->expires, Clock::WallTime{} + std::chrono::hours(500'000));
  EXPECT_EQ(
      parse_exec_credential(R"({"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1",)"
                            R"("status":{"token":"t"}})",
                            kVersion)
          ->expires,
      std::nullopt)
      << "for as long as the process lives";
}

TEST(ParseExecCredential, RefusesWhatIsIncomplete) {
  const std::string head =
      R"({"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":)";
  for (const char* status :
       {"{}", R"({"token":""})", R"({"clientCertificateData":"c"})", R"({"token":"t","clientKeyData":"k"})",
        R"({"token":"t","expirationTimestamp":"tomorrow"})",
        R"({"token":"t","expirationTimestamp":"2027-01-15T09"})", R"({"token":5})", "null",
        R"({"token":"a\nb"})"}) {
    EXPECT_FALSE(parse_exec_credential(head + status + "}", kVersion)) << status;
  }
  EXPECT_TRUE(
      parse_exec_credential(head + R"({"clientCertificateData":"c","clientKeyData":"k"}})", kVersion));
  EXPECT_FALSE(parse_exec_credential(head + R"({"token":"t"}})", "client.authentication.k8s.io/v1beta1"));
}

}  // namespace
}  // namespace plimsoll::kube
