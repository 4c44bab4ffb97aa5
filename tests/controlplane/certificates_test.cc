#include "tests/controlplane/certificates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/controlplane/api_server.h"
#include "tests/controlplane/scratch_directory.h"

namespace plimsoll::testing {
namespace {

using ::testing::HasSubstr;

class CertificatesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<ScratchDirectory>> scratch = ScratchDirectory::create();
    ASSERT_TRUE(scratch.ok());
    scratch_ = *std::move(scratch);
    const Result<CertificateAuthority> authority = CertificateAuthority::create("an authority");
    ASSERT_TRUE(authority.ok()) << to_string(authority.error());
    const Result<KeyPair> pair = authority->issue("a server", {"localhost", "127.0.0.1", "::1"});
    ASSERT_TRUE(pair.ok()) << to_string(pair.error());
    ASSERT_TRUE(write_private_file(scratch_->file("ca.crt"), authority->certificate_pem()).ok());
    ASSERT_TRUE(write_private_file(scratch_->file("tls.crt"), pair->certificate_pem).ok());
    ASSERT_TRUE(write_private_file(scratch_->file("tls.key"), pair->key_pem).ok());
  }

  CommandResult openssl(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "openssl");
    return run_command(arguments);
  }

  std::unique_ptr<ScratchDirectory> scratch_;
};

// The openssl program is the judge, not the library calls that made them.
TEST_F(CertificatesTest, VerifyForTheirNamesAndAddresses) {
  for (const std::vector<std::string>& name : {std::vector<std::string>{"-verify_hostname", "localhost"},
                                               {"-verify_ip", "127.0.0.1"},
                                               {"-verify_ip", "::1"}}) {
    const CommandResult verdict =
        openssl({"verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", scratch_->file("ca.crt"),
                 name[0], name[1], scratch_->file("tls.crt")});
    EXPECT_EQ(verdict.exit_code, 0) << verdict.output << verdict.errors;
  }
  const CommandResult other = openssl({"verify", "-CAfile", scratch_->file("ca.crt"), "-verify_hostname",
                                       "example.com", scratch_->file("tls.crt")});
  EXPECT_NE(other.exit_code, 0);
}

TEST_F(CertificatesTest, KeyFitsTheCertificate) {
  const CommandResult from_key = openssl({"pkey", "-in", scratch_->file("tls.key"), "-pubout"});
  const CommandResult from_certificate =
      openssl({"x509", "-in", scratch_->file("tls.crt"), "-noout", "-pubkey"});
  EXPECT_EQ(from_key.exit_code, 0) << from_key.errors;
  EXPECT_EQ(from_key.output, from_certificate.output);
  EXPECT_THAT(from_key.output, HasSubstr("BEGIN PUBLIC KEY"));
}

TEST_F(CertificatesTest, KeysAreForTheirOwnerOnly) {
  struct stat status {};
  ASSERT_EQ(stat(scratch_->file("tls.key").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
}

TEST(RandomHex, IsLongAndDiffers) {
  EXPECT_EQ(random_hex(16).size(), 32U);
  EXPECT_NE(random_hex(16), random_hex(16));
}

TEST(WritePrivateFile, SaysWhichFileCannotBeWritten) {
  const Result<void> written = write_private_file("/no/such/folder/file", "text");
  ASSERT_FALSE(written.ok());
  EXPECT_THAT(written.error().message, HasSubstr("/no/such/folder/file"));
}

}  // namespace
}  // namespace plimsoll::testing
