#include "http/certificate_source.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/http/test_certificates.h"
#include "tests/testing/eventually.h"

namespace plimsoll::http {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using testing::eventually;
using ::testing::HasSubstr;
using testing::KeyPair;
using ::testing::NotNull;

Clock::WallTime now() {
  return system_clock().wall_now();
}

std::string ca() {
  return testing::test_authority().certificate_pem();
}

// A directory as a Secret is mounted: the files are links into a folder that is swapped as a whole.
class MountedSecret {
 public:
  MountedSecret() {
    std::string pattern = (fs::temp_directory_path() / "plimsoll-secret-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~MountedSecret() { fs::remove_all(path_); }
  MountedSecret(const MountedSecret&) = delete;
  MountedSecret& operator=(const MountedSecret&) = delete;

  const std::string& path() const { return path_; }

  // Swaps all files at once, as the kubelet does.
  void mount(const KeyPair& pair, const std::string& authority = ca()) {
    const fs::path root(path_);
    const std::string folder = "..version" + std::to_string(++version_);
    fs::create_directory(root / folder);
    write(root / folder / "tls.crt", pair.certificate_pem);
    write(root / folder / "tls.key", pair.key_pem);
    write(root / folder / "ca.crt", authority);
    fs::create_directory_symlink(folder, root / "..data_tmp");
    fs::rename(root / "..data_tmp", root / "..data");
    for (const char* name : {"tls.crt", "tls.key", "ca.crt"}) {
      if (!fs::exists(fs::symlink_status(root / name))) {
        fs::create_symlink(fs::path("..data") / name, root / name);
      }
    }
  }

  static void write(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }

 private:
  std::string path_;
  int version_ = 0;
};

// The source with its poll as the caller wants it, started.
std::unique_ptr<FileCertificateSource> started(const std::string& directory,
                                               std::chrono::milliseconds poll = 10s) {
  auto source = std::make_unique<FileCertificateSource>(
      FileCertificateOptions{.directory = directory, .poll = poll, .clock = &system_clock()});
  EXPECT_TRUE(source->start().ok());
  return source;
}

std::string problem_with(const std::string& chain, const std::string& key, const std::string& authority = {},
                         Clock::WallTime when = now()) {
  const Result<ServerCertificate> made = make_server_certificate(chain, key, authority, when);
  return made ? "" : made.error().message;
}

TEST(ServerCertificate, TakesAGoodPair) {
  const KeyPair pair = testing::new_server_pair();
  const Result<ServerCertificate> made =
      make_server_certificate(pair.certificate_pem, pair.key_pem, ca(), now());
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_GT(made->not_after, now() + 1h);
  EXPECT_EQ(problem_with(pair.certificate_pem + ca(), pair.key_pem),
            "");  // a chain, and no authority to check
}

TEST(ServerCertificate, SaysWhatIsWrong) {
  const KeyPair pair = testing::new_server_pair();
  const KeyPair other = testing::new_server_pair();
  const auto contains = [](const std::string& text, const char* part) {
    return text.find(part) != text.npos;
  };
  EXPECT_TRUE(contains(problem_with("", pair.key_pem), "tls.crt"));
  EXPECT_TRUE(contains(problem_with("garbage", pair.key_pem), "tls.crt"));
  EXPECT_TRUE(contains(problem_with(pair.key_pem, pair.key_pem), "tls.crt"));
  EXPECT_TRUE(contains(problem_with(pair.certificate_pem, ""), "tls.key"));
  EXPECT_TRUE(contains(problem_with(pair.certificate_pem, pair.certificate_pem), "tls.key"));
  EXPECT_TRUE(contains(problem_with(pair.certificate_pem, other.key_pem), "does not belong"));
  EXPECT_TRUE(contains(problem_with(pair.certificate_pem, pair.key_pem, {}, now() + 24h * 400), "expired"));
  EXPECT_TRUE(
      contains(problem_with(pair.certificate_pem, pair.key_pem, {}, now() - 24h * 400), "valid only from"));
  EXPECT_TRUE(contains(problem_with(pair.certificate_pem, pair.key_pem, "garbage"), "ca.crt"));
  const testing::CertificateAuthority stranger = *testing::CertificateAuthority::create("stranger");
  EXPECT_TRUE(
      contains(problem_with(pair.certificate_pem, pair.key_pem, stranger.certificate_pem()), "ca.crt"));
}

TEST(FileCertificateSource, LoadsAndFollowsAMountedSecret) {
  MountedSecret secret;
  secret.mount(testing::new_server_pair());
  const auto source = started(secret.path());
  const auto first = source->current();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(source->status().loads, 1U);
  EXPECT_TRUE(source->status().not_after.has_value());
  for (std::uint64_t swap = 2; swap < 6; ++swap) {
    secret.mount(testing::new_server_pair());
    EXPECT_TRUE(eventually(
        "the new pair is loaded", [&] { return source->status().loads; }, swap));
  }
  EXPECT_NE(source->current(), first);
  source->stop();
  source->stop();
}

TEST(FileCertificateSource, KeepsTheOldOneWhenTheNewOneIsBad) {
  MountedSecret secret;
  secret.mount(testing::new_server_pair());
  const auto source = started(secret.path());
  const auto good = source->current();
  ASSERT_NE(good, nullptr);

  secret.mount({testing::new_server_pair().certificate_pem, testing::new_server_pair().key_pem});
  EXPECT_TRUE(eventually("the bad pair is refused", [&] { return source->status().failures > 0; }));
  EXPECT_EQ(source->current(), good);
  EXPECT_NE(source->status().problem.find("does not belong"), std::string::npos);

  secret.mount({"", ""});
  EXPECT_TRUE(eventually(
      "the empty files are refused", [&] { return source->status().problem; }, HasSubstr("empty")));
  EXPECT_EQ(source->current(), good);

  secret.mount(testing::new_server_pair());
  EXPECT_TRUE(eventually(
      "the good pair is loaded", [&] { return source->status().loads; }, 2U));
  EXPECT_NE(source->current(), good);
  EXPECT_EQ(source->status().problem, "");
}

TEST(FileCertificateSource, WaitsForFilesThatComeLater) {
  MountedSecret secret;
  const auto source = started(secret.path());
  EXPECT_EQ(source->current(), nullptr);
  EXPECT_FALSE(source->status().not_after.has_value());
  EXPECT_FALSE(source->status().problem.empty());
  secret.mount(testing::new_server_pair());
  EXPECT_TRUE(eventually(
      "the files are loaded", [&] { return source->current(); }, NotNull()));
}

TEST(FileCertificateSource, WaitsForADirectoryThatComesLater) {
  MountedSecret secret;
  const std::string directory = secret.path() + "/later";
  const auto source = started(directory, 20ms);
  EXPECT_EQ(source->current(), nullptr);
  fs::create_directory(directory);
  const KeyPair pair = testing::new_server_pair();
  MountedSecret::write(directory + "/tls.crt", pair.certificate_pem);
  MountedSecret::write(directory + "/tls.key", pair.key_pem);
  EXPECT_TRUE(eventually(
      "the files are loaded", [&] { return source->current(); }, NotNull()))
      << source->status().problem;
}

TEST(FileCertificateSource, FilesWrittenOneAfterTheOtherEndAsAPair) {
  MountedSecret secret;
  const std::string directory = secret.path();
  const auto source = started(directory);
  for (std::uint64_t round = 1; round < 4; ++round) {
    const KeyPair pair = testing::new_server_pair();
    const std::uint64_t failures = source->status().failures;
    MountedSecret::write(directory + "/tls.crt", pair.certificate_pem);
    EXPECT_TRUE(eventually("the certificate without its key is refused",
                           [&] { return source->status().failures > failures; }));
    MountedSecret::write(directory + "/tls.key", pair.key_pem);
    EXPECT_TRUE(eventually(
        "the pair is loaded", [&] { return source->status().loads; }, round))
        << source->status().problem;
  }
}

TEST(FileCertificateSource, RefusesAFileTooLargeToBeACertificate) {
  MountedSecret secret;
  secret.mount({std::string(2 << 20, 'x'), "key"});
  const auto source = started(secret.path());
  EXPECT_EQ(source->current(), nullptr);
  EXPECT_NE(source->status().problem.find("larger"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll::http
