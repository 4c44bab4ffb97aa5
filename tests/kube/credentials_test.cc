#include "kube/credentials.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "kube/exec_plugin.h"

namespace plimsoll::kube {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds kEnough{20'000};
constexpr const char* kVersion = "client.authentication.k8s.io/v1";

class ManualClock final : public Clock {
 public:
  WallTime wall_now() const override { return WallTime{} + std::chrono::hours(500'000) + passed; }
  SteadyTime steady_now() const override { return SteadyTime{} + passed; }
  std::chrono::seconds passed{0};
};

class CredentialsTest : public ::testing::Test {
 protected:
  CredentialsTest() {
    std::string name = (fs::temp_directory_path() / "credentials_test_XXXXXX").string();
    directory_ = ::mkdtemp(name.data());
  }
  ~CredentialsTest() override { fs::remove_all(directory_); }

  std::string write(const std::string& name, const std::string& text, bool executable = false) const {
    const std::string path = directory_ + "/" + name;
    std::ofstream(path, std::ios::trunc) << text;
    if (executable) {
      ::chmod(path.c_str(), 0755);
    }
    return path;
  }
  ExecPlugin plugin(const std::string& script) const {
    return {write("plugin", "#!/bin/sh\n" + script, true), {}, {}, kVersion, "install it so"};
  }
  std::string slurp(const std::string& name) const {
    std::ifstream file(directory_ + "/" + name);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string directory_;
  ManualClock clock_;
};

std::string answer(const std::string& status) {
  return std::string("echo '{\"kind\":\"ExecCredential\",\"apiVersion\":\"") + kVersion + "\",\"status\":{" +
         status + "}}'\n";
}

TEST_F(CredentialsTest, RereadsATokenFileEveryMinute) {
  ClientConfig config;
  config.token_file = write("token", "one\n");
  const auto source = make_credential_source(config, clock_);
  EXPECT_EQ(source->current(kEnough)->token, "one");
  write("token", "two");
  EXPECT_EQ(source->current(kEnough)->token, "one");
  clock_.passed = std::chrono::seconds(61);
  EXPECT_EQ(source->current(kEnough)->token, "two");
}

TEST_F(CredentialsTest, RereadsATokenFileAtOnceAfterARefusal) {
  ClientConfig config;
  config.token_file = write("token", "one");
  const auto source = make_credential_source(config, clock_);
  EXPECT_EQ(source->current(kEnough)->token, "one");
  write("token", "two");
  EXPECT_TRUE(source->refresh());
  EXPECT_EQ(source->current(kEnough)->token, "two");
}

TEST_F(CredentialsTest, KeepsTheLastTokenWhileTheFileIsAwayOrBroken) {
  ClientConfig config;
  config.token_file = write("token", "one");
  const auto source = make_credential_source(config, clock_);
  EXPECT_EQ(source->current(kEnough)->token, "one");
  source->refresh();
  write("token", "a\nb");
  EXPECT_EQ(source->current(kEnough)->token, "one");
  fs::remove(config.token_file);
  EXPECT_EQ(source->current(kEnough)->token, "one");
}

TEST_F(CredentialsTest, AMissingTokenFileIsAnErrorAtFirst) {
  ClientConfig config;
  config.token_file = directory_ + "/none";
  Result<Credential> credential = make_credential_source(config, clock_)->current(kEnough);
  ASSERT_FALSE(credential);
  EXPECT_EQ(credential.error().code, ErrorCode::kNotFound);
}

TEST_F(CredentialsTest, AFixedTokenCannotBeRefreshed) {
  ClientConfig config;
  config.token = "t";
  const auto source = make_credential_source(config, clock_);
  EXPECT_EQ(source->current(kEnough)->token, "t");
  EXPECT_FALSE(source->refresh());
}

TEST_F(CredentialsTest, RunsThePluginOnceUntilItsCredentialExpires) {
  ClientConfig config;
  // 500,000 hours after the epoch is 2027-01-15T08:00:00Z.
  config.exec = plugin("echo x >> " + directory_ + "/runs\n" +
                       answer(R"("token":"t","expirationTimestamp":"2027-01-15T09:05:00.5+01:00")"));
  const auto source = make_credential_source(config, clock_);
  for (int i = 0; i < 3; ++i) {
    Result<Credential> credential = source->current(kEnough);
    ASSERT_TRUE(credential) << to_string(credential.error());
    EXPECT_EQ(credential->token, "t");
  }
  EXPECT_EQ(slurp("runs"), "x\n");
  clock_.passed = std::chrono::seconds(291);  // five minutes but a margin of ten seconds
  ASSERT_TRUE(source->current(kEnough));
  EXPECT_EQ(slurp("runs"), "x\nx\n");
  EXPECT_TRUE(source->refresh());
  clock_.passed = std::chrono::seconds(0);
  ASSERT_TRUE(source->current(kEnough));
  EXPECT_EQ(slurp("runs"), "x\nx\nx\n");
}

TEST_F(CredentialsTest, GivesThePluginItsArgumentsEnvironmentAndNoBlockedSignals) {
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

TEST_F(CredentialsTest, APluginThatHangsIsKilledWithItsChildren) {
  const auto began = std::chrono::steady_clock::now();
  const Result<ExecCredential> credential =
      run_exec_plugin(plugin("sleep 1000 & echo $! > " + directory_ + "/child\nwait\n"), milliseconds(500));
  ASSERT_FALSE(credential);
  EXPECT_EQ(credential.error().code, ErrorCode::kUnauthorized);
  EXPECT_NE(credential.error().message.find("500 ms"), std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(15));
  const int child = std::stoi(slurp("child"));
  // Its new parent may need a moment to reap it.
  for (int i = 0; i < 100 && ::kill(child, 0) == 0; ++i) {
    const std::string state = [&] {
      std::ifstream status("/proc/" + std::to_string(child) + "/stat");
      std::string pid;
      std::string name;
      std::string letter;
      status >> pid >> name >> letter;
      return letter;
    }();
    if (state == "Z") {
      return;
    }
    ::usleep(50'000);
  }
  EXPECT_NE(::kill(child, 0), 0);
}

TEST_F(CredentialsTest, APluginThatClosesItsOutputAndHangsIsKilled) {
  const Result<ExecCredential> credential =
      run_exec_plugin(plugin(answer(R"("token":"t")") + "exec >&-\nsleep 1000\n"), milliseconds(500));
  ASSERT_FALSE(credential);
}

TEST_F(CredentialsTest, BadPluginsAreErrorsWithTheInstallHint) {
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
