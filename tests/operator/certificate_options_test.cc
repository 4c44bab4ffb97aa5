#include "operator/certificate_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kube/partial_client.h"
#include "tests/operator/parsed_options.h"

namespace plimsoll::process {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<std::optional<webhook::CertificateRotatorOptions>> read(const std::vector<std::string>& arguments) {
  return rotation_of(plimsoll::testing::parsed<CertificateOptions>(arguments));
}

std::string problem_with(const std::vector<std::string>& arguments) {
  const auto rotation = read(arguments);
  return rotation ? "" : rotation.error().message;
}

// The options that make a rotation, and more.
std::vector<std::string> secret_and(std::vector<std::string> more = {}) {
  more.insert(more.end(), {"--certificate-secret=ns/tls", "--certificate-names=webhook.ns.svc,127.0.0.1",
                           "--webhook-configuration=plimsoll"});
  return more;
}

TEST(CertificateOptions, ASecretIsKeptWithDefaultsThatFit) {
  const auto rotation = read(secret_and());
  ASSERT_TRUE(rotation.ok()) << rotation.error().message;
  ASSERT_TRUE(rotation->has_value());
  const webhook::CertificateRotatorOptions& options = **rotation;
  EXPECT_EQ(options.secret_namespace, "ns");
  EXPECT_EQ(options.secret_name, "tls");
  EXPECT_EQ(options.configuration, "plimsoll");
  EXPECT_THAT(options.policy.names, ElementsAre("webhook.ns.svc", "127.0.0.1"));
  EXPECT_EQ(options.policy.duration, 90 * 24h);
  EXPECT_EQ(options.policy.renew_before, 30 * 24h);
  EXPECT_EQ(options.policy.authority_duration, 5 * 365 * 24h);
  EXPECT_EQ(options.trust_delay, 5min);
}

TEST(CertificateOptions, TimesAreThoseGiven) {
  const auto rotation =
      read(secret_and({"--certificate-duration=1h", "--certificate-renew-before=30m",
                       "--certificate-authority-duration=100000h", "--certificate-trust-delay=1s"}));
  ASSERT_TRUE(rotation.ok()) << rotation.error().message;
  EXPECT_EQ((*rotation)->policy.duration, 1h);
  EXPECT_EQ((*rotation)->policy.renew_before, 30min);
  EXPECT_EQ((*rotation)->policy.authority_duration, 100'000h);
  EXPECT_EQ((*rotation)->trust_delay, 1s);
}

TEST(CertificateOptions, SayWhatIsWrong) {
  EXPECT_THAT(problem_with({}), HasSubstr("either --certificate-directory or --certificate-secret"));
  EXPECT_THAT(problem_with(secret_and({"--certificate-directory=tls"})), HasSubstr("either"));
  EXPECT_THAT(problem_with({"--certificate-directory=tls", "--webhook-configuration=plimsoll"}),
              HasSubstr("are for --certificate-secret"));
  for (const char* secret : {"tls", "/tls", "ns/", "a/b/c"}) {
    EXPECT_THAT(problem_with({std::string("--certificate-secret=") + secret}), HasSubstr("NAMESPACE/NAME"))
        << secret;
  }
  EXPECT_THAT(problem_with({"--certificate-secret=ns/tls"}), HasSubstr("needs --webhook-configuration"));
  EXPECT_THAT(problem_with({"--certificate-secret=ns/tls", "--webhook-configuration=plimsoll"}),
              HasSubstr("needs a name"));
  EXPECT_THAT(problem_with(secret_and({"--certificate-duration=soon"})),
              HasSubstr("--certificate-duration must be a duration"));
  EXPECT_THAT(problem_with(secret_and({"--certificate-trust-delay=1e99h"})),
              HasSubstr("--certificate-trust-delay"));
  EXPECT_THAT(problem_with(secret_and({"--certificate-renew-before=2160h"})),
              HasSubstr("renewed before it ends"));
  EXPECT_THAT(problem_with(secret_and({"--certificate-authority-duration=2160h"})), HasSubstr("three times"));
}

TEST(CertificateOptions, MakeTheSourceThatTheyName) {
  testing::PartialClient client;
  CertificateOptions directory;
  directory.directory = "/nonexistent";
  const auto files = make_certificates(directory, std::nullopt, client);
  EXPECT_NE(dynamic_cast<http::FileCertificateSource*>(files.get()), nullptr);
  const auto kept = make_certificates({}, *read(secret_and()), client);
  EXPECT_NE(dynamic_cast<webhook::CertificateRotator*>(kept.get()), nullptr);
  EXPECT_FALSE(kept->ready().ok());
}

}  // namespace
}  // namespace plimsoll::process
