#include "kube/credentials.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/testing/patience.h"

namespace plimsoll::kube {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds kEnough = testing::kPatience;
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

}  // namespace
}  // namespace plimsoll::kube
