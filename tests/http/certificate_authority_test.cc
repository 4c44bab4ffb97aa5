#include "http/certificate_authority.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "http/certificate_source.h"

namespace plimsoll::http {
namespace {

using namespace std::chrono_literals;
using ::testing::SizeIs;

const Clock::WallTime kNow = *parse_time("2026-11-26T12:00:00Z");

KeyPair authority(const std::string& name = "an authority") {
  return *make_authority(name, {kNow - 1h, kNow + 1000h});
}

Result<KeyPair> issue(const KeyPair& from, const std::vector<std::string>& names) {
  return issue_certificate(from,
                           {.common_name = "a server", .names = names, .validity = {kNow - 1h, kNow + 10h}});
}

// tests/controlplane/certificates_test.cc has the openssl program judge them.
TEST(CertificateAuthority, IssuesWhatAServerTakes) {
  const KeyPair from = authority();
  const KeyPair pair = *issue(from, {"webhook.ns.svc", "127.0.0.1"});
  const auto made = make_server_certificate(pair.certificate_pem, pair.key_pem, from.certificate_pem, kNow);
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(made->not_after, kNow + 10h);
  EXPECT_FALSE(
      make_server_certificate(pair.certificate_pem, pair.key_pem, authority().certificate_pem, kNow).ok());
}

TEST(CertificateAuthority, TwoOfOneNameAreToldApart) {
  const KeyPair old_one = authority("the same");
  const KeyPair new_one = authority("the same");
  const std::string both = new_one.certificate_pem + old_one.certificate_pem;
  for (const KeyPair& signer : {old_one, new_one}) {
    const KeyPair pair = *issue(signer, {"localhost"});
    EXPECT_TRUE(make_server_certificate(pair.certificate_pem, pair.key_pem, both, kNow).ok());
  }
}

TEST(CertificateAuthority, NamesAreThoseAskedFor) {
  const KeyPair pair = *issue(authority(), {"webhook.ns.svc", "127.0.0.1", "::1"});
  for (const char* name : {"webhook.ns.svc", "WEBHOOK.ns.svc", "127.0.0.1", "::1"}) {
    EXPECT_TRUE(names_host(pair.certificate_pem, name)) << name;
  }
  for (const char* name : {"webhook.other.svc", "ns.svc", "127.0.0.2", "::2", ""}) {
    EXPECT_FALSE(names_host(pair.certificate_pem, name)) << name;
  }
  EXPECT_FALSE(names_host("garbage", "localhost"));
}

TEST(CertificateAuthority, RefusesNamesThatOpenSslWouldReadAsMore) {
  const KeyPair from = authority();
  for (const char* name : {"", "a,DNS:other", "a b", "a\nb", "email:x", "ä"}) {
    EXPECT_FALSE(is_server_name(name)) << name;
  }
  for (const char* name : {"localhost", "*.ns.svc", "127.0.0.1", "::1"}) {
    EXPECT_TRUE(is_server_name(name)) << name;
  }
  EXPECT_FALSE(issue(from, {"a,DNS:other"}).ok());
  EXPECT_FALSE(issue(from, {}).ok());
  EXPECT_FALSE(make_authority(std::string(65, 'x'), {kNow, kNow + 1h}).ok());
  EXPECT_FALSE(issue({"garbage", "garbage"}, {"localhost"}).ok());
}

TEST(CertificateAuthority, ReadsEachCertificateOfAText) {
  const KeyPair first = authority("first");
  const KeyPair second = authority("second");
  const std::string malformed = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
  const auto read = read_certificates("words\n" + first.certificate_pem + malformed + first.key_pem +
                                      second.certificate_pem + "-----BEGIN CERTIFICATE-----\nMII");
  ASSERT_THAT(read, SizeIs(2));
  EXPECT_EQ(read[0].pem, first.certificate_pem);
  EXPECT_EQ(read[1].pem, second.certificate_pem);
  EXPECT_EQ(read[0].validity, (Validity{kNow - 1h, kNow + 1000h}));
  EXPECT_THAT(read_certificates(""), SizeIs(0));
}

TEST(CertificateAuthority, KnowsWhoseKeyItIs) {
  const KeyPair pair = authority();
  EXPECT_TRUE(is_key_of(pair.key_pem, pair.certificate_pem));
  EXPECT_FALSE(is_key_of(authority().key_pem, pair.certificate_pem));
  EXPECT_FALSE(is_key_of("", pair.certificate_pem));
  EXPECT_FALSE(is_key_of(pair.key_pem, ""));
}

}  // namespace
}  // namespace plimsoll::http
